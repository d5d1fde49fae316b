"""Values of the state database about definitions: versions, changes, schedules, releases and the audit."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from feed_assets.json_form import Hidden, NominalTime


class DefinitionAction(StrEnum):
    """The action that created a version of a definition."""

    SUBMITTED = "SUBMITTED"
    UPDATED = "UPDATED"
    DELETED = "DELETED"
    RENAMED = "RENAMED"


class DocumentFormat(StrEnum):
    """The format of a definition; entities built in Python are stored as YAML."""

    YAML = "yaml"
    XML = "xml"


class ChangeState(StrEnum):
    """The state of a change of the definition store."""

    PREPARED = "PREPARED"
    DONE = "DONE"
    UNDONE = "UNDONE"


class ScheduleState(StrEnum):
    """Whether a feed or process on a cluster is scheduled. Without a row, the settings give the state."""

    SUBMITTED = "SUBMITTED"
    SCHEDULED = "SCHEDULED"
    SUSPENDED = "SUSPENDED"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDefinition:
    """A version of a definition that is not stored yet; `digest` and `text` are None for a deletion.

    `text` is the original document. `origin` is the command that changed it, or `folder` for files edited by other
    means. `file` is relative to the folder of the entities.
    """

    kind: str
    name: str
    action: DefinitionAction
    digest: str | None
    text: Hidden[str | None] = field(repr=False)
    format: Hidden[DocumentFormat]
    file: str
    author: str
    origin: str
    recorded_at: datetime
    change_id: Hidden[str | None] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionVersion(NewDefinition):
    """A stored version of a definition; the numbers of one entity grow by one and are never reused."""

    version: int

    @property
    def key(self) -> tuple[str, str]:
        """(kind, name)."""
        return (self.kind, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What the record knows of a declared entity: its version, and when and by whom it was declared first, since it was
    deleted last, and changed last.
    """

    version: int
    created_at: datetime
    created_by: str
    updated_at: datetime
    updated_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """A change of a file: its whole content before and after, and the sha256 of each; None for no file.

    The contents are kept until the change has ended, and are None afterwards.
    """

    file: str
    before: str | None = field(repr=False)
    after: str | None = field(repr=False)
    before_digest: str | None
    after_digest: str | None

    @classmethod
    def of(cls, file: str, before: str | None, after: str | None) -> "FileChange":
        """Return the change of a file from one content to another."""
        return cls(
            file=file,
            before=before,
            after=after,
            before_digest=None if before is None else digest_content(before.encode()),
            after_digest=None if after is None else digest_content(after.encode()),
        )

    def without_contents(self) -> "FileChange":
        """Return the change without contents, as it is kept for ever."""
        return replace(self, before=None, after=None)


def digest_content(content: bytes) -> str:
    """Return the sha256 of a file's content, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rename:
    """Another name of a feed or process: it was `former` until `renamed_at`."""

    kind: str
    former: str
    name: str
    renamed_at: datetime
    author: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of the definition store in its journal. `number` grows by one in the order of changes.

    After its end, the versions have no text here: the record of definitions has it. With a `rename`, all that is
    recorded under the former name goes along.
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
    rename: Rename | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The schedule of a feed or process on a cluster; `scheduled_at` is when it was first scheduled."""

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
    """One version of a definition in a release."""

    kind: str
    name: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The definitions that govern a process on a cluster from a nominal time on, until the next release.

    `fingerprint` differs if the definitions differ in what instances do. The numbers of one process
    grow by one.
    """

    process: str
    cluster: str
    release: int
    effective_from: NominalTime
    fingerprint: str
    members: tuple[Member, ...]
    recorded_at: datetime
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """Who did what to which target, and when."""

    recorded_at: datetime
    author: str
    action: str
    target: str | None = None
    details: Mapping[str, object] = field(default_factory=dict)
    seq: int = 0
