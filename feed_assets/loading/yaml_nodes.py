"""Parse YAML text into plain values with the position of each.

Built on PyYAML's events, so no object is ever constructed. Tags are refused, keys are text and unique, aliases and
depth are bounded. A plain scalar becomes a number or truth value only if writing that value gives the same text again
(`8`, `true`). Everything else stays as written (`0755`, `1.10`, `yes`, dates).
"""

from collections.abc import Iterator, Mapping
from typing import TypeAlias, cast

import yaml

from feed_assets.issues import FieldPath
from feed_assets.loading.documents import PlainDocument, Problem

MAX_DEPTH = 40
MAX_VALUES = 50_000
"""Values in one document, with aliases expanded."""
MAX_EVENTS = 250_000
"""YAML events in one file: keys, values and other marks."""
MAX_CHARACTERS = 65_536
"""Characters in one key or value."""
MAX_PROBLEMS = 100
"""Mistakes reported for one file."""
_MAX_DIRECTIVES = 100

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Node: TypeAlias = yaml.ScalarEvent | yaml.SequenceStartEvent | yaml.MappingStartEvent
_MERGE = "<<"
_PLAIN = (None, "")
_NULLS = frozenset({"", "~", "null"})
_LONGEST_NUMBER = 40
_ONE_KEY = "Keep one of them."
_NAMING_KEYS = frozenset({"kind", "name"})
_TRUTH = {"true": True, "false": False}


def iter_documents(text: str) -> Iterator[PlainDocument]:
    """Yield the documents of a text, in order. A syntax error or an exceeded limit ends the iteration."""
    composer = _Composer(text)
    while (document := composer.next_document()) is not None:
        yield document


class _TooMuchError(Exception):
    """The document is abandoned; its problem has already been recorded."""


class _Composer:
    def __init__(self, text: str) -> None:
        self._text = text
        self._has_directives = text.count("\n%") > _MAX_DIRECTIVES  # libyaml takes quadratic time for directives
        self._loader = _Loader("" if self._has_directives else text)
        self._document = PlainDocument(line=1)
        self._anchors: dict[str, tuple[object, int]] = {}
        self._open_anchors: set[str] = set()
        self._count = 0
        self._events = 0
        self._problems = 0
        self._is_broken = False

    def next_document(self) -> PlainDocument | None:
        if self._is_broken:
            return None
        self._anchors, self._open_anchors, self._count = {}, set(), 0
        self._document = PlainDocument(line=1)
        if self._has_directives:
            self._stop(1, 1, f"more than {_MAX_DIRECTIVES} lines begin with %", "Remove directives.")
            return self._document
        try:
            return self._compose_document()
        except _TooMuchError:
            self._document.value = None
            return self._document
        except (yaml.MarkedYAMLError, yaml.reader.ReaderError) as exc:
            self._is_broken = True
            self._note_syntax(exc)
            self._document.readable = self._read_above(exc)
            return self._document

    def _compose_document(self) -> PlainDocument | None:
        while not isinstance(event := self._next(), yaml.DocumentStartEvent):
            if isinstance(event, yaml.StreamEndEvent):
                return None
        first = self._next()
        self._document.positions[()] = _position(first)
        self._document.line = self._document.positions[()][0]
        try:
            self._document.value = self._value(first, (), 0)
        except _TooMuchError:
            while not self._is_broken and not isinstance(event, yaml.DocumentEndEvent):
                event = self._next()
        return self._document

    def _next(self) -> yaml.Event:
        event: yaml.Event = self._loader.get_event()
        self._events += 1
        if self._events > MAX_EVENTS:
            line, column = _position(event)
            self._stop(line, column, f"the file contains more than {MAX_EVENTS:,} keys and values", "Split the file.")
            raise _TooMuchError
        return event

    def _value(self, event: yaml.Event, path: FieldPath, depth: int) -> object:
        self._count += 1
        if self._count > MAX_VALUES or depth > MAX_DEPTH:
            self._give_up(event, depth)
        if isinstance(event, yaml.AliasEvent):
            return self._aliased(event)
        node = cast(_Node, event)
        anchor = node.anchor
        before = self._count
        if anchor is not None:
            self._open_anchors.add(anchor)
        if node.tag is not None and node.tag != "!":
            remedy = "Remove the tag; quote text that looks like a number." if depth else "Remove the tag."
            self._note("yaml-tag", f"the tag {node.tag!r} is not allowed", remedy, event)
        value = self._untagged(node, path, depth)
        if anchor is not None:
            self._open_anchors.discard(anchor)
            self._anchors[anchor] = (value, self._count - before + 1)
        return value

    def _untagged(self, event: _Node, path: FieldPath, depth: int) -> object:
        if isinstance(event, yaml.ScalarEvent):
            if len(event.value) > MAX_CHARACTERS:
                message = f"the value has more than {MAX_CHARACTERS:,} characters"
                self._note("yaml-too-big", message, "Put it into a file, and name that.", event)
                return None
            return parse_scalar(event.value) if event.style in _PLAIN else event.value
        if isinstance(event, yaml.SequenceStartEvent):
            return list(self._items(path, depth))
        return self._mapping(path, depth)

    def _items(self, path: FieldPath, depth: int) -> Iterator[object]:
        position = 0
        while not isinstance(event := self._next(), yaml.SequenceEndEvent):
            self._document.positions[(*path, position)] = _position(event)
            yield self._value(event, (*path, position), depth + 1)
            position += 1

    def _mapping(self, path: FieldPath, depth: int) -> dict[str, object]:
        values: dict[str, object] = {}
        merged: list[tuple[object, yaml.Event]] = []
        again: dict[str, int] = {}
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            key = self._key(event, path, depth)
            if key == _MERGE and isinstance(event, yaml.ScalarEvent) and event.style in _PLAIN:
                merged.append((self._value(self._next(), (*path, _MERGE), depth + 1), event))
                continue
            if key is None:
                self._value(self._next(), path, depth + 1)
                continue
            if key in values:
                line = self._document.positions[(*path, key)][0]
                again.setdefault(key, _position(event)[0])
                if not path:
                    self._document.readable = self._document.readable or dict(values)
                    self._require_one_entity(again)
                self._note("duplicate-key", f"the key {key!r} is written twice, first in line {line}", _ONE_KEY, event)
            else:
                self._document.positions[(*path, key)] = _position(event)
            values[key] = self._value(self._next(), (*path, key), depth + 1)
        for value, event in merged:
            self._merge(values, value, path, event)
        return values

    def _key(self, event: yaml.Event, path: FieldPath, depth: int) -> str | None:
        if isinstance(event, yaml.ScalarEvent) and event.tag in (None, "!"):
            text: str = event.value
            if len(text) > MAX_CHARACTERS:
                self._note("yaml-too-big", f"a key has more than {MAX_CHARACTERS:,} characters", "Shorten it.", event)
                return None
            return text
        self._note("yaml-key", "a key is not plain text", "Write keys as text, without tags and aliases.", event)
        self._value(event, path, depth + 1)
        return None

    def _merge(self, values: dict[str, object], merged: object, path: FieldPath, event: yaml.Event) -> None:
        for part in merged if isinstance(merged, list) else [merged]:
            if not isinstance(part, dict):
                self._note("yaml-merge", "<< does not name a map", "Write <<: *anchor, the anchor at a map.", event)
                continue
            for key in part.keys() - values.keys():
                self._document.positions[(*path, key)] = _position(event)
            values.update({key: value for key, value in part.items() if key not in values})

    def _aliased(self, event: yaml.AliasEvent) -> object:
        name = event.anchor
        if name not in self._anchors:
            reason = "is inside its own anchor" if name in self._open_anchors else "has no anchor above it"
            self._note("yaml-alias", f"the alias *{name} {reason}", f"Write &{name} at a value above.", event)
            return None
        value, size = self._anchors[name]
        self._count += size
        if self._count > MAX_VALUES:
            self._give_up(event, 0)
        return value

    def _give_up(self, event: yaml.Event, depth: int) -> None:
        if depth > MAX_DEPTH:
            self._is_broken = True  # libyaml would take quadratic time to read on
            message = f"values are nested more than {MAX_DEPTH} levels deep; the file is not read further"
            self._note("yaml-too-deep", message, "Nest them less.", event)
        else:
            self._note(
                "yaml-too-big",
                f"with its aliases expanded the document contains more than {MAX_VALUES:,} values",
                "Use fewer aliases, or split the document.",
                event,
            )
        raise _TooMuchError

    def _require_one_entity(self, again: Mapping[str, int]) -> None:
        """Leave a document out in which another entity begins; `again` has the lines of keys that are repeated."""
        if not again.keys() >= _NAMING_KEYS:
            return
        line = min(again[key] for key in _NAMING_KEYS)
        kept = [each for each in self._document.problems if each.line < line]
        message = f"a line `---` is missing before line {line}, where another entity begins"
        remedy = "Write one between every two entities."
        missing = Problem(code="yaml-document", message=message, remedy=remedy, line=line, column=1)
        self._document.problems = [*kept, missing]
        raise _TooMuchError

    def _note(self, code: str, message: str, remedy: str, event: yaml.Event) -> None:
        line, column = _position(event)
        self._problems += 1
        if self._problems > MAX_PROBLEMS:
            self._stop(line, column, f"there are more than {MAX_PROBLEMS} mistakes in it", "Correct those above first.")
            raise _TooMuchError
        self._document.problems.append(Problem(code=code, message=message, remedy=remedy, line=line, column=column))

    def _stop(self, line: int, column: int, reason: str, remedy: str) -> None:
        self._is_broken = True
        message = f"{reason}; the file is not read further"
        problem = Problem(code="yaml-too-big", message=message, remedy=remedy, line=line, column=column)
        self._document.problems.append(problem)

    def _read_above(self, error: Exception) -> object:
        """Return the value of the lines of a document above its syntax error, if they are YAML by themselves."""
        marks = [mark for name in ("problem_mark", "context_mark") if (mark := getattr(error, name, None)) is not None]
        first, lines = self._document.line - 1, self._text.split("\n")
        ends = {mark.line - before for mark in marks for before in (0, 1)}  # at its end a text lacks what a line began
        for end in sorted(ends, reverse=True) if () in self._document.positions else ():
            above = _Composer("\n".join(lines[first:end]))
            try:
                found = above._compose_document()
            except (_TooMuchError, yaml.MarkedYAMLError, yaml.reader.ReaderError):
                continue
            return None if found is None else found.value
        return None

    def _note_syntax(self, error: Exception) -> None:
        mark = getattr(error, "problem_mark", None)
        reason = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
        context = getattr(error, "context", None)
        message = f"the file is not YAML from here on: {reason}" + (f", {context}" if context else "")
        remedy = "Check indentation, colons, quotes and brackets in and above this line."
        begun = getattr(error, "context_mark", None)
        if mark and mark.line < len(lines := self._text.split("\n")) and "\t" in _indentation(lines[mark.line]):
            message, remedy = "the line is indented with a tab, which YAML does not allow", "Indent it with spaces."
        elif begun and context == "while scanning a simple key":
            mark, message = begun, "the line is neither `key: value` nor an item of a list"
            remedy = "Write a colon and a space after the key."
        elif begun and context == "while scanning a quoted scalar":
            mark, message, remedy = begun, "the quotation mark here is never closed", "Close it on this line."
        line, column = (mark.line + 1, mark.column + 1) if mark else (self._document.line, 1)
        self._document.problems.append(
            Problem(code="yaml-syntax", message=message, remedy=remedy, line=line, column=column)
        )


def parse_scalar(text: str) -> object:
    """Return the value of a plain scalar.

    >>> [parse_scalar(text) for text in ("8", "0755", "1.5", "1.10", "true", "yes", "~", "2015-01-01")]
    [8, '0755', 1.5, '1.10', True, 'yes', None, '2015-01-01']
    """
    if text in _NULLS:
        return None
    if text in _TRUTH:
        return _TRUTH[text]
    if len(text) <= _LONGEST_NUMBER and text[0] in "-0123456789":
        for number in (int, float):
            try:
                value = number(text)
            except ValueError:
                continue
            if str(value) == text:
                return value
    return text


def _indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _position(event: yaml.Event) -> tuple[int, int]:
    mark = event.start_mark
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)
