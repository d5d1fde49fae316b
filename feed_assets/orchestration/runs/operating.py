"""The job `operate`: what Dagster has no button for, by the operations behind the commands."""

import json
from collections.abc import Sequence
from contextlib import nullcontext
from typing import NoReturn

import dagster as dg

from feed_assets.context.errors import InstanceQueryError
from feed_assets.context.operation import ChangeContext, resolve_subject
from feed_assets.context.safe_mode import require_allowed
from feed_assets.entities.common import Kind
from feed_assets.errors import describe_error
from feed_assets.instances.gates.actions import InstanceAction
from feed_assets.instances.lists.control import Controlled, control_instances
from feed_assets.instances.lists.reruns import Downstream, RerunPlan, rerun_downstream
from feed_assets.json_form import render_document
from feed_assets.log.records import ProcessInstance
from feed_assets.log.removals.records import Sweep
from feed_assets.operation_list import find_operation
from feed_assets.orchestration import names
from feed_assets.orchestration.errors import RunsNotStoppedError
from feed_assets.orchestration.location.reloading import build_context
from feed_assets.orchestration.location.runtime import Runtime
from feed_assets.orchestration.runs.operation import Operation
from feed_assets.retention.holding import HoldChange, add_holds
from feed_assets.retention.queries import HoldQuery
from feed_assets.retention.running import approve_sweep, find_sweep, undo_removals
from feed_assets.retention.sweeps.undoing import UndoResult

_RANGE = frozenset({"instance", "start", "end", "clusters"})
_DOWNSTREAM = frozenset({"downstream", "levels", "even_unchanged", "digest"})
_TAKES = {
    "rerun": _RANGE | {"properties", "from_start", *_DOWNSTREAM},
    "hold": _RANGE | {"hold", "reason"},
    "approve": frozenset[str](),
    "undo": frozenset({"instance"}),
}


_CALLED = {"hold": "hold add", "approve": "retention approve", "undo": "retention undo"}
"""The operations behind the actions, if they are not those of instances."""


def operate(runtime: Runtime, context: dg.OpExecutionContext, wanted: Operation) -> None:
    """Do what a person has launched; the log says what was done.

    Raises:
        FeedAssetsError: what the command would say; nothing was changed.
        Failure: storage has kept a part.
    """
    database, timeline, now = runtime.database(context.instance), runtime.timeline(), runtime.clock.now()
    with database.read() as connection:
        timeline.refresh(connection, now)
    tags = context.run.tags
    author = tags.get(names.TAG_USER) or tags.get("user", "dagster")
    operations = build_context(runtime, timeline, database, now)
    given = {name for name, field in Operation.model_fields.items() if getattr(wanted, name) != field.default}
    strange = sorted(given - {"action", "name", "dry_run"} - _TAKES.get(wanted.action, _RANGE))
    if strange:
        _refuse(wanted, f"it takes no {', '.join(strange)}", "Leave that out.")
    require_allowed(database, find_operation(_CALLED.get(wanted.action, f"instance {wanted.action}")))
    done = _do(operations.by(author, dry_run=wanted.dry_run), wanted)
    context.log.info(json.dumps(render_document(done=done), indent=1))
    if isinstance(done, Controlled):
        stop_runs_of(done.stopped, context.instance)
    if isinstance(done, UndoResult) and not done.is_complete:
        raise dg.Failure(done.render_summary(), allow_retries=False)


def _do(context: ChangeContext, wanted: Operation) -> Controlled | RerunPlan | HoldChange | Sweep | UndoResult:
    name, only = wanted.name, wanted.instance or None
    match wanted.action:
        case "hold":
            query = HoldQuery(
                feeds=(name,),
                clusters=tuple(wanted.clusters),
                start=wanted.start or None,
                end=wanted.end or None,
                instance=only,
                reason=wanted.reason,
            )
            return add_holds(context, wanted.hold, query)
        case "approve":
            return approve_sweep(context, find_sweep(context, name))
        case "undo":
            return undo_removals(context, find_sweep(context, name), times=[only] if only else ())
        case action:
            subject = resolve_subject(context, name, only, preferred=Kind.PROCESS, clusters=wanted.clusters)
            start, end = (subject.parse(text) if text else None for text in (wanted.start, wanted.end))
            if (start is None, end is None, only is None) not in ((False, False, True), (True, True, False)):
                _refuse(wanted, "no range is given", "Give either instance, or start and end.")
            if wanted.downstream:
                return rerun_downstream(
                    context,
                    subject,
                    start,
                    end,
                    Downstream(levels=wanted.levels or None, even_unchanged=wanted.even_unchanged),
                    digest=wanted.digest or None,
                    overrides=wanted.properties or None,
                    from_start=wanted.from_start,
                )
            if wanted.levels or wanted.even_unchanged or wanted.digest:
                _refuse(wanted, "levels, even_unchanged and digest are of what is downstream", "Say downstream, too.")
            return control_instances(
                context,
                InstanceAction(action),
                subject,
                start,
                end,
                overrides=wanted.properties or None,
                from_start=wanted.from_start,
            )


def _refuse(wanted: Operation, reason: str, next_step: str) -> NoReturn:
    raise InstanceQueryError(subject=f"{wanted.action} {wanted.name}", reason=reason, next_step=next_step)


def stop_runs_of(stopped: Sequence[ProcessInstance], of: dg.DagsterInstance | None = None) -> int:
    """Stop the runs that instances were in or had requested, and return how many there were; by default those of the
    Dagster instance of the environment.

    Raises:
        RunsNotStoppedError: some runs could not be stopped; the others were.
    """
    try:
        with dg.DagsterInstance.get() if of is None else nullcontext(of) as instance:
            runs = _runs_of(instance, stopped)
            failed = [run.run_id for run in runs.values() if not instance.run_coordinator.cancel_run(run.run_id)]
    except Exception as exc:
        found = sorted({row.run_id for row in stopped if row.run_id})
        raise RunsNotStoppedError(runs=tuple(found), reason=describe_error(exc)) from exc
    if failed:
        raise RunsNotStoppedError(runs=tuple(failed), reason="Dagster refused to end them")
    return len(runs)


def _runs_of(instance: dg.DagsterInstance, stopped: Sequence[ProcessInstance]) -> dict[str, dg.DagsterRun]:
    ids = sorted({row.run_id for row in stopped if row.run_id})
    requests = sorted({row.request_key for row in stopped if row.request_key})
    found = list(instance.get_runs(dg.RunsFilter(run_ids=ids))) if ids else []
    if requests:
        found += instance.get_runs(dg.RunsFilter(tags={names.TAG_REQUEST: requests}))
    return {run.run_id: run for run in found if not run.is_finished}
