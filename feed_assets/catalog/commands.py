"""What can be asked and said of entities, and how they are found by it."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, BinaryIO

from feed_assets.catalog.search.records import OnlyScope, PropertyName, PropertyValues, SearchQuery
from feed_assets.entities.metadata import MetadataKind, Origin, Scope
from feed_assets.errors import WrongUsageError
from feed_assets.operation import WORKS_LONG, Does, Param, later, operation
from feed_assets.pages import Page

if TYPE_CHECKING:
    from feed_assets.catalog import documents, editing, reindexing
    from feed_assets.catalog.search import index as search_index
    from feed_assets.catalog.search import search as searching
    from feed_assets.context.operation import ChangeContext, OperationContext
    from feed_assets.sql.database import Database

later(globals())

GROUPS = {
    "metadata": "Read and change properties and tags of entities: feed/NAME, feed/NAME/column/COLUMN, run/ID, "
    "dashboard/NAME."
}
MOST_KEYS = 1000
MOST_EXAMPLES = 10

Entity = Annotated[str, Param("Its path.", argument=True, proposes="entities")]
MaybeEntity = Annotated[str | None, Param("Its path.", argument=True, proposes="entities")]
Properties = Annotated[dict[str, str], Param("The properties.", argument=True, metavar="NAME=VALUE...")]
Names = Annotated[tuple[str, ...], Param("Their names.", argument=True)]
Everything = Annotated[bool, Param("Remove all of them, but for those of declarations.", option="all")]
Kinds = Annotated[tuple[str, ...], Param("Only entities of this kind, such as column.", option="kind", metavar="KIND")]
File = Annotated[BinaryIO, Param("The document; - is standard input.", argument=True, file=True)]
AtMost = Annotated[int, Param("At most so many.", least=1)]
Namespace = Annotated[str | None, Param("Search this namespace of the same database instead of the project's own.")]


@operation(
    "metadata get",
    table="scope, kind, name, value, origin, author",
    rows="metadata",
    example="feed/flights --scope user",
)
def get_metadata(context: "OperationContext", *, entity: Entity, scope: OnlyScope = None) -> "editing.EntityMetadata":
    """Show the metadata of ENTITY, and who said it."""
    return editing.get_metadata(context, entity, scope)


@operation(
    "metadata put", does=Does.ACTS, safe=True, text="sentence", example="feed/flights owner=ann checked=2026-11-03"
)
def put_properties(context: "ChangeContext", *, entity: Entity, properties: Properties) -> "editing.MetadataResult":
    """Add properties to ENTITY, or overwrite them."""
    return editing.update_metadata(context, entity, properties, ())


@operation("metadata tag", does=Does.ACTS, safe=True, text="sentence", example="feed/flights checked public")
def add_tags(context: "ChangeContext", *, entity: Entity, tags: Names) -> "editing.MetadataResult":
    """Add TAGS to ENTITY."""
    return editing.update_metadata(context, entity, {}, tags)


@operation("metadata untag", does=Does.ACTS, safe=True, text="sentence", example="feed/flights checked")
def remove_tags(
    context: "ChangeContext", *, entity: Entity, tags: Names = (), everything: Everything = False
) -> "editing.MetadataResult":
    """Remove TAGS of ENTITY; those that are not there are not missed."""
    return _remove(context, entity, tags, MetadataKind.TAG, everything)


@operation("metadata remove", does=Does.ACTS, safe=True, text="sentence", example="feed/flights checked")
def remove_properties(
    context: "ChangeContext", *, entity: Entity, names: Names = (), everything: Everything = False
) -> "editing.MetadataResult":
    """Remove the properties NAMES of ENTITY; those that are not there are not missed."""
    return _remove(context, entity, names, MetadataKind.PROPERTY, everything)


def _remove(
    context: "ChangeContext", entity: str, names: Names, kind: MetadataKind, everything: bool
) -> "editing.MetadataResult":
    if everything is bool(names):
        raise WrongUsageError("Give names, or --all.")
    return editing.remove_metadata(context, entity, names=None if everything else names, kinds=[kind])


@operation("metadata drop", does=Does.ACTS, safe=True, text="sentence", example="dashboard/otd")
def drop_metadata(context: "ChangeContext", *, entity: Entity) -> "editing.MetadataResult":
    """Remove all that people and programs have said of ENTITY; one that is not declared is gone with it."""
    kinds = tuple(MetadataKind)
    return editing.remove_metadata(context, entity, names=None, kinds=kinds)


@operation("metadata copy", does=Does.ACTS, safe=True, text="sentence", example="feed/flights feed/flights2")
def copy_metadata(context: "ChangeContext", *, entity: Entity, to: Entity) -> "editing.MetadataResult":
    """Add what is said of ENTITY in the scope USER to TO, but for names that the declaration of TO has."""
    found, there = (editing.get_metadata(context, each, Scope.USER).metadata for each in (entity, to))
    declared = {each.key for each in there if each.said.origin is Origin.DEFINITION}
    copied = [each for each in found if each.key not in declared]
    properties = {each.key.name: each.said.value for each in copied if each.key.kind is MetadataKind.PROPERTY}
    tags = [each.key.name for each in copied if each.key.kind is MetadataKind.TAG]
    return editing.update_metadata(context, to, properties, tags)


@operation(
    "metadata history",
    none="nobody has said anything of it",
    table="number=seq, time=recorded_at, author, origin, added, removed",
    rows="changes",
    example="feed/flights --scope user",
)
def list_changes(
    context: "OperationContext", *, entity: Entity, scope: OnlyScope = None, limit: AtMost = 20
) -> "Page[editing.RecordedChange]":
    """Show the changes of the metadata of ENTITY, newest first."""
    return Page.of(editing.list_changes(context, entity, limit, scope))


@operation("metadata export", plain=True, example="feed/flights")
def export_metadata(
    context: "OperationContext", *, entity: MaybeEntity = None, kinds: Kinds = ()
) -> Mapping[str, object]:
    """Print what is said in the scope USER of ENTITY and what is below it, or of all entities, for `import`."""
    return {"mutations": documents.export_metadata(context, entity, kinds)}


@operation("metadata import", does=Does.ACTS, safe=True, rows="entities", text="sentence", example="- --dry-run")
def import_metadata(context: "ChangeContext", *, file: File) -> "Page[editing.MetadataResult]":
    """Make the changes of FILE, all of them or none; importing it again changes nothing. - is standard input."""
    return Page.of(documents.import_metadata(context, file.name, file.read()))


@operation("metadata reindex", does=Does.ADMINISTERS, safe=True, text="sentence", long=True, no_route=WORKS_LONG)
def reindex(context: "ChangeContext", *, progress: Callable[..., None]) -> "reindexing.Reindexed":
    """Prove that searches find what is said and declared, and mend what they do not.

    It is never needed: whatever writes metadata writes the index with them. With --dry-run, the exit code is 1 if
    something is wrong.
    """
    return reindexing.reindex(context, progress=progress)


@operation(
    "search",
    table="entity, terms, found in=fields, description",
    rows="results",
    spare=("description",),
    example="'owner:finance +delay*' --target feed",
)
def search(database: "Database", *, query: SearchQuery, namespace: Namespace = None) -> "searching.SearchPage":
    """Find entities by words of their names, properties, tags and columns.

    Terms are separated by blanks; more of them rank higher, and +term is required. word* is a beginning, name:word a
    word of that property (or of tags, schema, entity-name, the kind), name:* has it, name:>10 compares.
    """
    with database.beside(namespace) as found:
        return searching.search(found, query)


@operation("keys list", table="name, entities", rows="keys", example="own")
def list_keys(
    database: "Database",
    *,
    beginning: Annotated[str, Param("Their beginning.", argument=True)] = "",
    scope: OnlyScope = None,
) -> Page[PropertyName]:
    """List the names of properties that begin with BEGINNING, and how many entities have each.

    They are those that `properties:` and their beginning find; hidden entities are not counted.
    """
    with database.read() as connection:
        found = tuple(search_index.SearchIndex(connection).count_keys(beginning.strip().lower(), scope, MOST_KEYS))
    return Page(
        items=found, total=len(found), what="", none=f"no property begins with {beginning!r}" if beginning else ""
    )


@operation("keys show", table="value, entities=count, which", rows="values", example="owner")
def show_key(
    database: "Database",
    *,
    key: Annotated[str, Param("Its name.", argument=True)],
    scope: OnlyScope = None,
    limit: AtMost = 20,
) -> PropertyValues:
    """Show the values of the property KEY, how many entities have each, and which these are."""
    name = key.strip().lower()
    with database.read() as connection:
        index = search_index.SearchIndex(connection)
        values = index.values_of(name, scope, limit, MOST_EXAMPLES)
        entities, total = index.count_values(name, scope)
    return PropertyValues(name=name, entities=entities, values=values, total=total)
