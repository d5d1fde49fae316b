"""Which places of feeds meet, so that removing what lies in one would remove what lies in another."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from feed_assets.entities.bundle import Bundle
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.common import LocationKind
from feed_assets.entities.feed import Feed
from feed_assets.timing.errors import TableAddressError, TemplateError
from feed_assets.timing.overlaps import Meeting, iter_meetings
from feed_assets.timing.tables import parse_table_address
from feed_assets.timing.templates import PathTemplate, parse_path_template

Place: TypeAlias = tuple[str, str, LocationKind | None]
"""(feed, cluster, what lies there); None is the archive."""

_CLUSTER_VARIABLE = "${cluster."


@dataclass(frozen=True, slots=True)
class Overlaps:
    """For each place that meets another, where the other is, as a clause for a message."""

    reasons: Mapping[Place, str]

    def find(self, feed: str, cluster: str, kind: LocationKind | None) -> str | None:
        """How a place meets another; None where it does not."""
        return self.reasons.get((feed, cluster, kind))


def find_overlaps(bundle: Bundle, cluster: str | None = None) -> Overlaps:
    """Compare the places of all feeds, or of those on one cluster; one whose template is refused is left out.

    What stands inside the data of its own feed goes with them. Of other meetings each feed is told.
    """
    places = list(iter_places(bundle, cluster))
    reasons: dict[Place, str] = {}
    meetings = list(iter_meetings([text for _, text in places]))
    meetings.sort(key=lambda meeting: places[meeting.outer][0][2] is not LocationKind.DATA)
    for meeting in meetings:
        _note(reasons, meeting, places[meeting.outer][0], places[meeting.inner][0])
    return Overlaps(reasons)


def iter_places(bundle: Bundle, only: str | None = None) -> Iterator[tuple[Place, str]]:
    """The places of all feeds, or of those on one cluster, each with its template as a URL or an absolute path."""
    for feed in bundle.feeds:
        for name in feed.clusters:
            cluster = bundle.find_cluster(name)
            if cluster is None or only not in (None, name):
                continue
            for kind, text in _iter_texts(feed, name):
                found = _find_path(cluster, text)
                if found is not None:
                    yield (feed.name, name, kind), found
            if (table := feed.table_on(name)) is not None and (found := _find_partition(cluster, table)) is not None:
                yield (feed.name, name, LocationKind.DATA), found


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


def _find_partition(cluster: Cluster, text: str) -> str | None:
    """The partition of a table, its keys in the order of their names: a table is one, whatever order they stand in."""
    try:
        address = parse_table_address(text)
        keys = "/".join(f"{key.lower()}={value.text}" for key, value in sorted(address.partition, key=_key_of))
        partition = _for_cluster(cluster, keys)
    except (TableAddressError, TemplateError):
        return None
    return f"thrift://{','.join(cluster.metastores)}/{address.name}/".lower() + partition


def _key_of(item: tuple[str, PathTemplate]) -> str:
    return item[0].lower()


def _note(reasons: dict[Place, str], meeting: Meeting, outer: Place, inner: Place) -> None:
    at = "at" if meeting.is_same_place else "inside of"
    if outer[:2] != inner[:2]:
        reasons.setdefault(inner, f"it lies {at} {name_place(outer)}")
        other = (
            f"it lies at {name_place(inner)}"
            if meeting.is_same_place
            else f"{name_place(inner)} lies inside of its place"
        )
        reasons.setdefault(outer, other)
    elif None in (outer[2], inner[2]):
        reasons.setdefault(inner, f"it lies {at} the {outer[2] or 'archive'} of the feed")
        reasons.setdefault(outer, f"the {inner[2] or 'archive'} of the feed lies {at} its place")
    elif outer[2] is LocationKind.DATA:
        reasons.setdefault(inner, f"it lies {at} the data of the feed, and goes with them")
    elif not meeting.is_same_place:
        reasons.setdefault(outer, f"the {inner[2]} of the feed lies inside of its place")
    elif inner[2] is not LocationKind.DATA and meeting.outer > meeting.inner:
        reasons.setdefault(outer, f"it lies at the {inner[2]} of the feed, and goes with it")


def name_place(place: Place) -> str:
    """A place for messages."""
    feed, cluster, kind = place
    return f"the {kind or 'archive'} of feed {feed!r} on {cluster}"
