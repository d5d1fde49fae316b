"""A rule against batches that wake themselves: the outputs of processes let their own next batches run, without end."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from feed_assets.entities.conditions import condition_of, find_named, holds_if
from feed_assets.entities.feed import find_sources, find_targets, flow_sequence
from feed_assets.entities.graph import iter_rings
from feed_assets.entities.process import Process
from feed_assets.entities.triggers import iter_names
from feed_assets.entities.workflow import WorkflowEngine
from feed_assets.issues import FieldPath
from feed_assets.validation.scope import Complaint, Scope, render_ring


def check_wakes(scope: Scope, process: Process) -> Iterator[Complaint]:
    """Batches must not wake themselves, directly or through other processes.

    Only what goes on for certain is refused: each condition on the ring holds by events of its outputs alone. A ring
    comes to rest that waits for a time, for a marking, or for more events than it has outputs; that may leave out an
    output; or whose batches programs take elsewhere.
    """
    for cluster in process.clusters if process.makes_batches else ():
        if cluster not in scope.waking_themselves:
            scope.waking_themselves.update(_Consumers(scope).find())
        complaint = scope.waking_themselves[cluster].get(process.name)
        if complaint is not None:
            yield complaint


class _Consumer(NamedTuple):
    process: str
    cluster: str


class _FeedKey(NamedTuple):
    feed: str
    cluster: str


class _Needed(NamedTuple):
    """A feed whose events make a name of a condition true, and how many of them."""

    feed: _FeedKey
    least: int


class _Step(NamedTuple):
    """A consumer whose output wakes the next one, by events of a feed."""

    writer: _Consumer
    feed: _FeedKey
    reader: _Consumer

    def render(self) -> str:
        where = "which" if self.feed.cluster == self.writer.cluster else f"whose copy on {self.feed.cluster}"
        return f"{self.writer.process} writes feed {self.feed.feed!r}, {where} wakes {self.reader.process}"


class _Consumers:
    """The processes of all clusters whose batches run whenever something comes: what each writes, and what wakes it."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._processes = {
            _Consumer(process.name, cluster): process
            for process in scope.bundle.processes
            if _runs_when_something_comes(process)
            for cluster in process.clusters
        }
        self._writes = {each: self._find_written(process, each) for each, process in self._processes.items()}
        self._needs = {each: self._find_needed(process, each) for each, process in self._processes.items()}

    def find(self) -> Mapping[str, Mapping[str, Complaint]]:
        """Return the complaint about each process on a ring, by cluster and name."""
        found: dict[str, dict[str, Complaint]] = {
            cluster: {} for process in self._scope.bundle.processes for cluster in process.clusters
        }
        wakes = self._find_wakes(self._find_going_on())
        for ring in iter_rings(wakes):
            if not self._are_ever_valid_together(ring):
                continue
            ends = zip(ring, (*ring[1:], ring[0]), strict=True)
            steps = [_Step(writer, wakes[writer][reader], reader) for writer, reader in ends]
            for position, step in enumerate(steps):
                found[step.writer.cluster][step.writer.process] = self._complain(steps, position)
        return found

    def _find_written(self, process: Process, consumer: _Consumer) -> list[_FeedKey]:
        """Return the feed of each output that is never left out, and its copies."""
        written: list[_FeedKey] = []
        for output in process.outputs.values():
            feed = self._scope.find_feed_on(output.feed, consumer.cluster)
            if feed is None or output.optional:
                continue
            copies = find_targets(feed) if consumer.cluster in find_sources(feed) else ()
            there = [target for target in copies if flow_sequence(feed, consumer.cluster, target) is not None]
            written += [_FeedKey(feed.name, cluster) for cluster in (consumer.cluster, *there)]
        return written

    def _find_needed(self, process: Process, consumer: _Consumer) -> dict[str, list[_Needed]]:
        """Return what makes each name of the condition true; nothing for a name that waits for a marking."""
        assert process.trigger is not None
        rules = process.trigger.batch
        new = {name for name, item in process.inputs.items() if item.takes_new}
        needed: dict[str, list[_Needed]] = {}
        for text in iter_names(condition_of(process)):
            needed[text] = []
            for name, feed in find_named(self._scope.bundle, process, consumer.cluster, text):
                is_sized = name in new or not new
                if not is_sized or rules.until is None:
                    least = rules.min if is_sized else 1
                    needed[text].append(_Needed(_FeedKey(feed, consumer.cluster), least))
        return needed

    def _find_going_on(self) -> set[_Consumer]:
        """Return the consumers whose conditions hold by nothing but events of one another's outputs."""
        going_on = set(self._processes)
        while True:
            coming = Counter(feed for consumer in going_on for feed in self._writes[consumer])
            held = {consumer for consumer in going_on if self._holds(consumer, coming)}
            if held == going_on:
                return going_on
            going_on = held

    def _holds(self, consumer: _Consumer, coming: Mapping[_FeedKey, int]) -> bool:
        needs = self._needs[consumer]

        def has_come(name: str) -> bool:
            return any(coming.get(feed, 0) >= least for feed, least in needs[name])

        return holds_if(condition_of(self._processes[consumer]), has_come)

    def _find_wakes(self, consumers: Collection[_Consumer]) -> dict[_Consumer, dict[_Consumer, _FeedKey]]:
        """Return whom each consumer wakes, and by which feed."""
        readers: dict[_FeedKey, set[_Consumer]] = defaultdict(set)
        for consumer in consumers:
            for needed in self._needs[consumer].values():
                for feed, _ in needed:
                    readers[feed].add(consumer)
        return {
            writer: {reader: feed for feed in self._writes[writer] for reader in sorted(readers[feed])}
            for writer in sorted(consumers)
        }

    def _are_ever_valid_together(self, ring: Collection[_Consumer]) -> bool:
        validities = [self._processes[each].clusters[each.cluster].validity for each in ring]
        return max(each.start for each in validities) < min(each.end for each in validities)

    def _complain(self, steps: Sequence[_Step], position: int) -> Complaint:
        """Return the complaint about the process that writes at a position of a ring."""
        consumer, woken_by = steps[position].writer, steps[position - 1].feed
        process = self._processes[consumer]
        path: FieldPath = ("trigger", "when")
        if process.trigger is None or process.trigger.when is None:
            needs = self._needs[consumer]
            path = ("inputs", next(name for name in needs if woken_by in (each.feed for each in needs[name])))
        return Complaint(
            path=path,
            message=f"on {consumer.cluster} its batches wake themselves without end: "
            f"{render_ring(steps, position, _Step.render)}",
            remedy="Leave one of these feeds out of trigger.when (an input takes it all the same), or write and_every.",
        )


def _runs_when_something_comes(process: Process) -> bool:
    if process.trigger is None or not process.makes_batches or process.trigger.and_every is not None:
        return False
    return process.workflow.engine is not WorkflowEngine.EXTERNAL
