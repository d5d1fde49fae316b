"""Take what is said of entities to a document, and bring the mutations of a document to entities."""

from bisect import bisect_left
from collections.abc import Collection
from typing import Any

from feed_assets.catalog.documents import parse_document, render_said
from feed_assets.catalog.editing import MetadataResult, mutate
from feed_assets.catalog.store import MetadataStore
from feed_assets.catalog.targets import find_target
from feed_assets.context.operation import OperationContext
from feed_assets.entities.errors import MetadataRefusedError
from feed_assets.entities.metadata import Mutation
from feed_assets.errors import FeedAssetsError


def export_metadata(
    context: OperationContext, path: str | None = None, kinds: Collection[str] = ()
) -> list[dict[str, Any]]:
    """Return what is said in the scope USER of an entity and what is below it, or of all entities, as the mutations of
    a document; only of entities of some kinds, if they are given.

    Raises:
        MetadataRefusedError: this is no path of an entity.
        EntityNotFoundError: it does not exist.
    """
    with context.read() as connection:
        store = MetadataStore(connection)
        if path is None:
            entities = store.all(kinds)
        else:
            below = store.below(find_target(context.plan, connection, path).path)
            entities = [each for each in below if not kinds or each.kind in kinds]
        said = store.read_many([each.id for each in entities])
    rendered = {each.path: render_said(said.get(each.id, {})) for each in entities}
    return [{"entity": path, "update": update} for path, update in rendered.items() if update]


def import_metadata(
    context: OperationContext, name: str, text: str | bytes, *, author: str, dry_run: bool = False
) -> tuple[MetadataResult, ...]:
    """Apply the mutations of a document, all of them or none; `name` is that of its file.

    Mutations of one entity become one change, in their order. A document that is imported again changes nothing.

    Raises:
        MetadataRefusedError: it is no document, or one of the mutations is refused, or its entity does not exist.
    """
    documents = parse_document(name, text).mutations

    def apply(number: int, *, dry_run: bool) -> tuple[MetadataResult, ...]:
        mutations: dict[str, list[Mutation]] = {}
        for each in documents[:number]:
            mutations.setdefault(each.entity.strip("/"), []).extend(each.mutations(author))
        return mutate(context, mutations, author, dry_run=dry_run)

    def find_refusal(number: int) -> FeedAssetsError | None:
        try:
            apply(number, dry_run=True)
        except FeedAssetsError as exc:
            return exc
        return None

    try:
        return apply(len(documents), dry_run=dry_run)
    except FeedAssetsError as exc:
        numbers = range(1, len(documents))
        first = bisect_left(numbers, True, key=lambda number: find_refusal(number) is not None)
        refusal = exc if first == len(numbers) else find_refusal(first + 1) or exc
        reason, _, next_step = str(refusal).partition(". ")
        raise MetadataRefusedError(entity=f"{name}: mutations[{first}]", reason=reason, next_step=next_step) from exc
