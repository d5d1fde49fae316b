"""Previews of mirror runs, and the snapshots of mirrors."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from feed_assets.context.errors import InstanceQueryError
from feed_assets.context.operation import OperationContext
from feed_assets.json_form import Hidden, shown
from feed_assets.operation import tell_shown
from feed_assets.plan.copy_records import MirrorRecord
from feed_assets.plan.records import ProcessRecord
from feed_assets.releases.left_out import find_refused_writes
from feed_assets.transfer.mirroring import PlannedMirror, Snapshot, SnapshotKeeper, plan_mirror
from feed_assets.transfer.plans import Side


@dataclass(frozen=True, slots=True, kw_only=True)
class MirroredFile:
    """A file to be copied."""

    path: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownMirror:
    """The preview for one directory; empty with a `refusal`, which gives the reason. `standing` is the number of files
    at the target, None if it was not counted.
    """

    source: str
    target: str
    refusal: str | None
    copies: tuple[MirroredFile, ...] | None = None
    bytes: int | None = None
    removals: tuple[str, ...] | None = None
    standing: int | None = None

    @classmethod
    def of(cls, planned: PlannedMirror) -> "ShownMirror":
        plan, refusal = planned.plan, planned.refusal
        shown = cls(source=planned.source, target=planned.target, refusal=None if refusal is None else str(refusal))
        if plan is None:
            return shown
        return replace(
            shown,
            copies=tuple(MirroredFile(path=file.path, bytes=file.size) for file in plan.transfers),
            bytes=plan.bytes,
            removals=tuple(plan.removed),
            standing=None if plan.is_unchanged else planned.standing,
        )

    @property
    def changes(self) -> tuple[tuple[str, ...], ...]:
        """What is done with a file, its bytes, its path and the source: first those to remove."""
        removed = (("remove", "", path, self.source) for path in self.removals or ())
        return (*removed, *(("copy", f"{each.bytes:,}", each.path, self.source) for each in self.copies or ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorPlans:
    """The preview of a mirror run, directory by directory. People see `limit` files of each."""

    process: str
    cluster: str
    directories: tuple[ShownMirror, ...]
    limit: Hidden[int]

    @shown
    def is_good(self) -> bool:
        """Whether a run would mirror every directory."""
        return not self.has_failed

    @property
    def has_failed(self) -> bool:
        """Whether a run would fail."""
        return bool(self.notes)

    @property
    def notes(self) -> tuple[str, ...]:
        """Why a run would fail."""
        return tuple(f"feed-assets: {each.refusal}" for each in self.directories if each.refusal is not None)

    @property
    def changes(self) -> tuple[tuple[str, ...], ...]:
        """The first files of each directory."""
        return tuple(change for each in self.directories for change in each.changes[: self.limit])

    @property
    def summary(self) -> str:
        """How many files are shown, if not all are."""
        total = sum(len(each.changes) for each in self.directories)
        return tell_shown(len(self.changes), total, "files", "--limit shows more")


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorSnapshotList:
    """The snapshots of a mirror by the URL of each target: those of the source first, each side newest first."""

    process: str
    cluster: str
    snapshots: Mapping[str, tuple[Snapshot, ...]]

    @property
    def rows(self) -> tuple[tuple[str | None, ...], ...]:
        """Side, name, files, bytes and content of each, and its directory."""
        found = [(each, url) for url, of_target in self.snapshots.items() for each in of_target]
        return tuple((it.shelf, it.name, f"{it.files:,}", f"{it.bytes:,}", it.content, url) for it, url in found)

    @property
    def notes(self) -> tuple[str, ...]:
        """The directories without any."""
        return tuple(f"{url}: there is no snapshot" for url, found in self.snapshots.items() if not found)


def plan_mirrors(
    context: OperationContext, process: str, cluster: str | None, approved: int | None, *, limit: int
) -> MirrorPlans:
    """Plan a run of a mirror now; nothing is written.

    Args:
        context: the definitions and the storages.
        process: a mirror.
        cluster: the cluster of the run; optional if there is only one.
        approved: how many files may be removed despite the limits.
        limit: how many files of each directory are for people.

    Raises:
        EntityNotFoundError: there is no such process.
        InstanceQueryError: the process is not a mirror, or not on that cluster.
    """
    record, mirror = _find(context, process, cluster)
    planned = plan_mirror(context.stores, mirror, context.real_clock, approved)
    with context.database.read() as connection:
        refused = find_refused_writes(connection, context.timeline, record, [context.as_of])
    if refused:
        planned = [replace(each, refusal=refused[context.as_of]) for each in planned]
    directories = tuple(map(ShownMirror.of, planned))
    return MirrorPlans(process=record.process, cluster=record.cluster, directories=directories, limit=limit)


def list_snapshots(context: OperationContext, process: str, cluster: str | None) -> MirrorSnapshotList:
    """List the existing snapshots of a mirror, even if it no longer makes any. Raises as `plan_mirrors`."""
    record, mirror = _find(context, process, cluster)
    found = {
        target.url: tuple(SnapshotKeeper(context.stores, Side(store=target.store, path=target.path)).find_all())
        for _, target in mirror.directories
    }
    return MirrorSnapshotList(process=record.process, cluster=record.cluster, snapshots=found)


def _find(context: OperationContext, process: str, cluster: str | None) -> tuple[ProcessRecord, MirrorRecord]:
    record = context.only_process(process, cluster)
    if record.mirror is None:
        raise InstanceQueryError(
            subject=f"process {process!r}",
            reason=f"it is not a mirror; its engine is {record.engine}",
            next_step="Name a process with the engine directory-mirror.",
        )
    return record, record.mirror
