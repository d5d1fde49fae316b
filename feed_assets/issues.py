"""Issues: errors and warnings about definitions, with severity, code, entity, message, remedy and file position."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, TypeAlias

from pydantic import Field

from feed_assets.errors import FeedAssetsError, describe_error, render_some, shorten
from feed_assets.masking import mask

EntityKey: TypeAlias = tuple[str, str]
"""(kind, name)."""

UNREAD = ""
"""The label of a file or document that could not be read as an entity: it may declare any."""
_MOST_FOLLOWERS = 3

FieldPath: TypeAlias = tuple[str | int, ...]
"""The keys and list positions that lead to a value: ("clusters", "primary", "retention")."""


class Severity(StrEnum):
    """The severity of an issue: an error keeps an entity out of the plan, a warning does not."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A position in a file; lines and columns count from 1.

    >>> Source(file="entities/clicks.yaml", line=14).render()
    'entities/clicks.yaml:14'
    """

    file: str
    line: int | None = None
    column: int | None = None

    def render(self) -> str:
        """Return the position as `file:line`."""
        return self.file if self.line is None else f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """An error or warning. `message` and `remedy` are sentences; `message` has no full stop.

    `code` is stable and names the rule; `entity` is the label of the entity, `feed 'clicks'`. Texts are kept without
    secrets, and cut at the length of a message. `followers` are the labels of entities that are wrong for this reason
    alone. `follows` are the labels of those whose errors are the reason of this issue; UNREAD is one that nobody knows.
    """

    severity: Severity
    code: str
    entity: str | None
    message: str
    remedy: str
    source: Source | None = None
    followers: tuple[str, ...] = ()
    follows: Annotated[tuple[str, ...], Field(exclude=True)] = ()

    def __post_init__(self) -> None:
        for name in ("message", "remedy"):
            object.__setattr__(self, name, shorten(getattr(self, name)))

    def render(self) -> str:
        """Return position, entity, message and remedy on one line, without secrets.

        >>> Issue(severity=Severity.ERROR, code="unknown-key", entity="feed 'clicks'",
        ...       message="'retentoin' is not a key of a feed", remedy="Did you mean 'retention'?",
        ...       source=Source(file="entities/clicks.yaml", line=14)).render()
        "entities/clicks.yaml:14: feed 'clicks': 'retentoin' is not a key of a feed. Did you mean 'retention'?"
        """
        where = [self.source.render()] if self.source else []
        who = [self.entity] if self.entity else []
        text = f"{self.message}. {self.remedy}" if self.remedy else f"{self.message}."
        if self.followers:
            count = len(self.followers)
            verb = "follow" if count > 1 else "follows"
            text = f"{text} {count} more {verb} from it: {render_some(self.followers, _MOST_FOLLOWERS)}."
        return mask(": ".join([*where, *who, text]))

    @property
    def line(self) -> str:
        """The whole text; that of a warning says so."""
        return f"warning: {self.render()}" if self.severity is Severity.WARNING else self.render()


def internal_error(doing: str, error: Exception, *, entity: str | None, source: Source | None) -> Issue:
    """Return an error of the program itself as an issue of the entity or file at which it happened."""
    return Issue(
        severity=Severity.ERROR,
        code="internal-error",
        entity=entity,
        message=f"{doing} failed: {describe_error(error)}",
        remedy="This is an error in feed-assets: please report it, with the file.",
        source=source,
    )


def order_of(issue: Issue) -> tuple[str, int, int, str, str]:
    """Return the sort key of an issue: file and line, then entity and code."""
    source = issue.source or Source(file="")
    return (source.file, source.line or 0, source.column or 0, issue.entity or "", issue.code)


def fold_followers(issues: Iterable[Issue]) -> list[Issue]:
    """Return issues without those that only follow from others, each of which names at its first error the entities
    that follow. An issue whose cause is not among them stays.
    """
    issues = list(issues)
    causes: dict[str, Issue] = {}
    for issue in issues:
        if issue.severity is Severity.ERROR and not issue.follows:
            causes.setdefault(issue.entity or UNREAD, issue)
    followers: dict[int, list[str]] = {}
    roots: list[Issue] = []
    for issue in issues:
        cause = next((causes[label] for label in issue.follows if label in causes), None)
        if cause is None:
            roots.append(issue)
        elif issue.entity is not None:
            followers.setdefault(id(cause), []).append(issue.entity)
    return [replace(each, followers=tuple(dict.fromkeys(followers.get(id(each), ())))) for each in roots]


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldSources:
    """The file positions of one entity: line and column of each key and list item; () is the entity itself."""

    file: str
    positions: Mapping[FieldPath, tuple[int, int]]

    def locate(self, path: FieldPath = ()) -> Source:
        """Return the position of a key, or of the nearest enclosing key that was written."""
        for length in range(len(path), -1, -1):
            if (found := self.positions.get(path[:length])) is not None:
                return Source(file=self.file, line=found[0], column=found[1])
        return Source(file=self.file)


class SourceMap(Mapping[EntityKey, Source]):
    """The file positions of entities and their keys. Entities built in Python have none. It `is_partial` if something
    could not be read as an entity, so that nobody knows what it declares.

    >>> clicks = FieldSources(file="a.yaml", positions={(): (1, 1), ("name",): (2, 1)})
    >>> sources = SourceMap({("feed", "clicks"): clicks})
    >>> sources["feed", "clicks"].render(), sources.locate(("feed", "clicks"), ("name",)).render()
    ('a.yaml:1', 'a.yaml:2')
    """

    def __init__(
        self, fields: Mapping[EntityKey, FieldSources] = MappingProxyType({}), *, is_partial: bool = False
    ) -> None:
        self._fields = dict(fields)
        self.is_partial = is_partial

    def __getitem__(self, key: EntityKey) -> Source:
        return self._fields[key].locate()

    def __iter__(self) -> Iterator[EntityKey]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def locate(self, key: EntityKey, path: FieldPath = ()) -> Source | None:
        """Return the position of a key of an entity; None for an entity without a file."""
        fields = self._fields.get(key)
        return fields.locate(path) if fields else None


BLOCKED = "blocked-by"
"""The code of what has no errors itself, but is left out for those of others."""

_FIRST_SENTENCE = re.compile(r"(.*?)\. (.*)", re.DOTALL)  # "it is wrong. Do this."


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A message, with a remedy or ""."""

    message: str
    remedy: str = field(default="")


def split_error(error: FeedAssetsError) -> Finding:
    """Split an exception's text into message and remedy.

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
