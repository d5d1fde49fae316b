"""What is left of a run to do: which of its instances still need it, and when it gives way to one that goes first."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from dagster import AssetExecutionContext, OpExecutionContext

from feed_assets.clock import Stopwatch
from feed_assets.lifecycle.instances.requests import give_way
from feed_assets.lifecycle.instances.schedules import state_without_row
from feed_assets.orchestration import names
from feed_assets.orchestration.location.runtime import Runtime
from feed_assets.plan.records import ProcessRecord
from feed_assets.plan.rendering import counted
from feed_assets.state.process_instances import ProcessInstances
from feed_assets.state.records import ProcessInstance, ProcessInstanceStatus, ProcessKey
from feed_assets.timing.dates import render_datetime

RunContext: TypeAlias = AssetExecutionContext | OpExecutionContext

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

    def is_needed(self, label: str, nominal_time: datetime) -> bool:
        """Return whether an instance still needs the run that the sensor or an automation condition requested; always
        True for a run started by hand.
        """
        request = self.request
        if request is None and names.TAG_AUTOMATED not in self.context.run.tags:
            return True
        with self.runtime.database(self.context.instance).read() as connection:
            row = ProcessInstances(connection).get(*ProcessKey(*self.process.key, nominal_time))
        is_requested = (
            row is None
            or (request is None and not self._has_succeeded_since(row))
            or (
                row.request_key == request
                and row.status in {ProcessInstanceStatus.READY, ProcessInstanceStatus.RUNNING}
            )
        )
        if not is_requested:
            self.say(logging.INFO, f"{label} no longer needs a run")
        return is_requested

    def _has_succeeded_since(self, row: ProcessInstance) -> bool:
        """Return whether another run has made the instance since this run was requested."""
        record = self.context.instance.get_run_record_by_id(self.context.run.run_id)
        if record is None or row.status is not ProcessInstanceStatus.SUCCEEDED or row.ended_at is None:
            return False
        waited = self.runtime.real_clock.now() - record.create_timestamp
        return row.ended_at >= self.runtime.clock.now() - waited

    def gives_way(self, coming: Sequence[datetime]) -> bool:
        """Return whether the run ends before the instances `coming`, because one that goes before them waits: they are
        READY again then.
        """
        ended, request = len(self.ended), self.request
        if request is None or not ended or not coming:
            return False
        if self.watch.seconds / ended * len(coming) < SHORTEST_REST:
            return False
        database, as_of = self.runtime.database(self.context.instance), self.runtime.clock.now()
        without_row = state_without_row(self.runtime.settings.schedule)
        given = give_way(database, self.process, request, coming[0], as_of, without_row)
        if given is None:
            return False
        first, back = given
        again = ", and has run before" if first.is_again else ""
        ends = " to ".join(sorted({render_datetime(back[0].nominal_time), render_datetime(back[-1].nominal_time)}))
        line = f"{render_datetime(first.nominal_time)} is ready{again}: it goes first ({self.process.order.value})"
        self.say(logging.INFO, f"{line}. {counted(len(back), 'instance')} of this run ({ends}) are READY again")
        return True
