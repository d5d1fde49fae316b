"""Kill, suspend, resume, and run again: what people do to instances of processes and copies in a range of times."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from feed_assets.entities.common import Kind
from feed_assets.entities.flow_names import describe_process, parse_flow
from feed_assets.lifecycle.instance_actions import Acted, InstanceAction, apply_action, decide_action
from feed_assets.operations.errors import InstanceQueryError
from feed_assets.operations.instances.lifecycles import find_work
from feed_assets.operations.instances.ranges import Lifecycle
from feed_assets.operations.safe_mode import Operation, require_mode
from feed_assets.operations.scene import Scene
from feed_assets.state.audit import Audit
from feed_assets.state.definition_records import AuditEntry
from feed_assets.state.process_instances import ProcessInstances
from feed_assets.state.records import ProcessInstance
from feed_assets.timing.dates import render_datetime

VERSION = 1
_MINUTE = timedelta(minutes=1)

_OPERATIONS = {
    InstanceAction.KILL: Operation.INSTANCE_KILL,
    InstanceAction.SUSPEND: Operation.INSTANCE_SUSPEND,
    InstanceAction.RESUME: Operation.INSTANCE_RESUME,
    InstanceAction.RERUN: Operation.INSTANCE_RERUN,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Controlled:
    """What an action did to each instance in its range, oldest first; the runs of `stopped` are still to be ended.

    `process` is what was named: a process, a flow, or a feed that is copied.
    """

    action: InstanceAction
    process: str
    acted: tuple[Acted, ...]
    stopped: tuple[ProcessInstance, ...] = ()
    is_dry_run: bool = False

    @property
    def changed(self) -> int:
        """How many instances the action did something to."""
        return sum(each.is_changed for each in self.acted)

    def render_summary(self) -> str:
        """One line: what was done."""
        would = "would change" if self.is_dry_run else "changed"
        return f"{self.action.value}: {would} {self.changed} of {len(self.acted)} instances of {self.process}"

    def to_json(self) -> dict[str, object]:
        """The JSON form, `version` 1."""
        return {
            "version": VERSION,
            "action": self.action.value,
            "process": self.process,
            "dry_run": self.is_dry_run,
            "changed": self.changed,
            "instances": [
                {
                    "instance": render_datetime(each.instance.nominal_time),
                    "cluster": each.instance.cluster,
                    **_source(each.instance),
                    "before": each.before.value,
                    "after": each.after.value,
                    "run_id": each.instance.run_id,
                }
                for each in self.acted
            ],
        }


def _source(instance: ProcessInstance) -> dict[str, str]:
    """Where a copy comes from; nothing for an instance of a process."""
    flow = parse_flow(instance.process)
    return {} if flow is None else {"sourceCluster": flow[1]}


def control_instances(
    scene: Scene,
    action: InstanceAction,
    process: str,
    start: datetime,
    end: datetime,
    *,
    author: str,
    lifecycles: Collection[Lifecycle] = (),
    clusters: Collection[str] | None = None,
    overrides: Mapping[str, str] | None = None,
    force: bool = False,
    dry_run: bool = False,
) -> Controlled:
    """Do something to the instances of a process, or the copies of a feed, with `start <= nominal time < end`.

    Those that have not come into being are left alone. What an action cannot act on stays as it is; that is no error.

    Args:
        scene: the definitions and the record.
        action: what to do.
        process: whose instances: the name of a process or flow, or of a feed that is copied.
        start: the first nominal time.
        end: the nominal time that is too late.
        author: who asks.
        lifecycles: replication for the copies of a feed, where a process has its name, too.
        clusters: only on these; None for all.
        overrides: properties for the runs to come, in the place of those of the process; only to run again.
        force: forget the properties of earlier re-runs; only to run again.
        dry_run: say what would be done.

    Raises:
        EntityNotFoundError: nothing of that name is declared.
        InstanceQueryError: the end is before the start, a cluster is none of the process's, only a re-run takes what
            is given, or the lifecycle is another one.
        SafeModeError: safe mode forbids it.
    """
    require_mode(scene.database, _OPERATIONS[action])
    names = find_work(scene, process, lifecycles).names
    _check(scene, action, names, start, end, clusters, overrides or force)
    rows = _rows(scene, names, start, end, clusters)
    if dry_run:
        acted = tuple(Acted(instance=row, after=decide_action(action, row.status)) for row in rows)
        return Controlled(action=action, process=process, acted=acted, is_dry_run=True)
    with scene.read():
        pass  # the releases, for the deadlines of what waits again
    effects = apply_action(
        scene.database,
        scene.governance,
        action,
        [row.key for row in rows],
        author=author,
        as_of=scene.as_of,
        overrides={} if force and overrides is None else overrides,
    )
    done = Controlled(
        action=action,
        process=process,
        acted=effects.acted,
        stopped=effects.stopped,
    )
    _note(scene, done, names, start, end, author)
    return done


def _check(
    scene: Scene,
    action: InstanceAction,
    names: Sequence[str],
    start: datetime,
    end: datetime,
    clusters: Collection[str] | None,
    is_rerun_wanted: object,
) -> None:
    known = sorted({cluster for name in names for cluster in scene.clusters_of(Kind.PROCESS, name)})
    label = " and ".join(map(describe_process, names))
    if end < start:
        raise InstanceQueryError(
            subject=f"end {render_datetime(end)}",
            reason=f"it is before the start {render_datetime(start)}",
            next_step="Give a later end; it is not included itself.",
        )
    unknown = sorted(set(clusters or ()) - set(known))
    if unknown:
        raise InstanceQueryError(
            subject=f"cluster {', '.join(unknown)}",
            reason=f"{label} is not on it",
            next_step=f"It is on {', '.join(known)}.",
        )
    if is_rerun_wanted and action is not InstanceAction.RERUN:
        raise InstanceQueryError(
            subject="properties", reason="only instances that run again take them", next_step="Use rerun."
        )


def _rows(
    scene: Scene, names: Sequence[str], start: datetime, end: datetime, clusters: Collection[str] | None
) -> list[ProcessInstance]:
    with scene.database.read() as connection:
        instances = ProcessInstances(connection)
        return [
            row
            for process in names
            for cluster in scene.clusters_of(Kind.PROCESS, process)
            if clusters is None or cluster in clusters
            for row in instances.find_between(process, cluster, start, end - _MINUTE)
        ]


def _note(scene: Scene, done: Controlled, names: Sequence[str], start: datetime, end: datetime, author: str) -> None:
    if not done.changed:
        return
    entry = AuditEntry(
        recorded_at=scene.as_of,
        author=author,
        action=f"instance {done.action.value}",
        target=" and ".join(map(describe_process, names)),
        details={"start": render_datetime(start), "end": render_datetime(end), "instances": done.changed},
    )
    with scene.database.begin() as connection:
        Audit(connection).append(entry)
