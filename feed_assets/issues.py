"""What is wrong with a definition, said once: severity, code, entity, message, remedy and the place in a file."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TypeAlias

from feed_assets.errors import FeedAssetsError

VERSION = 1
"""Version of the JSON form."""

EntityKey: TypeAlias = tuple[str, str]
"""(kind, name)."""

FieldPath: TypeAlias = tuple[str | int, ...]
"""The keys and list positions that lead to a value: ("clusters", "primary", "retention")."""


class Severity(StrEnum):
    """An error keeps an entity out; a warning does not."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A place in a file; lines and columns count from 1.

    >>> Source(file="entities/clicks.yaml", line=14).render()
    'entities/clicks.yaml:14'
    """

    file: str
    line: int | None = None
    column: int | None = None

    def render(self) -> str:
        """The place as `file:line`."""
        return self.file if self.line is None else f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """One thing that is wrong. `message` and `remedy` are sentences; the message stands without its full stop.

    `code` is stable and names the rule; `entity` is the label of the entity, `feed 'clicks'`.
    """

    severity: Severity
    code: str
    entity: str | None
    message: str
    remedy: str
    source: Source | None = None

    def render(self) -> str:
        """Where, what, why and the next step, on one line.

        >>> Issue(severity=Severity.ERROR, code="unknown-key", entity="feed 'clicks'",
        ...       message="'retentoin' is not a key of a feed", remedy="Did you mean 'retention'?",
        ...       source=Source(file="entities/clicks.yaml", line=14)).render()
        "entities/clicks.yaml:14: feed 'clicks': 'retentoin' is not a key of a feed. Did you mean 'retention'?"
        """
        where = [self.source.render()] if self.source else []
        who = [self.entity] if self.entity else []
        text = f"{self.message}. {self.remedy}" if self.remedy else f"{self.message}."
        return ": ".join([*where, *who, text])

    def to_json(self) -> dict[str, object]:
        """The JSON form; see `render_json` for the document around it."""
        return {
            "severity": self.severity.value,
            "code": self.code,
            "entity": self.entity,
            "message": self.message,
            "remedy": self.remedy,
            "file": self.source.file if self.source else None,
            "line": self.source.line if self.source else None,
            "column": self.source.column if self.source else None,
        }


def order_of(issue: Issue) -> tuple[str, int, int, str, str]:
    """The order in which issues are shown: by file and line, then by entity and code."""
    source = issue.source or Source(file="")
    return (source.file, source.line or 0, source.column or 0, issue.entity or "", issue.code)


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldSources:
    """Where one entity stands in its file: the line and column of each key and list item; () is the entity itself."""

    file: str
    positions: Mapping[FieldPath, tuple[int, int]]

    def locate(self, path: FieldPath = ()) -> Source:
        """The place of a key, or of the nearest one around it that was written."""
        for length in range(len(path), -1, -1):
            if (found := self.positions.get(path[:length])) is not None:
                return Source(file=self.file, line=found[0], column=found[1])
        return Source(file=self.file)


class SourceMap(Mapping[EntityKey, Source]):
    """Where entities were declared, and where each of their keys stands. Entities built in Python have no source.

    >>> clicks = FieldSources(file="a.yaml", positions={(): (1, 1), ("name",): (2, 1)})
    >>> sources = SourceMap({("feed", "clicks"): clicks})
    >>> sources["feed", "clicks"].render(), sources.locate(("feed", "clicks"), ("name",)).render()
    ('a.yaml:1', 'a.yaml:2')
    """

    def __init__(self, fields: Mapping[EntityKey, FieldSources] = MappingProxyType({})) -> None:
        self._fields = dict(fields)

    def __getitem__(self, key: EntityKey) -> Source:
        return self._fields[key].locate()

    def __iter__(self) -> Iterator[EntityKey]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def locate(self, key: EntityKey, path: FieldPath = ()) -> Source | None:
        """The place of a key of an entity; None for an entity without source."""
        fields = self._fields.get(key)
        return fields.locate(path) if fields else None


_FIRST_SENTENCE = re.compile(r"(.*?)\. (.*)", re.DOTALL)  # "it is wrong. Do this."


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a sentence says: the message, and the remedy or nothing."""

    message: str
    remedy: str = field(default="")


def split_error(error: FeedAssetsError) -> Finding:
    """An exception's sentence as message and remedy.

    >>> from feed_assets.timing.errors import FrequencyError
    >>> split_error(FrequencyError(text="hours. (1)", reason="it is no form")).message
    "'hours. (1)' is not a frequency: it is no form"
    """
    text = str(error)
    reason = getattr(error, "reason", None)
    if isinstance(reason, str) and (end := text.find(reason)) >= 0:
        end += len(reason)
        return Finding(message=text[:end], remedy=text[end:].removeprefix(".").strip())
    found = _FIRST_SENTENCE.fullmatch(text)
    return Finding(message=found[1], remedy=found[2]) if found else Finding(message=text.removesuffix("."))
