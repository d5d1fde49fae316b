"""A run as it was: what each of its attempts was given, by which definitions, what it read and made, and what was said
of its process, feeds and clusters then. Nothing was copied for it: the words are those of the changes before it began.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby
from typing import Any

from sqlalchemy import Connection

from feed_assets.access.rights import require_reads
from feed_assets.catalog.run_metadata import Facts
from feed_assets.catalog.store import MetadataStore
from feed_assets.context.errors import InstanceQueryError
from feed_assets.context.operation import OperationContext
from feed_assets.entities.flow_names import declared_by, describe_process, source_of
from feed_assets.errors import Fault
from feed_assets.instances.lists.rows import AttemptOutput
from feed_assets.instances.lists.runs import InstanceParams, read_params
from feed_assets.json_form import Hidden, shows
from feed_assets.log.definitions.records import DefinitionVersion, Release
from feed_assets.log.definitions.store import Definitions
from feed_assets.log.events import EventLog
from feed_assets.log.instances.attempts import Attempts
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import Attempt, FeedEvent, FrozenInput, ProcessInstance, ProcessKey
from feed_assets.log.run_names import find_run
from feed_assets.plan.release_fingerprint import parse_fingerprint
from feed_assets.releases.store import Releases
from feed_assets.timing.dates import render_datetime
from feed_assets.triggers.queue.batches import Batches, TakenEvent

_SHOWN = "process, cluster, nominal_time, attempt, status, reason, trigger, started_at, ended_at, release, metadata_seq"


@shows("row", f"{_SHOWN}, inputs")
@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptThen:
    """An attempt as it was. `code` is the digest of its release's files of workflows. `properties` are None if others
    were given since. `events_gone` counts outputs whose events were cleaned up. `words` are what was said of entities,
    by path, as `metadata get` has it; None if that is not known.
    """

    row: Hidden[Attempt]
    definitions: tuple[DefinitionVersion, ...]
    code: str | None
    properties: Mapping[str, str] | None
    arguments: tuple[str, ...]
    outputs: tuple[AttemptOutput, ...]
    events_gone: int
    facts: Mapping[str, str]
    words: Mapping[str, Mapping[str, Any]] | None

    @property
    def text(self) -> Iterator[str]:
        """All of it for people."""
        row = self.row
        end = f" to {_second(row.ended_at)}" if row.ended_at else ""
        yield (
            f"{describe_process(row.process)} on {row.cluster} at {render_datetime(row.nominal_time)}, "
            f"attempt {row.attempt}: {row.status}, {_second(row.started_at)}{end}"
        )
        yield from (f"  {word}: {text}" for word, text in (("because", row.trigger), ("end", row.reason)) if text)
        for each in self.definitions:
            yield f"  by {each.kind} {each.name} version {each.version}, {each.digest}"
        if self.code:
            yield f"  with files {self.code}"
        if self.properties is None:
            yield "  its properties are not known: there was another attempt or release since"
        yield from (f"  property {name}: {value}" for name, value in sorted((self.properties or {}).items()))
        yield from (f"  argument: {each}" for each in self.arguments)
        for entry in row.inputs:
            for read in entry.instances:
                digest = read.digest or "no digest"
                yield f"  read {entry.name}: feed {entry.feed} at {render_datetime(read.nominal_time)}, {digest}"
        for output in self.outputs:
            event = output.row
            told = f"feed {event.feed} on {event.cluster} at {render_datetime(event.nominal_time)}"
            yield f"  made {output.name}: {told}, {event.manifest_digest}, event {event.seq}"
        if self.events_gone:
            yield f"  made {self.events_gone} more, whose events of long ago were cleaned up"
        yield from (f"  fact {name}: {value}" for name, value in self.facts.items())
        if self.words is None:
            yield "  what was said then is not known: it began before changes of metadata were noted with attempts"
        for path, scopes in (self.words or {}).items():
            for scope, said in scopes.items():
                yield from (f"  {path} {scope} {name}: {value}" for name, value in said["properties"].items())
                yield from (f"  {path} {scope} tag {tag}" for tag in said["tags"])


@dataclass(frozen=True, slots=True, kw_only=True)
class RunThen:
    """A run as it was: its attempts, in the order in which they began; `total` counts them all."""

    run: str
    attempts: tuple[AttemptThen, ...]
    total: int

    @property
    def notes(self) -> tuple[str, ...]:
        """What is not shown."""
        shown = len(self.attempts)
        return (f"only the first {shown:,} of {self.total:,} attempts; --limit shows more",) * (shown < self.total)


def find_run_then(context: OperationContext, run: str, limit: int = 50) -> RunThen:
    """Return at most `limit` attempts of a run as it was, by its id in Dagster, by the name of a command or of work
    elsewhere, or by the origin of one of its events. It costs a few statements, however many they are.

    Raises:
        InstanceQueryError: it has not worked on an instance.
    """
    run_id = find_run(run) or run
    with context.read() as connection:
        attempts = Attempts(connection).of_run(run_id)
        require_reads(("process", each.key.process) for each in attempts)
        if not attempts:
            next_step = "Name one that has: lists of instances have a column run."
            raise InstanceQueryError(
                subject=f"run {run!r}", reason="it worked on no instance", next_step=next_step, fault=Fault.MISSING
            )
        found = tuple(_read(context, connection, attempts[:limit]))
    return RunThen(run=run_id, attempts=found, total=len(attempts))


def _read(context: OperationContext, connection: Connection, attempts: Sequence[Attempt]) -> Iterator[AttemptThen]:
    keys = {each.key for each in attempts}
    taken: dict[ProcessKey, list[TakenEvent]] = defaultdict(list)
    for one in Batches(connection).taken_by(keys):
        taken[one.batch].append(one)
    attempts = [replace(each, inputs=(*each.inputs, *_iter_taken(each, taken[each.key]))) for each in attempts]
    by_number = EventLog(connection).of_numbers(seq for each in attempts for seq in each.outputs)
    listed = [(row, [by_number[seq] for seq in row.outputs if seq in by_number]) for row in attempts]
    wanted = [(row, events, _paths(row, events), row.metadata_seq or 0) for row, events in listed]
    said = MetadataStore(connection).said_then({(path, seq) for *_, paths, seq in wanted for path in paths})
    releases = {of: {each.release: each for each in Releases(connection).of(*of)} for of in {key[:2] for key in keys}}
    of_rows = [releases[row.key[:2]].get(row.release or 0) for row in attempts]
    members = {(each.kind, each.name) for release in of_rows if release for each in release.members}
    versions = {key: Definitions(connection).history(*key) for key in members}
    rows = ProcessInstances(connection).get_many(keys)
    facts: dict[tuple[ProcessKey, int], dict[str, str]] = defaultdict(dict)
    for fact in Facts(connection).of_many(keys):
        facts[fact.key, fact.attempt][f"{fact.category}/{fact.name}"] = fact.value
    for (row, events, paths, seq), release in zip(wanted, of_rows, strict=True):
        params = _params(context, connection, row, rows.get(row.key))
        words = {path: said[path, seq] for path in paths if (path, seq) in said}
        yield AttemptThen(
            row=row,
            definitions=tuple(_definitions(versions, release, row.started_at)) if release else (),
            code=(parse_fingerprint(release.fingerprint).files or None) if release else None,
            properties=params.properties if params else None,
            arguments=params.arguments if params else (),
            outputs=tuple(map(AttemptOutput, events)),
            events_gone=len(row.outputs) - len(events),
            facts=facts[row.key, row.attempt],
            words=None if row.metadata_seq is None else words,
        )


def _iter_taken(row: Attempt, taken: Sequence[TakenEvent]) -> Iterator[FrozenInput]:
    """Yield what the batch of an attempt has taken, as inputs; of those that it has not frozen."""
    frozen = {each.name for each in row.inputs}

    def place(each: TakenEvent) -> tuple[str, str]:
        return each.input, each.event.feed

    for (name, feed), found in groupby(sorted(taken, key=place), key=place):
        events = [each.event for each in found if name not in frozen]
        times, digests = (tuple(each.nominal_time for each in events), tuple(each.manifest_digest for each in events))
        if events:
            yield FrozenInput(name=name, feed=feed, nominal_times=times, digests=digests)


def _paths(row: Attempt, events: Iterable[FeedEvent]) -> list[str]:
    """Return the paths of what an attempt had to do with, in order."""
    paths = {f"cluster/{cluster}" for cluster in (row.cluster, source_of(row.process)) if cluster}
    paths |= {"/".join(declared_by(row.process)), *(f"feed/{entry.feed}" for entry in row.inputs)}
    return sorted(paths | {f"feed/{event.feed}" for event in events})


def _definitions(
    versions: Mapping[tuple[str, str], Sequence[DefinitionVersion]], release: Release, moment: datetime
) -> Iterator[DefinitionVersion]:
    """Yield the versions of a release at a moment: a later one that changed nothing for instances may stand there."""
    for member in release.members:
        of = versions[member.kind, member.name]
        yield from [each for each in of if each.version <= member.version and each.recorded_at <= moment][-1:]


def _params(
    context: OperationContext, connection: Connection, row: Attempt, instance: ProcessInstance | None
) -> InstanceParams | None:
    """Return the parameters, if no later attempt or release has others."""
    active = context.timeline.find(connection, row.key[:2], row.nominal_time)
    if instance is None or instance.attempt != row.attempt or active is None or active.release != row.release:
        return None
    return read_params(context, active, row.nominal_time, instance)


def _second(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
