"""From a path to the feeds that it belongs to: every template under the folder above its first variable."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from feed_assets.entities.bundle import Bundle
from feed_assets.entities.feed import Feed
from feed_assets.timing.dates import render_datetime
from feed_assets.timing.errors import TemplateError
from feed_assets.timing.sequence import InstanceSequence
from feed_assets.timing.templates import PathTemplate, parse_path_template


class LocationType(StrEnum):
    """The locations that a feed may have."""

    DATA = "data"
    STATS = "stats"
    META = "meta"
    TMP = "tmp"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFeed:
    """A feed whose location on a cluster a path is; `nominal_time` is of the instance, None outside the validity."""

    feed: str
    cluster: str
    type: LocationType
    nominal_time: datetime | None

    def to_json(self) -> dict[str, object]:
        """The JSON form."""
        instance = None if self.nominal_time is None else render_datetime(self.nominal_time)
        return {"feed": self.feed, "cluster": self.cluster, "type": self.type.value, "instance": instance}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    feed: str
    cluster: str
    type: LocationType
    template: PathTemplate
    sequence: InstanceSequence


class FeedLookup:
    """The locations of all feeds, by the folder above the first variable: a look-up costs what the path is long.

    A path is looked up as it stands below the cluster's storage, as a URL, or as the path of that URL. It must be the
    whole path of one instance, for a date that exists: neither a folder above it nor a file in it is one.
    """

    def __init__(self, bundle: Bundle) -> None:
        self._by_base: dict[str, list[_Place]] = defaultdict(list)
        for feed in bundle.feeds:
            for place in _iter_places(bundle, feed):
                self._by_base[place.template.base.rstrip("/")].append(place)

    def find(self, path: str) -> tuple[FoundFeed, ...]:
        """The feeds, clusters and location types that `path` belongs to, by name; a slash at its end is ignored."""
        wanted = path.rstrip("/")
        found = {
            (place.feed, place.cluster, place.type): place.template.find_instance(wanted, place.sequence)
            for base in _bases(wanted)
            for place in self._by_base.get(base, ())
            if place.template.matches(wanted)
        }
        return tuple(
            FoundFeed(feed=feed, cluster=cluster, type=kind, nominal_time=found[feed, cluster, kind])
            for feed, cluster, kind in sorted(found)
        )


def _bases(path: str) -> Iterator[str]:
    """The path and every folder above it, the root as nothing."""
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
                continue  # validation tells of it
            for form in _forms(template.text, cluster.storage):
                yield _Place(
                    feed=feed.name,
                    cluster=name,
                    type=kind,
                    template=parse_path_template(form),
                    sequence=feed.sequence_on(name),
                )


def _forms(template: str, storage: str) -> set[str]:
    """The template as a URL, as the path of that URL, and as it stands below the storage."""
    url = template if "://" in template else f"{storage.rstrip('/')}/{template.lstrip('/')}"
    forms = {form.rstrip("/") for form in (template, url, _path_of(url))}
    below = url.removeprefix(storage.rstrip("/"))
    return forms | ({below.rstrip("/")} if below != url else set())


def _path_of(url: str) -> str:
    """The path of a URL.

    >>> _path_of("s3://bucket/clicks"), _path_of("file:///data/clicks")
    ('/clicks', '/data/clicks')
    """
    _, _, path = url.partition("://")[2].partition("/")
    return f"/{path}"
