"""What a change leaves behind or takes over: recorded instances at a former place of their feed, and what people have
said under names that a file says now.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator

from sqlalchemy import Connection

from feed_assets.entities.bundle import Bundle
from feed_assets.entities.common import Kind, label_of
from feed_assets.entities.metadata import MetadataKind, Origin
from feed_assets.entities.overlaps import NO_OVERLAPS
from feed_assets.entities.sayings import Saying, iter_sayings
from feed_assets.issues import EntityKey, Issue, Severity, SourceMap
from feed_assets.plan.compile import compile_plan
from feed_assets.plan.edges import Key
from feed_assets.plan.records import FeedRecord
from feed_assets.state.feed_places import OWN_PATHS, FeedPlaces, describe_staying
from feed_assets.state.metadata_store import MetadataStore
from feed_assets.timing.overlaps import find_nesting

FORMER_PLACE = "former-place"
CLAIMED = "metadata-claimed"


def find_staying(
    connection: Connection, before: Bundle, after: Bundle, sources: SourceMap, keys: Collection[EntityKey]
) -> Iterator[Issue]:
    """Yield a warning for each feed and former place at which recorded instances stay.

    A change of place is one of a feed's location or `path_timezone`, or of its cluster's storage. Both bundles are
    valid.
    """
    old, places = _feeds(before, keys), FeedPlaces(connection)
    for key, record in sorted(_feeds(after, keys).items()):
        if key not in old or not record.has_data or old[key].place == record.place:
            continue
        staying = Counter((there.store, there.template) for _, there in places.find_elsewhere(record))
        for (store, template), count in staying.items():
            is_shared = find_nesting(f"{store.url}/{template}", f"{record.store.url}/{record.template}") is not None
            shared = "; instances to come can have their paths, and do not arrive then" if is_shared else ""
            yield Issue(
                severity=Severity.WARNING,
                code=FORMER_PLACE,
                entity=label_of((Kind.FEED, record.feed)),
                message=f"{describe_staying(count)}: {store.url}{template} on {record.cluster}{shared}",
                remedy=OWN_PATHS if is_shared else "Runs, listings, `why` and retention find them there.",
                source=sources.locate((Kind.FEED.value, record.feed)),
            )


def _feeds(bundle: Bundle, keys: Collection[EntityKey]) -> dict[Key, FeedRecord]:
    """Return those of the feeds that are among `keys`, or whose cluster is."""
    changed = {name for kind, name in keys if kind == Kind.CLUSTER}
    feeds = [each for each in bundle.feeds if each.key in keys or changed.intersection(each.clusters)]
    return dict(compile_plan(Bundle(entities=(*bundle.clusters, *feeds)), overlaps=NO_OVERLAPS).feeds)


def find_claimed_metadata(
    connection: Connection, after: Bundle, sources: SourceMap, keys: Collection[EntityKey]
) -> Iterator[Issue]:
    """Yield a warning for each property or tag that somebody has written, and the file of one of `keys` says now.

    Costs two statements for each entity whose file says anything.
    """
    store = MetadataStore(connection)
    for key in sorted(keys):
        entity, own = after.find(key), "/".join(key)
        said: dict[str, list[Saying]] = defaultdict(list)
        for each in iter_sayings(entity) if entity is not None else ():
            said[own if each.column is None else f"{own}/column/{each.column}"].append(each)
        if entity is None or not said:
            continue
        described = {each.path: each.id for each in store.below(own) if each.path in said}
        known = store.read_many(list(described.values()))
        for path, number in described.items():
            for each in said[path]:
                before = known.get(number, {}).get(each.key)
                if before is None or before.origin is Origin.DEFINITION:
                    continue
                is_tag = each.key.kind is MetadataKind.TAG
                was = "" if is_tag else f" was {before.value!r},"
                yield Issue(
                    severity=Severity.WARNING,
                    code=CLAIMED,
                    entity=entity.label,
                    message=f"{each.key.kind.value} {each.key.name!r}{was} of {before.author}; the file says it now",
                    remedy="Remove it from the file to leave it to people.",
                    source=sources.locate(key, each.place),
                )
