"""Rules against cycles: no instance may wait for itself through other processes, and no copy may come back to where it
was made from.

A process must not read, through any chain of processes, its own output of the same or a later time. Windows never run
backwards, so it is enough to follow the newest instance along every chain. The cost grows with the inputs of the
processes on cycles, times the cycles that are in order.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from feed_assets.entities.common import label_of
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process
from feed_assets.timing.dates import render_datetime
from feed_assets.validation.scope import Complaint, Copy, Scope, render_ring

_SAMPLES = (0, 1, 2, 13, 60, 400)
"""Instances at which chains are followed: early ones, and others on both sides of clock changes and month lengths."""
_MOST_IMPROVEMENTS = 16
"""How often a process is followed further, because another chain reaches a newer instance of it."""


def check_cycles(scope: Scope, process: Process) -> Iterator[Complaint]:
    """A process must not need its own present or future output."""
    for cluster in process.clusters:
        if cluster not in scope.waiting_for_themselves:
            scope.waiting_for_themselves[cluster] = _Cycles(scope, cluster).find()
        complaint = scope.waiting_for_themselves[cluster].get(process.name)
        if complaint is not None:
            yield complaint


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """An instance `reader_index` that reads the output of instance `writer_index` of another process."""

    reader: Process
    reader_index: int
    input: str
    writer: Process
    writer_index: int


@dataclass(frozen=True, slots=True)
class _Reached:
    """The newest instance of a process that a chain reaches, and the chain up to it, its last step first."""

    index: int
    step: _Step | None = None
    before: "_Reached | None" = None

    def chain_from(self, writer: Process, last: _Step) -> tuple[_Step, ...] | None:
        """Return the chain from an instance of `writer` to `last`, which reads from it; None if it is not on it."""
        steps, reached = [last], self
        while True:
            if steps[-1].reader is writer:
                return tuple(reversed(steps))
            if reached.step is None or reached.before is None:
                return None
            steps.append(reached.step)
            reached = reached.before


class _Cycles:
    """The processes of a cluster that are on cycles of feeds, until they are decided."""

    def __init__(self, scope: Scope, cluster: str) -> None:
        self._scope = scope
        self._cluster = cluster
        self._left = {process.name: process for process in scope.bundle.processes if cluster in process.clusters}
        self._writers = {
            name: {writer.name for _, writer, _ in self._edges(process)} for name, process in self._left.items()
        }
        self._readers: dict[str, set[str]] = {name: set() for name in self._left}
        for name, writers in self._writers.items():
            for writer in writers:
                self._readers[writer].add(name)

    def find(self) -> Mapping[str, Complaint]:
        """Return the complaint about each process that waits for itself."""
        found: dict[str, Complaint] = {}
        for name in [*self._left]:
            if not (self._writers.get(name, name) and self._readers.get(name, name)):
                self._drop(name)
        while self._left:
            first = next(iter(self._left.values()))
            chain = self._find_chain(first)
            for position, step in enumerate(chain):
                found[step.reader.name] = self._complain(chain, position)
            self._drop(chain[0].reader.name if chain else first.name)
        return found

    def _drop(self, name: str) -> None:
        """Leave out a process, and whatever is on no cycle without it."""
        leaving = [name]
        while leaving:
            name = leaving.pop()
            if self._left.pop(name, None) is None:
                continue
            for ends, others in ((self._writers.pop(name), self._readers), (self._readers.pop(name), self._writers)):
                for other in ends & self._left.keys():
                    others[other].discard(name)
                    if not others[other]:
                        leaving.append(other)

    def _complain(self, chain: Sequence[_Step], position: int) -> Complaint:
        """Return the complaint about the process that reads at a position of a chain that comes back to its start."""
        parts = render_ring(chain, position, self._render)
        current = next(filter(None, map(self._find_current, chain)), None)
        remedy = "End a window of this cycle earlier, for example at now(0,-60) or yesterday(0,0)."
        if current is not None:
            remedy = f"Of current feed {current!r} each version would concern who has made it: "
            remedy += "read what was there before from a feed on schedule, for example its yesterday(0,0)."
        return Complaint(
            path=("inputs", chain[position].input),
            message=f"on {self._cluster} an instance waits for itself: {parts}",
            remedy=remedy,
        )

    def _find_current(self, step: _Step) -> str | None:
        """Return the feed of a step if all instances of its writer write the same one."""
        feed = self._scope.find_feed_on(step.reader.inputs[step.input].feed, self._cluster)
        return feed.name if feed is not None and feed.is_current else None

    def _render(self, step: _Step) -> str:
        return (
            f"{self._instance(step.reader, step.reader_index)} reads feed {step.reader.inputs[step.input].feed!r} "
            f"of {step.writer.name if self._find_current(step) else self._instance(step.writer, step.writer_index)}"
        )

    def _instance(self, process: Process, index: int) -> str:
        return f"{process.name} {render_datetime(self._scope.sequence_on(process, self._cluster).at(index))}"

    def _find_chain(self, start: Process) -> tuple[_Step, ...]:
        size = self._scope.sequence_on(start, self._cluster).size
        samples = (index for index in _SAMPLES if size is None or index < size)
        return next(filter(None, (self._follow(start, index) for index in samples)), ())

    def _follow(self, start: Process, goal: int) -> tuple[_Step, ...]:
        """Return a chain that comes back to an instance of a process at or after the one that it comes from."""
        newest_of = {start.name: _Reached(goal)}
        followed: Counter[str] = Counter()
        waiting = deque([start])
        while waiting:
            reader = waiting.popleft()
            reached = newest_of[reader.name]
            for name, writer, output in self._edges(reader):
                newest = self._newest_writer(reader, reached.index, name, writer, output)
                known = newest_of.get(writer.name)
                if newest is None or (known is not None and newest < known.index + (writer is not start)):
                    continue
                step = _Step(reader=reader, reader_index=reached.index, input=name, writer=writer, writer_index=newest)
                if known is not None and (chain := reached.chain_from(writer, step)):
                    return chain
                newest_of[writer.name] = _Reached(newest, step, reached)
                followed[writer.name] += 1
                if followed[writer.name] <= _MOST_IMPROVEMENTS:
                    waiting.append(writer)
        return ()

    def _edges(self, reader: Process) -> Iterator[tuple[str, Process, str]]:
        for name, item in reader.inputs.items():
            for writer in self._scope.writers.get((item.feed, self._cluster), ()):
                if writer.process.name in self._left:
                    yield name, writer.process, writer.output

    def _newest_writer(self, reader: Process, index: int, name: str, writer: Process, output: str) -> int | None:
        read = self._scope.find_use(reader, "inputs", name, self._cluster)
        written = self._scope.find_use(writer, "outputs", output, self._cluster)
        if read is None or written is None:
            return None
        indices = read.window.indices(read.own.at(index), read.sequence)
        found = written.window.consumers_of_range(indices, read.sequence, written.own) if indices else ()
        return found[-1] if found else None


def check_rings(scope: Scope, entity: Feed | Process) -> Iterator[Complaint]:
    """No feed or mirror may copy what comes back to its source through other copies."""

    def render(copy: Copy) -> str:
        return label_of(copy.entity) + scope.where(copy.entity, copy.path)

    for ring, first in scope.rings_of.get(entity.key, ()):
        own, others = ring[first], (*ring[first + 1 :], *ring[:first])
        yield Complaint(
            path=own.path,
            message=f"what it copies from {own.source} to {own.target} comes back there through "
            f"{render_ring(others, 0, render)}",
            remedy="Remove one of these copies, or let it write elsewhere.",
        )
