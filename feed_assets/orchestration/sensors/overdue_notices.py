"""Report to Dagster why instances are not done, as observations with the text of `feed-assets why`; and take what
people report and wipe in its UI.

An observation does not colour the partition bar. It is reported before it is recorded, so a crash may report it twice.
A materialization of an external feed that somebody reports is a notice; where the record has it otherwise, an
observation says why. What it has of a wiped asset is told again.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import dagster as dg
from dagster._core.event_api import EventLogCursor
from dagster._core.instance.utils import RUNLESS_RUN_ID
from sqlalchemy import Connection

from feed_assets.command_lines import command_line
from feed_assets.context.bulkheads import TickStep
from feed_assets.context.errors import InstanceQueryError
from feed_assets.context.operation import OperationContext, resolve_subject
from feed_assets.context.tick import Handler, Tick, tick_step, work_off
from feed_assets.definitions.renaming import renamed_on
from feed_assets.entities.common import Kind
from feed_assets.entities.errors import EntityNotFoundError
from feed_assets.explain.explanations import explain, explain_process_instances
from feed_assets.explain.records import Explanation
from feed_assets.instances.arrival.arrival_notices import notice_origin
from feed_assets.instances.arrival.recording import Announcement, apply_announcements
from feed_assets.log.cursors import Cursors
from feed_assets.log.instances.overdue_notices import OverdueNotice, OverdueNotices, decide_notice
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import FeedInstanceStatus, ProcessInstance, ProcessKey
from feed_assets.masking import get_logger, mask
from feed_assets.orchestration import names
from feed_assets.orchestration.errors import PartitionKeyError
from feed_assets.orchestration.graph.layout import AssetLayout
from feed_assets.orchestration.graph.partitions import Grid
from feed_assets.orchestration.sensors.log_events import DagsterEvent, find_greyed
from feed_assets.orchestration.user_assets.materializations import ReaderPosition, begin_position, read_materializations
from feed_assets.plan.edges import Key
from feed_assets.timing.dates import render_datetime
from feed_assets.timing.errors import InstanceError
from feed_assets.triggers.waiting import describe_oldest_queue

EXPLAINED_A_TICK = 20
MOST_LINES = 200
NO_INSTANCE = (EntityNotFoundError, InstanceError, InstanceQueryError)
"""What says that something is no instance by the current definitions."""

_COMMAND = re.compile(r"^( *)\$ (.*)$", re.MULTILINE)  # as `Explanation.render` writes a command

_logger = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Notices(Handler[ProcessInstance, ProcessKey]):
    """Explains unfinished instances; a unit is a process. The results are the instances that are reported."""

    layout: AssetLayout
    instance: dg.DagsterInstance

    step = TickStep.NOTICES
    at_once = EXPLAINED_A_TICK
    most_steps = 1

    def find_due(self, connection: Connection, tick: Tick, limit: int) -> list[ProcessInstance]:
        return OverdueNotices(connection).due(tick.cluster, tick.as_of, limit)

    def unit_of(self, entry: ProcessInstance) -> str:
        return entry.process

    def handle(self, tick: Tick, entries: Sequence[ProcessInstance]) -> list[ProcessKey]:
        with tick.read() as connection:
            standing = ProcessInstances(connection).get_many([row.key for row in entries])
            due = [row for row in entries if standing.get(row.key) == row]
            found = find_explanations(tick, connection, due)
        told: list[OverdueNotice] = []
        news: list[ProcessKey] = []
        try:
            for row in due:
                explanation = found.get(row.key)
                notice = decide_notice(row, explanation.digest if explanation else None, tick.as_of)
                if explanation is not None and notice.digest != row.notice_digest:
                    for observation in build_observations(self.layout, explanation):
                        self.instance.report_runless_asset_event(observation)
                    news.append(row.key)
                told.append(notice)
        finally:
            with tick.database.begin() as connection:
                OverdueNotices(connection).mark(told)
        return news


@tick_step(TickStep.NOTICES, otherwise=0)
def report_overdue(tick: Tick, layout: AssetLayout, instance: dg.DagsterInstance) -> int:
    """Report to Dagster why instances are overdue or have ended without success, once per cause; return how many.

    If no notice is due, this takes one query.
    """
    reported, _ = work_off(tick, _Notices(layout, instance))
    return len(reported)


def find_explanations(
    context: OperationContext, connection: Connection, rows: Sequence[ProcessInstance]
) -> dict[ProcessKey, Explanation]:
    """Return why instances are in their states.

    Those that are no instances by the current definitions are left out, and those with such an instance upstream.
    """
    known = []
    for row in rows:
        with suppress(*NO_INSTANCE):
            context.active_release(connection, *row.key)
            known.append(row)
    try:
        return explain_process_instances(context, connection, [row.key for row in known]) if known else {}
    except NO_INSTANCE:
        alone = [[row] for row in known] if len(known) > 1 else []
        return {key: found for each in alone for key, found in find_explanations(context, connection, each).items()}


def build_observations(layout: AssetLayout, explanation: Explanation) -> Iterator[dg.AssetObservation]:
    """Yield the observations of a process instance, at the partition of each output or of the process's own asset."""
    process = (explanation.name, explanation.cluster)
    for key, partition in layout.find_partitions(Kind.PROCESS, process, explanation.nominal_time):
        yield build_observation(key, partition, explanation)


def build_observation(
    key: dg.AssetKey, partition: str | None, explanation: Explanation, before: str = ""
) -> dg.AssetObservation:
    """Build the observation of an instance; `before` begins its description."""
    return dg.AssetObservation(
        asset_key=key,
        partition=partition,
        description=mask(before + explanation.summary),
        metadata={
            names.META_WHY: dg.MetadataValue.md(_COMMAND.sub(r"\n\1`\2`", render_most(explanation))),
            names.META_STATUS: explanation.status,
            names.META_NOMINAL: render_datetime(explanation.nominal_time),
        },
    )


def render_most(explanation: Explanation) -> str:
    """Return at most `MOST_LINES` lines of an explanation; the last one then has the command that shows all of them."""
    lines = mask(explanation.render()).splitlines()
    if len(lines) > MOST_LINES:
        kind, name, cluster = explanation.kind.value, explanation.name, explanation.cluster
        why = command_line("why", name, explanation.nominal_time, kind=kind, cluster=cluster, all=True)
        lines[MOST_LINES - 1 :] = [f"… and {len(lines) - MOST_LINES + 1} more lines: {why}"]
    return "\n".join(lines)


def describe_oldest(context: OperationContext, cluster: str) -> str:
    """Return a phrase about the longest-waiting instance with its first root cause, and one about the queue with the
    oldest pending event; empty if none waits.

    Only one instance and one queue are explained, however many wait.
    """
    try:
        with context.database.read() as connection:
            row = OverdueNotices(connection).oldest_waiting(cluster)
            found = find_explanations(context, connection, [row] if row else [])
            queue = describe_oldest_queue(context, connection, cluster) if context.plan.triggered_on(cluster) else None
    except Exception:
        _logger.warning("the oldest waiting instance on %s could not be explained", cluster, exc_info=True)
        return ""
    said = "".join(f"; oldest waiting instance: {mask(each.root_sentence)}" for each in found.values())
    return said if queue is None else f"{said}; {queue.headline}: {queue.sentence}"


WIPES_A_TICK = 100


@tick_step(TickStep.REPORTS, otherwise=None, unit="by hand")
def follow_hands(tick: Tick, layout: AssetLayout, instance: dg.DagsterInstance) -> None:
    """Take what has been reported and wiped since the last call; the event log is read behind two positions."""
    cluster = tick.cluster
    at_reported, at_wiped, renamed = f"reported/{cluster}", f"wiped/{cluster}", renamed_on(cluster)
    with tick.database.read() as connection:
        kept = Cursors(connection).get_many((at_reported, at_wiped, renamed))
    reported, wiped = kept.get(at_reported), kept.get(at_wiped)
    before = ReaderPosition(settled=0) if wiped is None else ReaderPosition.parse(wiped)
    anew = _tell_renamed(layout, instance, cluster, json.loads(kept.get(renamed, "[]")))
    following = _retell(tick, layout, instance, replace(before, behind={**before.behind, **anew}))
    if following != before or renamed in kept:
        with tick.database.begin() as connection:
            Cursors(connection).put(at_wiped, following.render())
            Cursors(connection).remove(renamed, kept.get(renamed))
    before = begin_position(instance) if reported is None else ReaderPosition.parse(reported)
    records = read_materializations(instance, before.settled)
    foreign = [each for each in records if each.storage_id not in before.seen and not _is_own(each)]
    feeds = {layout.feed_asset(key)[0]: key for key in layout.feed_specs if key[1] == cluster} if foreign else {}
    reports = [each for each in foreign if each.asset_key in feeds]
    following = before.after(records, reports, {}, tick.real_now.timestamp())
    if following == before:
        return
    found = {each.key: each for report in reports for each in _find_notices(layout, feeds, report)}
    looked = [each for each in found.values() if each.record.is_external and each.record.produced_by is None]
    cursor = (f"reported/{cluster}", following.render())
    apply_announcements(tick, looked, cursor)
    for feed, _, time in found:
        asset, grid = layout.feed_asset((feed, cluster))
        subject = resolve_subject(tick, feed, time, kind=Kind.FEED, clusters=[cluster])
        for each in explain(tick, subject).items:
            if each.status != FeedInstanceStatus.AVAILABLE:
                said = build_observation(asset, grid.partition(time), each, "it was reported as materialized, but ")
                instance.report_runless_asset_event(said)


def _is_own(event: dg.EventLogRecord) -> bool:
    """Return whether this program has reported it."""
    told = event.asset_materialization
    return told is None or names.META_NOMINAL in told.metadata


def _find_notices(
    layout: AssetLayout, feeds: Mapping[dg.AssetKey, Key], event: dg.EventLogRecord
) -> Iterator[Announcement]:
    """Yield the notice that a report is; nothing if it is of no instance, or of an asset of the user's own."""
    asset = event.asset_key or dg.AssetKey([])
    record, grid = layout.plan.feeds[feeds[asset]], layout.grids[feeds[asset]]
    if record.has_data and record.produced_by != tuple(asset.path):
        with suppress(PartitionKeyError):
            time = grid.nominal_time(event.partition_key or "")
            yield Announcement(record=record, nominal_time=time, origin=notice_origin("dagster"))


def _tell_renamed(
    layout: AssetLayout, instance: dg.DagsterInstance, cluster: str, renamed: Sequence[Sequence[Any]]
) -> dict[str, int]:
    """Say at the assets of renamed entities where these have gone, unless others are shown there. Return the feeds of
    which everything is told anew.
    """
    feeds: dict[str, int] = {}
    for kind, former, name, at, assets in renamed:
        process = layout.plan.processes.get((name, cluster)) if kind == Kind.PROCESS else None
        own = layout.find_own_asset(process) if process is not None else None
        if kind == Kind.FEED:
            feeds[name] = 0
        elif process is not None and own is not None:
            feeds |= {edge.feed: 0 for edge in process.own_outputs}
        present = layout.find_asset((name, cluster)) if kind == Kind.FEED else own
        shown = {spec.key for spec in (*layout.feed_specs.values(), *layout.process_specs.values())}
        for key in set(map(dg.AssetKey, assets)) - shown:
            now = f" and is the asset {present[0].to_user_string()} now" if present is not None else ""
            said = f"{kind} {former!r} was renamed to {name!r} at {at}{now}; this asset keeps its history"
            metadata = {names.META_STATUS: "RENAMED", names.META_WHY: said}
            instance.report_runless_asset_event(dg.AssetObservation(key, description=said, metadata=metadata))
    return feeds


def _retell(tick: Tick, layout: AssetLayout, instance: dg.DagsterInstance, before: ReaderPosition) -> ReaderPosition:
    """Tell AVAILABLE instances of wiped and renamed assets again, some in each tick; return the position, with feeds
    `behind`.
    """
    after, kind = EventLogCursor.from_storage_id(before.settled).to_string(), dg.DagsterEventType.ASSET_WIPED
    wiped = instance.event_log_storage.get_records_for_run(RUNLESS_RUN_ID, after, kind, WIPES_A_TICK).records
    behind = dict(before.behind)
    for each in wiped:
        event = each.event_log_entry.dagster_event
        key = layout.find_feed(event.asset_key) if event is not None and event.asset_key is not None else None
        behind |= {key[0]: 0} if key is not None and key[1] == tick.cluster else {}
    for feed in list(behind)[:1]:
        told, at = find_greyed(tick, layout, instance, behind.pop(feed), inf, feed)
        behind |= {feed: at} if at else {}
        for grid, keys in _coming_keys(layout, tick.cluster, told):
            instance.add_dynamic_partitions(grid.dynamic_name, keys)
        for each_event in told:
            instance.report_runless_asset_event(each_event)
    return ReaderPosition(settled=wiped[-1].storage_id if wiped else before.settled, behind=behind)


def _coming_keys(layout: AssetLayout, cluster: str, told: Sequence[DagsterEvent]) -> Iterator[tuple[Grid, list[str]]]:
    """Yield the grids that instances come to as they come, with the keys of what is told."""
    owned = [layout.feed_asset(key) for key in layout.feed_specs if key[1] == cluster]
    owned += filter(None, map(layout.find_own_asset, layout.plan.processes.values()))
    for asset, grid in owned if told else ():
        keys = [str(each.partition) for each in told if each.asset_key == asset]
        if grid.owner and keys:
            yield grid, keys
