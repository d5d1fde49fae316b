"""Prove and mend the index for searches: it must be what the metadata of each entity say."""

from collections.abc import Collection
from typing import NamedTuple

from sqlalchemy import Connection

from feed_assets.lifecycle.metadata.tokens import index_entity
from feed_assets.state.metadata_store import MetadataStore


class IndexFaults(NamedTuple):
    """The words by which entities should be found and are not, and those by which they are found and should not be."""

    missing: int = 0
    extra: int = 0


def mend_index(connection: Connection, entities: Collection[int], *, dry_run: bool) -> IndexFaults:
    """Write the tokens of entities that are not what their metadata say; with `dry_run` nothing is written."""
    store = MetadataStore(connection)
    said, tokens = store.read_many(entities), store.tokens_of(entities)
    changes = [
        (number, tokens.get(number, set()), index_entity(each.path, each.kind, each.name, said.get(number, {})))
        for number, each in store.of_ids(entities).items()
    ]
    if not dry_run:
        store.write_tokens(changes)
    return IndexFaults(
        missing=sum(len(after - before) for _, before, after in changes),
        extra=sum(len(before - after) for _, before, after in changes),
    )
