"""The input of rules: the bundle, its sources, the present time, and values that several rules share."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from feed_assets.entities.bundle import AnyEntity, Bundle
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.common import Kind, LocationKind
from feed_assets.entities.feed import ClusterRole, Feed
from feed_assets.entities.mirror_places import iter_mirror_locations
from feed_assets.entities.overlaps import FixedPlace, LocationKey, Overlaps, describe_overlaps, iter_locations
from feed_assets.entities.places import Places
from feed_assets.entities.process import Process
from feed_assets.issues import EntityKey, FieldPath, Severity, SourceMap, split_error
from feed_assets.timing.dates import parse_timezone
from feed_assets.timing.errors import TimingError
from feed_assets.timing.overlaps import Nesting, PathOverlap, iter_overlaps
from feed_assets.timing.sequence import InstanceSequence
from feed_assets.timing.tables import parse_table_address
from feed_assets.timing.templates import PathTemplate, parse_path_template
from feed_assets.timing.windows import Window, parse_window


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """A rule's objection to an entity: the path in it, the message and the remedy."""

    path: FieldPath
    message: str
    remedy: str
    severity: Severity = Severity.ERROR


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule: its code, the kind of entity that it checks, and the function that checks one of them."""

    code: str
    kind: Kind
    check: Callable[["Scope", Any], Iterator[Complaint]]


def complain(path: FieldPath, error: TimingError) -> Complaint:
    """Return a refused text as a complaint."""
    finding = split_error(error)
    return Complaint(path=path, message=f"{'.'.join(map(str, path))}: {finding.message}", remedy=finding.remedy)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenOverlap:
    """A location that is written here, and another location at, inside or around it."""

    own: LocationKey
    other: LocationKey
    nesting: Nesting


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """An output of a process that writes a feed."""

    process: Process
    output: str


@dataclass(frozen=True, kw_only=True)
class Scope:
    """A bundle under validation.

    `left_out` are entities that could not be read as a whole; their locations count. `as_of` is the present. `root` is
    the folder in which files of workflows are checked; None leaves files unchecked. The `find_…` functions return None
    for what another rule refuses, so that each mistake is reported once. `waiting_for_themselves` is found for a whole
    cluster at once: cluster → process → complaint.
    """

    bundle: Bundle
    sources: SourceMap
    as_of: datetime
    root: Path | None = None
    left_out: tuple[AnyEntity, ...] = ()
    places: Places = field(default_factory=Places, init=False, repr=False)
    waiting_for_themselves: dict[str, Mapping[str, Complaint]] = field(default_factory=dict, init=False, repr=False)
    _sequences: dict[tuple[str, str, str], InstanceSequence] = field(default_factory=dict, init=False, repr=False)
    _templates: dict[tuple[str, str], PathTemplate | None] = field(default_factory=dict, init=False, repr=False)

    def is_declared(self, key: EntityKey) -> bool:
        """Return whether an entity was declared, even with errors."""
        return self.bundle.find(key) is not None or key in self.sources

    def find_feed_on(self, name: str, cluster: str) -> Feed | None:
        """Return the feed; None if it does not exist or is not defined on the cluster."""
        feed = self.bundle.find_feed(name)
        return feed if feed is not None and cluster in feed.clusters else None

    def sequence_on(self, entity: Feed | Process, cluster: str) -> InstanceSequence:
        """Return the instances of a feed or process on a cluster."""
        key = (entity.kind, entity.name, cluster)
        if key not in self._sequences:
            self._sequences[key] = entity.sequence_on(cluster)
        return self._sequences[key]

    def find_template(self, feed: Feed, cluster: str) -> PathTemplate | None:
        """Return the template of a feed's data, or of the partition of its table, with cluster variables filled in."""
        key = (feed.name, cluster)
        if key not in self._templates:
            found = self.bundle.find_cluster(cluster)
            try:
                template = _parse_location(feed.data_on(cluster), feed.table_on(cluster))
                self._templates[key] = with_cluster(template, found) if found and template else None
            except TimingError:
                self._templates[key] = None
        return self._templates[key]

    def find_address(self, feed: Feed, cluster: str) -> str | None:
        """Return a text that identifies the location of a feed on a cluster; None if it has none."""
        template, found = self.find_template(feed, cluster), self.bundle.find_cluster(cluster)
        if template is None or found is None:
            return None
        if (table := feed.table_on(cluster)) is not None:
            return f"{found.catalog} {parse_table_address(table).name} {template.text}"
        return self.places.canonical(template.text if "://" in template.text else f"{found.storage}/{template.text}")

    def find_window(self, process: Process, name: str) -> Window | None:
        """Return the window of an input; None also if it is data-driven."""
        item = process.inputs[name]
        return _find_window(item.start, item.end, process.timezone)

    def find_output(self, process: Process, name: str) -> Window | None:
        """Return the window of one instance that an output names."""
        text = process.outputs[name].instance
        return _find_window(text, text, process.timezone)

    @cached_property
    def groups(self) -> dict[str, list[Feed]]:
        """The feeds of each group, by its name."""
        found: dict[str, list[Feed]] = defaultdict(list)
        for feed in self.bundle.feeds:
            for group in feed.groups:
                found[group].append(feed)
        return found

    @cached_property
    def writers(self) -> dict[tuple[str, str], list[Writer]]:
        """(feed, cluster) → the outputs that write it."""
        found: dict[tuple[str, str], list[Writer]] = defaultdict(list)
        for process in self.bundle.processes:
            for name, output in process.outputs.items():
                for cluster in process.clusters:
                    found[output.feed, cluster].append(Writer(process=process, output=name))
        return found

    @cached_property
    def shared_paths(self) -> dict[str, list[tuple[tuple[Feed, str], str]]]:
        """Feed → the first feed and cluster whose data have the same address, and the feed's own cluster."""
        found: dict[str, list[tuple[tuple[Feed, str], str]]] = defaultdict(list)
        owners: dict[str, tuple[Feed, str]] = {}
        for feed in self.bundle.feeds:
            for name in feed.clusters:
                address = self.find_address(feed, name)
                if address is not None:
                    first = owners.setdefault(address, (feed, name))
                    if first != (feed, name):
                        found[feed.name].append((first, name))
        return found

    @cached_property
    def written_overlaps(self) -> dict[str, list[WrittenOverlap]]:
        """Feed → its locations that share a place with another's, where a process or a copy writes one of the two."""
        found: dict[str, list[WrittenOverlap]] = defaultdict(list)
        seen: set[frozenset[LocationKey]] = set()
        for overlap in self._path_overlaps:
            outer, inner = self.locations[overlap.outer][0], self.locations[overlap.inner][0]
            if None in (outer[2], inner[2]) or isinstance(inner[2], FixedPlace):
                continue
            if outer[:2] == inner[:2] or frozenset((outer, inner)) in seen:
                continue
            checked = sorted((outer, inner), key=lambda key: self.bundle.find_feed(key[0]) is None)
            written = next((key for key in checked if self._is_written(key)), None)
            if written is None or not self._are_ever_both(outer, inner):
                continue
            seen.add(frozenset((outer, inner)))
            nesting = Nesting.AT if overlap.is_same_place else Nesting.AROUND if written == outer else Nesting.INSIDE
            other = inner if written == outer else outer
            found[written[0]].append(WrittenOverlap(own=written, other=other, nesting=nesting))
        return found

    @cached_property
    def written_pairs(self) -> frozenset[frozenset[tuple[str, str]]]:
        """The pairs of feeds on clusters, by name, of `written_overlaps`."""
        return frozenset(
            frozenset((each.own[:2], each.other[:2])) for found in self.written_overlaps.values() for each in found
        )

    def _is_written(self, key: LocationKey) -> bool:
        """Return whether a process or a copy writes a location."""
        feed, cluster, kind = key
        if kind is not LocationKind.DATA:
            return False
        declared = self.bundle.find_feed(feed)
        is_target = declared is not None and declared.clusters[cluster].type is ClusterRole.TARGET
        return is_target or bool(self.writers.get((feed, cluster)))

    def _are_ever_both(self, one: LocationKey, other: LocationKey) -> bool:
        """Return whether the validities of two locations meet."""
        declared = [self._feeds[key[0]] for key in (one, other)]
        if any(len(feeds) > 1 for feeds in declared):
            return True
        validities = [feed.clusters[key[1]].validity for key, (feed,) in zip((one, other), declared, strict=True)]
        starts = [validity.start for validity in validities]
        ends = [validity.end for validity in validities if validity.end is not None]
        return not ends or max(starts) < min(ends)

    @cached_property
    def _feeds(self) -> dict[str, list[Feed]]:
        """All feeds by their names; several if one could not be read because its name is used twice."""
        found: dict[str, list[Feed]] = defaultdict(list)
        for entity in (*self.bundle.feeds, *self.left_out):
            if isinstance(entity, Feed):
                found[entity.name].append(entity)
        return found

    @cached_property
    def sharing(self) -> frozenset[tuple[str, str]]:
        """The feeds and clusters, by name, whose data have the same address as another's."""
        pairs = [(pair, (name, own)) for name, found in self.shared_paths.items() for pair, own in found]
        return frozenset(each for (feed, cluster), own in pairs for each in ((feed.name, cluster), own))

    @cached_property
    def overlaps(self) -> Overlaps:
        """The overlapping locations of feeds."""
        return describe_overlaps([key for key, _ in self.locations], self._path_overlaps)

    @cached_property
    def _path_overlaps(self) -> tuple[PathOverlap, ...]:
        """The overlaps of `locations`, by their positions."""
        return tuple(iter_overlaps([text for _, text in self.locations]))

    @cached_property
    def locations(self) -> tuple[tuple[LocationKey, str], ...]:
        """The locations of all feeds, targets of mirrors and roots of storages, each as a canonical URL."""
        return tuple(iter_locations(self.bundle, left_out=self.left_out))

    @cached_property
    def mirrored(self) -> tuple[tuple[str, str, str], ...]:
        """The directories of all mirrors: the process, and source and target as canonical URLs."""
        found: dict[tuple[str, str, int], dict[bool, str]] = defaultdict(dict)
        for process in self.bundle.processes:
            for place in iter_mirror_locations(self.bundle.find_cluster, process):
                if place.url is not None:
                    at = self.places.canonical(place.url)
                    found[process.name, place.own, place.position][place.is_target] = at
        return tuple((key[0], sides[False], sides[True]) for key, sides in found.items() if len(sides) > 1)


def _parse_location(data: str | None, table: str | None) -> PathTemplate | None:
    if table is not None:
        return parse_table_address(table).template
    return parse_path_template(data) if data is not None else None


def _find_window(start: str, end: str, zone: str) -> Window | None:
    try:
        window = parse_window(start, end, parse_timezone(zone))
    except TimingError:
        return None
    return None if window.is_data_driven else window


def with_cluster(template: PathTemplate, cluster: Cluster) -> PathTemplate:
    """Return the template with the variables of a cluster filled in; raise TemplateError for an unknown property."""
    return template.with_cluster(name=cluster.name, colo=cluster.colo, properties=cluster.properties)
