"""One attempt at one process instance: lease, gate, work, publication, record.

The order is the guarantee. Nothing becomes visible before the work is whole, nothing is published by a worker whose
lease was taken over, and an attempt that broke off anywhere is repeated to the same end.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from feed_assets.engines.port import Engine, InputData, SubmitOptions, Work, WorkReport
from feed_assets.engines.registry import open_engine
from feed_assets.entities.process import Workflow
from feed_assets.lifecycle.attempt_steps import AttemptSteps, OnPublished, Published
from feed_assets.lifecycle.errors import OutputOutsideValidityError
from feed_assets.lifecycle.inputs import InputReader
from feed_assets.lifecycle.job_properties import job_properties, text_context, with_inputs, with_overrides
from feed_assets.lifecycle.late_inputs import find_late_inputs
from feed_assets.lifecycle.lateness import choose_workflow
from feed_assets.lifecycle.leasing import Leased
from feed_assets.lifecycle.replication.mirroring import MirrorEngine
from feed_assets.lifecycle.replication.requests import OnProgress
from feed_assets.lifecycle.work_data import output_target
from feed_assets.plan.records import FeedRecord, OutputEdge, ProcessRecord
from feed_assets.state.errors import FencedOutError
from feed_assets.state.records import (
    FeedEventKind,
    FeedInstanceStatus,
    Lease,
    ProcessInstanceStatus,
)
from feed_assets.storage.manifests import Publication
from feed_assets.storage.port import InstanceStore
from feed_assets.storage.records import Manifest, Staging
from feed_assets.timing.text import TextContext, render_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


ALL_TIMES = datetime(1970, 1, 1, tzinfo=UTC)
"""The nominal time of the lease under which all instances of a mirror write one directory."""


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
class InstanceRunner(AttemptSteps):
    """Runs process instances, one after the other, for one Dagster run or one simulation.

    `session` opens Spark on first use; `root` is the folder that relative workflow files are below; `engines` opens an
    engine by its name, in the place of the real ones. `on_report` is told what an attempt that has succeeded says of
    itself, `on_progress` how far copies have come.
    """

    root: Path
    session: "Callable[[], SparkSession]"
    engines: Callable[[str], Engine] | None = None
    on_report: Callable[[datetime, WorkReport], None] = lambda *_: None
    on_progress: OnProgress | None = None

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
            if process.mirror is not None:
                leased.acquire(f"mirror/{process.process}", ALL_TIMES)
            claims = self.claim(leased, process, nominal_time)
            begun = self.begin(process, nominal_time)
            process = with_overrides(process, begun.overrides)
            try:
                published = self._attempt(stack, leased, process, nominal_time, begun.attempt, claims, on_published)
            except FencedOutError:
                raise
            except Exception as exc:
                with suppress(FencedOutError):
                    reason = f"{type(exc).__name__}: {exc}"
                    self.end(leased, process, nominal_time, ProcessInstanceStatus.FAILED, reason=reason)
                raise
            except BaseException:
                with suppress(FencedOutError):
                    reason = "the run was interrupted"
                    self.end(leased, process, nominal_time, ProcessInstanceStatus.KILLED, reason=reason)
                raise
            self.end(leased, process, nominal_time, ProcessInstanceStatus.SUCCEEDED, reason=None)
            return published

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
        workflow = choose_workflow(process, late)
        inputs = self.gate(leased, process, nominal_time)
        context = text_context(self.plan, process, nominal_time)
        reader = stack.enter_context(InputReader(self.plan, self.stores, context, self.places))
        data = tuple(reader.read(state) for state in inputs)
        targets = [self._target(stack, edge, claims.get(edge.name), nominal_time, attempt) for edge in process.outputs]
        work = self._work(process, workflow, nominal_time, attempt, data, targets, with_inputs(context, data))
        report = self._engine(leased, process, work).run(work, self.session)
        rows = {output.name: output.rows for output in report.outputs}
        published = []
        for target in targets:
            manifest = self._publish(leased, target, process)
            done = Published(
                record=target.record,
                output=target.edge.name,
                nominal_time=target.nominal_time,
                content=Publication.of(manifest),
                rows=rows[target.edge.name],
                url=target.store.url(target.path),
                inputs={state.edge.name: len(state.present) for state in inputs},
                missing={state.edge.name: state.missing for state in inputs if state.missing},
                late=late,
                details={**report.details, **reader.ways()},
                attempt=attempt,
                seconds=(self.wall.now() - began).total_seconds(),
            )
            payload = {"process": process.process, "rows": done.rows}
            self.record(leased, target.lease, done, FeedEventKind.PRODUCED, FeedInstanceStatus.AVAILABLE, payload)
            on_published(done)
            published.append(done)
        self.on_report(nominal_time, report)
        return tuple(published)

    def _engine(self, leased: Leased, process: ProcessRecord, work: Work) -> Engine:
        if self.engines is not None:
            return self.engines(work.engine)
        if process.mirror is None:
            return open_engine(work.engine)
        return MirrorEngine(
            mirror=process.mirror,
            stores=self.stores,
            clock=self.wall,
            guard=leased.check,
            is_remote=self.plan.clusters[process.cluster].spark_remote is not None,
            on_progress=self.on_progress,
        )

    def _work(
        self,
        process: ProcessRecord,
        workflow: Workflow,
        nominal_time: datetime,
        attempt: int,
        data: tuple[InputData, ...],
        targets: Sequence[_Target],
        context: TextContext,
    ) -> Work:
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

    def _target(
        self, stack: ExitStack, edge: OutputEdge, lease: Lease | None, nominal_time: datetime, attempt: int
    ) -> _Target:
        if lease is None:
            raise OutputOutsideValidityError(
                process=edge.process, output=edge.name, feed=edge.feed, nominal_time=nominal_time
            )
        record = self.plan.feeds[edge.feed_key]
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
