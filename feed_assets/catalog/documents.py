"""Documents of metadata in JSON: mutations of several entities, as `export` writes and `import` reads them.

Properties and tags are texts. One that a program or a declaration has said is an object that names its origin.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from feed_assets.access.rights import require_acts
from feed_assets.access.table import keys_at
from feed_assets.catalog.editing import MetadataResult, mutate
from feed_assets.catalog.store import MetadataStore
from feed_assets.catalog.targets import find_target
from feed_assets.context.operation import ChangeContext, OperationContext
from feed_assets.entities.errors import MetadataRefusedError
from feed_assets.entities.metadata import (
    Create,
    Directive,
    Metadata,
    MetadataKey,
    MetadataKind,
    MetadataValue,
    Mutation,
    Origin,
    Remove,
    Scope,
    Update,
)
from feed_assets.errors import FeedAssetsError
from feed_assets.json_form import parse_json
from feed_assets.loading.messages import render_path

EXAMPLE = '{"mutations": [{"entity": "feed/NAME", "update": {"properties": {"steward": "ann"}, "tags": ["checked"]}}]}'

_ALL = "*"
_MAY_BE_REMOVED = (Origin.PERSON, Origin.PROGRAM)
_WORDS = {
    "extra_forbidden": "there is no such key",
    "missing": "it is missing",
    "string_type": "it is not text",
    "model_type": "it is neither text nor an object",
    "model_attributes_type": "it is neither text nor an object",
    "dict_type": "it is not an object",
    "tuple_type": "it is not a list",
    "bool_type": "it is not true",
    "literal_error": "it is not a version that this program reads",
    "enum": "it is not one of person, program and definition",
}


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def _require_user(origin: Origin) -> Origin:
    if origin is Origin.SYSTEM:
        raise ValueError("what this program says is not imported")
    return origin


_UserOrigin: TypeAlias = Annotated[Origin, Field(strict=False), AfterValidator(_require_user)]


class SaidValue(_Part):
    """The value of a property, and who said it."""

    value: str
    origin: _UserOrigin = Origin.PERSON

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, said: object) -> object:
        return {"value": said} if isinstance(said, str) else said


class SaidTag(_Part):
    """A tag, and who said it."""

    name: str
    origin: _UserOrigin = Origin.PERSON

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, said: object) -> object:
        return {"name": said} if isinstance(said, str) else said


class Said(_Part):
    """Properties and tags."""

    properties: dict[str, SaidValue] = Field(default_factory=dict)
    tags: tuple[SaidTag, ...] = Field(default=(), strict=False)

    def values(self, author: str) -> Metadata:
        """Return the metadata, without those that declarations say: they come with the files."""
        found = {
            MetadataKey(Scope.USER, MetadataKind.PROPERTY, name): MetadataValue(said.value, said.origin, author)
            for name, said in self.properties.items()
        }
        found |= {
            MetadataKey(Scope.USER, MetadataKind.TAG, said.name): MetadataValue("", said.origin, author)
            for said in self.tags
        }
        return {key: value for key, value in found.items() if value.origin is not Origin.DEFINITION}


Names: TypeAlias = tuple[str, ...] | Literal["*"]


class Chosen(_Part):
    """Names of properties and tags; `*` are all of them."""

    properties: Names = ()
    tags: Names = ()

    @field_validator("properties", "tags", mode="before")
    @classmethod
    def _are_names(cls, names: object) -> object:
        if names != _ALL and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
            raise ValueError("it is neither a list of names nor *")
        return tuple(names) if isinstance(names, list) else names

    def named(self) -> Iterator[MetadataKey]:
        """Yield the keys that are named."""
        for kind, names in ((MetadataKind.PROPERTY, self.properties), (MetadataKind.TAG, self.tags)):
            yield from (MetadataKey(Scope.USER, kind, name) for name in names if names != _ALL)

    def removals(self) -> Iterator[Remove]:
        """Yield their removal."""
        yield Remove(list(self.named()))
        for kind, names in ((MetadataKind.PROPERTY, self.properties), (MetadataKind.TAG, self.tags)):
            if names == _ALL:
                yield Remove(scopes=[Scope.USER], kinds=[kind], origins=_MAY_BE_REMOVED)


class MutationDocument(_Part):
    """One change of an entity: an `update`; a `create`, which replaces what people and programs have said but for what
    `keep` and `preserve` name; a `remove`; or a `drop` of everything.
    """

    entity: str
    update: Said | None = None
    create: Said | None = None
    keep: Chosen | None = None
    preserve: Chosen | None = None
    remove: Chosen | None = None
    drop: bool = False

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        given = [self.update, self.create, self.remove, self.drop or None]
        if sum(each is not None for each in given) != 1:
            raise ValueError("it has not one of update, create, remove and drop")
        said = self.update or self.create
        if said is not None and not (said.properties or said.tags):
            raise ValueError("it says neither properties nor tags")
        if self.create is None and (self.keep is not None or self.preserve is not None):
            raise ValueError("keep and preserve belong to a create")
        if any(_ALL in (each.properties, each.tags) for each in (self.keep, self.preserve) if each is not None):
            raise ValueError("keep and preserve have names, not *")
        return self

    def mutations(self, author: str) -> Iterator[Mutation]:
        """Yield the mutations that it stands for."""
        if self.update is not None:
            yield Update(self.update.values(author))
        if self.create is not None:
            directives = dict.fromkeys(self.keep.named() if self.keep else (), Directive.KEEP)
            directives |= dict.fromkeys(self.preserve.named() if self.preserve else (), Directive.PRESERVE)
            yield Create(self.create.values(author), directives, _MAY_BE_REMOVED)
        if self.remove is not None:
            yield from self.remove.removals()
        if self.drop:
            yield Remove(scopes=[Scope.USER], origins=_MAY_BE_REMOVED)


class MetadataDocument(_Part):
    """Mutations of several entities, one after the other."""

    version: Literal[2] = 2
    mutations: tuple[MutationDocument, ...] = Field(strict=False)


def parse_document(name: str, text: str | bytes) -> MetadataDocument:
    """Parse a document; `name` is that of its file, for messages.

    Raises:
        MetadataRefusedError: it is no such document.
    """
    next_step = f"Write it like {EXAMPLE}."
    try:
        content = parse_json(text)
    except ValueError as exc:
        raise MetadataRefusedError(entity=name, reason=f"it is not JSON: {exc}", next_step=next_step) from exc
    try:
        return MetadataDocument.model_validate(content)
    except ValidationError as exc:
        details = exc.errors(include_url=False)[0]
        where = render_path(details["loc"])
        cause = details.get("ctx", {}).get("error")
        reason = str(cause) if cause is not None else _WORDS.get(details["type"], "it does not fit")
        raise MetadataRefusedError(
            entity=f"{name}: {where}" if where else name, reason=reason, next_step=next_step
        ) from exc


def render_said(metadata: Metadata) -> dict[str, Any]:
    """Return what is said in the scope USER, in the form of a document."""
    of_users = {key: value for key, value in sorted(metadata.items()) if key.scope is Scope.USER}
    properties = {
        key.name: value.value if value.origin is Origin.PERSON else {"value": value.value, "origin": value.origin.value}
        for key, value in of_users.items()
        if key.kind is MetadataKind.PROPERTY
    }
    tags = [
        key.name if value.origin is Origin.PERSON else {"name": key.name, "origin": value.origin.value}
        for key, value in of_users.items()
        if key.kind is MetadataKind.TAG
    ]
    parts: Mapping[str, Any] = {"properties": properties, "tags": tags}
    return {name: part for name, part in parts.items() if part}


def export_metadata(
    context: OperationContext, path: str | None = None, kinds: Collection[str] = ()
) -> list[dict[str, Any]]:
    """Return what is said in the scope USER of an entity and what is below it, or of all entities, as the mutations of
    a document; only of entities of some kinds, if they are given.

    Raises:
        MetadataRefusedError: this is no path of an entity, or nothing has one of the kinds.
        EntityNotFoundError: it does not exist.
    """
    with context.read() as connection:
        store = MetadataStore(connection)
        kinds = store.require_kinds(kinds)
        if path is None:
            entities = store.all(kinds)
        else:
            below = store.below(find_target(context.plan, connection, path).path)
            entities = [each for each in below if not kinds or each.kind in kinds]
        said = store.read_many([each.id for each in entities])
    rendered = {each.path: render_said(said.get(each.id, {})) for each in entities}
    return [{"entity": path, "update": update} for path, update in rendered.items() if update]


def import_metadata(context: ChangeContext, name: str, text: str | bytes) -> tuple[MetadataResult, ...]:
    """Apply the mutations of a document, all of them or none; `name` is that of its file.

    Mutations of one entity become one change, in their order. A document that is imported again changes nothing.

    Raises:
        MetadataRefusedError: it is no document, or one of the mutations is refused, or its entity does not exist.
    """
    documents = parse_document(name, text).mutations
    require_acts(key for each in documents for key in keys_at(each.entity))

    def apply(number: int, using: ChangeContext = context) -> tuple[MetadataResult, ...]:
        mutations: dict[str, list[Mutation]] = {}
        for each in documents[:number]:
            mutations.setdefault(each.entity.strip("/"), []).extend(each.mutations(using.author))
        return mutate(using, mutations)

    def find_refusal(number: int) -> FeedAssetsError | None:
        try:
            apply(number, replace(context, dry_run=True))
        except FeedAssetsError as exc:
            return exc
        return None

    try:
        return apply(len(documents))
    except FeedAssetsError as exc:
        numbers = range(1, len(documents))
        first = bisect_left(numbers, True, key=lambda number: find_refusal(number) is not None)
        refusal = exc if first == len(numbers) else find_refusal(first + 1) or exc
        reason, _, next_step = str(refusal).partition(". ")
        raise MetadataRefusedError(entity=f"{name}: mutations[{first}]", reason=reason, next_step=next_step) from exc
