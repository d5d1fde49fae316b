"""Find the declared copies, of feeds and of mirrors, and the rings in which they copy onto one another."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from feed_assets.entities.cluster import Cluster
from feed_assets.entities.common import LocationKind
from feed_assets.entities.feed import Feed, find_sources, find_targets, flow_sequence
from feed_assets.entities.graph import iter_rings
from feed_assets.entities.locations.overlaps import FixedPlace, LocationKey, iter_mirror_locations
from feed_assets.entities.locations.places import Places
from feed_assets.entities.process import Process
from feed_assets.issues import EntityKey, FieldPath
from feed_assets.timing.overlaps import iter_nested


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


def iter_feed_copies(feed: Feed, find_address: Callable[[Feed, str], str | None]) -> Iterator[Copy]:
    """Yield the copies from each source of a feed to each target of it. `find_address` returns the place of data."""
    for target in find_targets(feed):
        for source in find_sources(feed):
            at, to = find_address(feed, source), find_address(feed, target)
            if at is None or to is None or flow_sequence(feed, source, target) is None:
                continue
            yield Copy(
                entity=feed.key,
                path=location_path(feed, target),
                source=at,
                target=to,
                read=(feed.name, source, LocationKind.DATA),
                written=(feed.name, target, LocationKind.DATA),
            )


def iter_mirror_copies(
    process: Process, find_cluster: Callable[[str], Cluster | None], places: Places
) -> Iterator[Copy]:
    """Yield the copies of each directory of a mirror, on each cluster of it; nothing for other processes."""
    sources: dict[tuple[str, int], str] = {}
    for place in iter_mirror_locations(find_cluster, process):
        number = (place.own, place.position)
        if place.url is None:
            continue
        if not place.is_target:
            sources[number] = places.canonical(place.url)
        elif number in sources:
            yield Copy(
                entity=process.key,
                path=place.path,
                source=sources[number],
                target=places.canonical(place.url),
                read=None,
                written=(process.name, place.own, FixedPlace.MIRROR),
            )


def find_rings(
    copies: Sequence[Copy], are_ever_both: Callable[[LocationKey, LocationKey], bool]
) -> tuple[tuple[Copy, ...], ...]:
    """Return rings of copies in which each writes what the next one reads; every ring shares a copy with one of them.

    `are_ever_both` returns whether two locations of feeds are valid at the same time.
    """
    after: dict[int, list[int]] = defaultdict(list)
    for one, other in iter_nested([copy.target for copy in copies], [copy.source for copy in copies]):
        writer, reader = copies[one], copies[other]
        are_apart = (
            reader.read is not None
            and isinstance(writer.written[2], LocationKind)
            and not are_ever_both(writer.written, reader.read)
        )
        if one != other and not are_apart:
            after[one].append(other)
    return tuple(tuple(copies[number] for number in ring) for ring in iter_rings(after))


def location_path(feed: Feed, cluster: str, kind: LocationKind | None = LocationKind.DATA) -> tuple[str, ...]:
    """Return where a location of a feed on a cluster is declared; None is the archive."""
    entry = feed.clusters[cluster]
    if kind is None:
        return ("clusters", cluster, "retention", "archive_to")
    own = ("clusters", cluster) if entry.locations is not None or entry.table is not None else ()
    return (*own, "table") if feed.table_on(cluster) is not None else (*own, "locations", kind.value)
