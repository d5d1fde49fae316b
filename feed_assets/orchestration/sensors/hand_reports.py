"""Take what people report and wipe in Dagster's UI. A materialization of an external feed that somebody reports is a
notice; where the record has it otherwise, an observation says why. What it has of a wiped asset is told again.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from math import inf

import dagster as dg
from dagster._core.event_api import EventLogCursor
from dagster._core.instance.utils import RUNLESS_RUN_ID

from feed_assets.context.operation import resolve_subject
from feed_assets.context.tick import Tick, tick_step
from feed_assets.context.tick_failures import TickStep
from feed_assets.entities.common import Kind
from feed_assets.explain.explanations import explain
from feed_assets.instances.arrival.announcements import Announcement, apply_announcements
from feed_assets.instances.arrival.arrival_notices import notice_origin
from feed_assets.log.cursors import Cursors
from feed_assets.log.records import FeedInstanceStatus
from feed_assets.orchestration import names
from feed_assets.orchestration.errors import PartitionKeyError
from feed_assets.orchestration.graph.layout import AssetLayout
from feed_assets.orchestration.sensors.log_events import find_greyed
from feed_assets.orchestration.sensors.overdue_notices import build_observation
from feed_assets.orchestration.user_assets.materializations import ReaderPosition, begin_position, read_materializations
from feed_assets.plan.edges import Key

WIPES_A_TICK = 100


@tick_step(TickStep.REPORTS, otherwise=None, unit="by hand")
def follow_hands(tick: Tick, layout: AssetLayout, instance: dg.DagsterInstance) -> None:
    """Take what has been reported and wiped since the last call; the event log is read behind two positions."""
    cluster = tick.cluster
    with tick.database.read() as connection:
        reported, wiped = (Cursors(connection).get(f"{name}/{cluster}") for name in ("reported", "wiped"))
    before = ReaderPosition(settled=0) if wiped is None else ReaderPosition.parse(wiped)
    following = _retell_wiped(tick, layout, instance, before)
    if following != before:
        with tick.database.begin() as connection:
            Cursors(connection).put(f"wiped/{cluster}", following.render())
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
        subject = resolve_subject(tick.context, feed, time, kind=Kind.FEED, clusters=[cluster])
        for each in explain(tick.context, subject).items:
            if each.status != FeedInstanceStatus.AVAILABLE:
                said = build_observation(asset, grid.key(time), each, "it was reported as materialized, but ")
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


def _retell_wiped(
    tick: Tick, layout: AssetLayout, instance: dg.DagsterInstance, before: ReaderPosition
) -> ReaderPosition:
    """Tell AVAILABLE instances of wiped assets again, some in each tick; return the position, with feeds `behind`."""
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
        for each_event in told:
            instance.report_runless_asset_event(each_event)
    return ReaderPosition(settled=wiped[-1].storage_id if wiped else before.settled, behind=behind)
