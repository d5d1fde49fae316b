"""The compiler of retention: limits, the interval between sweeps, and locations; and which of two is stricter."""

from dataclasses import replace
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

from feed_assets.entities.cluster import Cluster
from feed_assets.entities.common import (
    PRIORITY_PROPERTY,
    JobPriority,
    LocationKind,
    Retention,
    RetentionAction,
    find_priority,
    find_queue,
)
from feed_assets.entities.feed import Feed, RetentionStage
from feed_assets.entities.locations.overlaps import Overlaps
from feed_assets.plan.copy_records import StoreAddress
from feed_assets.plan.places import locate, locate_table
from feed_assets.plan.records import RetainedLocation, RetentionRecord
from feed_assets.timing.sequence import Frequency, Unit
from feed_assets.timing.templates import PathTemplate

_SIX_HOURS = Frequency(unit=Unit.HOURS, count=6)
_DAILY = Frequency(unit=Unit.DAYS, count=1)
_ONE_DAY = timedelta(days=1)
_NO_DATE = "its path has no ${YEAR}, so it does not say how old it is"
_NO_ARCHIVE = "the action is archive, and archive_to names no place"


def compile_retention(feed: Feed, cluster: Cluster, overlaps: Overlaps) -> RetentionRecord | None:
    """Return the retention of a feed on a cluster; None if everything is kept.

    The limit, frequency, queue and priority of a retention stage replace those of the retention. Differs from Falcon:
    fields that only `retention` has also apply with a stage.
    """
    stage = feed.retention_stage_on(cluster.name)
    written = feed.clusters[cluster.name].retention
    policy = written or Retention()
    limit = feed.retention_limit_on(cluster.name)
    if limit is None and policy.max_instances is None and policy.max_bytes is None:
        return None
    locations = _locations(feed, cluster, policy, overlaps)
    return RetentionRecord(
        limit=limit,
        action=policy.action,
        keep_newest=policy.keep_newest,
        max_instances=policy.max_instances,
        max_bytes=policy.max_bytes.bytes if policy.max_bytes else None,
        until_read_by=policy.until_read_by,
        until_replicated_to=policy.until_replicated_to,
        stops_at=feed.sequence_on(cluster.name).end if feed.retention_ends_on(cluster.name) else None,
        cadence=decide_cadence(limit, feed.frequency, policy.frequency, stage),
        trash=policy.trash,
        sweep_limits=policy.sweep_limits,
        priority=_priority(feed, stage),
        queue=(stage.queue if stage else None) or find_queue(feed.properties),
        locations=locations,
        archive=_archive(policy, cluster, feed.path_zone),
        partition=locations[0].template if feed.table_on(cluster.name) else None,
    )


def decide_cadence(
    limit: Frequency | None, of_feed: Frequency, declared: Frequency | None, stage: RetentionStage | None
) -> Frequency:
    """Return the interval between sweeps.

    With a stage, this is the stage's frequency, or the larger of six hours and the feed's frequency. Without one, it is
    the declared frequency, or else six hours for a limit below a day and one day otherwise.

    Differs from Falcon: its documentation says so, but its code uses the frequency of the feed instead of the limit.
    Here the feed's frequency is used only if there is no limit, but a number or size of instances.

    >>> from feed_assets.timing.sequence import parse_frequency
    >>> decide_cadence(parse_frequency("hours(12)"), parse_frequency("days(1)"), None, None).render()
    'hours(6)'
    """
    if stage is not None:
        return stage.frequency or max(_SIX_HOURS, of_feed, key=Frequency.as_duration)
    return declared or (_SIX_HOURS if (limit or of_feed).as_duration() < _ONE_DAY else _DAILY)


def find_stricter(old: RetentionRecord | None, new: RetentionRecord | None) -> tuple[str, ...]:
    """Return the fields by which `new` may remove more than `old` at once; empty if it does not. None keeps everything.

    >>> from feed_assets.timing.sequence import parse_frequency
    >>> long = RetentionRecord(limit=parse_frequency("days(9)"), cadence=_DAILY, trash=_DAILY)
    >>> short = replace(long, limit=parse_frequency("days(3)"))
    >>> find_stricter(long, short), find_stricter(short, long), find_stricter(None, short)
    (('limit',), (), ('limit',))
    """
    if new is None:
        return ()
    old = old or replace(new, limit=None, max_instances=None, max_bytes=None)
    is_stricter = {
        "limit": _is_lower(new.limit and new.limit.as_duration(), old.limit and old.limit.as_duration()),
        "max_instances": _is_lower(new.max_instances, old.max_instances),
        "max_bytes": _is_lower(new.max_bytes, old.max_bytes),
        "keep_newest": new.keep_newest < old.keep_newest,
        "until_read_by": not set(old.until_read_by) <= set(new.until_read_by),
        "until_replicated_to": not set(old.until_replicated_to) <= set(new.until_replicated_to),
        "after_validity": _is_lower(old.stops_at, new.stops_at),
        "action": (new.action, new.archive) != (old.action, old.archive),
        "locations": not _places(new) <= _places(old),
    }
    return tuple(field for field, answer in is_stricter.items() if answer)


def _is_lower(new: Any, old: Any) -> bool:
    """Return whether a limit is lower than another; None is no limit."""
    return new is not None and (old is None or new < old)


def _places(record: RetentionRecord) -> set[tuple[LocationKind, str, PathTemplate]]:
    return {(each.kind, each.store.url, each.template) for each in record.locations}


def _priority(feed: Feed, stage: RetentionStage | None) -> int:
    properties = {PRIORITY_PROPERTY: stage.priority} if stage and stage.priority else feed.properties
    return (find_priority(properties) or JobPriority.NORMAL).level


def _locations(feed: Feed, cluster: Cluster, policy: Retention, overlaps: Overlaps) -> tuple[RetainedLocation, ...]:
    table, locations = feed.table_on(cluster.name), feed.locations_on(cluster.name)
    if table is not None:
        found = [(LocationKind.DATA, *locate_table(feed, cluster, table)[:2])]
    else:
        texts = [(kind, locations.find(kind)) for kind in LocationKind] if locations else []
        found = [(kind, *locate(cluster, text, feed.path_zone)) for kind, text in texts if text is not None]
    return tuple(
        RetainedLocation(
            kind=kind,
            store=store,
            template=template,
            obstacle=_NO_ARCHIVE
            if policy.action is RetentionAction.ARCHIVE and policy.archive_to is None
            else overlaps.get((feed.name, cluster.name, kind))
            if template.granularity
            else _NO_DATE,
        )
        for kind, store, template in found
    )


def _archive(policy: Retention, cluster: Cluster, zone: ZoneInfo) -> tuple[StoreAddress, PathTemplate] | None:
    if policy.action is not RetentionAction.ARCHIVE or policy.archive_to is None:
        return None
    return locate(cluster, policy.archive_to, zone)
