"""Stage the outputs of an attempt, and publish what was staged: of each feed instance, where it goes and under which
lease.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime

from feed_assets.catalog.facts import Facts
from feed_assets.clock import Stopwatch
from feed_assets.context.lifecycle import AttemptContext
from feed_assets.engines.port import InputEvent, Judged, OutputReport, OutputTarget
from feed_assets.instances.attempts.displacement import OutputPlace
from feed_assets.instances.attempts.made_from import render_taken
from feed_assets.instances.attempts.verdicts import QUALITY, Verdict, decide_verdict, name_kept
from feed_assets.instances.attempts.work_data import output_target
from feed_assets.instances.errors import OutputOutsideValidityError
from feed_assets.instances.leasing import Leased
from feed_assets.instances.steps.attempt_steps import AttemptStep, OnStep, StepKind, StepPart
from feed_assets.log.records import Lease, ProcessKey
from feed_assets.plan.edges import OutputEdge
from feed_assets.plan.records import FeedRecord, ProcessRecord
from feed_assets.storage.clearing import adopt_content
from feed_assets.storage.port import InstanceStore
from feed_assets.storage.records import Manifest, StagingPlace


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One output of an attempt: the feed instance, its staging, and what stands in its place.

    If it `is_adopted`, what stands there becomes the instance.
    """

    edge: OutputEdge
    record: FeedRecord
    store: InstanceStore
    staging: StagingPlace
    lease: Lease
    place: OutputPlace
    is_adopted: bool

    @property
    def nominal_time(self) -> datetime:
        return self.lease.nominal_time

    @property
    def path(self) -> str:
        return self.record.path(self.nominal_time)

    def is_left_out(self, reports: Mapping[str, OutputReport]) -> bool:
        """Return whether the work has left out this output: it is optional, and has no report or no file."""
        if not self.edge.optional or self.is_adopted:
            return False
        if self.find_report(reports) is None:
            return True
        return self.edge.quarantine_of is None and not self.store.staged_files(self.path, self.staging.token)

    def find_report(self, reports: Mapping[str, OutputReport]) -> OutputReport | None:
        """Return what the work has reported about it; about a quarantine, with the output whose bad rows it takes."""
        if not self.edge.optional:
            return reports[self.edge.name]
        report = reports.get(self.edge.quarantine_of or self.edge.name)
        if report is None or self.edge.quarantine_of is None:
            return report
        return report.judged.quarantine if report.judged is not None else None

    def keep(self, judged: Judged) -> None:
        """Keep those files in the staging that are to be published, if rows were told apart."""
        if judged.kept is not None:
            files = self.store.staged_files(self.path, self.staging.token)
            self.store.keep_staged(self.path, self.staging.token, name_kept(files, judged.kept))


def stage_target(
    context: AttemptContext,
    stack: ExitStack,
    edge: OutputEdge,
    lease: Lease | None,
    nominal_time: datetime,
    attempt: int,
    properties: Mapping[str, object],
) -> Target:
    """Make the staging of an output; `stack` discards it in the end.

    Raises:
        OutputOutsideValidityError: the feed has no instance for this nominal time.
    """
    if lease is None:
        raise OutputOutsideValidityError(
            process=edge.process, output=edge.name, feed=edge.feed, nominal_time=nominal_time
        )
    record = context.plan.feeds[edge.feed_key]
    store = context.stores.get(record.store)
    place = OutputPlace.of(context, record, lease.nominal_time, properties)
    is_adopted = place.is_to_adopt(store, record)
    staging = store.stage(record.path(lease.nominal_time), f"{context.run_id}.{lease.token}.{attempt}")
    stack.callback(store.discard, staging)
    return Target(
        edge=edge, record=record, store=store, staging=staging, lease=lease, place=place, is_adopted=is_adopted
    )


def output_targets(targets: Sequence[Target]) -> tuple[OutputTarget, ...]:
    """Return the outputs for the work; each has the quarantine of its bad rows, if both are written."""
    adopted = {each.edge.name for each in targets if each.is_adopted}
    quarantines = {
        each.edge.quarantine_of: output_target(each.edge.name, each.record, each.nominal_time, each.staging.url)
        for each in targets
        if each.edge.quarantine_of is not None and adopted.isdisjoint((each.edge.name, each.edge.quarantine_of))
    }
    return tuple(
        output_target(
            each.edge.name,
            each.record,
            each.nominal_time,
            each.staging.url,
            optional=each.edge.optional,
            quarantine=quarantines.get(each.edge.name),
        )
        for each in targets
        if each.edge.quarantine_of is None
    )


def judge_targets(
    context: AttemptContext,
    leased: Leased,
    key: ProcessKey,
    attempt: int,
    targets: Sequence[Target],
    reports: Mapping[str, OutputReport],
) -> dict[str, Verdict]:
    """Decide about each output of an attempt that is held to a quality, by its name, and record the figures."""
    verdicts: dict[str, Verdict] = {}
    for target in targets:
        quality, report = target.record.quality, reports.get(target.edge.name)
        if quality is not None and not target.is_adopted and report is not None and report.judged is not None:
            verdicts[target.edge.name] = decide_verdict(target.edge, target.nominal_time, quality, report.judged)
    if verdicts:
        with context.database.begin() as connection:
            leased.check_in(connection)
            for name, verdict in verdicts.items():
                Facts(connection).add(key, attempt, f"{QUALITY}{name}", verdict.facts, context.clock.now())
    return verdicts


def publish_target(
    context: AttemptContext,
    leased: Leased,
    target: Target,
    process: ProcessRecord,
    nominal_time: datetime,
    tell: OnStep | None,
    events: Mapping[str, Sequence[InputEvent]],
) -> Manifest:
    """Publish an output; its manifest names the `events` of its batch. The guard separates the two steps: before it
    everything is prepared, after it visible.
    """
    flag, name, watch, is_verified = target.record.flag, target.edge.name, Stopwatch(), False

    def say(kind: StepKind, part: StepPart) -> None:
        if tell is not None:
            tell(AttemptStep(kind=kind, nominal_time=nominal_time, seconds=watch.seconds, parts=(part,)))

    def guard() -> None:
        nonlocal watch, is_verified
        if not is_verified:
            say(StepKind.VERIFICATION, StepPart(name=name))
            watch, is_verified = Stopwatch(), True
        leased.check()

    extra = {"process": process.process, "run": context.run_id, "fence": str(target.lease.token)}
    extra |= render_taken(events)
    if target.is_adopted:
        token = f"adopt-{target.staging.token}"
        manifest = adopt_content(target.store, target.path, token, flag=flag, guard=guard, extra=extra)
    else:
        clearing = target.place.clearing
        manifest = target.store.publish(target.staging, flag=flag, guard=guard, extra=extra, clearing=clearing)
    say(StepKind.PUBLICATION, StepPart(name=name, files=manifest.files, bytes=manifest.bytes))
    return manifest
