"""Protect the data of entities that are not in the plan: left out because of errors or missing files, or held. Find
which process instances write or read an instance of a feed by their windows, each by what governs it.

Their overlaps with other feeds cannot be seen in the plan. What they declared when they were last recorded counts.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import NamedTuple

from sqlalchemy import Connection

from feed_assets.entities.common import Kind, Validity
from feed_assets.entities.feed import Feed
from feed_assets.entities.flow_names import declared_by
from feed_assets.entities.locations.overlaps import FixedPlace, Places, describe_location, iter_locations
from feed_assets.log.definitions.records import Member
from feed_assets.log.definitions.store import Definitions
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import EntityKey, ProcessInstanceStatus, ProcessKey
from feed_assets.log.removals.records import Hold
from feed_assets.plan.edges import InputEdge, Key, OutputEdge
from feed_assets.plan.location import compile_location
from feed_assets.plan.records import FeedRecord, Plan, ProcessRecord, TableRecord
from feed_assets.releases.errors import NeighbourLeftOutError
from feed_assets.releases.timeline import ActiveRelease, ReleaseTimeline
from feed_assets.timing.errors import TableAddressError, TemplateError
from feed_assets.timing.expressions import DataDriven
from feed_assets.timing.overlaps import Nesting, find_nesting
from feed_assets.timing.sequence import InstanceSequence
from feed_assets.timing.templates import parse_table_address
from feed_assets.timing.windows import Window, parse_window

PHRASES = {Nesting.AT: "at it", Nesting.INSIDE: "inside it", Nesting.AROUND: "around it"}


def find_left_out_neighbour(connection: Connection, timeline: ReleaseTimeline, record: FeedRecord) -> str | None:
    """Return how a location of a feed overlaps one of an entity that is left out of the plan; None if none does.

    Costs one query if no declared entity is left out.
    """
    left_out = _find_left_out(connection, timeline.plan)
    found = _find_overlaps(connection, timeline, record.table, _urls_of(record), left_out) if left_out else ()
    return next((f"{each.place}, which is left out of the plan at present, is {each.where}" for each in found), None)


def find_refused_writes(
    connection: Connection, timeline: ReleaseTimeline, process: ProcessRecord, times: Collection[datetime]
) -> dict[datetime, NeighbourLeftOutError]:
    """Return the instances of a process or mirror that must not write now, each with the error to raise.

    They would write over the data of an entity that is left out of the plan, in its validity. Costs one query if no
    declared entity is left out.
    """
    left_out = _find_left_out(connection, timeline.plan)
    if not left_out:
        return {}
    records = [timeline.plan.feeds[edge.feed_key] for edge in process.outputs if edge.feed_key in timeline.plan.feeds]
    written = [
        (f"feed '{record.feed}' on {record.cluster}", record.table, f"{record.store.url}/{record.template.text}")
        for record in records
    ]
    written += [(target.url, None, target.url) for _, target in process.directories]
    refused: dict[datetime, NeighbourLeftOutError] = {}
    for what, table, url in written:
        for overlap in _find_overlaps(connection, timeline, table, [url], left_out):
            error = NeighbourLeftOutError(
                process=process.process,
                cluster=process.cluster,
                written=what,
                place=overlap.place,
                where=overlap.where,
            )
            refused |= {time: error for time in times if overlap.is_valid_at(time)}
    return refused


def find_former_holds(
    connection: Connection,
    timeline: ReleaseTimeline,
    record: FeedRecord,
    times: Collection[datetime],
    holds: Iterable[Hold],
) -> dict[datetime, str]:
    """Return the instances at the place of a held feed that is not declared any more, such as under an earlier name.

    `holds` are the active holds. Costs nothing more if all their feeds are declared.
    """
    planned = {feed for feed, _ in timeline.plan.feeds}
    former = [hold for hold in holds if hold.feed is not None and hold.feed not in planned]
    versions: dict[tuple[str, str], int] = {}
    for name in {hold.feed for hold in former if hold.feed is not None}:
        texts = [each for each in Definitions(connection).history(Kind.FEED, name) if each.text is not None]
        versions |= {(Kind.FEED.value, name): texts[-1].version} if texts else {}
    found = list(_find_overlaps(connection, timeline, record.table, _urls_of(record), versions)) if versions else []
    held: dict[datetime, str] = {}
    for hold in former:
        for each in found:
            if each.key[0] != hold.feed:
                continue
            covered = [time for time in times if hold.covers(*each.key, time)]
            reason = (
                f"hold '{hold.name}' of {hold.author}: {hold.reason} ({each.place}, which was removed, is {each.where})"
            )
            held |= dict.fromkeys(covered, reason)
    return held


def find_last_known(connection: Connection, timeline: ReleaseTimeline) -> Plan:
    """Return the plan with what is left out of it, by the newest recorded versions that can be used."""
    plan, versions = timeline.plan, Definitions(connection).declared_versions()
    left_out = _find_left_out(connection, plan)
    while left_out:
        loaded = timeline.load_recorded(
            connection, [Member(kind=kind, name=name, version=version) for (kind, name), version in versions.items()]
        )
        known = compile_location(loaded, colo=plan.colo).plan
        feeds = {key: record for key, record in known.feeds.items() if (Kind.FEED, key[0]) in left_out}
        processes = {key: record for key, record in known.processes.items() if declared_by(key[0]) in left_out}
        clusters = {name: record for name, record in known.clusters.items() if (Kind.CLUSTER, name) in left_out}
        plan = replace(
            plan,
            feeds={**feeds, **plan.feeds},
            processes={**processes, **plan.processes},
            clusters={**clusters, **plan.clusters},
        )
        left_out = {key: versions[key] - 1 for key in _find_left_out(connection, plan) if versions.get(key, 1) > 1}
        versions |= left_out
    return plan


def _find_left_out(connection: Connection, plan: Plan) -> dict[tuple[str, str], int]:
    """Return the versions of declared entities that are not in the plan; by (kind, name)."""
    declared = Definitions(connection).declared_versions()
    return {key: version for key, version in declared.items() if key not in plan.facts and key[0] != Kind.DATASOURCE}


class _Overlap(NamedTuple):
    """A location of a recorded entity: its key and name, its relation to another as a phrase, and its validity."""

    key: Key
    place: str
    where: str
    validity: Validity | None

    def is_valid_at(self, nominal_time: datetime) -> bool:
        """Return whether its data may be there for a nominal time; always without a validity."""
        return self.validity is None or self.validity.start <= nominal_time < self.validity.end


def _urls_of(record: FeedRecord) -> list[str]:
    """Return the locations of a feed that retention may sweep."""
    return [
        f"{location.store.url}/{location.template.text}"
        for location in (record.retention.locations if record.retention else ())
    ]


def _find_overlaps(
    connection: Connection,
    timeline: ReleaseTimeline,
    table: TableRecord | None,
    urls: Sequence[str],
    versions: Mapping[tuple[str, str], int],
) -> Iterator[_Overlap]:
    """Yield the locations of recorded entities that overlap a table or URLs."""
    declared = Definitions(connection).declared_versions()
    members = {key: version for key, version in declared.items() if key[0] == Kind.CLUSTER} | dict(versions)
    loaded = timeline.load_recorded(
        connection, [Member(kind=kind, name=name, version=version) for (kind, name), version in members.items()]
    )
    feeds = [each for each in (*loaded.bundle.entities, *loaded.salvaged) if isinstance(each, Feed)]
    if table is not None:
        yield from _find_same_table(table, feeds)
        return
    places = Places()
    own = [places.canonical(url) for url in urls]
    validities = {(feed.name, name): entry.validity for feed in feeds for name, entry in feed.clusters.items()}
    for key, place in iter_locations(loaded.bundle, left_out=loaded.salvaged):
        nesting = next((found for each in own if (found := find_nesting(place, each)) is not None), None)
        if nesting is None or (isinstance(key[2], FixedPlace) and nesting is Nesting.AROUND):
            continue
        validity = None if isinstance(key[2], FixedPlace) else validities.get(key[:2])
        yield _Overlap(key[:2], describe_location(key), PHRASES[nesting], validity)


def _find_same_table(table: TableRecord, feeds: Iterable[Feed]) -> Iterator[_Overlap]:
    own = f"{table.database}.{table.name}".lower()
    for feed in feeds:
        for cluster, entry in feed.clusters.items():
            text = feed.table_on(cluster)
            with suppress(TableAddressError, TemplateError):
                if text is not None and parse_table_address(text).name.lower() == own:
                    place = f"feed '{feed.name}' on {cluster}"
                    yield _Overlap((feed.name, cluster), place, "in the same table", entry.validity)


_ALL = frozenset(ProcessInstanceStatus)


def find_writers(
    timeline: ReleaseTimeline, connection: Connection, record: FeedRecord, time: datetime
) -> list[tuple[OutputEdge, ProcessKey]]:
    """Return the process instances that write an instance of a feed, each with the output."""
    return [
        (edge, key)
        for active in iter_spans(timeline, connection, record, [edge.process_key for edge in record.outputs_of])
        for edge in active.record.outputs
        if edge.feed_key == record.key
        for key in _iter_touching(connection, active, record, edge.window, time)
    ]


def find_readers(
    timeline: ReleaseTimeline, connection: Connection, record: FeedRecord, time: datetime
) -> list[tuple[InputEdge, ProcessKey]]:
    """Return the process instances that read an instance of a feed by a window, or may with `latest` and `future`, each
    with the input.
    """
    return [
        (edge, key)
        for active in iter_spans(timeline, connection, record, [edge.process_key for edge in record.inputs_of])
        for edge in active.record.inputs
        if edge.feed_key == record.key and edge.window is not None
        for key in _iter_touching(connection, active, record, edge.window, time)
    ]


def iter_spans(
    timeline: ReleaseTimeline, connection: Connection, record: FeedRecord, processes: Iterable[Key]
) -> Iterator[ActiveRelease]:
    """Yield the releases in effect of all processes that touch a feed, by the current definitions or an older
    release.
    """
    older = [*timeline.older(record.cluster), *timeline.older_readers(record.cluster)]
    for process in sorted({*processes, *(each.record.key for each in older)}):
        yield from timeline.spans(connection, process)


def _iter_touching(
    connection: Connection, active: ActiveRelease, record: FeedRecord, window: Window, time: datetime
) -> Iterator[ProcessKey]:
    """Yield the instances of a release span whose window contains an instance of the feed, by the feed of that span;
    only those that there are, if something makes each. All there will ever be touch a current instance: the newest is
    meant.
    """
    feed, process = active.plan.feeds.get(record.key), active.record
    found = _consumers(window, time, process.sequence, feed.sequence) if feed is not None else None
    if feed is None or not found:
        return
    times: Iterable[datetime] = map(process.sequence.at, found)
    span = (process.sequence.at(found[0]), process.sequence.at(found[-1]))
    if feed.is_current:
        times = [row.nominal_time for row in ProcessInstances(connection).newest(*process.key, *span, 1)]
    elif not process.is_enumerated:
        times = iter(
            ProcessInstances(connection).times_in({process.key: [span]}, _ALL).get(EntityKey(*process.key), ())
        )
    yield from (ProcessKey(*process.key, each) for each in times if active.contains(each))


class Touch(NamedTuple):
    """That a process has read or written a feed by some definition: by the `release`, None if none is recorded.

    `spans` has the nominal times, from and to, at which that may be, by the times of the feed that the definition
    knows; None: at none. `spans` is None if the definition does not tell, as with `latest`, or cannot be read any more.
    """

    process: Key
    release: int | None
    spans: Mapping[datetime, tuple[datetime, datetime] | None] | None


def iter_touches(
    timeline: ReleaseTimeline, connection: Connection, feed: Key, times: Sequence[datetime], *, is_read: bool
) -> Iterator[Touch]:
    """Yield who has read or written instances of a feed by any definition there ever was, whatever governs now. A
    validity that was ended counts as well.
    """
    for key, active in timeline.ever(connection, feed):
        if active is None or feed not in active.plan.feeds:
            yield Touch(key, None, None)
            continue
        edges = active.record.inputs if is_read else active.record.outputs
        windows = [each.window for each in edges if each.feed_key == feed and each.window is not None]
        if not windows:
            continue
        declared, process = active.plan.feeds[feed].sequence.endless, active.record.sequence.endless
        for window in windows:
            spans: dict[datetime, tuple[datetime, datetime] | None] = {}
            for time in times:
                found = _consumers(window, time, process, declared)
                if found is not None:
                    spans[time] = (process.at(found[0]), process.at(found[-1])) if found else None
            is_told = window.start.data_driven is not DataDriven.LATEST
            yield Touch(key, active.release, spans if is_told else None)


def _consumers(window: Window, time: datetime, process: InstanceSequence, feed: InstanceSequence) -> range | None:
    """Return the instances of a process whose window contains that of a feed; None if the feed has none then."""
    if not feed.contains(time):
        return None
    index = feed.index(time)
    match window.start.data_driven:
        case DataDriven.FUTURE:
            reached = feed.clip(range(index - window.end.limit, index + 1))
            return _own_time().consumers_of_range(reached, feed, process)
        case DataDriven.LATEST:
            return _own_time().consumers(index, feed, process)
        case None:
            return window.consumers(index, feed, process)


@cache  # building the parser of expressions takes a tenth of a second, which `why` need not wait for
def _own_time() -> Window:
    return parse_window("now(0,0)", "now(0,0)")
