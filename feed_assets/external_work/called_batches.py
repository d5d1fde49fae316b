"""Batches as the calls of programs elsewhere show them: their steps, what they have taken, and their outputs."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from feed_assets.context.operation import AttemptContext
from feed_assets.external_work.attempts import BatchAtWork, OutputStaging
from feed_assets.instances.arrival.store_polls import find_records
from feed_assets.instances.attempts.attempts import Published
from feed_assets.instances.steps.records import StepRun
from feed_assets.json_form import Hidden, NominalTime, shown, shows
from feed_assets.log.records import ProcessInstanceStatus
from feed_assets.plan.records import FeedRecord
from feed_assets.plan.rendering import counted
from feed_assets.storage.paths import is_content
from feed_assets.timing.dates import render_datetime
from feed_assets.triggers.queue.batches import BatchEvents
from feed_assets.triggers.queues import QueuedEvent


@shows("run", "step, status, made_in, reason")
@dataclass(frozen=True, slots=True)
class BatchStep:
    """A step of an attempt; `made_in` is the attempt that has done it, an earlier one if it was KEPT."""

    run: Hidden[StepRun]


@shows("at", "process=record.process, cluster=record.cluster, batch=row.nominal_time, attempt=row.attempt, next_step")
@dataclass(frozen=True, slots=True, kw_only=True)
class CalledBatch:
    """A batch after a call: its attempt, how that is, and the step that is to be done next; None if all have been."""

    at: Hidden[BatchAtWork]
    status: ProcessInstanceStatus
    dry_run: bool
    said: Hidden[str] = ""

    @shown
    def steps(self) -> tuple[BatchStep, ...]:
        """The steps of the attempt."""
        return tuple(map(BatchStep, self.at.steps))

    @property
    def lines(self) -> Iterator[str]:
        """What people are told of it."""
        row, said = self.at.row, self.said
        if self.dry_run:
            said = f"{said} (dry run: nothing was changed)" if said else "would be taken"
        told = f"batch {render_datetime(row.nominal_time)} of {self.at.record.process}, attempt {row.attempt}"
        yield f"{told}: {said}" if said else told
        yield from self.details

    @property
    def details(self) -> Iterable[str]:
        """What else they are told."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenInstance:
    """An instance of an input: where it is, and the URLs of its files."""

    nominal_time: NominalTime
    url: str
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenInput:
    """An input of a batch: how many events it has `taken`, the smallest and largest number and marking, and its
    instances. An input with a window has instances and no events, a signal events and no instances.
    """

    input: str
    feed: str
    events: int
    min_event: int | None
    max_event: int | None
    min_marking: str | None
    max_marking: str | None
    taken: tuple[QueuedEvent, ...]
    instances: tuple[TakenInstance, ...]


@shows("staging", "output=edge.name, feed=edge.feed, nominal_time, url, optional=edge.optional")
@dataclass(frozen=True, slots=True)
class StagedOutput:
    """An output of a batch: the instance that it becomes, and the URL below which the program puts its files."""

    staging: Hidden[OutputStaging]


@dataclass(frozen=True, slots=True, kw_only=True)
class InitBatch(CalledBatch):
    """A batch that somebody's program has taken."""

    inputs: tuple[TakenInput, ...]
    outputs: tuple[StagedOutput, ...]

    @property
    def details(self) -> Iterator[str]:
        """What the program must know."""
        for each in self.inputs:
            marked = f", marked {each.min_marking} to {each.max_marking}" if each.min_marking is not None else ""
            events = f"{counted(each.events, 'event')}, {each.min_event} to {each.max_event}{marked}"
            yield f"input {each.input}: {events if each.events else 'no events'}"
            yield from (f"  {file}" for instance in each.instances for file in instance.files)
        yield from (f"output {each.staging.edge.name}: {each.staging.url}" for each in self.outputs)
        if self.steps:
            kept = ", ".join(f"{each.run.step} ({each.run.status.value})" for each in self.steps)
            yield f"steps: {kept}; next: {self.at.next_step or 'end'}"


@shows(
    "done",
    "output, feed=record.feed, nominal_time, url, files=content.files, bytes=content.bytes, digest=content.digest",
)
@dataclass(frozen=True, slots=True)
class PublishedOutput:
    """An output that was published."""

    done: Hidden[Published]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedBatch(CalledBatch):
    """A batch that has succeeded, and what it has published. An optional output without files is left out."""

    published: tuple[PublishedOutput, ...]

    @property
    def details(self) -> Iterator[str]:
        """Where each output is."""
        return (f"{each.done.output}: {each.done.url}" for each in self.published)


def iter_inputs(context: AttemptContext, batch: BatchAtWork, events: Sequence[BatchEvents]) -> Iterator[TakenInput]:
    """Yield the inputs of the process, as they were when the attempt began, and what else its trigger names."""
    by_name = {each.input: each for each in events}
    edges = {each.name: each for each in batch.record.inputs}
    for each in batch.row.inputs:
        instances = _instances(context, context.plan.feeds[edges[each.name].feed_key], each.nominal_times)
        yield _input(each.name, each.feed, by_name.pop(each.name, None), instances)
    for name, of_trigger in by_name.items():
        yield _input(name, of_trigger.feed, of_trigger, ())


def _input(name: str, feed: str, taken: BatchEvents | None, instances: tuple[TakenInstance, ...]) -> TakenInput:
    events = taken.events if taken is not None else ()
    numbers = [event.seq for event in events]
    markings = [event.marking for event in events if event.marking is not None]
    return TakenInput(
        input=name,
        feed=feed,
        events=len(numbers),
        min_event=min(numbers, default=None),
        max_event=max(numbers, default=None),
        min_marking=min(markings, default=None),
        max_marking=max(markings, default=None),
        taken=tuple(QueuedEvent(row=event, input=name) for event in events),
        instances=instances,
    )


def _instances(context: AttemptContext, declared: FeedRecord, times: Collection[datetime]) -> tuple[TakenInstance, ...]:
    if not declared.has_data:
        return ()
    found = []
    for time, record in find_records(context, declared, times).items():
        place = context.stores.get(record.store).place(record.path(time))
        url = place.store.url(place.path)
        names = (name for name in place.store.standing_files(place.path) if is_content(name, record.flag))
        files = tuple(f"{url}/{name}" if name else url for name in names)
        found.append(TakenInstance(nominal_time=time, url=url, files=files))
    return tuple(found)
