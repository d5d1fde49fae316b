"""Which process instances hang on instances of feeds: whose windows have them, and of `latest` windows, which have read
them. Updates, and reruns with what hangs on them, ask here; a check for late data is of one instance that has read. And
which reruns an instance awaits, which were asked for and write what it reads.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta

from sqlalchemy import Connection

from feed_assets.entities.flow_names import is_flow, source_of
from feed_assets.instances.late.lateness import CONCERNED
from feed_assets.instances.late.store import LateChecks
from feed_assets.log.agenda import AgendaKind
from feed_assets.log.instances.instance_pages import InstancePages
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import FrozenInput, ProcessInstance, ProcessInstanceStatus, ProcessKey
from feed_assets.plan.edges import Key, OutputEdge
from feed_assets.plan.records import Plan
from feed_assets.releases.timeline import FeedReader, ReleaseTimeline, find_feed_readers
from feed_assets.triggers.input_windows import InputState, read_states

_PAGE = 200
_MOST_OTHERS = 10
_MOMENT = timedelta(microseconds=1)
_LOOKED_AT = 50
_TO_RUN = {ProcessInstanceStatus.WAITING, ProcessInstanceStatus.READY, ProcessInstanceStatus.SUSPENDED}
_HAVE_RUN = frozenset(ProcessInstanceStatus) - {ProcessInstanceStatus.TIMEDOUT, ProcessInstanceStatus.SKIPPED}


def find_outputs(
    connection: Connection, timeline: ReleaseTimeline, keys: Iterable[ProcessKey]
) -> dict[Key, set[datetime]]:
    """Return the instances of feeds that process instances write, by the release that governs each."""
    times: dict[Key, list[datetime]] = defaultdict(list)
    for process, cluster, time in keys:
        times[process, cluster].append(time)
    found: dict[Key, set[datetime]] = defaultdict(set)
    for key, moments in times.items():
        spans = timeline.spans(connection, key)
        for time in moments:
            active = next((each for each in spans if each.contains(time)), None)
            for edge in active.record.outputs if active is not None else ():
                if active is not None and (written := active.plan.output_time(edge, time)) is not None:
                    found[edge.feed_key].add(written)
    return found


def iter_hanging_spans(
    connection: Connection, timeline: ReleaseTimeline, changed: Mapping[Key, Collection[datetime]]
) -> Iterator[tuple[FeedReader, list[tuple[datetime, datetime]]]]:
    """Yield who reads instances of feeds by the release that governs it, with the first and last nominal times of the
    instances whose windows have them: none of a `latest` window, and of what takes what is new. A new version of a
    current instance concerns the newest that has begun.
    """
    for feed, times in changed.items():
        if (record := timeline.plan.feeds.get(feed)) is not None:
            for reader in find_feed_readers(connection, timeline, record):
                spans = reader.spans_of(times)
                if record.is_current and not is_flow(reader.process[0]):
                    spans = [each for span in spans for each in _find_newest(connection, reader.process, *span)]
                yield reader, spans


def _find_newest(
    connection: Connection, process: Key, first: datetime, last: datetime
) -> list[tuple[datetime, datetime]]:
    """Return the newest instance in a span that has begun, if there is one; it may be about to run again."""
    pages = InstancePages(connection)
    found = pages.of_process(*process, first, last + _MOMENT, 1, statuses=CONCERNED)
    if found:
        again = pages.of_process(*process, found[0].nominal_time, last + _MOMENT, _LOOKED_AT, statuses=_TO_RUN)
        found = [*(each for each in again if each.attempt), *found][:1]
    return [(row.nominal_time, row.nominal_time) for row in found]


def find_hanging(
    connection: Connection, timeline: ReleaseTimeline, changed: Mapping[Key, Collection[datetime]]
) -> dict[ProcessKey, tuple[ProcessInstance, bool]]:
    """Return the instances that have run and hang on instances of feeds, and whether their windows tell that: they
    have read them, or would by a window if they ran again. Batches do not: they take other content as what is new.
    """
    spans: dict[Key, list[tuple[datetime, datetime | None]]] = defaultdict(list)
    rows: dict[ProcessKey, ProcessInstance] = {}
    for reader, found in iter_hanging_spans(connection, timeline, changed):
        spans[reader.process] += found
        is_current = timeline.plan.feeds[reader.edge.feed_key].is_current
        if reader.newest_read is not None and not is_current and (times := changed[reader.edge.feed_key]):
            asked = (connection, reader.process, {reader.edge.feed_key}, min(times), max(times))
            pages = [page for backwards in (False, True) for page in iter_run_pages(*asked, backwards=backwards)]
            rows |= {row.key: row for page in pages for row in page}
    instances = ProcessInstances(connection)
    told = {ProcessKey(*key, t) for key, times in instances.times_in(spans, _HAVE_RUN).items() for t in times}
    rows |= instances.get_many(told)
    return {
        key: (row, key in told)
        for key, row in sorted(rows.items())
        if row.attempt and row.status in _HAVE_RUN
        if _has_read(row, timeline, changed) or _is_in_window(connection, timeline, row, changed)
    }


def wake_hanging(
    connection: Connection, timeline: ReleaseTimeline, changed: Mapping[Key, Collection[datetime]], as_of: datetime
) -> None:
    """Let the reruns be decided now that wait for instances of feeds."""
    checks = LateChecks(connection)
    asked = checks.processes_of(AgendaKind.RERUN)
    spans: dict[Key, list[tuple[datetime, datetime | None]]] = defaultdict(list)
    for reader, found in iter_hanging_spans(connection, timeline, changed) if asked else ():
        spans[reader.process] += found if reader.process in asked else ()
    times = ProcessInstances(connection).times_in(spans, frozenset(ProcessInstanceStatus))
    checks.wake([ProcessKey(*key, time) for key, moments in times.items() for time in moments], as_of)


def find_makers(
    connection: Connection, plan: Plan, states: Iterable[InputState], read: Iterable[FrozenInput] = ()
) -> set[ProcessKey]:
    """Return the process instances that write what an instance would read now, and what it has read: of a current
    instance those that are at work or about to, and those that are asked to run again.
    """
    frozen = {each.name: each.nominal_times for each in read}
    return {
        ProcessKey(*edge.process_key, time)
        for state in states
        if (feed := plan.feeds.get(state.edge.feed_key)) is not None
        for feed_time in {*(state.expected or ()), *frozen.get(state.edge.name, ())}
        if feed.sequence.contains(feed_time)
        for edge in feed.outputs_of
        for time in (_find_at_work(connection, edge) if feed.is_current else plan.writer_times(edge, feed_time))
    }


def _find_at_work(connection: Connection, edge: OutputEdge) -> set[datetime]:
    rows = ProcessInstances(connection).unended(*edge.process_key)
    asked = LateChecks(connection).times_of(AgendaKind.RERUN, *edge.process_key)
    at_work = (ProcessInstanceStatus.READY, ProcessInstanceStatus.RUNNING)
    return {row.nominal_time for row in rows if row.status in at_work}.union(asked)


def find_open_reruns(
    connection: Connection, writers: Mapping[ProcessKey, Collection[ProcessKey]]
) -> dict[ProcessKey, dict[ProcessKey, ProcessInstanceStatus]]:
    """Return of instances which of their `writers` have yet to run again as it was asked for, with their states."""
    asked = LateChecks(connection).reruns_of({each for those in writers.values() for each in those})
    progress = ProcessInstances(connection).get_progress(asked)
    awaited = {
        key: progress[key].status
        for key, (_, wish) in asked.items()
        if key in progress and not (wish.has_begun and progress[key].status is ProcessInstanceStatus.SUCCEEDED)
    }
    found = {
        key: {each: awaited[each] for each in sorted(those) if each in awaited and each != key}
        for key, those in writers.items()
    }
    return {key: those for key, those in found.items() if those}


def find_awaiting(
    connection: Connection, timeline: ReleaseTimeline, rows: Mapping[ProcessKey, Iterable[FrozenInput]], as_of: datetime
) -> dict[ProcessKey, dict[ProcessKey, ProcessInstanceStatus]]:
    """Return the instances that await others, as `find_open_reruns`; given are some, with what they have read. Costs
    one read if no rerun is asked for, and none without instances.
    """
    if not rows or not (asked := LateChecks(connection).processes_of(AgendaKind.RERUN)):
        return {}
    plan = timeline.plan
    keys = []
    for key in rows:
        record = plan.processes.get((key.process, key.cluster))
        feeds = [plan.feeds[edge.feed_key] for edge in record.inputs] if record is not None else []
        if any(edge.process_key in asked for feed in feeds for edge in feed.outputs_of):
            keys.append(key)
    states = read_states(connection, timeline, keys, as_of)
    writers = {key: find_makers(connection, plan, found, rows[key]) for key, found in states.items()}
    return find_open_reruns(connection, writers) if writers else {}


def _has_read(row: ProcessInstance, timeline: ReleaseTimeline, changed: Mapping[Key, Collection[datetime]]) -> bool:
    """Return whether the newest attempt has read any of some instances by a window."""
    record = timeline.plan.processes.get((row.process, row.cluster))
    taken = {edge.name for edge in record.inputs if edge.window is None} if record is not None else set()
    cluster = source_of(row.process) or row.cluster
    read = ((changed.get((each.feed, cluster), ()), each) for each in row.inputs if each.name not in taken)
    return any(time in times for times, each in read if times for time in each.nominal_times)


def _is_in_window(
    connection: Connection, timeline: ReleaseTimeline, row: ProcessInstance, changed: Mapping[Key, Collection[datetime]]
) -> bool:
    """Return whether a window of an instance that nominal times alone decide has any of some instances."""
    active = timeline.find(connection, (row.process, row.cluster), row.nominal_time)
    for edge in active.record.inputs if active is not None else ():
        times = changed.get(edge.feed_key, ())
        if active is not None and times and not edge.is_data_driven:
            sequence = active.plan.feeds[edge.feed_key].sequence
            if any(sequence.at(index) in times for index in active.plan.input_indices(edge, row.nominal_time)):
                return True
    return False


def iter_run_pages(
    connection: Connection,
    process: Key,
    feeds: Collection[Key],
    oldest: datetime,
    newest: datetime,
    *,
    backwards: bool,
) -> Iterator[list[ProcessInstance]]:
    """Yield pages of the instances of a process that have run, from the oldest instance of some feeds on or before it,
    as far as what they have read does not lie behind all of them. An empty page tells that it ended because many have
    not read the feeds at all.
    """
    start, others = oldest if backwards else oldest - _MOMENT, 0
    while page := ProcessInstances(connection).run_page(*process, start, _PAGE, backwards=backwards):
        yield page
        read = [
            time
            for row in page
            for each in row.inputs
            if (each.feed, source_of(row.process) or row.cluster) in feeds
            for time in each.nominal_times
        ]
        start, others = page[-1].nominal_time, 0 if read else others + 1
        if read and (max(read) < oldest if backwards else min(read) > newest):
            return
        if others == _MOST_OTHERS:
            yield []
            return
