"""Find what people have said of entities under names that a file takes over."""

from collections import defaultdict
from collections.abc import Collection, Iterator

from sqlalchemy import Connection

from feed_assets.entities.bundle import Bundle
from feed_assets.entities.metadata import MetadataKind, Origin
from feed_assets.entities.sayings import Saying, iter_sayings
from feed_assets.issues import EntityKey, Issue, Severity, SourceMap
from feed_assets.state.metadata_store import MetadataStore

CLAIMED = "metadata-claimed"


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
