"""What all attempts have in common, whatever the work is: claims, the beginning, the gate, the record, and the end."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from feed_assets.clock import Clock
from feed_assets.lifecycle.attempts import begin_attempt, end_attempt
from feed_assets.lifecycle.errors import InputsMissingError
from feed_assets.lifecycle.input_states import InputState, input_states
from feed_assets.lifecycle.inputs import frozen_inputs, look_again
from feed_assets.lifecycle.late_inputs import plan_late_check, scan_late_inputs
from feed_assets.lifecycle.leasing import Held, Leased
from feed_assets.lifecycle.places import Places
from feed_assets.lifecycle.run_names import origin_of
from feed_assets.lifecycle.stores import StorePool
from feed_assets.plan.records import FeedRecord, Plan, ProcessRecord
from feed_assets.state.database import Database
from feed_assets.state.event_log import EventLog
from feed_assets.state.feed_instances import FeedInstances
from feed_assets.state.process_instances import ProcessInstances
from feed_assets.state.records import (
    FeedEventKind,
    FeedInstance,
    FeedInstanceStatus,
    Lease,
    NewFeedEvent,
    ProcessInstance,
    ProcessInstanceStatus,
    ProcessKey,
)
from feed_assets.storage.manifests import Publication


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One output as it now stands: which feed instance, its content, and what it was made from.

    `late` are the inputs whose late data it was made again for.
    """

    record: FeedRecord
    output: str
    nominal_time: datetime
    content: Publication
    rows: int | None
    url: str
    inputs: Mapping[str, int]
    missing: Mapping[str, tuple[datetime, ...]]
    late: tuple[str, ...]
    details: Mapping[str, str | int | float]
    attempt: int
    seconds: float


OnPublished = Callable[[Published], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptSteps:
    """The steps of attempts at instances, for one Dagster run, one simulation, or one command (see `run_names`).

    `plan` is the one that governs the instances, `release` its number, `places` where else its inputs may lie. `clock`
    tells the time of the data, `wall` the time of day (leases and durations).
    """

    database: Database
    stores: StorePool
    plan: Plan
    clock: Clock
    wall: Clock
    run_id: str
    release: int | None = None
    places: Places = field(default_factory=dict)

    def claim(self, leased: Leased, process: ProcessRecord, nominal_time: datetime) -> dict[str, Lease]:
        """Take the leases of the feed instances to write, by output; one outside its feed's validity is left out."""
        return {
            edge.name: leased.acquire(f"feed/{edge.feed}", time)
            for edge in process.outputs
            if (time := self.plan.output_time(edge, nominal_time)) is not None
        }

    def begin(self, process: ProcessRecord, nominal_time: datetime) -> ProcessInstance:
        with self.database.begin() as connection:
            return begin_attempt(connection, process, nominal_time, self.run_id, self.clock.now(), self.release)

    def end(
        self,
        leased: Held,
        process: ProcessRecord,
        nominal_time: datetime,
        status: ProcessInstanceStatus,
        reason: str | None,
    ) -> None:
        now = self.clock.now()
        with self.database.begin() as connection:
            leased.check_in(connection)
            end_attempt(connection, ProcessKey(*process.key, nominal_time), status, reason, now)
            if status is ProcessInstanceStatus.SUCCEEDED:
                plan_late_check(connection, self.plan, process, nominal_time, now)

    def gate(self, leased: Held, process: ProcessRecord, nominal_time: datetime) -> tuple[InputState, ...]:
        """The inputs as they are frozen for this attempt; looks at storage for what the record does not know yet."""
        now = self.clock.now()
        with self.database.read() as connection:
            states = input_states(connection, self.plan, process, [nominal_time], now)[nominal_time]
        if any(state.missing for state in states):
            look_again(self.database, self.stores, self.plan, states, now)
            with self.database.read() as connection:
                states = input_states(connection, self.plan, process, [nominal_time], now)[nominal_time]
        blocked = {state.edge.name: self._missing_urls(state) for state in states if not state.is_satisfied}
        if blocked:
            raise InputsMissingError(process=process.process, nominal_time=nominal_time, missing=blocked)
        scanned = scan_late_inputs(self.database, self.stores, self.plan, states, now, self.wall.now())
        with self.database.begin() as connection:
            leased.check_in(connection)
            ProcessInstances(connection).transition(
                ProcessKey(*process.key, nominal_time),
                {ProcessInstanceStatus.RUNNING},
                inputs=frozen_inputs(connection, states, scanned),
                updated_at=now,
            )
        return states

    def _missing_urls(self, state: InputState) -> tuple[str, ...]:
        record = self.plan.feeds[state.edge.feed_key]
        store = self.stores.get(record.store)
        return tuple(store.url(record.path(time)) for time in state.missing)

    def record(
        self,
        leased: Held,
        lease: Lease,
        done: Published,
        kind: FeedEventKind,
        status: FeedInstanceStatus,
        payload: Mapping[str, Any],
    ) -> None:
        """Write down what was published: the event, and how the feed instance stands now."""
        record, content, now = done.record, done.content, self.clock.now()
        with self.database.begin() as connection:
            (seq,) = EventLog(connection).append(
                [
                    NewFeedEvent(
                        feed=record.feed,
                        cluster=record.cluster,
                        nominal_time=done.nominal_time,
                        kind=kind,
                        origin=origin_of(self.run_id),
                        manifest_digest=content.digest,
                        bytes=content.bytes,
                        files=content.files,
                        payload={
                            "path": record.path(done.nominal_time),
                            **payload,
                            "attempt": done.attempt,
                            "seconds": round(done.seconds, 3),
                            **({"late": list(done.late)} if done.late else {}),
                        },
                        recorded_at=now,
                    )
                ]
            )
            leased.check_in(connection)
            FeedInstances(connection).put(
                [
                    FeedInstance(
                        feed=record.feed,
                        cluster=record.cluster,
                        nominal_time=done.nominal_time,
                        status=status,
                        manifest_digest=content.digest,
                        bytes=content.bytes,
                        files=content.files,
                        available_at=now,
                        event_seq=seq,
                        fence=lease.token,
                        updated_at=now,
                    )
                ]
            )
