"""What protects instances that are eligible for removal. It fails closed: what cannot be found out protects.

Asked twice: when a sweep is planned, and again, with the leases of the instances held, right before they are moved.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from sqlalchemy import Connection

from feed_assets.entities.common import Kind
from feed_assets.lifecycle.governance import Governance
from feed_assets.lifecycle.retention.readers import find_at_work, find_late_readers, find_readings, find_unread
from feed_assets.plan.records import FeedRecord, Plan
from feed_assets.state.feed_instances import FeedInstances
from feed_assets.state.holds import Holds
from feed_assets.state.late_checks import LateChecks, LateKey
from feed_assets.state.leases import find_held
from feed_assets.state.records import FeedInstance, FeedInstanceStatus, FeedKey
from feed_assets.state.sweep_records import Hold
from feed_assets.timing.dates import render_datetime


class Keeper(StrEnum):
    """What protects an instance; the names that plans, results and explanations show."""

    HOLD = "hold"
    """Somebody holds it, by name."""
    LEASE = "lease"
    """Somebody writes it at this moment."""
    READER = "reader"
    """A process instance that reads it is READY or RUNNING."""
    UNREAD = "unread"
    """A process that it is kept for has not read it (`until_read_by`)."""
    LATE_DATA = "late-data"
    """Late data of it, or of an instance that reads it, are still looked for."""
    REPLICA = "replica"
    """A cluster that it is kept for has not got it (`until_replicated_to`), or a copy is still to be made."""
    NEWEST = "newest"
    """It is among the newest, which stay (`keep_newest`)."""
    STORAGE = "storage"
    """Storage says that it must not be moved: a link, another device."""
    POLICY = "policy"
    """The retention of the feed is not what the sweep was planned by."""


class Kept(NamedTuple):
    """One reason why an instance stays."""

    keeper: Keeper
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The moment for which it is asked: `as_of` in the time of the data, `wall` in that of leases.

    `holder` is who asks: his own leases protect from others only; None where leases are left out of it.
    """

    as_of: datetime
    wall: datetime
    holder: str | None


def find_keepers(
    connection: Connection, governance: Governance, record: FeedRecord, times: Collection[datetime], asked: Asked
) -> dict[datetime, list[Kept]]:
    """All that protects instances of a feed, by nominal time; one that nothing protects is left out.

    Args:
        connection: a transaction; with the releases refreshed in it.
        governance: what is declared, and the releases.
        record: the feed.
        times: nominal times, also of instances that are none by the present definition.
        asked: for when, and by whom.
    """
    if not times:
        return {}
    governance.refresh(connection, asked.as_of)
    wanted = set(times)
    kept: dict[datetime, list[Kept]] = {}

    def note(keeper: Keeper, found: Mapping[datetime, str]) -> None:
        for time, reason in found.items():
            kept.setdefault(time, []).append(Kept(keeper, reason))

    for hold in Holds(connection).find_for(*record.key, min(wanted), max(wanted), asked.as_of):
        note(Keeper.HOLD, {time: _hold(hold) for time in wanted if hold.covers(*record.key, time)})
    if asked.holder is not None:
        note(Keeper.LEASE, _leased(connection, record, wanted, asked))
    readings = find_readings(connection, governance, record)
    note(Keeper.READER, find_at_work(connection, readings, record, wanted, asked.as_of))
    note(Keeper.LATE_DATA, _looked_for(connection, record, wanted))
    note(Keeper.LATE_DATA, find_late_readers(connection, readings, record, wanted, asked.as_of))
    policy = record.retention
    if policy is not None and policy.until_read_by:
        undeclared, names = _part_undeclared(governance.plan, policy.until_read_by)
        note(Keeper.UNREAD, {time: _not_declared(undeclared) for time in wanted} if undeclared else {})
        note(Keeper.UNREAD, find_unread(connection, readings, record, names, wanted, asked.as_of))
    for cluster in policy.until_replicated_to if policy else ():
        note(Keeper.REPLICA, _not_on(connection, governance.plan, record, cluster, wanted))
    note(Keeper.REPLICA, _to_be_copied(connection, governance.plan, record, wanted, asked.as_of))
    return kept


def find_at_work_now(
    connection: Connection, governance: Governance, record: FeedRecord, times: Collection[datetime], as_of: datetime
) -> dict[datetime, str]:
    """Of instances of a feed those that a process instance reads, or is about to, at this moment; with who it is."""
    governance.refresh(connection, as_of)
    return find_at_work(connection, find_readings(connection, governance, record), record, set(times), as_of)


def lease_keys(feed: str, cluster: str, times: Iterable[datetime]) -> list[tuple[str, str, datetime]]:
    """The keys of the leases of instances of a feed, by which its writers exclude one another."""
    return [(f"feed/{feed}", cluster, time) for time in times]


def leased_by(holder: str | None) -> str:
    """How it is said that somebody has a lease."""
    return f"'{holder}' works on it"


def _hold(hold: Hold) -> str:
    until = f" until {render_datetime(hold.expires_at)}" if hold.expires_at else ""
    return f"hold '{hold.name}' of {hold.author}{until}: {hold.reason}"


def _leased(
    connection: Connection, record: FeedRecord, times: Collection[datetime], asked: Asked
) -> dict[datetime, str]:
    held = find_held(connection, lease_keys(*record.key, times), asked.wall)
    return {lease.nominal_time: leased_by(lease.holder) for lease in held if lease.holder != asked.holder}


def _looked_for(connection: Connection, record: FeedRecord, times: Iterable[datetime]) -> dict[datetime, str]:
    keys = [LateKey(Kind.FEED.value, *record.key, time) for time in times]
    return {key.nominal_time: "late data of it are still looked for" for key in LateChecks(connection).get_many(keys)}


def _part_undeclared(plan: Plan, processes: Sequence[str]) -> tuple[list[str], list[str]]:
    declared = {process for process, _ in plan.processes}
    return [name for name in processes if name not in declared], [name for name in processes if name in declared]


def _not_declared(names: Sequence[str]) -> str:
    listed = ", ".join(f"'{name}'" for name in names)
    return f"it is kept until {listed} has read it, and no such process is declared"


def _not_on(
    connection: Connection, plan: Plan, record: FeedRecord, cluster: str, times: Collection[datetime]
) -> dict[datetime, str]:
    """Instances that a cluster has not got yet. What is no instance there can never come, and is not waited for."""
    target = plan.feeds.get((record.feed, cluster))
    if target is None:
        return dict.fromkeys(times, f"it is kept until cluster '{cluster}' has it, and the feed is not there")
    rows = _rows(connection, target, times)
    return {
        time: f"it is kept until cluster '{cluster}' has it, where it is {_status(rows, target, time)}"
        for time in times
        if target.sequence.contains(time) and not _has_been_there(rows, target, time)
    }


def _to_be_copied(
    connection: Connection, plan: Plan, record: FeedRecord, times: Collection[datetime], as_of: datetime
) -> dict[datetime, str]:
    """Instances of a source that a target lacks, is to get, and would still keep."""
    found: dict[datetime, str] = {}
    for flow in (plan.processes[edge.process_key] for edge in record.inputs_of):
        if flow.copy is None:
            continue
        target = plan.feeds[flow.outputs[0].feed_key]
        limit = target.retention_limit
        wanted = [
            time
            for time in times
            if flow.sequence.contains(time) and (limit is None or time >= as_of - limit.as_duration())
        ]
        rows = _rows(connection, target, wanted)
        found |= {
            time: f"its copy on cluster '{target.cluster}' is {_status(rows, target, time)}"
            for time in wanted
            if not _has_been_there(rows, target, time)
        }
    return found


def _rows(connection: Connection, target: FeedRecord, times: Iterable[datetime]) -> dict[FeedKey, FeedInstance]:
    return FeedInstances(connection).get_many([FeedKey(*target.key, time) for time in times])


def _has_been_there(rows: Mapping[FeedKey, FeedInstance], target: FeedRecord, time: datetime) -> bool:
    row = rows.get(FeedKey(*target.key, time))
    return row is not None and row.status in (FeedInstanceStatus.AVAILABLE, FeedInstanceStatus.EVICTED)


def _status(rows: Mapping[FeedKey, FeedInstance], target: FeedRecord, time: datetime) -> FeedInstanceStatus:
    row = rows.get(FeedKey(*target.key, time))
    return FeedInstanceStatus.MISSING if row is None else row.status
