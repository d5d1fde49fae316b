"""One attempt at one process instance: lease, gate, work, publication, record.

The order is the guarantee. Nothing becomes visible before the work is whole, nothing is published by a worker whose
lease was taken over, and an attempt that broke off anywhere is repeated to the same end.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from feed_assets.clock import Clock
from feed_assets.engines.port import Engine, InputData, SubmitOptions, Work
from feed_assets.engines.registry import open_engine
from feed_assets.lifecycle.attempts import begin_attempt, end_attempt
from feed_assets.lifecycle.errors import InputsMissingError, OutputOutsideValidityError
from feed_assets.lifecycle.input_states import InputState, input_states
from feed_assets.lifecycle.inputs import InputReader, frozen_inputs, look_again
from feed_assets.lifecycle.job_properties import job_properties, text_context, with_inputs, with_overrides
from feed_assets.lifecycle.late_inputs import find_late_inputs, plan_late_check, scan_late_inputs
from feed_assets.lifecycle.lateness import choose_workflow
from feed_assets.lifecycle.leasing import Leased
from feed_assets.lifecycle.places import Places
from feed_assets.lifecycle.stores import StorePool
from feed_assets.lifecycle.work_data import output_target
from feed_assets.plan.records import FeedRecord, OutputEdge, Plan, ProcessRecord
from feed_assets.state.database import Database
from feed_assets.state.errors import FencedOutError
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
from feed_assets.storage.port import InstanceStore
from feed_assets.storage.records import Manifest, Staging
from feed_assets.timing.text import TextContext, render_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One output as it now stands: which feed instance, its manifest, and what it was made from.

    `late` are the inputs whose late data it was made again for.
    """

    record: FeedRecord
    output: str
    nominal_time: datetime
    manifest: Manifest
    rows: int | None
    url: str
    inputs: Mapping[str, int]
    missing: Mapping[str, tuple[datetime, ...]]
    late: tuple[str, ...]
    details: Mapping[str, str]
    attempt: int
    seconds: float


OnPublished = Callable[[Published], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    edge: OutputEdge
    record: FeedRecord
    store: InstanceStore
    staging: Staging
    lease: Lease

    @property
    def nominal_time(self) -> datetime:
        return self.lease.nominal_time

    @property
    def path(self) -> str:
        return self.record.path(self.nominal_time)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRunner:
    """Runs process instances, one after the other, for one Dagster run or one simulation.

    `plan` is the one that governs the instances, `release` its number, `places` where else its inputs may lie. `clock`
    tells the time of the data, `wall` the time of day (leases and durations). `session` opens Spark on first use;
    `root` is the folder that relative workflow files are below; `engines` opens an engine by its name.
    """

    database: Database
    stores: StorePool
    plan: Plan
    clock: Clock
    wall: Clock
    root: Path
    run_id: str
    session: "Callable[[], SparkSession]"
    engines: Callable[[str], Engine] = open_engine
    release: int | None = None
    places: Places = field(default_factory=dict)

    def run(self, process: ProcessRecord, nominal_time: datetime, on_published: OnPublished) -> tuple[Published, ...]:
        """Run one instance to its end and publish its outputs; `on_published` is told of each before the end is noted.

        Raises:
            LeaseHeldError: another run works on the instance or on one of its outputs; nothing was changed.
            InputsMissingError: a mandatory input instance is missing; names which and where.
            OutputOutsideValidityError: an output's feed has no instance for it.
            EngineError: the work failed. The instance is FAILED, its old outputs stand as they were.
            FencedOutError: another worker took over; nothing of this attempt became visible after that.
        """
        with ExitStack() as stack:
            leased = stack.enter_context(Leased(self.database, self.wall, holder=self.run_id, cluster=process.cluster))
            leased.acquire(f"process/{process.process}", nominal_time)
            claims = self._claim(leased, process, nominal_time)
            begun = self._begin(process, nominal_time)
            process = with_overrides(process, begun.overrides)
            try:
                published = self._attempt(stack, leased, process, nominal_time, begun.attempt, claims, on_published)
            except FencedOutError:
                raise
            except Exception as exc:
                with suppress(FencedOutError):
                    reason = f"{type(exc).__name__}: {exc}"
                    self._end(leased, process, nominal_time, ProcessInstanceStatus.FAILED, reason=reason)
                raise
            except BaseException:
                with suppress(FencedOutError):
                    reason = "the run was interrupted"
                    self._end(leased, process, nominal_time, ProcessInstanceStatus.KILLED, reason=reason)
                raise
            self._end(leased, process, nominal_time, ProcessInstanceStatus.SUCCEEDED, reason=None)
            return published

    def _claim(self, leased: Leased, process: ProcessRecord, nominal_time: datetime) -> dict[str, Lease]:
        """Take the leases of the feed instances to write, by output; one outside its feed's validity is left out."""
        return {
            edge.name: leased.acquire(f"feed/{edge.feed}", time)
            for edge in process.outputs
            if (time := self.plan.output_time(edge, nominal_time)) is not None
        }

    def _begin(self, process: ProcessRecord, nominal_time: datetime) -> ProcessInstance:
        with self.database.begin() as connection:
            return begin_attempt(connection, process, nominal_time, self.run_id, self.clock.now(), self.release)

    def _end(
        self,
        leased: Leased,
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

    def _attempt(
        self,
        stack: ExitStack,
        leased: Leased,
        process: ProcessRecord,
        nominal_time: datetime,
        attempt: int,
        claims: Mapping[str, Lease],
        on_published: OnPublished,
    ) -> tuple[Published, ...]:
        began = self.wall.now()
        with self.database.read() as connection:
            late = find_late_inputs(connection, process, nominal_time)
        process = replace(process, workflow=choose_workflow(process, late))
        inputs = self._gate(leased, process, nominal_time)
        context = text_context(self.plan, process, nominal_time)
        reader = stack.enter_context(InputReader(self.plan, self.stores, context, self.places))
        data = tuple(reader.read(state) for state in inputs)
        targets = [self._target(stack, edge, claims.get(edge.name), nominal_time, attempt) for edge in process.outputs]
        work = self._work(process, nominal_time, attempt, data, targets, with_inputs(context, data))
        report = self.engines(work.engine).run(work, self.session)
        rows = {output.name: output.rows for output in report.outputs}
        published = []
        for target in targets:
            manifest = self._publish(leased, target, process)
            done = Published(
                record=target.record,
                output=target.edge.name,
                nominal_time=target.nominal_time,
                manifest=manifest,
                rows=rows[target.edge.name],
                url=target.store.url(target.path),
                inputs={state.edge.name: len(state.present) for state in inputs},
                missing={state.edge.name: state.missing for state in inputs if state.missing},
                late=late,
                details={**report.details, **reader.ways()},
                attempt=attempt,
                seconds=(self.wall.now() - began).total_seconds(),
            )
            self._record(leased, done, process, target)
            on_published(done)
            published.append(done)
        return tuple(published)

    def _work(
        self,
        process: ProcessRecord,
        nominal_time: datetime,
        attempt: int,
        data: tuple[InputData, ...],
        targets: Sequence[_Target],
        context: TextContext,
    ) -> Work:
        workflow = process.workflow
        outputs = tuple(output_target(t.edge.name, t.record, t.nominal_time, t.staging.url) for t in targets)
        return Work(
            process=process.process,
            cluster=process.cluster,
            nominal_time=nominal_time,
            timezone=process.sequence.timezone,
            run_id=self.run_id,
            attempt=attempt,
            inputs=data,
            outputs=outputs,
            engine=workflow.engine,
            path=workflow.path,
            root=self.root,
            properties=job_properties(process, context, data, outputs),
            libs=tuple(workflow.lib),
            submit=SubmitOptions(
                master=workflow.master or self.plan.clusters[process.cluster].spark_master,
                deploy_mode=workflow.deploy_mode,
                main_class=workflow.main_class,
                args=tuple(render_text(text, context) for text in workflow.args),
                conf=dict(workflow.conf),
                more={**dict(self.plan.clusters[process.cluster].spark_submit), **workflow.submit},
            ),
            catalog=self.plan.clusters[process.cluster].catalog,
        )

    def _gate(self, leased: Leased, process: ProcessRecord, nominal_time: datetime) -> tuple[InputState, ...]:
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
        record = self.plan.feeds[state.edge.feed, state.edge.cluster]
        store = self.stores.get(record.store)
        return tuple(store.url(record.path(time)) for time in state.missing)

    def _target(
        self, stack: ExitStack, edge: OutputEdge, lease: Lease | None, nominal_time: datetime, attempt: int
    ) -> _Target:
        if lease is None:
            raise OutputOutsideValidityError(
                process=edge.process, output=edge.name, feed=edge.feed, nominal_time=nominal_time
            )
        record = self.plan.feeds[edge.feed, edge.cluster]
        store = self.stores.get(record.store)
        staging = store.stage(record.path(lease.nominal_time), f"{self.run_id}.{lease.token}.{attempt}")
        stack.callback(store.discard, staging)
        return _Target(edge=edge, record=record, store=store, staging=staging, lease=lease)

    def _publish(self, leased: Leased, target: _Target, process: ProcessRecord) -> Manifest:
        return target.store.publish(
            target.staging,
            flag=target.record.flag,
            guard=leased.check,
            extra={"process": process.process, "run": self.run_id, "fence": str(target.lease.token)},
        )

    def _record(self, leased: Leased, published: Published, process: ProcessRecord, target: _Target) -> None:
        record, manifest, now = published.record, published.manifest, self.clock.now()
        with self.database.begin() as connection:
            (seq,) = EventLog(connection).append(
                [
                    NewFeedEvent(
                        feed=record.feed,
                        cluster=record.cluster,
                        nominal_time=published.nominal_time,
                        kind=FeedEventKind.PRODUCED,
                        origin=f"run:{self.run_id}",
                        manifest_digest=manifest.digest,
                        bytes=manifest.bytes,
                        files=manifest.files,
                        payload={
                            "path": target.path,
                            "process": process.process,
                            "rows": published.rows,
                            "attempt": published.attempt,
                            "seconds": round(published.seconds, 3),
                            **({"late": list(published.late)} if published.late else {}),
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
                        nominal_time=published.nominal_time,
                        status=FeedInstanceStatus.AVAILABLE,
                        manifest_digest=manifest.digest,
                        bytes=manifest.bytes,
                        files=manifest.files,
                        available_at=now,
                        event_seq=seq,
                        fence=target.lease.token,
                        updated_at=now,
                    )
                ]
            )
