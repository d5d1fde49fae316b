"""Mirrors: directories without dates on one cluster, kept equal to directories on another."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from feed_assets.entities.common import EntityModel
from feed_assets.entities.copies.options import PreserveField, Verification
from feed_assets.entities.fields import Count, FilledText, FrequencyField, Name, Share, SizeField, refuse
from feed_assets.timing.sequence import Frequency, Unit

_WEEK = Frequency(unit=Unit.DAYS, count=7)


class Removal(StrEnum):
    """The treatment of files at the target that the source does not have, or no longer has."""

    KEEP = "keep"
    REMOVE = "remove"


class MirrorSource(EntityModel):
    """The directories that are read: one `directory`, or several `directories`.

    Each of several directories is mirrored separately, to a directory of its last name below the target. They are below
    the storage of the `cluster` (by default that of the process), or URLs.
    """

    cluster: Name | None = None
    directory: FilledText | None = None
    directories: tuple[FilledText, ...] = ()

    @model_validator(mode="after")
    def _check_directories(self) -> Self:
        if (self.directory is None) == (not self.directories):
            wrong = "both directory and directories are" if self.directories else "neither directory nor directories is"
            raise refuse("mirror", f"{wrong} written", "Write one of them.")
        return self


class MirrorTarget(EntityModel):
    """The directories that are written, in the form of `MirrorSource`."""

    cluster: Name | None = None
    directory: FilledText


class RemovalLimits(EntityModel):
    """The most files that one run may remove without confirmation: a share of the files at the target, and a number."""

    share: Share = 0.5
    files: Annotated[Count, Field(ge=1)] = 10_000


class MirrorSnapshots(EntityModel):
    """Named snapshots of every mirrored state, on both sides.

    The newest `source_keep` and `target_keep` are always kept; older ones are removed when they exceed the age.
    """

    source_keep: Annotated[Count, Field(ge=1)]
    target_keep: Annotated[Count, Field(ge=1)]
    source_age: FrequencyField = _WEEK
    target_age: FrequencyField = _WEEK


class Mirror(EntityModel):
    """A mirror. Each run makes the target equal to the source, by copying the differences.

    `removed_files` is `keep` by default, and `remove` with `snapshots`, because a snapshot of the target is a snapshot
    of the source. `limits` apply to the removals of one run; a run that would remove more fails and changes nothing.
    `allow_emptying` lets a source without files empty a target that has some. `ignore_errors` publishes the files that
    could be copied if others cannot be read; the others stay unchanged at the target. The other options are those of
    `Replication`, except `hidden`: all files are copied unless it is false.

    Differs from Falcon: a snapshot is a list of files with their checksums, which needs no support from the storage,
    and the content as hard links if the target is on a local filesystem. One task copies everything there.

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
    def _check_snapshots(self) -> Self:
        if self.snapshots is not None and self.removed_files is Removal.KEEP:
            raise refuse(
                "mirror",
                "removed_files is 'keep', but with snapshots the target has only the files of the source",
                "Remove removed_files, or snapshots.",
            )
        return self

    @property
    def removes(self) -> bool:
        """Whether files that the source does not have are removed at the target."""
        return self.removed_files is Removal.REMOVE or self.snapshots is not None

    def directories(self) -> Iterator[tuple[str, str]]:
        """Yield each directory that is read, with the one that is written for it, as declared."""
        if self.source.directory is not None:
            yield self.source.directory, self.target.directory
        for directory in self.source.directories:
            yield directory, f"{self.target.directory.rstrip('/')}/{last_name(directory)}"

    def clusters(self, own: str) -> tuple[str, ...]:
        """Return the clusters of source and target, for a mirror of a process on the cluster `own`."""
        return (self.source.cluster or own, self.target.cluster or own)


def last_name(directory: str) -> str:
    """Return the last name of a path or URL.

    >>> last_name("s3://bucket/models/"), last_name("/")
    ('models', '')
    """
    return directory.rpartition("://")[2].rstrip("/").rpartition("/")[2]


def url_of(storage: str, directory: str) -> str:
    """Return the URL of a directory: below a cluster's storage, or elsewhere.

    >>> url_of("file:///data/", "/models/"), url_of("file:///", "models"), url_of("file:///data", "s3://bucket/models")
    ('file:///data/models', 'file:///models', 's3://bucket/models')
    >>> url_of("file:///data", "file:///")
    'file://'
    """
    is_elsewhere = "://" in directory
    scheme, separator, path = (directory if is_elsewhere else storage).partition("://")
    url = f"{scheme}{separator}{path.rstrip('/')}"
    return url if is_elsewhere else f"{url}/{directory.strip('/')}"
