"""What the state database holds about definitions, as values: versions, changes, schedules, releases and the audit."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum


class DefinitionAction(StrEnum):
    """What made a version of a definition."""

    SUBMITTED = "SUBMITTED"
    UPDATED = "UPDATED"
    DELETED = "DELETED"


class DocumentFormat(StrEnum):
    """How a definition is written; entities built in Python are kept as YAML."""

    YAML = "yaml"
    XML = "xml"


class ChangeState(StrEnum):
    """How far a change of the definition store has come."""

    PREPARED = "PREPARED"
    DONE = "DONE"
    UNDONE = "UNDONE"


class ScheduleState(StrEnum):
    """Whether a feed or process on a cluster is worked on. One without a row has the state that the settings say."""

    SUBMITTED = "SUBMITTED"
    SCHEDULED = "SCHEDULED"
    SUSPENDED = "SUSPENDED"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDefinition:
    """A version of a definition on its way into the record; `digest` and `text` are None for a deletion.

    `text` is the document as it was written; `origin` is the command that changed it, or `folder` for files that were
    edited by other means. `file` is relative to the folder of the entities.
    """

    kind: str
    name: str
    action: DefinitionAction
    digest: str | None
    text: str | None = field(repr=False)
    format: DocumentFormat
    file: str
    author: str
    origin: str
    recorded_at: datetime
    change_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionVersion(NewDefinition):
    """A version of a definition; numbers of one entity grow by one and never come again."""

    version: int

    @property
    def key(self) -> tuple[str, str]:
        """(kind, name)."""
        return (self.kind, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """What a change does to a file: its whole content before and after, and the sha256 of each; None for no file.

    The contents themselves are kept until the change has ended; both are None then.
    """

    file: str
    before: str | None = field(repr=False)
    after: str | None = field(repr=False)
    before_digest: str | None
    after_digest: str | None

    @classmethod
    def of(cls, file: str, before: str | None, after: str | None) -> "FileChange":
        """The change of a file from one content to another."""
        return cls(
            file=file,
            before=before,
            after=after,
            before_digest=None if before is None else digest_content(before.encode()),
            after_digest=None if after is None else digest_content(after.encode()),
        )

    def without_contents(self) -> "FileChange":
        """What is kept of it for ever."""
        return replace(self, before=None, after=None)


def digest_content(content: bytes) -> str:
    """The sha256 of a file's content, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of the definition store, as its journal knows it. `number` grows by one in the order of changes.

    When it has ended, its versions have no text here: the record of definitions has it.
    """

    change_id: str
    number: int
    state: ChangeState
    author: str
    origin: str
    begun_at: datetime
    ended_at: datetime | None = None
    files: tuple[FileChange, ...]
    versions: tuple[NewDefinition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """How a feed or process stands on a cluster; `scheduled_at` is when it was scheduled first."""

    kind: str
    name: str
    cluster: str
    state: ScheduleState
    changed_at: datetime
    author: str
    scheduled_at: datetime | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        """(kind, name, cluster)."""
        return (self.kind, self.name, self.cluster)


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One version of a definition that a release is made of."""

    kind: str
    name: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Which definitions govern the instances of a process on a cluster from a nominal time on, until the next release.

    `sign` changes whenever the definitions differ in what instances do; numbers of one process grow by one.
    """

    process: str
    cluster: str
    release: int
    effective_from: datetime
    sign: str
    members: tuple[Member, ...]
    recorded_at: datetime
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """Who did what to what, and when."""

    recorded_at: datetime
    author: str
    action: str
    target: str | None = None
    details: Mapping[str, object] = field(default_factory=dict)
    seq: int = 0
