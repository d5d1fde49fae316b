"""Patterns of made-up texts: the part of regular expressions that says how a text is made, and no more.

A pattern has literals, classes (`[A-Z0-9_]`, `\\d`, `\\w`), groups with alternatives (`(a|b)`), and the counts `{n}`,
`{n,m}` and `?`. It always stands for the whole text, and for a bounded one.
"""

import string
from dataclasses import dataclass
from typing import TypeAlias

from feed_assets.entities.errors import PatternError

MOST_PARTS = 500
"""Parts of a pattern, with those that are repeated: each is drawn by itself."""
MOST_CHARACTERS = 1_000
"""Characters of a class."""

_CLASSES = {"d": string.digits, "w": string.ascii_letters + string.digits + "_"}
_REFUSED = {
    "*": ("has no end", "Write how often it may come, for example {0,5}."),
    "+": ("has no end", "Write how often it may come, for example {1,5}."),
    "^": ("has no meaning: a pattern is the whole text", "Remove it, or write \\^."),
    "$": ("has no meaning: a pattern is the whole text", "Remove it, or write \\$."),
    ".": ("is any character", "Write those that may come, for example [a-z], or write \\. for a full stop."),
    ")": ("closes no group", "Remove it, or write \\)."),
    "]": ("closes no class", "Remove it, or write \\]."),
    "{": ("counts nothing", "Put it behind what is repeated, or write \\{."),
    "}": ("closes no count", "Remove it, or write \\}."),
    "?": ("counts nothing", "Put it behind what may be left out, or write \\?."),
}


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of these characters; a literal is the only one."""

    characters: str


@dataclass(frozen=True, slots=True)
class Sequence:
    """One part after the other."""

    parts: tuple["Pattern", ...]


@dataclass(frozen=True, slots=True)
class Alternatives:
    """One of several patterns."""

    options: tuple["Pattern", ...]


@dataclass(frozen=True, slots=True)
class Repetition:
    """A pattern so many times, `least` to `most`."""

    part: "Pattern"
    least: int
    most: int


Pattern: TypeAlias = OneOf | Sequence | Alternatives | Repetition


def parse_pattern(text: str) -> Pattern:
    """Parse a pattern.

    Raises:
        PatternError: a part of it is not supported; has the position, the reason and the remedy.

    >>> parse_pattern("A[0-9]{2}")
    Sequence(parts=(OneOf(characters='A'), Repetition(part=OneOf(characters='0123456789'), least=2, most=2)))
    >>> parse_pattern("A.*")
    Traceback (most recent call last):
    feed_assets.entities.errors.PatternError: regex 'A.*', character 2: '.' is any character. Write those that may \
come, for example [a-z], or write \\. for a full stop.
    """
    parser = _Parser(text)
    pattern = parser.alternatives()
    if not parser.is_at_end:
        raise parser.refusal()
    if (count := _count_parts(pattern)) > MOST_PARTS:
        reason = f"it has {count:,} parts with those that are repeated, more than {MOST_PARTS}"
        raise PatternError(text=text, position=0, reason=reason, next_step="Lower the counts.")
    return pattern


def _count_parts(pattern: Pattern) -> int:
    match pattern:
        case OneOf():
            return 1
        case Sequence(parts):
            return sum(map(_count_parts, parts))
        case Alternatives(options):
            return sum(map(_count_parts, options))
        case Repetition(part, _, most):
            return _count_parts(part) * most


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._text)

    def alternatives(self) -> Pattern:
        options = [self._sequence()]
        while self._take("|"):
            options.append(self._sequence())
        return options[0] if len(options) == 1 else Alternatives(tuple(options))

    def refusal(self, *, position: int | None = None, reason: str = "", remedy: str = "") -> PatternError:
        """Return the error for the character at a position, the present one by default."""
        at = self._at if position is None else position
        why, how = _REFUSED.get(self._text[at], ("", "")) if at < len(self._text) else ("", "")
        what = repr(self._text[at]) if at < len(self._text) else "the end"
        return PatternError(text=self._text, position=at + 1, reason=f"{what} {reason or why}", next_step=remedy or how)

    def _sequence(self) -> Pattern:
        parts: list[Pattern] = []
        while not self.is_at_end and self._text[self._at] not in "|)":
            parts.append(self._counted(self._part()))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _part(self) -> Pattern:
        if self._take("("):
            return self._group()
        if self._take("["):
            return self._class()
        if self._text[self._at] == "\\":
            return OneOf(self._escaped())
        if self._text[self._at] in _REFUSED:
            raise self.refusal()
        self._at += 1
        return OneOf(self._text[self._at - 1])

    def _group(self) -> Pattern:
        opened = self._at - 1
        if self._take("?") and not self._take(":"):
            raise self.refusal(position=opened, reason="opens a special group", remedy="Write (…), or (?:…).")
        inner = self.alternatives()
        if not self._take(")"):
            raise self.refusal(position=opened, reason="opens a group that does not end", remedy="Write ) behind it.")
        return inner

    def _class(self) -> Pattern:
        opened = self._at - 1
        if not self.is_at_end and self._text[self._at] == "^":
            remedy = "Write the characters that may come, or write \\^."
            raise self.refusal(reason="leaves characters out, and others are not known", remedy=remedy)
        found = ""
        while not self._take("]"):
            if self.is_at_end:
                remedy = "Write ] behind it."
                raise self.refusal(position=opened, reason="opens a class that does not end", remedy=remedy)
            found += self._class_item()
        if not found:
            raise self.refusal(position=opened, reason="opens a class without characters", remedy="Write some.")
        if len(found) > MOST_CHARACTERS:
            reason = f"opens a class of {len(found):,} characters, more than {MOST_CHARACTERS:,}"
            raise self.refusal(position=opened, reason=reason, remedy="Write a smaller one.")
        return OneOf("".join(dict.fromkeys(found)))

    def _class_item(self) -> str:
        began = self._at
        first = self._class_character()
        dash, last = self._text[self._at : self._at + 1], self._text[self._at + 1 : self._at + 2]
        if dash != "-" or last in ("", "]") or len(first) > 1:
            return first
        self._at += 1
        last = self._class_character()
        if len(last) > 1 or ord(last) < ord(first):
            remedy = "Write the lower character first."
            raise self.refusal(position=began, reason="begins a range that has no characters", remedy=remedy)
        return "".join(map(chr, range(ord(first), ord(last) + 1)))

    def _class_character(self) -> str:
        if self._text[self._at] == "\\":
            return self._escaped()
        self._at += 1
        return self._text[self._at - 1]

    def _escaped(self) -> str:
        at = self._at
        letter = self._text[at + 1 : at + 2]
        self._at += 2
        if letter in _CLASSES:
            return _CLASSES[letter]
        if not letter or letter.isalnum() or letter.isspace():
            reason = "is followed by what has no meaning here"
            raise self.refusal(position=at, reason=reason, remedy="Write \\d, \\w, or a sign such as \\. or \\(.")
        return letter

    def _counted(self, part: Pattern) -> Pattern:
        if self._take("?"):
            return Repetition(part, 0, 1)
        if not self._take("{"):
            return part
        began = self._at - 1
        inside, has_end, _ = self._text[self._at :].partition("}")
        least, has_most, most = inside.partition(",")
        counts = [least, most] if has_most else [least, least]
        if not has_end or not all(count.isascii() and count.isdecimal() and len(count) < 4 for count in counts):
            remedy = "Write {n} or {n,m}, for example {0,5}."
            raise self.refusal(position=began, reason="begins no count with an end", remedy=remedy)
        if int(counts[0]) > int(counts[1]) or int(counts[1]) == 0:
            raise self.refusal(
                position=began, reason="begins a count of nothing", remedy="Write the lower count first."
            )
        self._at += len(inside) + 1
        return Repetition(part, int(counts[0]), int(counts[1]))

    def _take(self, character: str) -> bool:
        found = self._text[self._at : self._at + 1] == character
        self._at += found
        return found
