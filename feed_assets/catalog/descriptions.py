"""What this program says of the entities that a plan declares, and what their declarations say.

Times and counters of instances are not among it: they change with every publication.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from feed_assets.catalog.writing import Target
from feed_assets.entities.common import Kind, RetentionAction
from feed_assets.entities.content.columns import iter_columns, parse_columns, parse_nested
from feed_assets.entities.feed import ClusterRole
from feed_assets.entities.flow_names import is_of_feed
from feed_assets.entities.maps import EMPTY
from feed_assets.entities.metadata import (
    Metadata,
    MetadataKey,
    MetadataKind,
    MetadataValue,
    Origin,
    Scope,
)
from feed_assets.entities.workflow import Workflow, order_steps
from feed_assets.issues import EntityKey
from feed_assets.log.definitions.records import Recorded, Schedule, ScheduleState
from feed_assets.masking import encodable, mask
from feed_assets.plan.edges import All, Condition, Name, TriggerRecord
from feed_assets.plan.edges import Any as AnyOf
from feed_assets.plan.facts import EntityFacts, MetadataRecord
from feed_assets.plan.records import ClusterRecord, FeedRecord, Plan, ProcessRecord, RetentionRecord, steps_of
from feed_assets.setting_sections import EVERYTHING, SystemMetadataSettings
from feed_assets.timing.dates import render_datetime

NOBODY = "feed-assets"
"""The author of what this program writes."""

COLUMN = "column"
SCHEDULE = "schedule"


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What the state and the settings know of declared entities, beside the plan."""

    chosen: SystemMetadataSettings = EVERYTHING
    without_row: ScheduleState = ScheduleState.SCHEDULED
    recorded: Mapping[EntityKey, Recorded] = field(default_factory=lambda: EMPTY)
    schedules: Mapping[tuple[str, str, str], Schedule] = field(default_factory=lambda: EMPTY)

    def schedule_of(self, kind: Kind, name: str, clusters: Sequence[str]) -> str:
        """Return the states of the schedules of a feed or process."""
        found = {cluster: self.schedules.get((kind.value, name, cluster)) for cluster in clusters}
        return by_cluster({cluster: (row.state if row else self.without_row).value for cluster, row in found.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What is said of a declared entity: by this program, and by its declaration, whose last version has an author."""

    target: Target
    system: Mapping[str, str]
    system_tags: frozenset[str]
    declared: tuple[MetadataRecord, ...]
    author: str

    @property
    def digest(self) -> str:
        """Decides whether a description is another one."""
        declared = sorted((*each.key, each.value) for each in self.declared)
        content = [sorted(self.system.items()), sorted(self.system_tags), declared]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]

    def metadata(self) -> dict[MetadataKey, MetadataValue]:
        """Return what the program says."""
        found = {
            MetadataKey(Scope.SYSTEM, MetadataKind.PROPERTY, name): MetadataValue(
                encodable(value), Origin.SYSTEM, NOBODY
            )
            for name, value in self.system.items()
        }
        tags = {
            MetadataKey(Scope.SYSTEM, MetadataKind.TAG, tag): MetadataValue("", Origin.SYSTEM, NOBODY)
            for tag in self.system_tags
        }
        return found | tags

    def of_declaration(self) -> Metadata:
        """Return what the declaration says."""
        definition = Origin.DEFINITION
        return {each.key: MetadataValue(mask(each.value), definition, self.author) for each in self.declared}


def iter_descriptions(plan: Plan, circumstances: Circumstances) -> Iterator[Description]:
    """Yield the description of each entity that a plan declares, and of each declared column with the fields in it."""
    feeds: dict[str, list[FeedRecord]] = {}
    for feed in plan.feeds.values():
        feeds.setdefault(feed.feed, []).append(feed)
    processes: dict[str, list[ProcessRecord]] = {}
    for process in plan.processes.values():
        if not is_of_feed(process.process):
            processes.setdefault(process.process, []).append(process)
    for (kind, name), facts in plan.facts.items():
        match Kind(kind):
            case Kind.CLUSTER:
                system, tags = _cluster(plan.clusters[name]) if name in plan.clusters else {}, frozenset[str]()
            case Kind.DATASOURCE:
                datasource, tags = plan.datasources[name], frozenset[str]()
                system = {"type": datasource.type.value, "colo": datasource.colo}
            case Kind.FEED:
                system, tags = _feed(name, feeds.get(name, ()), circumstances)
            case Kind.PROCESS:
                system, tags = _process(name, processes.get(name, ()), circumstances)
        said = _of_column(facts, None)
        owned = {"description": facts.description, "owner": facts.owner, "groups": ", ".join(facts.groups)}
        yield _describe(f"{kind}/{name}", kind, name, owned | system, tags, circumstances, said)
        if name in feeds and kind == Kind.FEED:
            yield from _describe_columns(feeds[name][0], circumstances)


def by_cluster(values: Mapping[str, str | None]) -> str:
    """Return what is so on several clusters in one text, once if it is the same on all of them.

    >>> by_cluster({"east": "days(2)", "west": "days(9)"}), by_cluster({"east": "days(2)", "west": "days(2)"})
    ('east: days(2), west: days(9)', 'days(2)')
    """
    known = {cluster: value for cluster, value in sorted(values.items()) if value}
    if len(set(known.values())) == 1 and len(known) == len(values):
        return next(iter(known.values()))
    return ", ".join(f"{cluster}: {value}" for cluster, value in known.items())


def _describe(
    path: str,
    kind: str,
    name: str,
    system: Mapping[str, str | None],
    tags: frozenset[str],
    circumstances: Circumstances,
    said: Sequence[MetadataRecord] = (),
) -> Description:
    allows = circumstances.chosen.allows
    of_kind, of_name, *below = path.split("/", 2)
    known = circumstances.recorded.get((of_kind, of_name))
    record = _recorded(known) if known is not None and not below else {}
    found = {"kind": kind, "entity-name": name, **system, **record}
    return Description(
        target=Target(path=path, kind=kind, name=name, is_declared=True),
        system={key: mask(value) for key, value in found.items() if value and allows(kind, key)},
        system_tags=frozenset(tag for tag in tags if allows(kind, tag)),
        declared=tuple(said),
        author=known.updated_by if known is not None else NOBODY,
    )


def _describe_columns(feed: FeedRecord, circumstances: Circumstances) -> Iterator[Description]:
    place = f"{Kind.FEED.value}/{feed.feed}/{COLUMN}"
    for column in iter_columns(feed.columns) if feed.columns else ():
        system = {"entity-name": column.path, "type": column.facts.type, "description": column.facts.comment}
        said = _of_column(feed.facts, column.path)
        yield _describe(f"{place}/{column.path}", COLUMN, column.name, system, frozenset(), circumstances, said)
    for name in dict.fromkeys(each.column for each in feed.facts.metadata) if not feed.columns else ():
        if name is not None:
            said = _of_column(feed.facts, name)
            yield _describe(f"{place}/{name}", COLUMN, name, {}, frozenset(), circumstances, said)


def _of_column(facts: EntityFacts, column: str | None) -> tuple[MetadataRecord, ...]:
    return tuple(each for each in facts.metadata if each.column == column)


def _recorded(known: Recorded) -> dict[str, str]:
    return {
        "version": str(known.version),
        "creation-time": render_datetime(known.created_at),
        "created-by": known.created_by,
        "update-time": render_datetime(known.updated_at),
        "updated-by": known.updated_by,
    }


def _cluster(cluster: ClusterRecord) -> dict[str, str | None]:
    return {
        "colo": cluster.colo,
        "storage": cluster.store.url,
        "catalog": cluster.catalog,
        "spark": cluster.spark_remote or cluster.spark_master,
    }


def _feed(
    name: str, on: Sequence[FeedRecord], circumstances: Circumstances
) -> tuple[dict[str, str | None], frozenset[str]]:
    if not on:
        return {}, frozenset()
    feed = on[0]
    clusters = sorted(each.cluster for each in on)
    sources, targets = (
        ", ".join(sorted(each.cluster for each in on if each.role is role))
        for role in (ClusterRole.SOURCE, ClusterRole.TARGET)
    )
    system = {
        **_times(on),
        "format": feed.format.value,
        "location": by_cluster({each.cluster: _place(each) for each in on}),
        "availability-flag": feed.flag,
        "schema": _schema(name, feed.columns) if feed.columns else None,
        "late-arrival": feed.late_cut_off.render() if feed.late_cut_off else None,
        "retention": by_cluster({each.cluster: _retention(each.retention) for each in on}),
        "sla": by_cluster({each.cluster: each.sla.render() if each.sla else None for each in on}),
        "replication": f"{sources} to {targets}" if sources and targets else None,
        "asset": "/".join(feed.produced_by) if feed.produced_by else None,
        SCHEDULE: circumstances.schedule_of(Kind.FEED, name, clusters),
        "readers": _names(edge.process for each in on for edge in each.inputs_of if not is_of_feed(edge.process)),
        "writers": _names(edge.process for each in on for edge in each.outputs_of if not is_of_feed(edge.process)),
    }
    tags = {
        "external": any(each.is_external for each in on),
        "replicated": bool(targets),
        "table": any(each.table is not None for each in on),
        "signal": not feed.has_data,
    }
    return system, frozenset(tag for tag, is_set in tags.items() if is_set)


def _process(
    name: str, on: Sequence[ProcessRecord], circumstances: Circumstances
) -> tuple[dict[str, str | None], frozenset[str]]:
    if not on:
        return {}, frozenset()
    process = on[0]
    steps = steps_of(process.work)
    paths = [steps[step].path for step in order_steps(steps)]
    paths = paths or ([process.work.path] if isinstance(process.work, Workflow) else [])
    system = {
        **_times(on),
        "engine": process.engine,
        "steps": ", ".join(order_steps(steps)),
        "code": ", ".join(dict.fromkeys(path for path in paths if path)),
        "trigger": by_cluster({each.cluster: _trigger(each.trigger) for each in on}),
        SCHEDULE: circumstances.schedule_of(Kind.PROCESS, name, sorted(each.cluster for each in on)),
        "inputs": _names(edge.feed for edge in process.inputs),
        "outputs": _names(edge.feed for edge in process.outputs),
    }
    return system, frozenset(["batch"] if process.trigger is not None else [])


def _times(on: Sequence[FeedRecord] | Sequence[ProcessRecord]) -> dict[str, str | None]:
    sequence = on[0].sequence
    return {
        "frequency": sequence.pace,
        "timezone": sequence.timezone.key,
        "clusters": _names(each.cluster for each in on),
        "validity-start": by_cluster({each.cluster: render_datetime(each.sequence.start) for each in on}),
        "validity-end": by_cluster(
            {each.cluster: render_datetime(each.sequence.end) if each.sequence.end else None for each in on}
        ),
    }


def _place(feed: FeedRecord) -> str | None:
    if feed.table is not None:
        return f"{feed.table.database}.{feed.table.name}"
    return feed.template.text if feed.has_data else None


def _retention(policy: RetentionRecord | None) -> str | None:
    if policy is None:
        return None
    limits = [
        policy.limit.render() if policy.limit else "",
        f"{policy.max_instances} instances" if policy.max_instances is not None else "",
        f"{policy.max_bytes} bytes" if policy.max_bytes is not None else "",
    ]
    text = " or ".join(filter(None, limits))
    return text if policy.action is RetentionAction.DELETE else f"{text}, then {policy.action.value}"


def _trigger(trigger: TriggerRecord | None) -> str | None:
    if trigger is None:
        return None
    parts = [_condition(trigger.condition)]
    parts += [f"or every {trigger.or_every.frequency.render()}"] if trigger.or_every else []
    parts += [f"and every {trigger.and_every.frequency.render()}"] if trigger.and_every else []
    parts += [f"at the latest every {trigger.by.frequency.render()}"] if trigger.by else []
    return ", ".join(parts)


def _condition(condition: Condition) -> str:
    match condition:
        case Name():
            return condition.text
        case All(parts):
            return f"({' and '.join(map(_condition, parts))})"
        case AnyOf(parts):
            return f"({' or '.join(map(_condition, parts))})"


def _names(names: Iterator[str]) -> str:
    return ", ".join(sorted(set(names)))


def _schema(name: str, columns: str) -> str:
    """Return a schema as a record of Avro's JSON, with Spark's names of plain types."""
    return json.dumps({"type": "record", "name": name, "fields": _fields(parse_columns(columns))})


def _fields(columns: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    return [{"name": name, "type": _type(name, kind)} for name, kind in columns]


def _type(name: str, kind: str) -> str | dict[str, Any]:
    outer, parts = parse_nested(kind)
    match outer:
        case "struct":
            return {"type": "record", "name": name, "fields": _fields(parts)}
        case "array":
            return {"type": outer, **{part: _type(name, inner) for part, inner in parts}}
        case "map":
            return {"type": outer, **{f"{part}s": _type(name, inner) for part, inner in parts}}
        case _:
            return outer
