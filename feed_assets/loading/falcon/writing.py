"""An entity → the text of a Falcon document that reads back as the same entity.

What the document has no element for is found by reading: the document is written, read, compared with the entity, and
written again with a reserved property for each value that did not survive.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, assert_never
from xml.sax.saxutils import escape, quoteattr

from pydantic import ValidationError

from feed_assets.entities.bundle import ENTITY_TYPES, AnyEntity
from feed_assets.entities.errors import DefinitionsError
from feed_assets.entities.fields import to_plain_text
from feed_assets.loading.contents import content_of, escaped_content
from feed_assets.loading.falcon.documents import read_falcon
from feed_assets.loading.falcon.from_entities import unconvert
from feed_assets.loading.falcon.grammar import Element, Form
from feed_assets.loading.falcon.reserved import Override, iter_overrides
from feed_assets.loading.falcon.schemas import SCHEMAS, namespace_of
from feed_assets.loading.falcon.xml_nodes import MAX_BYTES

_INDENT = "  "
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # "\x00"
_CONTROLS = {"\n": "&#10;", "\r": "&#13;", "\t": "&#9;"}
_ORDERED = ("inputs", "outputs")


def render_falcon(entity: AnyEntity, *, has_references: bool = False) -> str:
    """The Falcon document of an entity.

    Args:
        entity: any, also one that says what Falcon cannot: that goes into properties `feed_assets.<path>`.
        has_references: its texts hold `${env:NAME}` as they were written; else such texts are meant literally.

    Raises:
        DefinitionsError: the document would be bigger than one that is read.
    """
    wanted = content_of(entity) if has_references else escaped_content(entity)
    base = unconvert(entity.kind, wanted)
    plain = _read(_render(entity, base, ())) or {}
    given = _content_of_plain(entity, plain)
    kept = frozenset(key for key in wanted if key in plain and given.get(key) == wanted[key])
    for overrides in _attempts(plain, given, wanted, kept):
        text = _render(entity, base, overrides)
        if _is_read_back(text, entity, wanted):
            return text
    raise DefinitionsError(
        location=entity.label,
        reason=f"it cannot be written as a Falcon document, which has at most {MAX_BYTES:,} bytes",
        next_step="Keep it in YAML.",
    )


def _attempts(
    plain: Mapping[str, Any], given: Mapping[str, Any], wanted: Mapping[str, Any], kept: frozenset[str]
) -> Iterator[tuple[Override, ...]]:
    """What to override: single values; whole keys, where parts of a model depend on each other; all that is derived."""
    keys = sorted(plain.keys() | given.keys() | wanted.keys())
    yield tuple(iter_overrides(given, wanted))
    yield _whole([key for key in keys if given.get(key) != wanted.get(key)], wanted)
    yield _whole([key for key in keys if key not in kept], wanted)


def _whole(keys: Iterable[str], wanted: Mapping[str, Any]) -> tuple[Override, ...]:
    return tuple(Override(path=(key,), value=wanted.get(key)) for key in keys)


def _read(text: str) -> dict[str, Any] | None:
    """The values of a document; None where it has problems."""
    document = read_falcon(text)
    if document.problems or not isinstance(document.value, dict):
        return None
    return {key: value for key, value in document.value.items() if key != "kind"}


def _is_read_back(text: str, entity: AnyEntity, wanted: Mapping[str, Any]) -> bool:
    read = _content_of_plain(entity, _read(text) or {})
    return read == wanted and all(list(read.get(name, ())) == list(wanted.get(name, ())) for name in _ORDERED)


def _content_of_plain(entity: AnyEntity, plain: Mapping[str, Any]) -> dict[str, Any]:
    """What an entity of these values says; nothing, where they make none."""
    try:
        return content_of(ENTITY_TYPES[entity.kind].model_validate(plain))
    except ValidationError:
        return {}


def _render(entity: AnyEntity, base: Mapping[str, Any], overrides: Iterable[Override]) -> str:
    reserved = {override.property_name: override.property_value for override in overrides}
    values = {**base, "properties": {**base["properties"], **reserved}}
    schema = SCHEMAS[entity.kind]
    attributes = {"xmlns": namespace_of(entity.kind)} | _attributes(schema, values)
    lines = _tagged(schema.name, attributes, _content(schema, values, 1), 0)
    return "\n".join(['<?xml version="1.0" encoding="UTF-8"?>', *lines, ""])


def _content(element: Element, values: Mapping[str, Any], depth: int, *, is_complete: bool = True) -> list[str]:
    """The lines of the children; where `is_complete`, also of those that must be there and have no value."""
    lines: list[str] = []
    for part in element.content:
        found = [line for child in part.elements for line in _child(child, values, depth)]
        if is_complete and not found and part.least:
            found = _tagged(part.elements[0].name, {}, [], depth)
        lines.extend(found)
    return lines


def _child(element: Element, values: Mapping[str, Any], depth: int) -> list[str]:
    """The lines of an element whose value is somewhere in the map around it; none where there is none."""
    if element.form is Form.INLINE:
        if not _content(element, values, depth + 1, is_complete=False):
            return []
        return _tagged(element.name, {}, _content(element, values, depth + 1), depth)
    value = values.get(element.to)
    if value is None:
        return []
    match element.form:
        case Form.MAP:
            return _tagged(element.name, _attributes(element, value), _content(element, value, depth + 1), depth)
        case Form.TEXT if element.choices and value not in element.choices:
            return []
        case Form.TEXT:
            return [_with_text(element.name, value, depth)]
        case Form.FIELD:
            return _tagged(element.name, {str(element.value): _text_of(value)}, [], depth)
        case Form.LIST if element.key is None:
            return [_with_text(element.name, item, depth) for item in value]
        case Form.LIST:
            return [
                line for item in value for line in _tagged(element.name, {str(element.key): _text_of(item)}, [], depth)
            ]
        case Form.KEYED:
            entries = [(key, entry) for key, entry in value.items() if _ILLEGAL.search(key) is None]
            return [line for key, entry in entries for line in _entry(element, key, entry, depth)]
        case _:
            assert_never(element.form)


def _entry(element: Element, key: str, entry: Any, depth: int) -> list[str]:
    named = {str(element.key): key}
    if element.value is not None:
        return _tagged(element.name, named | {element.value: _text_of(entry)}, [], depth)
    return _tagged(element.name, named | _attributes(element, entry), _content(element, entry, depth + 1), depth)


def _attributes(element: Element, values: Mapping[str, Any]) -> dict[str, str]:
    is_keyed = element.form is Form.KEYED
    return {
        attribute.name: _text_of(values[attribute.key])
        for attribute in element.attributes
        if values.get(attribute.key) is not None
        and not (is_keyed and attribute.name == element.key)
        and not (attribute.choices and _text_of(values[attribute.key]) not in attribute.choices)
    }


def _tagged(name: str, attributes: Mapping[str, str], content: Sequence[str], depth: int) -> list[str]:
    written = "".join(f" {key}={quoteattr(value, _CONTROLS)}" for key, value in attributes.items())
    indent = _INDENT * depth
    if not content:
        return [f"{indent}<{name}{written}/>"]
    return [f"{indent}<{name}{written}>", *content, f"{indent}</{name}>"]


def _with_text(name: str, value: object, depth: int) -> str:
    return f"{_INDENT * depth}<{name}>{escape(_text_of(value), {chr(13): '&#13;'})}</{name}>"


def _text_of(value: object) -> str:
    """The text of a value; characters that XML cannot hold are replaced."""
    return _ILLEGAL.sub("?", str(to_plain_text(value)))
