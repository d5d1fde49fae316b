"""What copies and mirrors compile to: addresses of storages, options and frozen records."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from feed_assets.entities.copies.mirror import MirrorSnapshots, RemovalLimits
from feed_assets.entities.copies.options import Preserve, RemovedFiles, Verification
from feed_assets.entities.maps import EMPTY, FrozenMap
from feed_assets.entities.workflow import WorkflowEngine


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAddress:
    """The address of a filesystem: an fsspec URL and its options, hashable so that each store is opened once."""

    url: str
    options: FrozenMap[str, object] = field(default=EMPTY, repr=False)


def endpoint_of(address: StoreAddress) -> str:
    """Return what a store is reached by: its option `endpoint_url`, or scheme and host or bucket of its URL; for
    a local directory, the whole URL.

    >>> endpoint_of(StoreAddress(url="thrift://metastore:9083/web/clicks"))
    'thrift://metastore:9083'
    """
    client = address.options.get("client_kwargs")
    url = address.options.get("endpoint_url") or (client.get("endpoint_url") if isinstance(client, Mapping) else None)
    if url:
        return str(url)
    scheme, _, rest = address.url.partition("://")
    host = rest.partition("/")[0]
    return f"{scheme}://{host}" if host else address.url


class OnError(StrEnum):
    """The reaction to a file of the source that cannot be read.

    STOP: the copy ends at the first. REPORT: all other files are copied and kept for the next attempt, every failure is
    named, and nothing is published, because a part of an instance is not an instance. PUBLISH, for directories that are
    not instances: the copied files are published without an availability flag and marked as incomplete; the failed
    files stay unchanged at the target.
    """

    STOP = "stop"
    REPORT = "report"
    PUBLISH = "publish"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyOptions:
    """The options of a copy.

    `sub_path` is the part of the instance that is copied: a partition sub-path, possibly with globs. `include` and
    `exclude` are globs on the paths below the instance (see `CopyFilter`). Files outside the filter are neither copied
    nor removed at the target. `hidden` also copies files that readers ignore (`_metadata`, `.crc`).

    `overwrite` transfers every file. `removed_files` is the treatment of files that the source does not have, or no
    longer has. `quick` treats a source that was published by this program as unchanged if its publication is the same;
    otherwise all its files are listed. `allow_emptying`: a source without flag and manifest that no longer has any
    files may empty a target that has some. `allow_empty`: the filters may match no file of a source that has some.
    `instance_flag` also writes the flag of the whole instance if only a part is
    copied. `bandwidth` is in bytes per second, over all tasks and for each. A source that changes is copied `tries`
    times. `exact` copies all files of an instance in any state, with flag, manifest and hidden files, to a place where
    nothing is, and adds nothing to them: an archive. `by_name`: files with other names are other content, as in a
    directory that is no instance.

    Differs from Falcon: the target is replaced as a whole, even if files stay.
    """

    verification: Verification = Verification.TRANSFERRED
    on_error: OnError = OnError.STOP
    sub_path: str = ""
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    hidden: bool = False
    overwrite: bool = False
    removed_files: RemovedFiles = RemovedFiles.BY_MANIFEST
    quick: bool = True
    allow_emptying: bool = False
    allow_empty: bool = False
    instance_flag: bool = False
    preserve: frozenset[Preserve] = frozenset()
    bandwidth: int | None = None
    task_bandwidth: int | None = None
    max_tasks: int = 5
    tries: int = 3
    exact: bool = False
    by_name: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Directory:
    """A directory: its store and its path in it."""

    store: StoreAddress
    path: str

    @property
    def url(self) -> str:
        return f"{self.store.url.rstrip('/')}/{self.path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorRecord:
    """The directories of a mirror, each (source, target) separately. `limits` are of what one run removes."""

    engine: ClassVar[WorkflowEngine] = WorkflowEngine.DIRECTORY_MIRROR
    directories: tuple[tuple[Directory, Directory], ...]
    options: CopyOptions
    limits: RemovalLimits
    allow_emptying: bool
    snapshots: MirrorSnapshots | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRecord:
    """The source of a flow: the instances of its feed on the cluster `source`."""

    engine: ClassVar[str] = "replication"
    source: str
    options: CopyOptions
