"""Finds the feeds to which a path belongs. Templates are indexed by the folder above their first variable."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from feed_assets.entities.bundle import Bundle
from feed_assets.entities.copies.mirror import url_of
from feed_assets.entities.feed import Feed
from feed_assets.entities.locations.overlaps import Places
from feed_assets.json_form import NominalTime
from feed_assets.timing.errors import TemplateError
from feed_assets.timing.sequence import InstanceSequence
from feed_assets.timing.templates import PathTemplate, parse_path_template


class LocationType(StrEnum):
    """The types of locations that a feed may have."""

    DATA = "data"
    STATS = "stats"
    META = "meta"
    TMP = "tmp"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFeed:
    """A feed with the location that a path matches; `nominal_time` is None outside the validity."""

    feed: str
    cluster: str
    type: LocationType
    nominal_time: NominalTime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFeeds:
    """The feeds of a path."""

    feeds: tuple[FoundFeed, ...]

    @property
    def summary(self) -> str:
        """What is said if there are none."""
        return "" if self.feeds else "No feed has this path."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Location:
    """A location; `below` is its template without the folder above the first variable."""

    feed: str
    cluster: str
    type: LocationType
    below: PathTemplate
    sequence: InstanceSequence


class FeedLookup:
    """The locations of all feeds, indexed by the folder above the first variable, so that the cost of a look-up depends
    on the length of the path and the number of storages only.

    A path may be relative to the cluster's storage, a URL, or the path of that URL, however it is written and whatever
    links it follows. It must be the complete path of one instance, for an existing date; folders above and files inside
    do not match.
    """

    def __init__(self, bundle: Bundle) -> None:
        self._places = Places()
        self._by_base: dict[str, list[_Location]] = defaultdict(list)
        self._roots = dict.fromkeys(["file://", *(cluster.storage for cluster in bundle.clusters)])
        for feed in bundle.feeds:
            for url, location in _iter_locations(bundle, feed, self._places):
                self._by_base[url].append(location)
                scheme, _, rest = url.partition("://")
                self._roots[f"{scheme}://{rest.partition('/')[0]}"] = None

    def find(self, path: str) -> tuple[FoundFeed, ...]:
        """Return the feeds, clusters and location types of `path`, by name. A trailing slash is ignored."""
        urls = [path] if "://" in path else [f"{root}{path}" for root in self._roots if path.startswith("/")]
        found = {
            (location.feed, location.cluster, location.type): location.below.find_instance(below, location.sequence)
            for url in urls
            for base, below in _iter_splits(url)
            for location in self._by_base.get(self._places.canonical(base), ())
            if location.below.matches(below)
        }
        return tuple(
            FoundFeed(feed=feed, cluster=cluster, type=kind, nominal_time=found[feed, cluster, kind])
            for feed, cluster, kind in sorted(found)
        )


def _iter_splits(url: str) -> Iterator[tuple[str, str]]:
    """Yield each folder above an instance, with the rest of the path.

    >>> list(_iter_splits("s3://bucket/clicks/"))
    [('s3://bucket/', '/clicks'), ('s3://bucket/clicks', '')]
    """
    scheme, _, rest = url.partition("://")
    host, _, path = rest.partition("/")
    segments = [segment for segment in path.split("/") if segment not in ("", ".")]
    for number in range(len(segments) + 1):
        below = "".join(f"/{segment}" for segment in segments[number:])
        yield f"{scheme}://{host}/{'/'.join(segments[:number])}", below


def _iter_locations(bundle: Bundle, feed: Feed, places: Places) -> Iterator[tuple[str, _Location]]:
    """Yield the locations of a feed, each with the canonical URL of the folder above its first variable."""
    for name in feed.clusters:
        cluster, locations = bundle.find_cluster(name), feed.locations_on(name)
        if cluster is None or locations is None:
            continue
        for kind in LocationType:
            text = getattr(locations, kind.value)
            if text is None:
                continue
            try:
                template = cluster.fill(parse_path_template(text))
            except TemplateError:
                continue  # validation reports it
            whole = parse_path_template(places.canonical(url_of(cluster.storage, template.text)))
            location = _Location(
                feed=feed.name,
                cluster=name,
                type=kind,
                below=parse_path_template(whole.text.removeprefix(whole.base)).in_zone(feed.path_zone),
                sequence=feed.sequence_on(name),
            )
            yield places.canonical(whole.base), location
