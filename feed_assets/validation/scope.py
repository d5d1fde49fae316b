"""The input of rules: the bundle, its sources, and values that several rules share."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

from feed_assets.entities.bundle import AnyEntity, Bundle
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.common import Kind, LocationKind
from feed_assets.entities.content.columns import parse_columns
from feed_assets.entities.copies.mirror import url_of
from feed_assets.entities.errors import ColumnsError
from feed_assets.entities.feed import ClusterRole, Feed, Inbox, flow_sequence, iter_pairs
from feed_assets.entities.graph import iter_rings
from feed_assets.entities.locations.overlaps import (
    FixedPlace,
    LocationKey,
    Overlaps,
    Places,
    describe_location,
    describe_overlaps,
    iter_locations,
    iter_mirror_locations,
    iter_tables,
)
from feed_assets.entities.process import Process
from feed_assets.issues import EntityKey, FieldPath, Severity, Source, SourceMap, split_error
from feed_assets.timing.dates import parse_timezone
from feed_assets.timing.errors import TableAddressError, TimingError
from feed_assets.timing.overlaps import Nesting, PathOverlap, iter_nested, iter_overlaps
from feed_assets.timing.sequence import InstanceSequence
from feed_assets.timing.templates import PathTemplate, parse_path_template, parse_table_address
from feed_assets.timing.windows import Window, parse_window


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A copy that an entity declares, from one place to another; both are canonical URLs.

    `read` is None if it is no feed that is copied. The target is declared at `path`.
    """

    entity: EntityKey
    path: FieldPath
    source: str
    target: str
    read: LocationKey | None
    written: LocationKey


def location_path(feed: Feed, cluster: str, kind: LocationKind | None = LocationKind.DATA) -> tuple[str, ...]:
    """Return where a location of a feed on a cluster is declared; None is the archive."""
    entry = feed.clusters[cluster]
    if kind is None:
        return ("clusters", cluster, "retention", "archive_to")
    own = ("clusters", cluster) if entry.locations is not None or entry.table is not None else ()
    return (*own, "table") if feed.table_on(cluster) is not None else (*own, "locations", kind.value)


_Step = TypeVar("_Step")
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
_MOST_STEPS = 12
"""The steps of a ring that a message has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """A rule's objection to an entity: the path in it, the message and the remedy.

    A `source` is another place than that of the path: the line of a file that the entity names. `is_absence` says that
    another entity is missing, `causes` are the labels of those whose errors may be the reason.
    """

    path: FieldPath
    message: str
    remedy: str
    severity: Severity = Severity.ERROR
    source: Source | None = None
    is_absence: bool = False
    causes: tuple[str, ...] = ()


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


def render_ring(ring: Sequence[_Step], first: int, render: Callable[[_Step], str]) -> str:
    """Return the steps of a ring as text, from its step `first` on; of a long ring not all.

    >>> render_ring("abc", 1, str.upper)
    'B, and C, and A'
    """
    shown = [*range(min(len(ring), _MOST_STEPS))]
    shown[-1] = len(ring) - 1
    parts = [render(ring[(first + number) % len(ring)]) for number in shown]
    if len(ring) > _MOST_STEPS:
        parts.insert(-1, f"so on through {len(ring) - _MOST_STEPS} more")
    return ", and ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenOverlap:
    """A location that is written here, and others at, inside or around it: how it lies to each of them."""

    own: LocationKey
    others: dict[LocationKey, Nesting] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """An output of a process that writes a feed."""

    process: Process
    output: str


Part: TypeAlias = Literal["inputs", "outputs"]


class Use(NamedTuple):
    """An input or output of a process, at `path`, whose window is counted in time, on a cluster that has the feed.

    `sequence` has the instances of the feed, `own` those of the process.
    """

    path: tuple[str, str]
    cluster: str
    feed: Feed
    window: Window
    sequence: InstanceSequence
    own: InstanceSequence

    @property
    def where(self) -> str:
        """The path as people write it: `inputs.clicks`."""
        return ".".join(self.path)


@dataclass(frozen=True, kw_only=True)
class Scope:
    """A bundle under validation.

    `left_out` are entities that could not be read as a whole; their locations count. `root` is the folder in which
    files of workflows are checked; None leaves files unchecked. `listeners` are the receivers that the settings
    declare; None if that is not known. The `find_…` functions return None for what another rule refuses, so that each
    mistake is reported once. `waiting_for_themselves` and `waking_themselves` are found for many processes at once:
    cluster → process → complaint.
    """

    bundle: Bundle
    sources: SourceMap
    root: Path | None = None
    left_out: tuple[AnyEntity, ...] = ()
    listeners: frozenset[str] | None = None
    places: Places = field(default_factory=Places, init=False, repr=False)
    waiting_for_themselves: dict[str, Mapping[str, Complaint]] = field(default_factory=dict, init=False, repr=False)
    waking_themselves: dict[str, Mapping[str, Complaint]] = field(default_factory=dict, init=False, repr=False)
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
                placed = found.fill(template).in_zone(feed.path_zone) if found and template else None
                self._templates[key] = placed
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
        return self.places.canonical(url_of(found.storage, template.text))

    def find_window(self, process: Process, name: str) -> Window | None:
        """Return the window of an input; None also if it is data-driven, or takes what is new."""
        item = process.inputs[name]
        return None if item.takes_new else _find_window(item.start, item.end, process.timezone)

    def find_use(self, process: Process, part: Part, name: str, cluster: str) -> Use | None:
        """Return how an input or output uses its feed on a cluster; None also if its window is not counted in time."""
        if part == "inputs":
            feed, window = self.find_feed_on(process.inputs[name].feed, cluster), self.find_window(process, name)
        else:
            output = process.outputs[name]
            window = _find_window(output.instance, output.instance, process.timezone)
            feed = self.find_feed_on(output.feed, cluster)
        if feed is None or window is None:
            return None
        sequence, own = self.sequence_on(feed, cluster), self.sequence_on(process, cluster)
        return Use((part, name), cluster, feed, window, sequence, own)

    def iter_uses(self, process: Process, part: Part) -> Iterator[Use]:
        """Yield how inputs or outputs use their feeds on each cluster, without what another rule refuses."""
        names = process.inputs if part == "inputs" else process.outputs
        found = (self.find_use(process, part, name, cluster) for name in names for cluster in process.clusters)
        return filter(None, found)

    @cached_property
    def groups(self) -> dict[str, list[Feed]]:
        """The feeds of each group, by its name."""
        return _grouped((group, feed) for feed in self.bundle.feeds for group in feed.groups)

    @cached_property
    def owned(self) -> dict[str, list[str]]:
        """Owner → the labels of what is theirs."""
        acls = ((entity.acl, entity.label) for entity in self.bundle.entities)
        return _grouped((acl.owner, label) for acl, label in acls if acl is not None and acl.owner is not None)

    @cached_property
    def writers(self) -> dict[tuple[str, str], list[Writer]]:
        """(feed, cluster) → the outputs that write it, or whose bad rows it takes."""
        return _grouped(
            ((feed, cluster), Writer(process=process, output=name))
            for process in self.bundle.processes
            for name, output in process.outputs.items()
            for feed in filter(None, (output.feed, self.bundle.find_quarantine(output.feed)))
            for cluster in process.clusters
        )

    @cached_property
    def quarantined(self) -> dict[str, list[str]]:
        """Feed → the feeds whose bad rows it takes."""
        pairs = ((self.bundle.find_quarantine(feed.name), feed.name) for feed in self.bundle.feeds)
        return _grouped((quarantine, name) for quarantine, name in pairs if quarantine is not None)

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
    def exported(self) -> dict[tuple[str, str], list[tuple[str, str]]]:
        """Datasource and table → the feeds and clusters that are exported to it."""
        on = ((feed.name, name, entry.export) for feed in self.bundle.feeds for name, entry in feed.clusters.items())
        return _grouped(
            ((export.target.name, export.target.table), (feed, cluster))
            for feed, cluster, export in on
            if export is not None
        )

    @cached_property
    def tables_of_datasources(self) -> frozenset[tuple[str, str | None]]:
        """The datasources and tables that feeds are imported from and exported to."""
        on = (entry for feed in self.bundle.feeds for entry in feed.clusters.values())
        return frozenset((table.name, table.table) for entry in on for _, table in entry.tables())

    def find_fillers(self, cluster: Cluster, table: str) -> list[tuple[str, str]]:
        """Return the feeds that are a table of the cluster's catalog, or fill it, and their clusters."""
        return list(dict.fromkeys(each for url in iter_tables(cluster, table) for each in self._tables[url]))

    @cached_property
    def _tables(self) -> Mapping[str, list[tuple[str, str]]]:
        found: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for feed in self.bundle.feeds:
            for name in feed.clusters:
                cluster = self.bundle.find_cluster(name)
                text = None if cluster is None else feed.table_on(name) or feed.catalog_table_on(cluster)
                with suppress(TableAddressError):
                    if cluster is not None and text is not None:
                        for url in iter_tables(cluster, parse_table_address(text).name):
                            found[url].append((feed.name, name))
        return found

    @cached_property
    def written_overlaps(self) -> dict[str, list[WrittenOverlap]]:
        """Feed → its locations that a process or a copy writes, and that share a place with others.

        Of two locations of one feed, the first that is written has the other.
        """
        found: dict[LocationKey, WrittenOverlap] = {}
        seen: set[frozenset[LocationKey]] = set()
        for overlap in self._path_overlaps:
            outer, inner = self.locations[overlap.outer][0], self.locations[overlap.inner][0]
            if isinstance(inner[2], FixedPlace) or frozenset((outer, inner)) in seen:
                continue
            if outer[:2] == inner[:2] or (None in (outer[2], inner[2]) and outer[0] == inner[0]):
                continue
            seen.add(frozenset((outer, inner)))
            written = [key for key in (outer, inner) if self._is_written(key)]
            if not written or not self._are_ever_both(outer, inner):
                continue
            for own in written[:1] if outer[0] == inner[0] else written:
                nesting = Nesting.AT if overlap.is_same_place else Nesting.AROUND if own == outer else Nesting.INSIDE
                found.setdefault(own, WrittenOverlap(own=own)).others[inner if own == outer else outer] = nesting
        return _grouped((own[0], each) for own, each in found.items())

    @cached_property
    def written_pairs(self) -> frozenset[frozenset[tuple[str, str]]]:
        """The pairs of feeds on clusters, by name, of `written_overlaps`."""
        return frozenset(
            frozenset((each.own[:2], other[:2]))
            for found in self.written_overlaps.values()
            for each in found
            for other in each.others
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
        return _grouped((each.name, each) for each in (*self.bundle.feeds, *self.left_out) if isinstance(each, Feed))

    @cached_property
    def sharing(self) -> frozenset[tuple[str, str]]:
        """The feeds and clusters, by name, whose data have the same address as another's."""
        pairs = [(pair, (name, own)) for name, found in self.shared_paths.items() for pair, own in found]
        return frozenset(each for (feed, cluster), own in pairs for each in ((feed.name, cluster), own))

    @cached_property
    def overlaps(self) -> Overlaps:
        """The overlapping locations of feeds."""
        return describe_overlaps([key for key, _ in self.locations], self._path_overlaps, self.describe)

    @cached_property
    def _path_overlaps(self) -> tuple[PathOverlap, ...]:
        """The overlaps of `locations`, by their positions."""
        return tuple(iter_overlaps([text for _, text in self.locations]))

    @cached_property
    def locations(self) -> tuple[tuple[LocationKey, str], ...]:
        """The locations of all feeds, targets of mirrors and roots of storages, each as a canonical URL."""
        return tuple(iter_locations(self.bundle, left_out=self.left_out, places=self.places))

    @cached_property
    def inboxes(self) -> Mapping[str, list[tuple[Feed, Inbox]]]:
        """The directory of inboxes, without a trailing slash → the feeds that take files from there."""
        inboxes = ((feed, feed.inbox) for feed in self.bundle.feeds if feed.inbox is not None)
        return _grouped((inbox.directory.rstrip("/"), (feed, inbox)) for feed, inbox in inboxes)

    @cached_property
    def near_mirrors(self) -> Mapping[str, list[tuple[LocationKey, str]]]:
        """The place of a mirror's target → the locations at, inside or around it."""
        targets = [*dict.fromkeys(url for key, url in self.locations if key[2] is FixedPlace.MIRROR)]
        nested = sorted(iter_nested(targets, [url for _, url in self.locations]))
        return _grouped((targets[target], self.locations[other]) for target, other in nested)

    @cached_property
    def copy_rings(self) -> tuple[tuple[Copy, ...], ...]:
        """Rings of copies in which each writes what the next one reads; every ring shares a copy with one of them."""
        copies = [*self._iter_feed_copies(), *self._iter_mirror_copies()]
        after: dict[int, list[int]] = defaultdict(list)
        for one, other in iter_nested([copy.target for copy in copies], [copy.source for copy in copies]):
            writer, reader = copies[one], copies[other]
            are_apart = (
                reader.read is not None
                and isinstance(writer.written[2], LocationKind)
                and not self._are_ever_both(writer.written, reader.read)
            )
            if one != other and not are_apart:
                after[one].append(other)
        return tuple(tuple(copies[number] for number in ring) for ring in iter_rings(after))

    def _iter_feed_copies(self) -> Iterator[Copy]:
        """Yield the copies from each source of a feed to each target of it."""
        for feed in self.bundle.feeds:
            for source, target in iter_pairs(feed):
                at, to = self.find_address(feed, source), self.find_address(feed, target)
                if at is not None and to is not None and flow_sequence(feed, source, target) is not None:
                    yield Copy(
                        entity=feed.key,
                        path=location_path(feed, target),
                        source=at,
                        target=to,
                        read=(feed.name, source, LocationKind.DATA),
                        written=(feed.name, target, LocationKind.DATA),
                    )

    def _iter_mirror_copies(self) -> Iterator[Copy]:
        """Yield the copies of each directory of a mirror, on each cluster of it."""
        sources: dict[tuple[str, str, int], str] = {}
        for process in self.bundle.processes:
            for place in iter_mirror_locations(self.bundle.find_cluster, process):
                number = (process.name, place.own, place.position)
                url = None if place.url is None else self.places.canonical(place.url)
                if url is not None and not place.is_target:
                    sources[number] = url
                elif url is not None and number in sources:
                    yield Copy(
                        entity=process.key,
                        path=place.path,
                        source=sources[number],
                        target=url,
                        read=None,
                        written=(process.name, place.own, FixedPlace.MIRROR),
                    )

    @cached_property
    def rings_of(self) -> Mapping[EntityKey, list[tuple[tuple[Copy, ...], int]]]:
        """Entity → the rings with copies of it, and the position of its first one in each."""
        found: dict[EntityKey, list[tuple[tuple[Copy, ...], int]]] = defaultdict(list)
        for ring in self.copy_rings:
            firsts: dict[EntityKey, int] = {}
            for position, copy in enumerate(ring):
                firsts.setdefault(copy.entity, position)
            for entity, first in firsts.items():
                found[entity].append((ring, first))
        return found

    def is_hidden(self, cluster: str, text: str) -> bool:
        """Return whether a path on a cluster, or a URL, lies where feed-assets keeps its own files, such as its trash.

        False if the storage itself does, which another rule refuses.
        """
        found = self.bundle.find_cluster(cluster)
        storage = found.storage if found is not None else ""
        if "://" not in text and (not storage or self.places.is_hidden(storage)):
            return False
        return self.places.is_hidden(url_of(storage, text))

    @cached_property
    def ring_links(self) -> frozenset[frozenset[LocationKey | None]]:
        """The pairs of locations at which a copy of a ring writes what another one reads."""
        return frozenset(
            frozenset((before.written, copy.read))
            for ring in self.copy_rings
            for before, copy in pairwise((*ring, ring[0]))
        )

    def describe(self, place: LocationKey) -> str:
        """Return the name of a location for messages, with file and line."""
        name, cluster, kind = place
        path: FieldPath
        match kind:
            case FixedPlace.INBOX:
                key, path = (Kind.FEED.value, name), ("inbox", "directory")
            case FixedPlace.STORAGE:
                key, path = (Kind.CLUSTER.value, name), ("storage",)
            case FixedPlace.MIRROR:
                key, path = (Kind.PROCESS.value, name), ("workflow", "mirror", "target", "directory")
            case _:
                feed = next((each for each in self._feeds[name] if cluster in each.clusters), None)
                key = (Kind.FEED.value, name)
                path = location_path(feed, cluster, kind) if feed is not None else ()
        return describe_location(place) + self.where(key, path)

    def where(self, key: EntityKey, path: FieldPath) -> str:
        """Return file and line of a field in brackets; empty for an entity without a file."""
        source = self.sources.locate(key, path)
        return f" ({source.render()})" if source is not None else ""


def _grouped(pairs: Iterable[tuple[_Key, _Value]]) -> dict[_Key, list[_Value]]:
    """Return the values of each key, in their order; of another key none."""
    found: dict[_Key, list[_Value]] = defaultdict(list)
    for key, value in pairs:
        found[key].append(value)
    return found


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


def is_table_for(feed: Feed, process: Process) -> bool:
    """Return whether a feed is a table on a cluster of a process."""
    return any(feed.table_on(name) is not None for name in process.clusters if name in feed.clusters)


def column_names(feed: Feed) -> frozenset[str] | None:
    """Return the names of declared columns, in lower case as Spark compares them; None if they are not known."""
    try:
        return frozenset(name.lower() for name, _ in parse_columns(feed.ddl)) if feed.ddl else None
    except ColumnsError:
        return None
