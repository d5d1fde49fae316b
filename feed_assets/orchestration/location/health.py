"""Say what is wrong with a location: the issues of its files, and what fails in the ticks of its clusters.

The check on the location's own asset shows it, and a message tells other programs. Both come when something begins or
ceases to fail.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import dagster as dg

from feed_assets.command_lines import command_line
from feed_assets.context.bulkheads import ADDRESSES, TickFailure, TickFailures, TickStep, without_outages
from feed_assets.context.safe_mode import HELD, is_restored
from feed_assets.entities.common import Kind
from feed_assets.entities.flow_names import describe_process
from feed_assets.instances.inbox.inbox_files import find_ahead
from feed_assets.instances.late.store import BehindCopies, LateChecks
from feed_assets.issues import Issue, Severity
from feed_assets.log.cursors import Cursors
from feed_assets.log.instances.arrival_polls import ArrivalPolls
from feed_assets.log.messages.outbox import Outbox
from feed_assets.log.messages.payloads import HealthPayload
from feed_assets.log.messages.records import OutboxMessage
from feed_assets.log.records import LackingFeed, ObstructedFeed
from feed_assets.masking import mask
from feed_assets.orchestration import names
from feed_assets.plan.copy_records import endpoint_of
from feed_assets.plan.records import FeedRecord, Plan
from feed_assets.plan.rendering import counted, render_first, render_length
from feed_assets.sql.database import Database, lock_log
from feed_assets.timing.dates import render_datetime

TOLD_AFTER = timedelta(minutes=1)
"""How long something must fail, in real time, before a message tells of it."""
MOST_TOLD = 20
"""How many sentences a message has."""

_TOLD = "health/told"


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The issues of a location, the failures of its ticks, the feeds with instances that cannot be polled, those with
    instances that were materialized without data, the flows whose replicas are `behind`, the feeds with files in an
    inbox that are `ahead` of the time, and whether the state was restored and must be rebuilt.
    """

    issues: Sequence[Issue]
    failures: Sequence[TickFailure]
    obstructed: Sequence[ObstructedFeed]
    lacking: Sequence[LackingFeed] = ()
    behind: Sequence[BehindCopies] = ()
    ahead: Sequence[tuple[FeedRecord, str]] = ()
    is_restored: bool = False

    @property
    def digest(self) -> str:
        """A digest of what is wrong, without how often and why."""
        units = list(self.units())
        units += [f"{each.cluster}|{each.feed}" for each in self.obstructed]
        units += [f"{each.cluster}|{each.feed}|lacking" for each in self.lacking]
        units += [f"{each.cluster}|{each.flow}|behind" for each in self.behind]
        units += [f"{record.cluster}|{record.feed}|ahead" for record, _ in self.ahead]
        units += ["restored"] if self.is_restored else []
        return hashlib.sha256("\n".join(units).encode()).hexdigest()[:16] if units else ""

    def check(self, location: dg.AssetKey) -> dg.AssetCheckEvaluation:
        """Return the result of the check on a location's asset: passed if no file has an error and nothing fails."""
        errors = [issue for issue in self.issues if issue.severity is Severity.ERROR]
        failing = self.sentences()
        numbers = (len(errors), "error"), (len(self.issues) - len(errors), "warning"), (len(failing), "failure")
        counts = ", ".join(counted(count, noun) for count, noun in numbers)
        texts = {"issues": [issue.render() for issue in self.issues], "failures": failing}
        found = {name: sentences for name, sentences in texts.items() if sentences}
        return dg.AssetCheckEvaluation(
            asset_key=location,
            check_name=names.LOCATION_CHECK,
            passed=not errors and not failing,
            severity=dg.AssetCheckSeverity.ERROR,
            description="\n\n".join([counts, *map(render_first, found.values())]),
            metadata={
                name: dg.MetadataValue.md("\n".join(f"- {sentence}" for sentence in sentences))
                for name, sentences in found.items()
            },
        )

    def describe(self, cluster: str) -> str:
        """Return a phrase about what fails on a cluster; empty if nothing does."""
        return _phrase(self.sentences(cluster))

    def units(self, cluster: str | None = None) -> dict[str, TickFailure]:
        """Return what fails in the ticks by its name; an address is one for all clusters."""
        return {_name(each): each for each in self.failures if cluster in (None, each.cluster)}

    def sentences(self, cluster: str | None = None) -> list[str]:
        """Return what fails, a sentence each; on one cluster if given."""
        return [
            *([HELD] if self.is_restored else []),
            *(mask(describe_failure(each)) for each in self.units(cluster).values()),
            *(mask(describe_obstructed(each)) for each in self.obstructed if cluster in (None, each.cluster)),
            *(describe_lacking(each) for each in self.lacking if cluster in (None, each.cluster)),
            *(describe_behind(each) for each in self.behind if cluster in (None, each.cluster)),
            *(sentence for record, sentence in self.ahead if cluster in (None, record.cluster)),
        ]


def find_health(database: Database, plan: Plan, issues: Sequence[Issue], as_of: datetime) -> Health:
    """Read what fails now on the clusters of a plan; a few small reads if nothing does.

    What fails because of an address that fails is left out: one outage is one failure.
    """
    produced = {key for key, record in plan.feeds.items() if record.produced_by is not None}
    with database.read() as connection:
        failures = TickFailures(connection).all()
        obstructed = ArrivalPolls(connection).obstructed()
        lacking = ArrivalPolls(connection).lacking(produced) if produced else []
        behind = LateChecks(connection).behind(as_of)
        ahead = find_ahead(connection, (record for name in plan.clusters for record in plan.with_inbox_on(name)))
        is_held = is_restored(connection)
    away = {each.subject for each in failures if each.step in ADDRESSES}
    return Health(
        issues=issues,
        failures=[each for each in without_outages(failures, away) if each.cluster in plan.clusters],
        obstructed=[
            each
            for each in obstructed
            if (feed := plan.feeds.get((each.feed, each.cluster)))
            and not away & {endpoint_of(feed.store), feed.store.url}
        ],
        lacking=lacking,
        behind=[each for each in behind if (each.flow, each.cluster) in plan.processes],
        ahead=ahead,
        is_restored=is_held,
    )


def tell_health(database: Database, health: Health, as_of: datetime, real_now: datetime) -> None:
    """Write a message if it is something else that fails than at the last one, with what works again, and after how
    long. Without news this is one read.

    A failure that has not lasted for `TOLD_AFTER` is not told: most end by the next try. Nor is one with the same
    reason as what keeps a feed from being polled.
    """
    known = {each.obstacle for each in health.obstructed}
    lasting = [each for each in health.failures if real_now - each.since >= TOLD_AFTER and each.reason not in known]
    told = replace(health, failures=lasting)
    with database.read() as connection:
        last = Cursors(connection).get(_TOLD)
    digest, _, before = (last or "").partition(" ")
    if digest == told.digest:
        return
    sentences, units = told.sentences(), {name: each.since.isoformat() for name, each in told.units().items()}
    ended = [(name, datetime.fromisoformat(since)) for name, since in json.loads(before or "{}").items()]
    recovered = [
        f"{mask(name)} works again after {render_length(real_now - since)}: it failed from {render_datetime(since)} on"
        for name, since in ended
        if name not in units
    ]
    most = slice(MOST_TOLD)
    payload = HealthPayload(count=len(sentences), failing=tuple(sentences[most]), recovered=tuple(recovered[most]))
    key = f"health/{as_of.isoformat()}/{told.digest}"
    with database.begin() as connection:
        lock_log(connection)
        if Cursors(connection).get(_TOLD) != last:  # the tick of another cluster was faster
            return
        Cursors(connection).put(_TOLD, f"{told.digest} {json.dumps(units)}")
        Outbox(connection).append_many([OutboxMessage(recorded_at=as_of, payload=payload, idempotency_key=key)])


def describe_failing(database: Database, cluster: str, *steps: TickStep) -> str:
    """Return a phrase about what fails in steps of a cluster; empty if nothing does."""
    with database.read() as connection:
        failures = [each for each in TickFailures(connection).all() if each.cluster == cluster and each.step in steps]
    return _phrase([mask(describe_failure(each)) for each in failures])


def _phrase(sentences: Sequence[str]) -> str:
    return f"; {counted(len(sentences), 'failure')}: {sentences[0]}" if sentences else ""


def _name(failure: TickFailure) -> str:
    """Return a unit of work by its name."""
    subject = f" of {failure.subject}" if failure.subject else ""
    return f"{failure.step}{subject}" + ("" if failure.step in ADDRESSES else f" on {failure.cluster}")


def describe_failure(failure: TickFailure) -> str:
    """Return a failure as a sentence."""
    return f"{_name(failure)} fails since {render_datetime(failure.since)}: {failure.reason}"


def describe_obstructed(feed: ObstructedFeed) -> str:
    """Return as a sentence that instances of a feed cannot be polled."""
    return (
        f"{counted(feed.instances, 'instance')} of feed {feed.feed} on {feed.cluster} cannot be polled, the oldest "
        f"{render_datetime(feed.oldest)}: {feed.obstacle}"
    )


def describe_lacking(feed: LackingFeed) -> str:
    """Return as a sentence that instances of a feed were materialized, but their data are not there."""
    return (
        f"materialized without data: {counted(feed.instances, 'instance')} of feed {feed.feed} on {feed.cluster}, "
        f"the oldest {render_datetime(feed.oldest)}"
    )


def describe_behind(copies: BehindCopies) -> str:
    """Return as a sentence that replicas of a flow are behind their source."""
    why = command_line("why", copies.flow, copies.oldest, kind=Kind.PROCESS.value, cluster=copies.cluster)
    return (
        f"behind: {counted(copies.instances, 'instance')} of {describe_process(copies.flow)} on {copies.cluster}, the "
        f"oldest {render_datetime(copies.oldest)}: the source has other content than the replica. {why}"
    )
