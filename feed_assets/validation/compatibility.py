"""Compatibility of changes: the dependents that are valid before a change of other entities, and invalid after it."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from feed_assets.entities.bundle import Bundle
from feed_assets.entities.common import Kind, label_of
from feed_assets.entities.conditions import find_named
from feed_assets.entities.feed import Feed
from feed_assets.entities.graph import DependencyGraph
from feed_assets.entities.process import Process
from feed_assets.entities.triggers import iter_names
from feed_assets.issues import EntityKey, Issue, Severity, SourceMap, order_of
from feed_assets.validation.rules import validate_bundle

BREAKS_DEPENDENT = "breaks-dependent"
STILL_REFERENCED = "still-referenced"


def find_broken_dependents(
    before: Bundle, after: Bundle, *, sources: SourceMap, root: Path | None = None
) -> list[Issue]:
    """F30: find the entities that a change breaks. Returns one issue for each new error of such an entity.

    Checks every entity that depends on a changed or removed entity, shares a group with it, or writes a feed that it
    also writes. Does not check the changed entities themselves: validate them separately. A removal is refused while
    another entity refers to the removed one.

    Args:
        before: all entities before the change.
        after: all entities after the change.
        sources: the positions of those of `after`.
        root: the folder in which files of workflows are checked; None leaves files unchecked.
    """
    changed = _changed(before, after)
    removed = {key for key in changed if after.find(key) is None}
    in_use = find_dependents(after, removed)
    graphs = DependencyGraph.of(before), DependencyGraph.of(after)
    causes = {key: found for key, found in _affected(before, after, graphs, changed).items() if after.find(key)}
    issues = [_still_referenced(key, names, sources) for key, names in in_use.items()]
    labels = {label_of(key): key for key in causes}
    reported = {(label_of(name), "unknown-reference") for names in in_use.values() for name in names}
    wrong = [issue for issue in _errors(after, sources, root, causes) if _issue_key(issue) not in reported]
    suspects = {labels[issue.entity or ""] for issue in wrong}
    known = {_issue_key(issue) for issue in _errors(before, SourceMap(), root, suspects)}
    issues += [
        _incompatible(each, causes[labels[each.entity or ""]]) for each in wrong if _issue_key(each) not in known
    ]
    return sorted(issues, key=order_of)


def _errors(bundle: Bundle, sources: SourceMap, root: Path | None, only: Collection[EntityKey]) -> list[Issue]:
    issues = validate_bundle(bundle, sources, root, only=only) if only else []
    return [issue for issue in issues if issue.severity is Severity.ERROR]


def _issue_key(issue: Issue) -> tuple[str | None, str]:
    """Return the identity of an issue: its entity and rule."""
    return issue.entity, issue.code


def find_dependents(bundle: Bundle, keys: Collection[EntityKey]) -> Mapping[EntityKey, tuple[EntityKey, ...]]:
    """Return the direct dependents of each key that has any, in order; dependents among `keys` do not count.

    >>> from feed_assets.entities.cluster import Cluster
    >>> find_dependents(Bundle(entities=(Cluster(name="a", storage="file:///data"),)), [("cluster", "a")])
    {}
    """
    if not keys:
        return {}
    graph = DependencyGraph.of(bundle)
    found = {key: tuple(sorted(graph.dependents.get(key, frozenset()) - set(keys))) for key in sorted(keys)}
    return {key: names for key, names in found.items() if names}


def describe_references(names: Collection[EntityKey]) -> str:
    """Return why an entity cannot be removed, naming all entities that refer to it.

    >>> describe_references([("process", "daily"), ("process", "hourly")])
    "it cannot be removed, because process 'daily' and process 'hourly' refer to it"
    """
    *most, last = map(label_of, names)
    listed = f"{', '.join(most)} and {last}" if most else last
    return f"it cannot be removed, because {listed} {'refer' if most else 'refers'} to it"


def _changed(before: Bundle, after: Bundle) -> frozenset[EntityKey]:
    """Return the keys of entities that only one bundle has, or that differ."""

    def is_same(key: EntityKey) -> bool:
        old, new = before.find(key), after.find(key)
        return old is new or (old is not None and new is not None and old == new)

    keys = {entity.key for entity in (*before.entities, *after.entities)}
    return frozenset(key for key in keys if not is_same(key))


def _affected(
    before: Bundle, after: Bundle, graphs: tuple[DependencyGraph, DependencyGraph], changed: Collection[EntityKey]
) -> dict[EntityKey, set[EntityKey]]:
    """Return each unchanged entity whose rules read a changed one, with the changed ones."""
    found: dict[EntityKey, set[EntityKey]] = {}
    conditions = [_find_named(bundle) for bundle in (before, after)]
    for key in changed:
        neighbours = {name for graph in graphs for name in graph.dependents_of([key])}
        neighbours.update(_iter_neighbours(before, graphs[0], key), _iter_neighbours(after, graphs[1], key))
        neighbours.update(name for named in conditions for name in named.get(key, ()))
        for name in neighbours.difference(changed):
            found.setdefault(name, set()).add(key)
    return found


def _iter_neighbours(bundle: Bundle, graph: DependencyGraph, key: EntityKey) -> Iterator[EntityKey]:
    """Yield feeds of the same groups, processes with the same outputs, and feeds that retention keeps for a process."""
    entity = bundle.find(key)
    if isinstance(entity, Feed) and entity.groups:
        yield from (feed.key for feed in bundle.feeds if set(feed.groups).intersection(entity.groups))
    if isinstance(entity, Process):
        for output in entity.outputs.values():
            yield from graph.dependents.get(("feed", output.feed), ())
        for item in entity.inputs.values():
            feed = bundle.find_feed(item.feed)
            if feed is not None and any(
                entity.name in each.retention.until_read_by for each in feed.clusters.values() if each.retention
            ):
                yield feed.key


def _find_named(bundle: Bundle) -> Mapping[EntityKey, set[EntityKey]]:
    """Return the feeds that conditions of triggers name, by themselves or as a group, with the processes."""
    found: dict[EntityKey, set[EntityKey]] = defaultdict(set)
    for process in bundle.processes:
        for text in iter_names(process.trigger.when) if process.trigger and process.trigger.when else ():
            for cluster in process.clusters:
                for _, feed in find_named(bundle, process, cluster, text):
                    found[Kind.FEED, feed].add(process.key)
    return found


def _still_referenced(key: EntityKey, names: Collection[EntityKey], sources: SourceMap) -> Issue:
    return Issue(
        severity=Severity.ERROR,
        code=STILL_REFERENCED,
        entity=label_of(key),
        message=describe_references(names),
        remedy="Remove those first, or make them refer to another one.",
        source=sources.locate(next(iter(names))),
    )


def _incompatible(issue: Issue, causes: Collection[EntityKey]) -> Issue:
    named = " and ".join(map(label_of, sorted(causes)))
    return replace(
        issue, code=BREAKS_DEPENDENT, message=f"it is not compatible with changes to {named}: {issue.message}"
    )
