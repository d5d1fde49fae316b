"""`metadata reindex`: prove that the index and the descriptions are what is stored and declared, and mend them."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import Connection

from feed_assets.catalog.describing import mend_descriptions
from feed_assets.catalog.search.tokens import index_entity
from feed_assets.catalog.store import MetadataStore
from feed_assets.context.operation import ChangeContext, note_target
from feed_assets.json_form import shown
from feed_assets.releases.timeline import is_applied
from feed_assets.sql.database import lock_definitions, lock_log

AT_ONCE = 500
"""The entities of one transaction: writers wait for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reindexed:
    """What was wrong among so many entities: words of the index that were missing or extra, rows that belong to no
    entity, and descriptions that are not what is declared; None if the declarations are not in force yet.
    """

    entities: int
    missing: int
    extra: int
    orphans: int
    descriptions: int | None
    dry_run: bool

    @shown
    def is_sound(self) -> bool:
        """Whether nothing was wrong."""
        return not (self.missing or self.extra or self.orphans or self.descriptions)

    @property
    def has_failed(self) -> bool:
        """Whether something is still wrong."""
        return self.dry_run and not self.is_sound

    @property
    def sentence(self) -> str:
        """What was wrong, and whether it is mended."""
        counts = {
            "missing in the index": self.missing,
            "too many in the index": self.extra,
            "of no entity": self.orphans,
            "wrong descriptions": self.descriptions,
        }
        faults = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
        found = f"{faults}; {'nothing was changed' if self.dry_run else 'mended'}" if faults else "nothing to mend"
        later = "" if self.descriptions is not None else "; descriptions follow when the definitions are in force"
        return f"{self.entities:,} {'entity' if self.entities == 1 else 'entities'}: {found}{later}"


def reindex(context: ChangeContext, *, progress: Callable[..., None] = lambda *_: None) -> Reindexed:
    """Compare the index and the descriptions with what is stored and declared, and mend them; with `dry_run` only the
    first. Others can write in between: each transaction has some entities.
    """
    with _transaction(context) as connection:
        descriptions = None
        if is_applied(connection, context.timeline):
            chosen = context.metadata.system
            descriptions = mend_descriptions(connection, context.plan, chosen, context.as_of, dry_run=context.dry_run)
        store = MetadataStore(connection)
        total, orphans = store.count(), store.count_orphans()
        if not context.dry_run:
            store.remove_orphans()
    missing = extra = last = done = 0
    while True:
        with _transaction(context) as connection:
            some = MetadataStore(connection).ids_after(last, AT_ONCE)
            found = mend_index(connection, some, dry_run=context.dry_run)
        missing, extra = missing + found[0], extra + found[1]
        if not some:
            break
        last, done = some[-1], done + len(some)
        progress("reindex", done, max(done, total))
    result = Reindexed(
        entities=done, missing=missing, extra=extra, orphans=orphans, descriptions=descriptions, dry_run=context.dry_run
    )
    if not context.dry_run and not result.is_sound:
        details = {"missing": missing, "extra": extra, "orphans": orphans, "descriptions": descriptions}
        note_target(context, "metadata reindex", None, **details)
    return result


@contextmanager
def _transaction(context: ChangeContext) -> Iterator[Connection]:
    if context.dry_run:
        with context.read() as connection:
            yield connection
        return
    with context.database.begin() as connection:
        lock_definitions(connection)
        lock_log(connection)
        context.timeline.refresh(connection, context.as_of)
        yield connection


def mend_index(connection: Connection, entities: Collection[int], *, dry_run: bool) -> tuple[int, int]:
    """Write the tokens of entities that are not what their metadata say; with `dry_run` nothing is written. Return how
    many words by which entities should be found are missing, and how many are there that should not be.
    """
    store = MetadataStore(connection)
    said, tokens = store.read_many(entities), store.tokens_of(entities)
    changes = [
        (number, tokens.get(number, set()), index_entity(each.path, each.kind, each.name, said.get(number, {})))
        for number, each in store.of_ids(entities).items()
    ]
    if not dry_run:
        store.write_tokens(changes)
    missing = sum(len(after - before) for _, before, after in changes)
    extra = sum(len(before - after) for _, before, after in changes)
    return missing, extra
