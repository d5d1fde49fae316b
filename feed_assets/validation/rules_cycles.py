"""A rule against cycles in time: no instance may wait for itself through other processes.

A process must not read, through any chain of processes, its own output of the same or a later time. Windows never run
backwards, so it is enough to follow the newest instance along every chain. Chains of more than a dozen processes are
not followed to their end.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from feed_assets.entities.process import Process
from feed_assets.timing.dates import render_datetime
from feed_assets.validation.scope import Complaint, Scope

_SAMPLES = (0, 1, 2, 13, 60, 400)
"""Instances at which chains are followed: early ones, and others on both sides of clock changes and month lengths."""
_LONGEST_CHAIN = 12
_STEPS = 20_000


def check_cycles(scope: Scope, process: Process) -> Iterator[Complaint]:
    """A process must not need its own present or future output."""
    for cluster in process.clusters:
        if process.name not in scope.circular[cluster]:
            continue
        follower = _Follower(scope, process, cluster)
        chain = follower.find()
        if chain is not None:
            yield Complaint(
                path=("inputs", chain[0].input),
                message=f"on {cluster} an instance waits for itself: {follower.render(chain)}",
                remedy="End a window of this cycle earlier, for example at now(0,-60) or yesterday(0,0).",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """An instance `reader_index` that reads the output of instance `writer_index` of another process."""

    reader: Process
    reader_index: int
    input: str
    writer: Process
    writer_index: int


class _Follower:
    """A search along chains that lead from a process back to it, for one that arrives at or after its start."""

    def __init__(self, scope: Scope, process: Process, cluster: str) -> None:
        self._scope = scope
        self._process = process
        self._cluster = cluster
        self._steps = 0

    def find(self) -> tuple[_Step, ...] | None:
        size = self._scope.sequence_on(self._process, self._cluster).size
        samples = (index for index in _SAMPLES if size is None or index < size)
        return next(filter(None, (self._follow(self._process, index, index, ()) for index in samples)), None)

    def render(self, chain: tuple[_Step, ...]) -> str:
        """Return a chain as a sentence."""
        parts = []
        for step in chain:
            feed = step.reader.inputs[step.input].feed
            parts.append(
                f"{self._instance(step.reader, step.reader_index)} reads feed {feed!r} "
                f"of {self._instance(step.writer, step.writer_index)}"
            )
        return ", and ".join(parts)

    def _instance(self, process: Process, index: int) -> str:
        return f"{process.name} {render_datetime(self._scope.sequence_on(process, self._cluster).at(index))}"

    def _follow(self, reader: Process, index: int, goal: int, chain: tuple[_Step, ...]) -> tuple[_Step, ...] | None:
        if len(chain) >= _LONGEST_CHAIN:
            return None
        for name, writer, output in self._edges(reader):
            self._steps += 1
            if self._steps > _STEPS:
                return None
            if any(step.writer is writer for step in chain):
                continue
            newest = self._newest_writer(reader, index, name, writer, output)
            if newest is None:
                continue
            step = _Step(reader=reader, reader_index=index, input=name, writer=writer, writer_index=newest)
            if writer is not self._process:
                found = self._follow(writer, newest, goal, (*chain, step))
                if found is not None:
                    return found
            elif newest >= goal:
                return (*chain, step)
        return None

    def _edges(self, reader: Process) -> Iterator[tuple[str, Process, str]]:
        for name, item in reader.inputs.items():
            for writer in self._scope.writers.get((item.feed, self._cluster), ()):
                if writer.process.name in self._scope.circular[self._cluster]:
                    yield name, writer.process, writer.output

    def _newest_writer(self, reader: Process, index: int, name: str, writer: Process, output: str) -> int | None:
        feed = self._scope.find_feed_on(reader.inputs[name].feed, self._cluster)
        window, written = self._scope.find_window(reader, name), self._scope.find_output(writer, output)
        if feed is None or window is None or written is None:
            return None
        feed_sequence, writers = (
            self._scope.sequence_on(feed, self._cluster),
            self._scope.sequence_on(writer, self._cluster),
        )
        read = window.indices(self._scope.sequence_on(reader, self._cluster).at(index), feed_sequence)
        found = written.consumers_of_range(read, feed_sequence, writers) if read else ()
        return found[-1] if found else None
