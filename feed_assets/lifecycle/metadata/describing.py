"""Describe what a plan declares: what this program says of each entity, and what its declaration says.

Keys that a declaration no longer has are gone with the next plan; what people and programs say stays.
"""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from feed_assets.entities.columns import describe_column, parse_columns
from feed_assets.entities.common import Kind
from feed_assets.entities.feed import ClusterRole
from feed_assets.entities.flow_names import is_flow
from feed_assets.entities.metadata import (
    Create,
    Metadata,
    MetadataKey,
    MetadataKind,
    MetadataValue,
    Mutation,
    Origin,
    Remove,
    Scope,
    Update,
    decide_mutations,
)
from feed_assets.lifecycle.metadata.writing import Target, Writing, write_many
from feed_assets.masking import encodable
from feed_assets.plan.records import ClusterRecord, EntityFacts, FeedRecord, Plan, ProcessRecord, SayingRecord
from feed_assets.state.definitions import Definitions
from feed_assets.state.metadata_store import MetadataStore
from feed_assets.timing.dates import render_datetime

DESCRIBED = 1
"""The version of what is said of entities; with another one, everything is described again."""

_NOBODY = "feed-assets"


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What the plan says of an entity: by this program, and by its declaration."""

    target: Target
    system: Mapping[str, str]
    system_tags: frozenset[str]
    declared: tuple[SayingRecord, ...]

    @property
    def digest(self) -> str:
        """Decides whether a description is another one."""
        declared = sorted((*each.key, each.value) for each in self.declared)
        content = [sorted(self.system.items()), sorted(self.system_tags), declared]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]

    def mutations(self) -> tuple[Mutation, ...]:
        """Return what makes the metadata of the entity say this, and leaves what people say."""
        replace = Remove(scopes=[Scope.USER], origins=[Origin.DEFINITION])
        return Create(self.metadata()), replace, Update(self.of_declaration())

    def metadata(self) -> dict[MetadataKey, MetadataValue]:
        """Return what the program says."""
        found = {
            MetadataKey(Scope.SYSTEM, MetadataKind.PROPERTY, name): MetadataValue(_text(value), Origin.SYSTEM, _NOBODY)
            for name, value in self.system.items()
        }
        tags = {
            MetadataKey(Scope.SYSTEM, MetadataKind.TAG, tag): MetadataValue("", Origin.SYSTEM, _NOBODY)
            for tag in self.system_tags
        }
        return found | tags

    def of_declaration(self) -> Metadata:
        """Return what the declaration says."""
        return {each.key: MetadataValue(each.value, Origin.DEFINITION, _NOBODY) for each in self.declared}


def _text(value: str) -> str:
    """Return a text as databases accept it."""
    return encodable(value).replace("\0", "")


def apply_descriptions(connection: Connection, plan: Plan, now: datetime) -> int:
    """Write the descriptions that are new or different, and remove those of what is not declared any more.

    Costs one read of all digests; it is called when the plan is another one. Returns how many were written.
    """
    store = MetadataStore(connection)
    known = store.described()
    new = [each for each in iter_descriptions(plan) if known.pop(each.target.path, None) != each.digest]
    _write(connection, new, now)
    store.forget(_without_left_out(connection, plan, known), _NOBODY, now)
    return len(new)


def mend_descriptions(connection: Connection, plan: Plan, now: datetime, *, dry_run: bool) -> int:
    """Write the descriptions that are not what is stored, whatever their digests are, and remove those of what is not
    declared any more. Returns how many there are; with `dry_run` nothing is written.
    """
    store = MetadataStore(connection)
    known = store.described()
    every = list(iter_descriptions(plan))
    entities = store.find_many([each.target.path for each in every])
    said = store.read_many([each.id for each in entities.values()])
    wrong = []
    for each in every:
        entity = entities.get(each.target.path)
        before = said.get(entity.id, {}) if entity is not None else {}
        is_known = entity is not None and known.pop(each.target.path, None) == each.digest
        if not is_known or decide_mutations(before, each.mutations()) != before:
            wrong.append(each)
    gone = _without_left_out(connection, plan, known)
    if not dry_run:
        _write(connection, wrong, now)
        store.forget(gone, _NOBODY, now)
    return len(wrong) + len(gone)


def _write(connection: Connection, descriptions: Sequence[Description], now: datetime) -> None:
    if descriptions:
        writings = [Writing(target=each.target, mutations=each.mutations()) for each in descriptions]
        write_many(connection, writings, author=_NOBODY, origin=Origin.SYSTEM, now=now)
        digests = {each.target.path: each.digest for each in descriptions}
        MetadataStore(connection).set_described(digests)


def _without_left_out(connection: Connection, plan: Plan, paths: Collection[str]) -> list[str]:
    """Return the paths of what is not declared any more; entities that are only left out of the plan, for a mistake in
    a file, are declared, and so are their columns.
    """
    if not paths:
        return []
    described = {feed for feed, _ in plan.feeds}
    declared = {f"{kind}/{name}" for kind, name in Definitions(connection).declared_versions()}
    return [
        path
        for path in paths
        if (top := "/".join(path.split("/")[:2])) not in declared
        or (top != path and top.removeprefix(f"{Kind.FEED.value}/") in described)
    ]


def iter_descriptions(plan: Plan) -> Iterator[Description]:
    """Yield the description of each entity that a plan declares, and of each declared column."""
    for cluster in plan.clusters.values():
        yield _describe_cluster(cluster)
    for datasource, facts in plan.datasources.items():
        yield _description(Kind.DATASOURCE.value, datasource, {}, (), facts)
    feeds: dict[str, list[FeedRecord]] = {}
    for feed in plan.feeds.values():
        feeds.setdefault(feed.feed, []).append(feed)
    for name, on in feeds.items():
        yield _describe_feed(name, on)
        yield from _describe_columns(name, on[0])
    processes: dict[str, list[ProcessRecord]] = {}
    for process in plan.processes.values():
        if not is_flow(process.process):
            processes.setdefault(process.process, []).append(process)
    for name, runs in processes.items():
        yield _describe_process(name, runs)


def _describe_cluster(cluster: ClusterRecord) -> Description:
    system = {"colo": cluster.colo, "storage": cluster.store.url}
    return _description(Kind.CLUSTER.value, cluster.name, system, (), cluster.facts)


def _describe_feed(name: str, on: Sequence[FeedRecord]) -> Description:
    feed = on[0]
    readers = {edge.process for each in on for edge in each.inputs_of}
    writers = {edge.process for each in on for edge in each.outputs_of}
    system = {
        "frequency": feed.sequence.frequency.render(),
        "timezone": str(feed.sequence.timezone),
        "format": feed.format.value,
        "clusters": ", ".join(sorted(each.cluster for each in on)),
        "validity-start": render_datetime(min(each.sequence.start for each in on)),
        **({"availability-flag": feed.flag} if feed.flag else {}),
        **({"schema": _schema(name, feed.columns)} if feed.columns else {}),
        **({"readers": ", ".join(sorted(readers))} if readers else {}),
        **({"writers": ", ".join(sorted(writers))} if writers else {}),
    }
    tags = {
        "external": any(each.is_external for each in on),
        "replicated": any(each.role is ClusterRole.TARGET for each in on),
        "table": any(each.table is not None for each in on),
        "signal": not feed.has_data,
    }
    return _description(Kind.FEED.value, name, system, [tag for tag, is_set in tags.items() if is_set], feed.facts)


def _describe_columns(name: str, feed: FeedRecord) -> Iterator[Description]:
    said = feed.facts.says
    types = dict(parse_columns(feed.columns)) if feed.columns else dict.fromkeys(each.column for each in said)
    for column, kind in types.items():
        if column is None:
            continue
        facts = describe_column(kind) if kind is not None else None
        system = {"type": facts.type, **({"description": facts.comment} if facts.comment else {})} if facts else {}
        target = Target(path=f"feed/{name}/column/{column}", kind="column", name=column, is_declared=True)
        yield Description(target=target, system=system, system_tags=frozenset(), declared=_of_column(said, column))


def _describe_process(name: str, runs: Sequence[ProcessRecord]) -> Description:
    process = runs[0]
    inputs, outputs = (", ".join(sorted({edge.feed for edge in found})) for found in (process.inputs, process.outputs))
    system = {
        "engine": process.engine,
        "frequency": process.sequence.frequency.render(),
        "timezone": str(process.sequence.timezone),
        "clusters": ", ".join(sorted(each.cluster for each in runs)),
        **({"inputs": inputs} if inputs else {}),
        **({"outputs": outputs} if outputs else {}),
    }
    tags = ["batch"] if process.trigger is not None else []
    return _description(Kind.PROCESS.value, name, system, tags, process.facts)


def _description(
    kind: str, name: str, system: Mapping[str, str], tags: Sequence[str], facts: EntityFacts
) -> Description:
    said = {
        **({"description": facts.description} if facts.description else {}),
        **({"owner": facts.owner} if facts.owner else {}),
        **({"groups": ", ".join(facts.groups)} if facts.groups else {}),
    }
    return Description(
        target=Target(path=f"{kind}/{name}", kind=kind, name=name, is_declared=True),
        system={**system, **said},
        system_tags=frozenset(tags),
        declared=_of_column(facts.says, None),
    )


def _of_column(said: Sequence[SayingRecord], column: str | None) -> tuple[SayingRecord, ...]:
    return tuple(each for each in said if each.column == column)


def _schema(name: str, columns: str) -> str:
    """Return a schema as a record of Avro's JSON, with Spark's types."""
    fields = [{"name": column, "type": describe_column(kind).type} for column, kind in parse_columns(columns)]
    return json.dumps({"type": "record", "name": name, "fields": fields})
