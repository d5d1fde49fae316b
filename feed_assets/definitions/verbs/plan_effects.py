"""What a change of the definitions does to what is there: batches that it would cut at once, events and instances that
it leaves behind, feeds of which nothing has ever come, long pasts, and what people have said under names that a file
says now.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from feed_assets.catalog.store import MetadataStore
from feed_assets.context.heartbeat import find_ticks
from feed_assets.definitions.verbs.context import EntityContext
from feed_assets.entities.bundle import Bundle
from feed_assets.entities.common import Kind, MetadataEntry, iter_metadata, label_of
from feed_assets.entities.conditions import condition_of, find_named
from feed_assets.entities.datasource import Import
from feed_assets.entities.feed import Feed, find_targets
from feed_assets.entities.flow_names import Transfer, declared_by, transfer_name
from feed_assets.entities.locations.overlaps import NO_OVERLAPS
from feed_assets.entities.metadata import MetadataKind, Origin
from feed_assets.entities.process import Process
from feed_assets.entities.triggers import iter_names
from feed_assets.issues import EntityKey, FieldPath, Issue, Severity, SourceMap
from feed_assets.log.events import EventLog
from feed_assets.log.instances.feed_places import OWN_PATHS, FeedPlaces, describe_staying
from feed_assets.log.instances.process_instances import ProcessInstances, UnstartedInstances
from feed_assets.log.records import ProcessInstanceStatus, WatermarkKind
from feed_assets.log.watermarks import NEWEST, PAST_A_TICK, Watermarks
from feed_assets.plan.compile import compile_plan, compile_process
from feed_assets.plan.differences import find_running, find_written
from feed_assets.plan.edges import Key, TriggerInput, compile_trigger
from feed_assets.plan.records import FeedRecord
from feed_assets.plan.rendering import (
    BatchesDifference,
    Effect,
    InputDifference,
    InstanceRange,
    InstancesDifference,
    counted,
    render_length,
)
from feed_assets.plan.transfers import ExportRecord, ImportRecord
from feed_assets.releases.timeline import ReleaseTimeline
from feed_assets.settings import DefinitionChanges
from feed_assets.timing.dates import render_datetime
from feed_assets.timing.overlaps import find_nesting
from feed_assets.triggers.cuts import Share
from feed_assets.triggers.input_windows import find_gone
from feed_assets.triggers.queue.changes import QueueChanges
from feed_assets.triggers.queue.inputs import PendingEvents, TriggerInputs
from feed_assets.triggers.queue.records import InputKey, Mark, QueueAction, RangeUse
from feed_assets.triggers.waiting import ForeseenBatches, foresee_batches

FORMER_PLACE = "former-place"
CLAIMED = "metadata-claimed"
LEFT_EVENTS = "left-events"
TRIGGER_BEGUN = "trigger-begun"
NEVER_CAME = "never-came"
LONG_PAST = "long-past"
STRANDED = "stranded"

_WAITING = ProcessInstanceStatus.WAITING

_A_TICK = timedelta(seconds=10)
"""From a tick to the next while a past is worked off; an estimate: the sensor pauses for four seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """The declared entities before and after a change, of which it concerns `keys`; `sources` are those after it."""

    context: EntityContext
    before: Bundle
    after: Bundle
    sources: SourceMap
    keys: Collection[EntityKey]

    def warn(self, code: str, key: EntityKey, message: str, remedy: str, path: FieldPath = ()) -> Issue:
        """Return a warning about an entity, or about one of its fields."""
        label, source = label_of(key), self.sources.locate(key, path)
        return Issue(severity=Severity.WARNING, code=code, entity=label, message=message, remedy=remedy, source=source)


def find_staying(connection: Connection, sides: Sides) -> Iterator[Issue]:
    """Yield a warning for each feed and former place at which recorded instances stay.

    A change of place is one of a feed's location or `path_timezone`, or of its cluster's storage. Both bundles are
    valid.
    """
    old, places = _feeds(sides.before, sides.keys), FeedPlaces(connection)
    for key, record in sorted(_feeds(sides.after, sides.keys).items()):
        if key not in old or not record.has_data or old[key].place == record.place:
            continue
        staying = Counter((there.store, there.template) for _, there in places.find_elsewhere(record))
        for (store, template), count in staying.items():
            is_shared = find_nesting(f"{store.url}/{template}", f"{record.store.url}/{record.template}") is not None
            shared = (
                "; instances to come can have their paths, and neither arrive nor are written then" if is_shared else ""
            )
            message = f"{describe_staying(count)}: {store.url}{template} on {record.cluster}{shared}"
            remedy = OWN_PATHS if is_shared else "Runs, listings, `why` and retention find them there."
            yield sides.warn(FORMER_PLACE, (Kind.FEED.value, record.feed), message, remedy)


def find_stranded(sides: Sides) -> Iterator[Issue]:
    """Yield a warning for each process whose waiting instances keep a release that lacks instances of a feed which a
    valid change removes.
    """
    context = sides.context
    gone = {(feed.name, on) for feed in sides.before.feeds for on in feed.clusters}
    gone -= {(feed.name, on) for feed in sides.after.feeds for on in feed.clusters}
    if not gone or context.settings.definition_changes is DefinitionChanges.ALWAYS:
        return
    plan = compile_plan(sides.after, overlaps=NO_OVERLAPS, colo=context.settings.works_in)
    timeline = ReleaseTimeline(plan, context.store.values)
    with context.database.read() as connection:
        timeline.refresh(connection, context.now)
        waiting = {
            key: [row.nominal_time for row in ProcessInstances(connection).unended(*key) if row.status is _WAITING]
            for key in timeline.plan.processes
            if UnstartedInstances(connection, *key).has_begun()  # else its release is replaced from the start
        }
        for (process, _), message in find_gone(connection, timeline, timeline.plan.feeds, waiting, context.now):
            kind, name = declared_by(process)
            yield sides.warn(STRANDED, (kind.value, name), message, "Give it once the change is made.")


def _feeds(bundle: Bundle, keys: Collection[EntityKey]) -> dict[Key, FeedRecord]:
    """Return those of the feeds that are among `keys`, or whose cluster is."""
    changed = {name for kind, name in keys if kind == Kind.CLUSTER}
    feeds = [each for each in bundle.feeds if each.key in keys or changed.intersection(each.clusters)]
    return dict(compile_plan(Bundle(entities=(*bundle.clusters, *feeds)), overlaps=NO_OVERLAPS).feeds)


def find_claimed_metadata(connection: Connection, sides: Sides) -> Iterator[Issue]:
    """Yield a warning for each property or tag that somebody has written, and the file of an entity says now.

    Costs two statements for each entity whose file says anything.
    """
    store = MetadataStore(connection)
    for key in sorted(sides.keys):
        entity, own = sides.after.find(key), "/".join(key)
        said: dict[str, list[MetadataEntry]] = defaultdict(list)
        for each in iter_metadata(entity) if entity is not None else ():
            said[own if each.column is None else f"{own}/column/{each.column}"].append(each)
        if not said:
            continue
        described = {each.path: each.id for each in store.below(own) if each.path in said}
        known = store.read_many(list(described.values()))
        for path, number in described.items():
            for each in said[path]:
                before = known.get(number, {}).get(each.key)
                if before is None or before.origin is Origin.DEFINITION:
                    continue
                is_tag = each.key.kind is MetadataKind.TAG
                was = "" if is_tag else f" was {before.value!r},"
                message = f"{each.key.kind.value} {each.key.name!r}{was} of {before.author}; the file says it now"
                yield sides.warn(CLAIMED, key, message, "Remove it from the file to leave it to people.", each.place)


def find_first_batches(sides: Sides) -> tuple[BatchesDifference, ...]:
    """Return the batches that scheduled processes would cut at once after a valid change, and would not without it."""
    context, before, after = sides.context, sides.before, sides.after
    schedules = context.schedules()
    old, new = [], []
    for name, cluster, was, process in _iter_changed(before, after, sides.keys):
        if schedules.is_scheduled(Kind.PROCESS, name, cluster):
            new.append(compile_process(after, process, cluster))
            if was is not None and was.makes_batches:
                old.append(compile_process(before, was, cluster))
    if not new:
        return ()
    with context.database.read() as connection:
        anyhow = foresee_batches(connection, old, context.now)
        found = foresee_batches(connection, new, context.now)
    return tuple(_difference(each) for consumer, each in sorted(found.items()) if consumer not in anyhow)


def find_next_transfers(sides: Sides) -> Iterator[InstancesDifference]:
    """Yield the next instance of each scheduled import and export whose datasource has changed; it uses the new one."""
    context, after = sides.context, sides.after
    changed = {key for key in sides.keys if sides.before.find(key) is not None and after.find(key) is not None}
    feeds = [each for each in after.feeds if any(on.import_ or on.export for on in each.clusters.values())]
    if not any(kind == Kind.DATASOURCE for kind, _ in changed) or not feeds:
        return
    schedules = context.schedules()
    plan = compile_plan(Bundle(entities=(*after.clusters, *feeds)), overlaps=NO_OVERLAPS)
    for (name, cluster), record in plan.processes.items():
        of = record.work.datasource if isinstance(record.work, ImportRecord | ExportRecord) else None
        is_other = (Kind.DATASOURCE, of) in changed and record.is_enumerated
        at = record.sequence.ceil(context.now - record.delay) if is_other else None
        if at is not None and schedules.is_scheduled(*record.entity, cluster):
            ranges = (InstanceRange(first=at, last=at, count=1),)
            yield InstancesDifference(
                effect=Effect.NEXT, kind=Kind.PROCESS, name=name, cluster=cluster, ranges=ranges, of=of
            )


def _iter_changed(
    before: Bundle, after: Bundle, changed: Collection[EntityKey]
) -> Iterator[tuple[str, str, Process | None, Process]]:
    """Yield the processes, on each of their clusters, whose batches may be others: they or their triggers differ."""
    has_feeds = any(kind == Kind.FEED for kind, _ in changed)
    for process in after.processes:
        if not process.makes_batches or not (process.key in changed or has_feeds):
            continue
        for cluster in process.clusters:
            old, new = (find_running(bundle, process.name, cluster) for bundle in (before, after))
            if new is not None and (
                process.key in changed
                or old is None
                or compile_trigger(before, old, cluster) != compile_trigger(after, new, cluster)
            ):
                yield process.name, cluster, old, new


def _difference(found: ForeseenBatches) -> BatchesDifference:
    record = found.record
    shares = {share.mark.input: share for share in found.first.shares}
    return BatchesDifference(
        process=record.process,
        cluster=record.cluster,
        batches=found.batches,
        are_more=found.are_more,
        busy=found.busy,
        first=tuple(
            _input(each, shares.get(each.name), found.pending.get(each.name, 0))
            for each in (record.trigger.inputs if record.trigger else ())
        ),
    )


def _input(each: TriggerInput, share: Share | None, pending: int) -> InputDifference:
    return InputDifference(
        input=each.name,
        feed=each.feed,
        taken=share.count(RangeUse.TAKEN) if share is not None else 0,
        passed=share.count(RangeUse.PASSED) if share is not None else 0,
        pending=pending,
    )


def find_left_events(connection: Connection, sides: Sides) -> Iterator[Issue]:
    """Yield a warning for each queue of processes whose events nobody takes any more, and for each trigger that has
    begun and begins elsewhere now.
    """
    before, after = sides.before, sides.after
    for key in sorted(sides.keys):
        old, new = (bundle.find_process(key[1]) if key[0] == Kind.PROCESS else None for bundle in (before, after))
        marks = TriggerInputs(connection).of_process(key[1]) if old is not None else []
        if old is None or not marks:
            continue
        left = _taken_inputs(before, key[1]) - _taken_inputs(after, key[1])
        found = [
            (LEFT_EVENTS, *each) for each in describe_left(connection, [mark for mark in marks if mark.key in left])
        ]
        if new is not None and old.trigger and new.trigger and old.trigger.from_ != new.trigger.from_:
            message = "a changed trigger.from has no effect: the trigger has begun, and goes on from its place"
            found.append((TRIGGER_BEGUN, message, "To begin anew, delete the process and submit it again."))
        yield from (sides.warn(code, key, message, remedy) for code, message, remedy in found)


def _taken_inputs(bundle: Bundle, name: str) -> set[InputKey]:
    """Return the inputs whose events a process takes, on all its clusters."""
    process = bundle.find_process(name)
    found: set[InputKey] = set()
    for cluster in process.clusters if process is not None else ():
        running = find_running(bundle, name, cluster)
        trigger = compile_trigger(bundle, running, cluster) if running is not None else None
        for each in trigger.inputs if trigger is not None else ():
            found.add(InputKey(name, cluster, each.name, each.feed, each.feed_cluster))
    return found


def describe_left(connection: Connection, marks: Collection[Mark]) -> Iterator[tuple[str, str]]:
    """Yield how many events of queues nobody takes any more, for each cluster, and the way to take them."""
    consumers = {mark.key.consumer for mark in marks}
    events = PendingEvents(connection, EventLog(connection).last_seq(), consumers)
    aside = QueueChanges(connection).set_aside(consumers)
    for consumer in sorted(consumers):
        mine = [events.measure(mark, None) for mark in marks if mark.key.consumer == consumer]
        inputs = {mark.input for mark in mine}
        decided = Counter(change.action for change in aside.get(consumer, ()) if change.input in inputs)
        pending = sum(mark.pending for mark in mine)
        counts = ((pending, "pending"), (decided[QueueAction.HOLD], "held"), (decided[QueueAction.DROP], "dropped"))
        if shown := [f"{count} {what}" for count, what in counts if count]:
            first = min((mark.first_at for mark in mine if mark.first_at is not None), default=None)
            start = "earliest" if first is None else render_datetime(first.replace(second=0, microsecond=0))
            message = f"events on {consumer.cluster} that nobody takes any more: {', '.join(shown)}"
            yield message, f"A process that is to take them begins with trigger: {{from: {start}}}."


@dataclass(frozen=True, slots=True, kw_only=True)
class UnseenFeed:
    """A feed of which nothing has ever come on a cluster, though something should have: since when, who reads it there,
    and what may be wrong.
    """

    feed: str
    cluster: str
    since: datetime
    readers: tuple[str, ...]
    reason: str
    remedy: str


def list_unseen(
    connection: Connection, bundle: Bundle, as_of: datetime, about: Collection[EntityKey] | None = None
) -> tuple[UnseenFeed, ...]:
    """Return the feeds that no process writes, and of which nothing has ever come by the log, on each cluster where
    something should have, and a tick has looked; or only those among `about`, and those that processes among it read.

    Costs one look into an index for each suspect, and reads no instance.
    """
    written, readers = find_written(bundle), _find_readers(bundle, as_of)
    suspects: dict[Key, Feed] = {}
    for feed in bundle.feeds:
        for cluster in feed.clusters.keys() - find_targets(feed):
            keys = {feed.key, *((Kind.PROCESS.value, each) for each in readers.get((feed.name, cluster), ()))}
            is_asked = about is None or any(key in about for key in keys)
            if is_asked and (feed.name, cluster) not in written and _is_due(feed, cluster, as_of):
                suspects[feed.name, cluster] = feed
    looked = find_ticks(connection, {cluster for _, cluster in suspects})
    suspects = {key: feed for key, feed in suspects.items() if key[1] in looked}
    unseen = sorted(suspects.keys() - EventLog(connection).find_seen(suspects))
    return tuple(_describe_unseen(suspects[key], key[1], readers.get(key, ())) for key in unseen)


def find_unseen_feeds(connection: Connection, sides: Sides, about: Collection[EntityKey]) -> Iterator[Issue]:
    """Yield a warning for each feed that is read, and of which nothing has ever come: of those among `about`, and those
    that processes among it read; not of feeds that were not declared before: nothing can have come of them.
    """
    for each in list_unseen(connection, sides.after, sides.context.now, about):
        if not each.readers or sides.before.find_feed(each.feed) is None:
            continue
        name, *others = each.readers
        who = f"process {name!r}{f' and {len(others)} more read' if others else ' reads'} it"
        message = f"it has never come on {each.cluster}: {who}, but {each.reason}"
        yield sides.warn(NEVER_CAME, (Kind.FEED.value, each.feed), message, each.remedy)


def find_first_transfers(connection: Connection, sides: Sides, about: Collection[EntityKey]) -> Iterator[Issue]:
    """Yield a warning for each import and export of feeds among `about` that has not begun, and begins with several
    instances: also of those that an older version of this program has declared, and has not run.
    """
    own = ((feed, on) for feed in sides.after.feeds if feed.key in about and feed.is_expected for on in feed.clusters)
    begun = Watermarks(connection)
    for feed, cluster in own:
        sequence = feed.sequence_on(cluster)
        due = sequence.indices_between(sequence.start, sides.context.now)
        for kind, declared in ((Transfer.IMPORT, feed.import_on(cluster)), (Transfer.EXPORT, feed.export_on(cluster))):
            name = transfer_name(feed.name, kind)
            if len(due) < 2 or declared is None or begun.get(WatermarkKind.PROCESS, name, cluster) is not None:
                continue
            newest = render_datetime(sequence.at(due[-1]))
            skipped = f"the instance of {newest}, and skips the {len(due) - 1} before"
            is_whole = isinstance(declared, Import) and declared.source.extract.is_whole
            what = skipped if is_whole else f"{counted(len(due), 'instance')} up to {newest}"
            message = f"its {kind} on {cluster} begins with {what}"
            remedy = "Suspend the feed to let it wait, or let its validity begin later."
            yield sides.warn(f"first-{kind}", feed.key, message, remedy, ("clusters", cluster, kind))


def find_long_pasts(sides: Sides) -> Iterator[Issue]:
    """Yield a warning for each feed and process that is new on a cluster, or of a feed that begins
    earlier, if ticks work off its past behind what is due; with an estimate of the time that this takes.
    """
    written, rate = find_written(sides.after), PAST_A_TICK * (timedelta(minutes=1) // _A_TICK)
    for key in sorted(sides.keys):
        entity, was = sides.after.find(key), sides.before.find(key)
        if not isinstance(entity, Feed | Process):
            continue
        for cluster in entity.clusters:
            sequence = entity.sequence_on(cluster)
            count = len(sequence.indices_between(sequence.start, sides.context.now)) - NEWEST
            if isinstance(was, Feed | Process) and cluster in was.clusters:
                count *= isinstance(entity, Feed) and sequence.start < was.sequence_on(cluster).start
            if count > 0 and _is_enumerated(sides.after, entity, cluster, written):
                since, is_feed = render_datetime(sequence.start), isinstance(entity, Feed)
                what = "looked for" if is_feed else "created after the past of its inputs,"
                length = render_length(max(_A_TICK, _A_TICK * count / PAST_A_TICK))
                message = (
                    f"{counted(count, 'instance')} on {cluster} since {since} are {what} behind today's, about "
                    f"{length} at {rate:,} a minute, by estimate: less with others beside it"
                )
                yield sides.warn(LONG_PAST, key, message, "Begin it later to leave them out.")


def _is_enumerated(after: Bundle, entity: Feed | Process, cluster: str, written: Collection[Key]) -> bool:
    """Return whether ticks poll or create each instance of a feed or process at its nominal time."""
    if isinstance(entity, Process):
        return not entity.makes_batches and find_running(after, entity.name, cluster) is not None
    is_told = cluster in find_targets(entity) or entity.clusters[cluster].produced_by is not None
    return entity.is_expected and not is_told and (entity.name, cluster) not in written


def _find_readers(bundle: Bundle, as_of: datetime) -> dict[Key, list[str]]:
    """Return the processes that read or wait for feeds, by feed and cluster, without those that are over."""
    found: dict[Key, list[str]] = defaultdict(list)
    for process in bundle.processes:
        for cluster, entry in process.clusters.items():
            if entry.validity.end <= as_of:
                continue
            read = {item.feed for item in process.inputs.values()}
            for text in iter_names(condition_of(process)) if process.makes_batches else ():
                read |= {feed for _, feed in find_named(bundle, process, cluster, text)}
            for feed in read:
                found[feed, cluster].append(process.name)
    return found


def _is_due(feed: Feed, cluster: str, as_of: datetime) -> bool:
    """Return whether something should have come: the feed is valid, and the first instance on schedule is over."""
    validity = feed.clusters[cluster].validity
    first = feed.frequency.as_duration() if feed.is_expected else timedelta(0)
    return as_of - validity.start >= first and as_of < validity.end


def _describe_unseen(feed: Feed, cluster: str, readers: Collection[str]) -> UnseenFeed:
    producer = feed.clusters[cluster].produced_by
    asset = feed.asset or (producer.asset if producer is not None else None)
    if asset is not None:
        reason, remedy = f"no materialization of asset {'/'.join(asset)} was seen", "Check the key of the asset."
    elif feed.has_data:
        remedy = "Check its location, or declare the process that writes it."
        reason = "no process here writes it"
    else:
        remedy = "Check whether its name is the one that is given."
        reason = "nobody has ever given notice of it"
    return UnseenFeed(
        feed=feed.name,
        cluster=cluster,
        since=feed.clusters[cluster].validity.start,
        readers=tuple(sorted(readers)),
        reason=reason,
        remedy=remedy,
    )
