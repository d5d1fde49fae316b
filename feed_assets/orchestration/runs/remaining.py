"""What is left of a run to do: which of its instances still need it, and when it gives way to one that goes first."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

import dagster as dg

from feed_assets.clock import Stopwatch
from feed_assets.entities.process import Order
from feed_assets.instances.attempts.attempt_inputs import has_same_inputs
from feed_assets.instances.gates.requests import find_beginnings
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import EntityKey, ProcessInstance, ProcessInstanceStatus, ProcessKey
from feed_assets.orchestration import names
from feed_assets.orchestration.location.runtime import Runtime
from feed_assets.plan.records import ProcessRecord
from feed_assets.plan.rendering import counted
from feed_assets.releases.timeline import ReleaseTimeline
from feed_assets.sql.database import Database
from feed_assets.timing.dates import NEVER, render_datetime
from feed_assets.triggers.input_windows import check_gate

RunContext: TypeAlias = dg.AssetExecutionContext | dg.OpExecutionContext

SHORTEST_REST = 30.0
"""Seconds of work, as a run expects them, for which it does not give way: the next tick may take as long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remaining:
    """What is left of one run. `say` writes a line to the run's log; `ended` has the instances that have ended."""

    context: RunContext
    runtime: Runtime
    process: ProcessRecord
    say: Callable[[int, str], None]
    ended: list[str] = field(default_factory=list)
    watch: Stopwatch = field(default_factory=Stopwatch)

    @property
    def request(self) -> str | None:
        """The request of a sensor that the run serves; None if somebody started it, for example again."""
        return None if self.context.run.parent_run_id else self.context.run.tags.get(names.TAG_REQUEST)

    def is_needed(self, timeline: ReleaseTimeline, nominal_time: datetime) -> bool:
        """Return whether an instance still needs the run: one that the sensor or an automation condition requested, or
        one that does again what has failed; always True for another run started by hand.
        """
        request = self.request
        if any(self.context.run.tags.get(tag) == "true" for tag in names.RESUMED):
            return not self._is_kept(timeline, nominal_time)
        if request is None and names.TAG_AUTOMATED not in self.context.run.tags:
            return True
        with self.runtime.database(self.context.instance).read() as connection:
            row = ProcessInstances(connection).get(*self.process.key, nominal_time)
        if row is None:
            return True
        is_begun_or_ready = row.status in {ProcessInstanceStatus.READY, ProcessInstanceStatus.RUNNING}
        is_requested = row.request_key == request and is_begun_or_ready
        if request is None:
            is_requested = is_requested or not self._has_succeeded_since(row, self.context.run.run_id)
        if not is_requested:
            self.say(logging.INFO, f"{render_datetime(nominal_time)} no longer needs a run")
        return is_requested

    def _is_kept(self, timeline: ReleaseTimeline, nominal_time: datetime) -> bool:
        """Return whether an instance has succeeded since the first of the runs that this one repeats was requested, by
        the release and from the inputs that an attempt would have now.
        """
        run, now = self.context.run, self.runtime.clock.now()
        with self.runtime.database(self.context.instance).read() as connection:
            row = ProcessInstances(connection).get(*self.process.key, nominal_time)
            active = timeline.find_or_declared(connection, self.process.key, nominal_time)
            if row is None or active is None or row.definition_digest != active.record.definition_digest:
                return False
            states, _ = check_gate(connection, active.plan, active.record, row, now)
            is_same = row.release == active.release and has_same_inputs(connection, active.plan, row, states)
        root = run.root_run_id or run.tags.get(names.ROOT_RUN) or run.run_id
        is_kept = is_same and self._has_succeeded_since(row, root)
        if is_kept:
            why = f"run {row.run_id} has made it, and its inputs and its release are the same"
            self.say(logging.INFO, f"{render_datetime(nominal_time)} is kept: {why}. 'Re-execute all' makes it anew")
        return is_kept

    def _has_succeeded_since(self, row: ProcessInstance, run_id: str) -> bool:
        """Return whether an instance has succeeded since a run was requested."""
        record = self.context.instance.get_run_record_by_id(run_id)
        if record is None or row.status is not ProcessInstanceStatus.SUCCEEDED or row.ended_at is None:
            return False
        waited = self.runtime.real_clock.now() - record.create_timestamp
        return row.ended_at >= self.runtime.clock.now() - waited

    def gives_way(self, coming: Sequence[datetime]) -> bool:
        """Return whether the run ends before the instances `coming`, because one that goes before them waits: they are
        READY again then.
        """
        ended, request = len(self.ended), self.request
        if request is None or not ended or self.watch.seconds / ended * len(coming) < SHORTEST_REST:
            return False
        database, as_of = self.runtime.database(self.context.instance), self.runtime.clock.now()
        given = give_way(database, self.process, request, coming[0], as_of)
        if given is None:
            return False
        first, back = given
        again = ", and has run before" if first.is_again else ""
        ends = " to ".join(sorted({render_datetime(back[0].nominal_time), render_datetime(back[-1].nominal_time)}))
        line = f"{render_datetime(first.nominal_time)} is ready{again}: it goes first ({self.process.order.value})"
        self.say(logging.INFO, f"{line}. {counted(len(back), 'instance')} of this run ({ends}) are READY again")
        return True


def give_way(
    database: Database, process: ProcessRecord, request_key: str, coming: datetime, as_of: datetime
) -> tuple[ProcessInstance, Sequence[ProcessKey]] | None:
    """Return the rest of a run to READY if an instance goes before its next one, `coming`, that became READY after the
    run was requested, and no run is free for it. So a run gives way once to each instance at most.

    Returns that instance, and what was returned to READY; None if the run goes on.
    """
    is_newest = process.order is not Order.FIFO
    with database.begin() as connection:
        instances = ProcessInstances(connection)
        begun = find_beginnings(connection, [process]).get(EntityKey(*process.key), NEVER)
        first = instances.first_unrequested(*process.key, newest_first=is_newest, begun=begun)
        row = instances.get(*process.key, coming) if first is not None else None
        is_ready = row is not None and row.status is ProcessInstanceStatus.READY and row.request_key == request_key
        if first is None or row is None or not is_ready:
            return None
        goes_first = first.nominal_time > coming
        if not is_newest:
            turns = [(not each.is_again and each.nominal_time < begun, each.nominal_time) for each in (first, row)]
            goes_first = turns[0] < turns[1]
        is_newer = first.ready_at is not None and first.ready_at > row.updated_at
        is_busy = instances.in_flight([process.key]).get(EntityKey(*process.key), 0) >= process.parallel
        if not (goes_first and is_newer and is_busy):
            return None
        return first, instances.free(process.cluster, request_key, as_of)
