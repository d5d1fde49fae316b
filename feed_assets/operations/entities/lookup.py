"""Finds the feeds to which a path belongs. Templates are indexed by the folder above their first variable."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from feed_assets.entities.bundle import Bundle
from feed_assets.entities.feed import Feed
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
class _Place:
    feed: str
    cluster: str
    type: LocationType
    template: PathTemplate
    sequence: InstanceSequence


class FeedLookup:
    """The locations of all feeds, indexed by the folder above the first variable, so that the cost of a look-up depends
    on the length of the path only.

    A path may be relative to the cluster's storage, a URL, or the path of that URL. It must be the complete path of one
    instance, for an existing date; folders above and files inside do not match.
    """

    def __init__(self, bundle: Bundle) -> None:
        self._by_base: dict[str, list[_Place]] = defaultdict(list)
        for feed in bundle.feeds:
            for place in _iter_places(bundle, feed):
                self._by_base[place.template.base.rstrip("/")].append(place)

    def find(self, path: str) -> tuple[FoundFeed, ...]:
        """Return the feeds, clusters and location types of `path`, by name. A trailing slash is ignored."""
        instance_path = path.rstrip("/")
        found = {
            (place.feed, place.cluster, place.type): place.template.find_instance(instance_path, place.sequence)
            for base in _bases(instance_path)
            for place in self._by_base.get(base, ())
            if place.template.matches(instance_path)
        }
        return tuple(
            FoundFeed(feed=feed, cluster=cluster, type=kind, nominal_time=found[feed, cluster, kind])
            for feed, cluster, kind in sorted(found)
        )


def _bases(path: str) -> Iterator[str]:
    """Yield the path and every folder above it; the root is the empty text."""
    end = len(path)
    while end > 0:
        yield path[:end]
        end = path.rfind("/", 0, end)
    yield ""


def _iter_places(bundle: Bundle, feed: Feed) -> Iterator[_Place]:
    for name in feed.clusters:
        cluster, locations = bundle.find_cluster(name), feed.locations_on(name)
        if cluster is None or locations is None:
            continue
        for kind in LocationType:
            text = getattr(locations, kind.value)
            if text is None:
                continue
            try:
                template = parse_path_template(text).with_cluster(
                    name=cluster.name, colo=cluster.colo, properties=dict(cluster.properties)
                )
            except TemplateError:
                continue  # validation reports it
            for form in _forms(template.text, cluster.storage):
                yield _Place(
                    feed=feed.name,
                    cluster=name,
                    type=kind,
                    template=parse_path_template(form),
                    sequence=feed.sequence_on(name),
                )


def _forms(template: str, storage: str) -> set[str]:
    """Return the template as a URL, as the path of that URL, and relative to the storage."""
    url = template if "://" in template else f"{storage.rstrip('/')}/{template.lstrip('/')}"
    forms = {form.rstrip("/") for form in (template, url, _path_of(url))}
    below = url.removeprefix(storage.rstrip("/"))
    return forms | ({below.rstrip("/")} if below != url else set())


def _path_of(url: str) -> str:
    """Return the path of a URL.

    >>> _path_of("s3://bucket/clicks"), _path_of("file:///data/clicks")
    ('/clicks', '/data/clicks')
    """
    _, _, path = url.partition("://")[2].partition("/")
    return f"/{path}"
