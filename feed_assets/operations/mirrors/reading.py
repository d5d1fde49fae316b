"""What a run of a mirror would do, and which states of its target have a name."""

from collections.abc import Mapping
from dataclasses import dataclass

from feed_assets.clock import Clock
from feed_assets.entities.common import Kind
from feed_assets.lifecycle.replication.mirror_snapshots import Snapshot, SnapshotKeeper
from feed_assets.lifecycle.replication.mirroring import PlannedMirror, plan_mirror
from feed_assets.lifecycle.replication.plans import Side
from feed_assets.operations.errors import InstanceQueryError
from feed_assets.operations.scene import Scene
from feed_assets.plan.records import MirrorRecord, ProcessRecord
from feed_assets.timing.dates import render_datetime

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorPlans:
    """What a run of a mirror would do now, directory by directory."""

    process: str
    cluster: str
    planned: tuple[PlannedMirror, ...]

    @property
    def is_good(self) -> bool:
        """Whether a run would mirror all of it."""
        return all(each.refusal is None for each in self.planned)

    def to_json(self) -> dict[str, object]:
        """The JSON form, `version` 1."""
        return {
            "version": VERSION,
            "process": self.process,
            "cluster": self.cluster,
            "directories": [_planned_to_json(each) for each in self.planned],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorSnapshotList:
    """The snapshots of a mirror by the URL of each target, those of the source first, the newest first."""

    process: str
    cluster: str
    snapshots: Mapping[str, tuple[Snapshot, ...]]

    def to_json(self) -> dict[str, object]:
        """The JSON form, `version` 1."""
        return {
            "version": VERSION,
            "process": self.process,
            "cluster": self.cluster,
            "directories": [
                {"target": url, "snapshots": [_snapshot_to_json(each) for each in found]}
                for url, found in self.snapshots.items()
            ],
        }


def plan_mirrors(
    scene: Scene, wall: Clock, process: str, cluster: str | None = None, approved: int | None = None
) -> MirrorPlans:
    """Find out what a run of a mirror would do now; nothing is written.

    Args:
        scene: the definitions and the storages.
        wall: the wall clock.
        process: a mirror.
        cluster: the one that it runs on; not needed where that is one.
        approved: how many files may be removed whatever the limits say.

    Raises:
        EntityNotFoundError: there is no such process.
        InstanceQueryError: it is no mirror, or not on that cluster.
    """
    record, mirror = _find(scene, process, cluster)
    planned = plan_mirror(scene.stores, mirror, wall, approved)
    return MirrorPlans(process=record.process, cluster=record.cluster, planned=tuple(planned))


def list_snapshots(scene: Scene, process: str, cluster: str | None = None) -> MirrorSnapshotList:
    """The snapshots of a mirror that are there, whether it makes such now or not. Raises as `plan_mirrors`."""
    record, mirror = _find(scene, process, cluster)
    found = {
        target.url: tuple(SnapshotKeeper(scene.stores, Side(store=target.store, path=target.path)).find_all())
        for _, target in mirror.directories
    }
    return MirrorSnapshotList(process=record.process, cluster=record.cluster, snapshots=found)


def _find(scene: Scene, process: str, cluster: str | None) -> tuple[ProcessRecord, MirrorRecord]:
    on = scene.clusters_of(Kind.PROCESS, process)
    if cluster is None and len(on) > 1:
        raise InstanceQueryError(
            subject=f"process {process!r}",
            reason=f"it runs on {', '.join(on)}",
            next_step="Say with --cluster which of them is meant.",
        )
    record = scene.process_on(process, cluster or on[0])
    if record.mirror is None:
        raise InstanceQueryError(
            subject=f"process {process!r}",
            reason=f"it is no mirror, its engine is {record.engine}",
            next_step="Name a process with the engine directory-mirror.",
        )
    return record, record.mirror


def _planned_to_json(planned: PlannedMirror) -> dict[str, object]:
    plan = planned.plan
    document: dict[str, object] = {
        "source": planned.source,
        "target": planned.target,
        "refusal": None if planned.refusal is None else str(planned.refusal),
    }
    if plan is not None:
        document |= {
            "unchanged": plan.is_unchanged,
            "bytes": plan.bytes,
            "files": len(plan.transfers),
            "removed": len(plan.removed),
            "standing": planned.standing,
            "copies": [{"path": file.path, "bytes": file.size} for file in plan.transfers],
            "removals": list(plan.removed),
        }
    return document


def _snapshot_to_json(snapshot: Snapshot) -> dict[str, object]:
    return {
        "name": snapshot.name,
        "side": snapshot.shelf.value,
        "taken_at": render_datetime(snapshot.taken_at.replace(second=0, microsecond=0)),
        "bytes": snapshot.bytes,
        "files": snapshot.files,
        "digest": snapshot.digest,
        "content": snapshot.content,
    }
