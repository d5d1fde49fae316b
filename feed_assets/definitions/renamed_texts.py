"""The documents of entities with another name of a feed or process: only names change, and comments stay."""

import re
from collections.abc import Iterable, Iterator

import yaml

from feed_assets.definitions.errors import DefinitionStoreError
from feed_assets.definitions.folder import find_entity
from feed_assets.entities.bundle import AnyEntity, entity_digest
from feed_assets.entities.common import label_of
from feed_assets.entities.graph import kind_named_at
from feed_assets.entities.process import Process
from feed_assets.issues import EntityKey, FieldPath
from feed_assets.loading.entity_files import Values
from feed_assets.loading.yaml_nodes import parse_scalar
from feed_assets.log.definitions.records import DocumentFormat
from feed_assets.sql.names import Content, Renaming

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NAME = "name"


def renamed_entity(entity: AnyEntity, renaming: Renaming) -> AnyEntity:
    """Return an entity in which a feed or process has another name: itself, or one that it refers to."""
    content = entity.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    hidden = _names_of_inputs(entity)
    return type(entity).model_validate(_renamed(entity.key, content, (), renaming, hidden))


def renamed_text(text: str, key: EntityKey, form: DocumentFormat, renaming: Renaming, values: Values) -> str:
    """Return the document of an entity in which a feed or process has another name. Nothing else of it changes.

    Raises:
        DefinitionStoreError: it has the name in a way that cannot be edited.
    """
    entity = find_entity(text, form, values)
    hidden = _names_of_inputs(entity)
    if form is DocumentFormat.XML:
        edited = _renamed_xml(text, key, renaming)
    else:
        edited = _renamed_yaml(text, key, renaming, hidden)
    if entity is None:
        return edited
    found = find_entity(edited, form, values)
    if found is None or entity_digest(found) != entity_digest(renamed_entity(entity, renaming)):
        raise DefinitionStoreError(
            location=label_of(key),
            reason=f"its definition has the name {renaming.old!r} in a way that cannot be edited, such as an anchor or "
            "a reference to the environment",
            next_step=f"Nothing was changed. Write {renaming.new!r} there by hand, and rename again.",
        )
    return edited


def _names_of_inputs(entity: AnyEntity | None) -> frozenset[str]:
    return frozenset(entity.inputs) if isinstance(entity, Process) else frozenset()


def _is_name(key: EntityKey, path: FieldPath, value: object, renaming: Renaming, hidden: frozenset[str]) -> bool:
    """Return whether a value at a path of a document is the name; `hidden` are names that a trigger means otherwise."""
    if path[:2] == ("quality", "in_feed") and isinstance(value, str):
        value = value.partition(".")[0]
    if value != renaming.old:
        return False
    if path == (_NAME,):
        return key == (renaming.kind, renaming.old)
    return kind_named_at(key[0], path) == renaming.kind and not (path[0] == "trigger" and value in hidden)


def _renamed(key: EntityKey, content: Content, path: FieldPath, renaming: Renaming, hidden: frozenset[str]) -> Content:
    match content:
        case dict():
            return {name: _renamed(key, each, (*path, name), renaming, hidden) for name, each in content.items()}
        case list():
            return [_renamed(key, each, (*path, place), renaming, hidden) for place, each in enumerate(content)]
        case _:
            is_name = _is_name(key, path, content, renaming, hidden)
            return renaming.new + str(content)[len(renaming.old) :] if is_name else content


def _renamed_yaml(text: str, key: EntityKey, renaming: Renaming, hidden: frozenset[str]) -> str:
    return edit_scalars(
        text,
        (
            (node, written(renaming.new + node.value[len(renaming.old) :]))
            for path, node, is_key in iter_scalars(text)
            if not is_key and _is_name(key, path, node.value, renaming, hidden)
        ),
    )


def iter_scalars(text: str) -> Iterator[tuple[FieldPath, yaml.ScalarNode, bool]]:
    """Yield the keys and values of a YAML document with their paths, and whether each is a key."""
    yield from _iter_below(yaml.compose(text, Loader=_Loader), ())


def _iter_below(node: yaml.Node | None, path: FieldPath) -> Iterator[tuple[FieldPath, yaml.ScalarNode, bool]]:
    match node:
        case yaml.ScalarNode():
            yield path, node, False
        case yaml.SequenceNode():
            for place, item in enumerate(node.value):
                yield from _iter_below(item, (*path, place))
        case yaml.MappingNode():
            for name, value in node.value:
                below = (*path, name.value)
                yield from ((below, key, True) for _, key, _ in _iter_below(name, below))
                yield from _iter_below(value, below)


def edit_scalars(text: str, edits: Iterable[tuple[yaml.ScalarNode, str]]) -> str:
    """Return a YAML document with other texts in the place of some keys and values; a node may occur repeatedly."""
    places = {(node.start_mark.index, node.end_mark.index, new) for node, new in edits}
    for start, end, new in sorted(places, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def written(name: str) -> str:
    """Return a name as a YAML document has it: in quotes if it would be no text else."""
    return name if parse_scalar(name) == name else f'"{name}"'


def _renamed_xml(text: str, key: EntityKey, renaming: Renaming) -> str:
    """Replace the attribute `name` of the root, and the attributes `feed` of inputs and outputs."""
    old = re.escape(renaming.old)
    if key == (renaming.kind, renaming.old):
        root = re.compile(rf"""(<{key[0]}\b[^>]*?\sname\s*=\s*)(["']){old}\2""")  # <feed name="clicks"
        text = root.sub(rf"\g<1>\g<2>{renaming.new}\g<2>", text, count=1)
    if renaming.kind == "feed":
        refers = re.compile(rf"""(<(?:input|output)\b[^>]*?\sfeed\s*=\s*)(["']){old}\2""")  # <input feed="clicks"
        text = refers.sub(rf"\g<1>\g<2>{renaming.new}\g<2>", text)
    return text
