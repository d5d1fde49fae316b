"""Overlaps of locations, also of mirrors, where removing the data of a feed would remove other data."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from feed_assets.entities.bundle import AnyEntity, Bundle
from feed_assets.entities.cluster import STORAGE_SCHEMES, Cluster
from feed_assets.entities.common import LocationKind
from feed_assets.entities.copies.mirror import url_of
from feed_assets.entities.feed import Feed
from feed_assets.entities.locations.places import Places
from feed_assets.entities.process import Process
from feed_assets.issues import FieldPath, Finding, split_error
from feed_assets.timing.errors import TableAddressError, TemplateError
from feed_assets.timing.overlaps import PathOverlap, iter_overlaps
from feed_assets.timing.tables import parse_table_address
from feed_assets.timing.templates import PathTemplate, parse_path_template


class FixedPlace(StrEnum):
    """A location without dates: an inbox, the target of a mirror, or the root of a cluster's storage."""

    INBOX = "inbox"
    MIRROR = "mirror"
    STORAGE = "storage"


LocationKey: TypeAlias = tuple[str, str, LocationKind | FixedPlace | None]
"""(feed, cluster, kind of location); None is the archive. The first is the process of a mirror, or again the cluster of
a storage.
"""

_CLUSTER_VARIABLE = "${cluster."
_METASTORE_PORT = ":9083"


@dataclass(frozen=True, slots=True)
class Overlaps:
    """The overlapping locations, each with the other location as a clause for a message."""

    reasons: Mapping[LocationKey, str]

    def find(self, name: str, cluster: str, kind: LocationKind | FixedPlace | None) -> str | None:
        """Return how a location overlaps another; None if it does not. See `LocationKey`."""
        return self.reasons.get((name, cluster, kind))


NO_OVERLAPS = Overlaps({})


def find_overlaps(
    bundle: Bundle,
    cluster: str | None = None,
    *,
    left_out: Sequence[AnyEntity] = (),
    places: Places | None = None,
) -> Overlaps:
    """Compare the locations of all feeds, or of the feeds on one cluster, with one another and with fixed places.

    `left_out` are further entities, which are protected, too. Refused templates are not compared. `places` are those
    of this machine at present.
    """
    found = list(iter_locations(bundle, cluster, left_out=left_out, places=places))
    return describe_overlaps([key for key, _ in found], iter_overlaps([text for _, text in found]))


def describe_overlaps(
    places: Sequence[LocationKey], found: Iterable[PathOverlap], describe: Callable[[LocationKey], str] | None = None
) -> Overlaps:
    """Describe overlaps of locations, which are numbered by their position in `places`.

    `describe` returns the name of another entity's location; by default it is that of `describe_location`.

    Locations inside the data of their own feed are removed with the data. Other overlaps are reported for both feeds.
    """
    reasons: dict[LocationKey, str] = {}
    for overlap in sorted(found, key=lambda overlap: places[overlap.outer][2] is not LocationKind.DATA):
        _add_reasons(reasons, overlap, places[overlap.outer], places[overlap.inner], describe or describe_location)
    return Overlaps(reasons)


def iter_locations(
    bundle: Bundle, only: str | None = None, *, left_out: Sequence[AnyEntity] = (), places: Places | None = None
) -> Iterator[tuple[LocationKey, str]]:
    """Yield the locations and inboxes of all feeds, the targets of mirrors and the roots of storages, or those on one
    cluster.

    Entities `left_out` of the bundle count like the others. Each location comes as a canonical URL, with its variables.
    """
    entities, places = (*bundle.entities, *left_out), places or Places()
    clusters: dict[str, list[Cluster]] = defaultdict(list)
    for entity in entities:
        if isinstance(entity, Cluster) and only in (None, entity.name):
            clusters[entity.name].append(entity)
            yield (entity.name, entity.name, FixedPlace.STORAGE), places.canonical(entity.storage)
    for entity in entities:
        if isinstance(entity, Feed):
            for name in entity.clusters:
                for cluster in clusters.get(name, ()):
                    for kind, found in _iter_on(entity, cluster, places):
                        yield (entity.name, name, kind), found
                    if entity.inbox is not None and (path := _find_path(cluster, entity.inbox.directory)) is not None:
                        yield (entity.name, name, FixedPlace.INBOX), places.canonical(path)
        elif isinstance(entity, Process):
            for place in iter_mirror_locations(lambda name: next(iter(clusters.get(name, ())), None), entity):
                if place.is_target and place.url is not None:
                    yield (entity.name, place.own, FixedPlace.MIRROR), places.canonical(place.url)


def _iter_on(feed: Feed, cluster: Cluster, places: Places) -> Iterator[tuple[LocationKind | None, str]]:
    for kind, text in _iter_texts(feed, cluster.name):
        found = _find_path(cluster, text)
        if found is not None:
            yield kind, places.canonical(found)
    table = feed.table_on(cluster.name)
    if table is not None:
        for found in _iter_partitions(cluster, table):
            yield LocationKind.DATA, found


def _iter_texts(feed: Feed, cluster: str) -> Iterator[tuple[LocationKind | None, str]]:
    locations, retention = feed.locations_on(cluster), feed.clusters[cluster].retention
    for kind in LocationKind if locations else ():
        if locations is not None and (text := locations.find(kind)) is not None:
            yield kind, text
    if retention is not None and retention.archive_to is not None:
        yield None, retention.archive_to


def _find_path(cluster: Cluster, text: str) -> str | None:
    try:
        path = _for_cluster(cluster, text)
    except TemplateError:
        return None
    return path if "://" in path else f"{cluster.storage}/{path}"


def _for_cluster(cluster: Cluster, text: str) -> str:
    template = parse_path_template(text)
    if _CLUSTER_VARIABLE not in text:
        return text
    return template.with_cluster(name=cluster.name, colo=cluster.colo, properties=cluster.properties).text


def _iter_partitions(cluster: Cluster, text: str) -> Iterator[str]:
    """Yield the partition of a table by each of its metastores.

    Its keys are sorted by name, because their order does not distinguish tables.
    """
    try:
        address = parse_table_address(text)
        keys = "/".join(f"{key.lower()}={value.text}" for key, value in sorted(address.partition, key=_key_of))
        partition = _for_cluster(cluster, keys)
    except (TableAddressError, TemplateError):
        return
    for host in cluster.metastores or ("",):
        yield f"thrift://{host.removesuffix(_METASTORE_PORT)}/{address.name}/".lower() + partition


def _key_of(item: tuple[str, PathTemplate]) -> str:
    return item[0].lower()


def _add_reasons(
    reasons: dict[LocationKey, str],
    overlap: PathOverlap,
    outer: LocationKey,
    inner: LocationKey,
    describe: Callable[[LocationKey], str],
) -> None:
    at = "at" if overlap.is_same_place else "inside"
    if outer[2] is inner[2] is FixedPlace.INBOX:  # several may have one directory, or one below another
        return
    if outer[:2] != inner[:2] or isinstance(inner[2], FixedPlace):
        other = describe(inner)
        reasons.setdefault(inner, f"it is {at} {describe(outer)}")
        reasons.setdefault(outer, f"it is at {other}" if overlap.is_same_place else f"{other} is inside it")
    elif None in (outer[2], inner[2]):
        reasons.setdefault(inner, f"it is {at} the {outer[2] or 'archive'} of the feed")
        reasons.setdefault(outer, f"the {inner[2] or 'archive'} of the feed is {at} it")
    elif outer[2] is LocationKind.DATA:
        reasons.setdefault(inner, f"it is {at} the data of the feed, and is removed with them")
    elif not overlap.is_same_place:
        reasons.setdefault(outer, f"the {inner[2]} of the feed is inside it")
    elif inner[2] is not LocationKind.DATA and overlap.outer > overlap.inner:
        reasons.setdefault(outer, f"it is at the {inner[2]} of the feed, and is removed with it")


def describe_location(place: LocationKey) -> str:
    """Return the name of a location in messages."""
    name, cluster, kind = place
    match kind:
        case FixedPlace.INBOX:
            return f"the inbox of feed {name!r} on {cluster}"
        case FixedPlace.STORAGE:
            return f"the storage of cluster {name!r}"
        case FixedPlace.MIRROR:
            return f"the target of mirror {name!r} on {cluster}"
        case _:
            return f"the {kind or 'archive'} of feed {name!r} on {cluster}"


_REFUSED = re.compile(r"(?:^|/)(\.\.?|\.feed-assets)(?:/|$)")  # "a/../b", "./a"


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorLocation:
    """One side of the directory at `position` of a mirror: its `url`, or the `fault` because of which it has none.

    `own` is the cluster of the process, `cluster` that of the side; `text` is the directory as declared at `path`.
    """

    process: str
    own: str
    cluster: str
    position: int
    is_target: bool
    path: FieldPath
    text: str
    url: str | None = None
    fault: Finding | None = None


def iter_mirror_locations(find_cluster: Callable[[str], Cluster | None], process: Process) -> Iterator[MirrorLocation]:
    """Yield both sides of each directory of a mirror, on each cluster of its process; nothing for other processes.

    Sides on clusters that `find_cluster` does not find are left out.
    """
    mirror = process.workflow.mirror
    if mirror is None:
        return
    for own in process.clusters:
        of_sides = [find_cluster(name) for name in mirror.clusters(own)]
        for position, pair in enumerate(mirror.directories()):
            is_one = mirror.source.directory is not None
            source: FieldPath = ("source", "directory") if is_one else ("source", "directories", position)
            sides: tuple[FieldPath, FieldPath] = (source, ("target", "directory"))
            for cluster, text, side in zip(of_sides, pair, sides, strict=True):
                if cluster is None:
                    continue
                url, fault = _locate(cluster, text)
                yield MirrorLocation(
                    process=process.name,
                    own=own,
                    cluster=cluster.name,
                    position=position,
                    is_target=side[0] == "target",
                    path=("workflow", "mirror", *side),
                    text=text,
                    url=url,
                    fault=fault,
                )


def _locate(cluster: Cluster, text: str) -> tuple[str | None, Finding | None]:
    """Return the URL of a directory, or why it cannot be located."""
    try:
        template = parse_path_template(text).with_cluster(
            name=cluster.name, colo=cluster.colo, properties=cluster.properties
        )
    except TemplateError as exc:
        return None, split_error(exc)
    fault = _find_fault(cluster, template)
    return (None, fault) if fault else (url_of(cluster.storage, template.text), None)


def _find_fault(cluster: Cluster, template: PathTemplate) -> Finding | None:
    scheme, found, rest = template.text.partition("://")
    path = rest.partition("/")[2] if found else template.text
    if template.variables:
        remedy = "Declare a feed with replication for it."
        return Finding(message="its path has dates, so it is the location of a feed", remedy=remedy)
    if found and scheme not in STORAGE_SCHEMES:
        remedy = f"Use one of {', '.join(STORAGE_SCHEMES)}."
        return Finding(message=f"{scheme!r} storage is not supported", remedy=remedy)
    if (refused := _REFUSED.search(path)) is not None:
        return Finding(message=f"its path contains {refused[1]!r}", remedy="Write the path of a directory in full.")
    if not path.strip("/") or template.text.rstrip("/") == cluster.storage.rstrip("/"):
        return Finding(message="it is the root of a storage", remedy="Name a directory below it.")
    return None
