"""What a mirror is: directories without dates on one cluster, kept equal to directories on another."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from feed_assets.entities.common import EntityModel
from feed_assets.entities.copying import PreserveField, Verification
from feed_assets.entities.fields import Count, FilledText, FrequencyField, Name, Share, SizeField, refuse
from feed_assets.timing.frequency import Frequency, Unit

_WEEK = Frequency(unit=Unit.DAYS, count=7)


class Removal(StrEnum):
    """What becomes of files at the target that the source does not have (any more)."""

    KEEP = "keep"
    REMOVE = "remove"


class MirrorSource(EntityModel):
    """What is read: one `directory`, or several `directories`, each of which is mirrored by itself below the target
    under its last name. They are below the storage of the `cluster`, that of the process if none is named, or URLs.
    """

    cluster: Name | None = None
    directory: FilledText | None = None
    directories: tuple[FilledText, ...] = ()

    @model_validator(mode="after")
    def _names_something(self) -> Self:
        if (self.directory is None) == (not self.directories):
            wrong = "both directory and directories are" if self.directories else "neither directory nor directories is"
            raise refuse("mirror", f"{wrong} written", "Write one of them.")
        return self


class MirrorTarget(EntityModel):
    """What is written, as `MirrorSource`."""

    cluster: Name | None = None
    directory: FilledText


class RemovalLimits(EntityModel):
    """How many files one run may remove without asking: a share of those that stand at the target, and a number."""

    share: Share = 0.5
    files: Annotated[Count, Field(ge=1)] = 10_000


class MirrorSnapshots(EntityModel):
    """Every state that was mirrored has a name, on both sides.

    The newest `source_keep` and `target_keep` are always kept; of the others those that are older than the age go.
    """

    source_keep: Annotated[Count, Field(ge=1)]
    target_keep: Annotated[Count, Field(ge=1)]
    source_age: FrequencyField = _WEEK
    target_age: FrequencyField = _WEEK


class Mirror(EntityModel):
    """A mirror. Each run makes the target equal to the source, by copying what differs.

    `removed_files` is `keep` where nothing is written, and `remove` with `snapshots`, because a snapshot of the target
    is one of the source. `limits` hold for what one run removes; a run that would remove more fails, and changes
    nothing. `allow_emptying` lets a source without files empty a target that has some. `ignore_errors` publishes what
    could be copied where files cannot be read; those stay as they stood. The other options are as those of
    `Replication`, but for `hidden`: all files are copied unless it is false.

    Differs from Falcon: a snapshot is a list of files with their checksums, which needs nothing of the storage, and the
    content as hard links where the target is on a local filesystem; one task copies everything there.

    >>> Mirror(source={"directory": "/models"}, target={"cluster": "backup", "directory": "/models"}).removes
    False
    """

    source: MirrorSource
    target: MirrorTarget
    removed_files: Removal | None = None
    limits: RemovalLimits = RemovalLimits()
    allow_emptying: bool = False
    snapshots: MirrorSnapshots | None = None
    verification: Verification = Verification.TRANSFERRED
    overwrite: bool = False
    ignore_errors: bool = False
    preserve: PreserveField = frozenset()
    max_tasks: Annotated[Count, Field(ge=1, le=1000)] = 5
    bandwidth: SizeField | None = None
    task_bandwidth: SizeField | None = None
    include: tuple[FilledText, ...] = ()
    exclude: tuple[FilledText, ...] = ()
    hidden: bool = True

    @model_validator(mode="after")
    def _removes_with_snapshots(self) -> Self:
        if self.snapshots is not None and self.removed_files is Removal.KEEP:
            raise refuse(
                "mirror",
                "removed_files is 'keep', but with snapshots the target has what the source has, and nothing else",
                "Remove removed_files, or snapshots.",
            )
        return self

    @property
    def removes(self) -> bool:
        """Whether files go at the target that the source does not have."""
        return self.removed_files is Removal.REMOVE or self.snapshots is not None

    def directories(self) -> Iterator[tuple[str, str]]:
        """Each directory that is read, and the one that is written for it, as they are declared."""
        if self.source.directory is not None:
            yield self.source.directory, self.target.directory
        for directory in self.source.directories:
            yield directory, f"{self.target.directory.rstrip('/')}/{last_name(directory)}"

    def clusters(self, own: str) -> tuple[str, ...]:
        """The clusters of source and target, for a mirror of a process on the cluster `own`."""
        return (self.source.cluster or own, self.target.cluster or own)


def last_name(directory: str) -> str:
    """The last name of a path or URL.

    >>> last_name("s3://bucket/models/"), last_name("/")
    ('models', '')
    """
    return directory.rpartition("://")[2].rstrip("/").rpartition("/")[2]


def url_of(storage: str, directory: str) -> str:
    """A directory below a cluster's storage, or somewhere else, as a URL.

    >>> url_of("file:///data/", "/models/"), url_of("file:///data", "s3://bucket/models")
    ('file:///data/models', 's3://bucket/models')
    """
    return directory.rstrip("/") if "://" in directory else f"{storage.rstrip('/')}/{directory.strip('/')}"
