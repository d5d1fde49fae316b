"""The outputs of one attempt: their stagings, what stands in their places, and their publication."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime

from feed_assets.catalog.run_metadata import QUALITY, Facts
from feed_assets.clock import Stopwatch
from feed_assets.context.operation import AttemptContext
from feed_assets.engines.port import InputEvent, Judged, OutputReport, OutputTarget
from feed_assets.instances.attempts.attempt_inputs import InstanceAddresses
from feed_assets.instances.attempts.attempts import HeldInstance
from feed_assets.instances.attempts.displacement import OutputPlace
from feed_assets.instances.attempts.judging import find_others
from feed_assets.instances.attempts.made_from import render_taken
from feed_assets.instances.attempts.verdicts import Verdict, name_kept
from feed_assets.instances.attempts.work_data import output_target
from feed_assets.instances.errors import OutputOutsideValidityError
from feed_assets.instances.steps.frames import StepKind, StepPart
from feed_assets.log.records import Lease
from feed_assets.plan.edges import OutputEdge
from feed_assets.plan.records import FeedRecord
from feed_assets.storage.clearing import adopt_content
from feed_assets.storage.port import InstanceStore
from feed_assets.storage.records import Manifest, StagingPlace
from feed_assets.timing.dates import render_datetime

INSTANCE = "instance"
"""The key in the manifest of a current instance that has the nominal time of the process instance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedOutput:
    """One output of a work: the feed instance, and its staging. If it `is_adopted`, the work does not write it."""

    edge: OutputEdge
    record: FeedRecord
    store: InstanceStore
    staging: StagingPlace
    nominal_time: datetime
    is_adopted: bool = False

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

    def judge(self, reports: Mapping[str, OutputReport]) -> Verdict | None:
        """Decide whether what the work has written is good enough; None if it is held to no quality."""
        quality, report = self.record.quality, reports.get(self.edge.name)
        if quality is None or self.is_adopted or report is None or report.judged is None:
            return None
        judged, feed_key = report.judged, self.edge.feed_key
        return Verdict(
            output=self.edge.name, feed_key=feed_key, nominal_time=self.nominal_time, quality=quality, judged=judged
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Target(StagedOutput):
    """One output of an attempt, with its lease and what stands in its place: that becomes the instance if it
    `is_adopted`, and stays if it is the version of the `newer` instance of the process.
    """

    lease: Lease
    place: OutputPlace
    newer: datetime | None = None

    def is_left_out(self, reports: Mapping[str, OutputReport]) -> bool:
        """Return whether nothing is published of this output."""
        return self.newer is not None or super(Target, self).is_left_out(reports)


def stage_target(held: HeldInstance, stack: ExitStack, edge: OutputEdge, lease: Lease | None, attempt: int) -> Target:
    """Make the staging of an output; `stack` discards it in the end.

    Raises:
        OutputOutsideValidityError: the feed has no instance for this nominal time.
    """
    context = held.context
    if lease is None:
        raise OutputOutsideValidityError(
            process=edge.process, output=edge.name, feed=edge.feed, nominal_time=held.nominal_time
        )
    record = context.plan.feeds[edge.feed_key]
    store = context.stores.get(record.store)
    newer = held.find_newer(record)
    place = OutputPlace.of(context, context.origin, record, lease.nominal_time, dict(held.process.properties))
    is_adopted = newer is None and place.is_to_adopt(store, record)
    staging = store.stage(record.path(lease.nominal_time), f"{context.run_id}.{lease.token}.{attempt}")
    stack.callback(store.discard, staging)
    return Target(
        edge=edge,
        record=record,
        store=store,
        staging=staging,
        nominal_time=lease.nominal_time,
        is_adopted=is_adopted,
        lease=lease,
        place=place,
        newer=newer,
    )


def output_targets(
    context: AttemptContext, targets: Sequence[StagedOutput], addresses: InstanceAddresses
) -> tuple[OutputTarget, ...]:
    """Return the outputs for the work; each has the quarantine of its bad rows, if both are written, and what its rows
    are compared with.

    Raises:
        NothingToCompareError: a feed has no instance whose keys they may have.
    """
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
            others=find_others(context, each.record, each.nominal_time, addresses),
        )
        for each in targets
        if each.edge.quarantine_of is None
    )


def judge_targets(
    held: HeldInstance, attempt: int, targets: Sequence[Target], reports: Mapping[str, OutputReport]
) -> dict[str, Verdict]:
    """Decide about each output of an attempt that is held to a quality, by its name, and record the figures."""
    verdicts = {each.edge.name: verdict for each in targets if (verdict := each.judge(reports)) is not None}
    if verdicts:
        with held.context.database.begin() as connection:
            held.check_in(connection)
            for name, verdict in verdicts.items():
                Facts(connection).add(held.key, attempt, f"{QUALITY}{name}", verdict.facts, held.context.clock.now())
    return verdicts


def publish_target(
    held: HeldInstance,
    target: Target,
    tell: Callable[[StepKind, float, Iterable[StepPart]], None],
    events: Mapping[str, Sequence[InputEvent]],
    notes: Mapping[str, str],
) -> Manifest:
    """Publish an output; its manifest names the `events` of its batch, and has the `notes`. The guard separates the two
    steps: before it everything is prepared, after it visible.
    """
    flag, name, watch, is_verified = target.record.flag, target.edge.name, Stopwatch(), False

    def guard() -> None:
        nonlocal watch, is_verified
        if not is_verified:
            tell(StepKind.VERIFICATION, watch.seconds, [StepPart(name=name)])
            watch, is_verified = Stopwatch(), True
        held.check()

    extra = {"process": held.process.process, "run": held.context.run_id, "fence": str(target.lease.token)}
    extra |= {INSTANCE: render_datetime(held.nominal_time)} if target.record.is_current else {}
    extra |= {**render_taken(events), **notes}
    if target.is_adopted:
        token = f"adopt-{target.staging.token}"
        manifest = adopt_content(target.store, target.path, token, flag=flag, guard=guard, extra=extra)
    else:
        clearing = target.place.clearing
        manifest = target.store.publish(target.staging, flag=flag, guard=guard, extra=extra, clearing=clearing)
    part = StepPart(name=name, files=manifest.files, bytes=manifest.bytes)
    tell(StepKind.PUBLICATION, watch.seconds, [part])
    return manifest
