"""The walk from event to event over the port, breadth-first: up by what attempts have frozen, down by who has frozen
it. What was visited is not visited again, so cycles end.

An instance is told whole: whatever happened to its data. Upstream is what had happened before it was read. Downstream
are those that have read these very bytes, whether they were restored meanwhile or not.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TypeVar

from feed_assets.entities.flow_names import is_flow, parse_flow
from feed_assets.instances.late.lateness import prove_difference
from feed_assets.lineage.port import LineagePort, Reading
from feed_assets.lineage.records import MORE_LEVELS, MOST_NODES, Edge, EdgeKind, LineageGraph, Node, NodeKind
from feed_assets.log.records import (
    CONTENT,
    Attempt,
    FeedEvent,
    FeedEventKind,
    FeedKey,
    ProcessInstanceStatus,
    ProcessKey,
)
from feed_assets.log.removals.records import Sweep
from feed_assets.timing.dates import render_datetime
from feed_assets.timing.errors import InstanceError

_Key = TypeVar("_Key")
_Each = TypeVar("_Each")
_SUCCEEDED = ProcessInstanceStatus.SUCCEEDED
_NEVER = datetime.max.replace(tzinfo=UTC)


def walk_lineage(
    port: LineagePort,
    starts: Collection[FeedKey | ProcessKey],
    *,
    up: bool,
    down: bool,
    levels: int,
    most: int = MOST_NODES,
    at: datetime | None = None,
) -> LineageGraph:
    """Return what some instances came of, and what came of them; of current ones the version that stood there `at` a
    time. A level leads from data to data. The graph is cut off where it has more than `most` nodes.
    """
    walk = _Walk(port, most)
    walk.load(key for key in starts if isinstance(key, FeedKey))
    events = _flat(walk.histories)
    if at is not None:
        events = [stood for each in walk.histories.values() if (stood := find_standing(each, at)) is not None]
        walk = walk if events else _Walk(port, most)
    of_starts = walk.add(_flat(port.find_attempts([key for key in starts if isinstance(key, ProcessKey)])), set())
    for (name, one), (following, other) in pairwise(of_starts.items()):
        if one.key == other.key:
            walk.link(name, following, EdgeKind.THEN)
    attempts = [*of_starts.values()]
    first = tuple(walk.nodes)
    wholes = [walk.go_up(events, attempts, levels)] if up else []
    wholes += [walk.go_down(events, attempts, levels)] if down else []
    walk.tell_ends()
    nodes, edges = tuple(walk.nodes.values()), tuple(walk.edges)
    is_whole, remarks = all(wholes) and not walk.is_cut, (MORE_LEVELS.format(levels),) if walk.is_cut else ()
    return LineageGraph(starts=first, nodes=nodes, edges=edges, up=up, down=down, is_whole=is_whole, remarks=remarks)


def find_version(
    events: Sequence[FeedEvent],
    digest: str | None,
    read_at: datetime,
    until: datetime | None = None,
    below: int | None = None,
) -> FeedEvent | None:
    """Return the event whose content somebody has read, with this digest, at about this time; None if none has it.

    What it has published tells that its number is `below` one. It is the last before with the same content, or one that
    came by another clock; else the last that nothing proves to be another; at last what came while it was read, `until`
    a time.
    """
    content = [each for each in events if each.kind in CONTENT and (below is None or each.seq < below)]
    before = [each for each in reversed(content) if each.recorded_at <= read_at]
    after = [each for each in content if read_at < each.recorded_at]
    same = (each for each in (*before, *after) if digest is not None and each.manifest_digest == digest)
    near = [each for each in after if below is not None or until is None or each.recorded_at <= until]
    alike = (each for each in (*before, *near) if not prove_difference(digest, each.manifest_digest))
    return next(same, None) or next(alike, None)


def find_standing(events: Sequence[FeedEvent], at: datetime) -> FeedEvent | None:
    """Return the event that has brought what stood in the place of a current instance in the second of a time."""
    before = (
        each for each in reversed(events) if each.kind in CONTENT and each.recorded_at < at + timedelta(seconds=1)
    )
    return next(before, None)


def no_version(events: Iterable[FeedEvent], at: datetime) -> InstanceError:
    """Return that none of the versions of a current instance stood there at a time."""
    first = min((each.recorded_at for each in events if each.kind in CONTENT), default=None)
    told = "None has come yet." if first is None else f"The first is that of {first:%Y-%m-%dT%H:%M:%SZ}."
    return InstanceError(subject=render_datetime(at), reason="no version stood there then", next_step=told)


def event_id(event: FeedEvent) -> str:
    """Return the id of the node of an event."""
    return f"event/{event.seq}"


def attempt_id(attempt: Attempt) -> str:
    """Return the id of the node of an attempt."""
    return f"attempt/{attempt.process}/{attempt.cluster}/{render_datetime(attempt.nominal_time)}/{attempt.attempt}"


def _flat(found: Mapping[_Key, Sequence[_Each]]) -> list[_Each]:
    return [each for listed in found.values() for each in listed]


@dataclass(slots=True)
class _Walk:
    """The graph so far; `histories` has all events of the instances that were visited."""

    port: LineagePort
    most: int
    nodes: dict[str, Node] = field(default_factory=dict)
    edges: dict[Edge, None] = field(default_factory=dict)
    histories: dict[FeedKey, Sequence[FeedEvent]] = field(default_factory=dict)
    attempts: dict[str, Attempt] = field(default_factory=dict)
    made: dict[str, list[FeedEvent]] = field(default_factory=dict)
    """The events of attempts, by the ids of these; `beside` has all of their instances."""
    beside: dict[FeedKey, Sequence[FeedEvent]] = field(default_factory=dict)
    is_cut: bool = False
    """Whether there is more beyond the levels."""

    def load(self, keys: Iterable[FeedKey]) -> None:
        """Ask for what happened to the data of instances; their events become nodes."""
        new = dict.fromkeys(key for key in keys if key not in self.histories)
        found = self.port.find_events(new) if new else {}
        self._tell({key: found.get(key, ()) for key in new})

    def _tell(self, histories: Mapping[FeedKey, Sequence[FeedEvent]]) -> None:
        self.histories |= histories
        for events in histories.values():
            self.nodes |= {event_id(each): _event_node(each) for each in events}
            for one, other in pairwise(events):
                self.link(event_id(one), event_id(other), EdgeKind.THEN)

    def add(self, attempts: Iterable[Attempt], seen: set[str]) -> dict[str, Attempt]:
        """Make attempts nodes; return those that were not seen before, by their ids."""
        new = {name: each for each in attempts if (name := attempt_id(each)) not in seen}
        seen.update(new)
        self.attempts |= new
        for name, attempt in new.items():
            self.nodes.setdefault(name, _attempt_node(attempt))
        return new

    def link(self, source: str, target: str, kind: EdgeKind, name: str | None = None) -> None:
        """Add an edge."""
        self.edges[Edge(source=source, target=target, kind=kind, name=name)] = None

    def remark(self, name: str, text: str) -> None:
        """Say something about a node."""
        node = self.nodes[name]
        if text not in node.remarks:
            self.nodes[name] = replace(node, remarks=(*node.remarks, text))

    def go_up(self, events: Sequence[FeedEvent], attempts: Sequence[Attempt], levels: int) -> bool:
        """Walk upstream; return whether nothing was cut off."""
        seen: set[str] = set()
        visited: set[int] = set()
        for _ in range(levels):
            events = [*{each.seq: each for each in events if each.seq not in visited}.values()]
            visited.update(each.seq for each in events)
            makers = self._tell_makers(events)
            asked = self.add([*attempts, *makers.values()], seen)
            wanted: list[tuple[FeedKey, str | None, Reading | FeedEvent]] = [
                *((each.instance, each.digest, each) for each in self._as_copied(self.port.find_read(asked.values()))),
                *((*found, each) for each in events if each.seq not in makers and (found := _source_of(each))),
            ]
            self.load(key for key, _, _ in wanted)
            following: list[FeedEvent] = []
            lost: dict[str, tuple[FeedKey, datetime]] = {}
            for key, digest, by in wanted:
                version = self._version(key, digest, by)
                source = event_id(version) if version else self._tell_gone(key, digest)
                if version is None:
                    lost[source] = (key, min(_end_of(by), lost.get(source, (key, _NEVER))[1]))
                if isinstance(by, Reading):
                    self.link(source, attempt_id(by.attempt), EdgeKind.READ, by.input)
                else:
                    self.link(source, event_id(by), EdgeKind.COPIED)
                following += [each for each in self.histories[key] if version and each.seq <= version.seq]
            events, attempts = following, _flat(self._tell_lost(lost))
            if not (events or attempts) or len(self.nodes) > self.most:
                break
        is_made = any(each.payload.get("process") for each in events if each.seq not in visited)
        return self._end(is_more=is_made or any(each.inputs for each in attempts))

    def _end(self, *, is_more: bool) -> bool:
        """Note that the levels have ended, if more follows; return whether the size has cut nothing off."""
        is_full = len(self.nodes) > self.most
        self.is_cut |= is_more and not is_full
        return not (is_more and is_full)

    def _tell_lost(self, lost: Mapping[str, tuple[FeedKey, datetime]]) -> Mapping[str, Sequence[Attempt]]:
        """Tell of nodes without events, of instances that were read at a time, the attempts that may have made them:
        the last before that has published, and whose events are not there.
        """
        writers = self.port.find_writers({key for key, _ in lost.values()}) if lost else {}
        found: dict[str, Sequence[Attempt]] = {}
        for name, (key, until) in lost.items():
            there = {each.seq for each in self.histories[key]}
            published = [each for each in writers.get(key, ()) if each.outputs or each.status is _SUCCEEDED]
            before = (each for each in published if (each.ended_at or _NEVER) <= until)
            found[name] = [*{each.key: each for each in before if there.isdisjoint(each.outputs)}.values()]
            self.add(found[name], set())
            for attempt in found[name]:
                self.link(attempt_id(attempt), name, EdgeKind.MADE)
            if not found[name]:
                self.remark(name, "what has brought it is not known")
        return found

    def _tell_makers(self, events: Collection[FeedEvent]) -> Mapping[int, Attempt]:
        """Ask what has made events, and tell the process of which there is no attempt."""
        made = [(each, key) for each in events if (key := each.maker)]
        found = self.port.find_attempts({key for _, key in made}) if made else {}
        makers: dict[int, Attempt] = {}
        for event, key in made:
            output, name = event.payload.get("output"), f"process/{key.process}/{key.cluster}"
            if (maker := next((each for each in found.get(key, ()) if event.seq in each.outputs), None)) is not None:
                makers[event.seq], name = maker, attempt_id(maker)
                if is_flow(key.process):
                    self.made[name] = [event]
            elif not _source_of(event):
                told = ("its attempt is not in the record",)
                self.nodes[name] = Node(
                    id=name, kind=NodeKind.PROCESS, name=key.process, cluster=key.cluster, remarks=told
                )
            if maker is not None or name in self.nodes:
                self.link(name, event_id(event), EdgeKind.MADE, str(output) if output else None)
        return makers

    def go_down(self, events: Sequence[FeedEvent], attempts: Sequence[Attempt], levels: int) -> bool:
        """Walk downstream; return whether nothing was cut off."""
        seen: set[str] = set()
        visited: dict[int, FeedEvent] = {}
        for _ in range(levels):
            new = {each.seq: each for each in events if each.seq not in visited}
            visited |= new
            newest = {each.key: each for each in new.values()}
            readers = self._tell_readers(newest, visited)
            asked = self.add([*attempts, *readers], seen)
            self._find_made(asked)
            keys = {each.key for name in asked for each in self.made[name]} - {*self.histories}
            self._tell({key: events for key, events in self.beside.items() if key in keys})
            events = []
            for name, attempt in asked.items():
                made = self.made[name]
                for event in made:
                    output = str(event.payload.get("output") or "") or None
                    self.link(name, event_id(event), EdgeKind.MADE, output)
                if len(made) < len(attempt.outputs) and attempt.ended_at is not None:
                    told = "events of what it has made were cleaned up: who has read that is not looked for"
                    self.remark(name, told)
                events += [one for event in made for one in self._restored(event)]
            attempts = ()
            if not events or len(self.nodes) > self.most:
                break
        newest = {each.key: each for each in events if each.seq not in visited}
        left = self._find_readers(newest, {each.seq for each in events})
        return self._end(is_more=any(version is not None for _, version in left))

    def _find_made(self, attempts: Mapping[str, Attempt]) -> None:
        """Ask what attempts have published, as far as that is not known."""
        lacking = {name: each for name, each in attempts.items() if name not in self.made}
        found = self.port.find_published(lacking.values()) if lacking else {}
        published = {each.seq: each for each in _flat(found)}
        self.beside |= found
        for name, attempt in lacking.items():
            self.made[name] = [published[seq] for seq in attempt.outputs if seq in published]

    def _as_copied(self, found: Collection[Reading]) -> Iterator[Reading]:
        """Yield what was read; of a copy what it has copied: its source may have changed after that was frozen."""
        self._find_made({attempt_id(each.attempt): each.attempt for each in found if is_flow(each.attempt.process)})
        for each in found:
            made = self.made[attempt_id(each.attempt)] if is_flow(each.attempt.process) else ()
            copied = next((source[1] for event in made if (source := _source_of(event))), None)
            yield each._replace(digest=copied) if copied else each

    def _tell_readers(self, newest: Mapping[FeedKey, FeedEvent], visited: Collection[int]) -> list[Attempt]:
        """Ask who has read instances; return those that have read these bytes, and tell the others."""
        readers: list[Attempt] = []
        for each, version in self._find_readers(newest, visited):
            if version is not None:
                readers.append(each.attempt)
                self.link(event_id(version), attempt_id(each.attempt), EdgeKind.READ, each.input)
            else:
                work = _attempt_node(each.attempt)
                by = f"{work.subject} {render_datetime(each.attempt.nominal_time)} attempt {work.number}"
                is_same = each.digest is not None and newest[each.instance].manifest_digest == each.digest
                what = "the same content, by another event" if is_same else "another version"
                self.remark(event_id(newest[each.instance]), f"{by} has read {what}")
        return readers

    def _find_readers(
        self, newest: Mapping[FeedKey, FeedEvent], asked: Collection[int]
    ) -> Iterator[tuple[Reading, FeedEvent | None]]:
        """Yield who has read instances, in their order, and the event whose content it is, if it is one of some."""
        found = self.port.find_readers(newest) if newest else ()
        for each in sorted(self._as_copied(found), key=lambda read: (read.attempt.key, read.attempt.attempt)):
            version = self._version(each.instance, each.digest, each)
            yield each, version if version is not None and version.seq in asked else None

    def _version(self, key: FeedKey, digest: str | None, by: Reading | FeedEvent) -> FeedEvent | None:
        """Return the event of which somebody has read the content."""
        if isinstance(by, FeedEvent):
            return find_version(self.histories[key], digest, by.recorded_at, by.recorded_at, by.seq)
        if by.event is not None:
            return next((each for each in self.histories[key] if each.seq == by.event), None)
        started, ended, made = by.attempt.started_at, by.attempt.ended_at, by.attempt.outputs
        return find_version(self.histories[key], digest, started, ended, min(made, default=None))

    def _restored(self, event: FeedEvent) -> list[FeedEvent]:
        """Return an event, and those after it as long as nothing brings other content."""
        found = [event]
        for each in self.histories[event.key]:
            if each.seq > event.seq and each.kind in CONTENT and not _is_same(event, each):
                break
            found += [each] if each.seq > event.seq else []
        return found

    def _tell_gone(self, key: FeedKey, digest: str | None) -> str:
        name = "/".join(["feed", *key[:2], render_datetime(key.nominal_time), digest or ""])
        is_there = any(digest is not None and each.manifest_digest == digest for each in self.histories[key])
        why = (
            "tells this content only by a later event"
            if is_there
            else "has no event with this content: it was cleaned up"
        )
        told = Node(
            id=name,
            kind=NodeKind.FEED,
            name=key.feed,
            cluster=key.cluster,
            nominal_time=key.nominal_time,
            digest=digest,
            remarks=(f"the record {why}",),
        )
        self.nodes.setdefault(name, told)
        return name

    def tell_ends(self) -> None:
        """Tell who has given and who has removed the data, and what came of them since."""
        events = [each for listed in self.histories.values() for each in listed]
        for attempt, how, place in self.port.find_places(self.attempts.values()):
            ends = f"place/{place}", attempt_id(attempt)
            self.nodes.setdefault(ends[0], Node(id=ends[0], kind=NodeKind.PLACE, name=place))
            self.link(*(ends if how is EdgeKind.READ else ends[::-1]), how)
        given = [each for each in events if not each.payload.get("process")]
        for seq, givers in self.port.find_givers(given).items() if given else ():
            for kind, name in givers:
                self.nodes.setdefault(f"{kind}/{name}", Node(id=f"{kind}/{name}", kind=kind, name=name))
                self.link(f"{kind}/{name}", f"event/{seq}", EdgeKind.GAVE)
        swept = {each.seq: str(each.payload["sweep"]) for each in events if each.payload.get("sweep")}
        sweeps = self.port.find_sweeps({*swept.values()}) if swept else {}
        fates: dict[int, tuple[str, str]] = {}
        for event in events:
            if (sweep := sweeps.get(swept.get(event.seq, ""))) is not None:
                name, is_evicted = f"sweep/{sweep.sweep_id}", event.kind is FeedEventKind.EVICTED
                self.nodes.setdefault(name, _sweep_node(name, sweep))
                self.link(name, event_id(event), EdgeKind.REMOVED if is_evicted else EdgeKind.GAVE)
                is_there = sweep.has_trash or "archive" in event.payload
                undo = "undo brings it back" if is_there else "it cannot be brought back"
                fates[event.seq] = f"evicted by sweep {sweep.sweep_id}", f": {undo}"
        for listed in self.histories.values():
            for number, (one, other) in enumerate(pairwise(listed)):
                (evicted, undo), then = fates.get(other.seq, ("evicted", "")), listed[number + 2 : number + 3]
                is_back = bool(then) and then[0].kind in (FeedEventKind.RESTORED, FeedEventKind.HELD)
                if fate := _fate(one, other, evicted + (", and brought back since" if is_back else undo)):
                    self.remark(event_id(one), fate)


def _fate(one: FeedEvent, other: FeedEvent, evicted: str) -> str | None:
    """Return what came of the content of an event by the next one."""
    match other.kind:
        case _ if one.kind not in CONTENT:
            return None
        case FeedEventKind.EVICTED:
            return evicted
        case FeedEventKind.VANISHED:
            return "storage has lost it since"
        case _:
            is_unknown = one.manifest_digest is None and other.manifest_digest is None
            replaced = "recorded again since: whether it is the same is not known" if is_unknown else "replaced since"
            return None if _is_same(one, other) else replaced


def _is_same(one: FeedEvent, other: FeedEvent) -> bool:
    """Return whether an event has the content of an earlier one; without digests, only what was restored has."""
    is_known = one.manifest_digest is not None or other.kind is FeedEventKind.RESTORED
    return is_known and one.manifest_digest == other.manifest_digest


def _end_of(by: Reading | FeedEvent) -> datetime:
    """Return when somebody had read."""
    return by.recorded_at if isinstance(by, FeedEvent) else by.attempt.ended_at or _NEVER


def _source_of(event: FeedEvent) -> tuple[FeedKey, str | None] | None:
    """Return the instance that an event has copied, and its digest; None if it is no copy."""
    flow, copy = parse_flow(str(event.payload.get("process"))), event.payload.get("copy")
    if flow is None:
        return None
    digest = copy.get("source_digest") if isinstance(copy, Mapping) else None
    return FeedKey(flow[0], flow[1], event.nominal_time), digest


def _event_node(event: FeedEvent) -> Node:
    late = event.payload.get("late")
    return Node(
        id=event_id(event),
        kind=NodeKind.EVENT,
        name=event.feed,
        cluster=event.cluster,
        nominal_time=event.nominal_time,
        state=event.kind.value,
        at=event.recorded_at,
        number=event.seq,
        digest=event.manifest_digest,
        remarks=(f"made again for late data of {', '.join(map(str, late))}",) if isinstance(late, list) else (),
    )


def _sweep_node(name: str, sweep: Sweep) -> Node:
    cluster, state = sweep.cluster, sweep.state.value
    return Node(id=name, kind=NodeKind.SWEEP, name=sweep.sweep_id, cluster=cluster, state=state, at=sweep.started_at)


def _attempt_node(attempt: Attempt) -> Node:
    return Node(
        id=attempt_id(attempt),
        kind=NodeKind.ATTEMPT,
        name=attempt.process,
        cluster=attempt.cluster,
        nominal_time=attempt.nominal_time,
        state=attempt.status.value,
        at=attempt.started_at,
        number=attempt.attempt,
        run_id=attempt.run_id,
        release=attempt.release,
    )
