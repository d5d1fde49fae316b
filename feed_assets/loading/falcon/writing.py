"""Write an entity as the text of a Falcon document that reads back as the same entity.

Values without an element in Falcon are found by reading: the document is written, read and compared with the entity,
then written again with a reserved property for each value that did not survive. Values that Falcon requires and our
models may lack are filled in.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, assert_never
from xml.sax.saxutils import escape, quoteattr

from pydantic import ValidationError

from feed_assets.entities.bundle import ENTITY_TYPES, AnyEntity
from feed_assets.entities.common import Kind, RetentionAction
from feed_assets.entities.errors import DefinitionsError
from feed_assets.entities.feed import LIMIT_PROPERTY
from feed_assets.entities.fields import to_plain_text
from feed_assets.entities.replication import Replication, render_properties
from feed_assets.loading.falcon import reserved
from feed_assets.loading.falcon.documents import read_falcon
from feed_assets.loading.falcon.grammar import SCHEMAS, Element, Form, namespace_of
from feed_assets.loading.falcon.reserved import Override, iter_overrides
from feed_assets.loading.falcon.spark_options import render_spark_options
from feed_assets.loading.falcon.to_entities import ENGINES
from feed_assets.loading.falcon.xml_nodes import MAX_BYTES
from feed_assets.loading.yaml_writer import content_of, escaped_content

_INDENT = "  "
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # "\x00"
_CONTROLS = {"\n": "&#10;", "\r": "&#13;", "\t": "&#9;"}
_ORDERED = ("inputs", "outputs")


def render_falcon(entity: AnyEntity, *, has_references: bool = False) -> str:
    """Return the Falcon document of an entity.

    Args:
        entity: any entity; values that Falcon cannot express go into properties `feed_assets.<path>`.
        has_references: True if texts contain `${env:NAME}` as a reference; otherwise `${` is escaped.

    Raises:
        DefinitionsError: the document would exceed the size limit for reading.
    """
    target = content_of(entity) if has_references else escaped_content(entity)
    base = unconvert(entity.kind, target)
    plain = _read(_render(entity, base, ())) or {}
    given = _content_of_plain(entity, plain)
    kept = frozenset(key for key in target if key in plain and given.get(key) == target[key])
    for overrides in _attempts(plain, given, target, kept):
        text = _render(entity, base, overrides)
        if _is_read_back(text, entity, target):
            return text
    raise DefinitionsError(
        location=entity.label,
        reason=f"it cannot be written as a Falcon document, which has at most {MAX_BYTES:,} bytes",
        next_step="Keep it in YAML.",
    )


def _attempts(
    plain: Mapping[str, Any], given: Mapping[str, Any], target: Mapping[str, Any], kept: frozenset[str]
) -> Iterator[tuple[Override, ...]]:
    """Yield sets of overrides to try, smallest first.

    First single values, then whole keys where parts of a model depend on each other, then all derived keys, then all.
    """
    keys = sorted(plain.keys() | given.keys() | target.keys())
    yield tuple(iter_overrides(given, target))
    yield _whole([key for key in keys if given.get(key) != target.get(key)], target)
    yield _whole([key for key in keys if key not in kept], target)
    yield _whole(keys, target)


def _whole(keys: Iterable[str], target: Mapping[str, Any]) -> tuple[Override, ...]:
    return tuple(Override(path=(key,), value=target.get(key)) for key in keys)


def _read(text: str) -> dict[str, Any] | None:
    """Return the values of a document; None if it has problems."""
    document = read_falcon(text)
    if document.problems or not isinstance(document.value, dict):
        return None
    return {key: value for key, value in document.value.items() if key != "kind"}


def _is_read_back(text: str, entity: AnyEntity, target: Mapping[str, Any]) -> bool:
    read = _content_of_plain(entity, _read(text) or {})
    return read == target and all(list(read.get(name, ())) == list(target.get(name, ())) for name in _ORDERED)


def _content_of_plain(entity: AnyEntity, plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of the entity made from these values; empty if they make no entity."""
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
    """Return the lines of the children; if `is_complete`, including mandatory ones without a value."""
    lines: list[str] = []
    for part in element.content:
        found = [line for child in part.elements for line in _child(child, values, depth)]
        if is_complete and not found and part.least:
            found = _tagged(part.elements[0].name, {}, [], depth)
        lines.extend(found)
    return lines


def _child(element: Element, values: Mapping[str, Any], depth: int) -> list[str]:
    """Return the lines of an element whose value is in the enclosing map; empty if there is no value."""
    if element.form is Form.INLINE:
        attributes = _attributes(element, values)
        if not attributes and not _content(element, values, depth + 1, is_complete=False):
            return []
        return _tagged(element.name, attributes, _content(element, values, depth + 1), depth)
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
    """Return the text of a value, with characters that XML cannot contain replaced."""
    return _ILLEGAL.sub("?", str(to_plain_text(value)))


_NOBODY = {"owner": "nobody", "group": "nobody"}
_NOWHERE = {"location": "/none", "provider": "none"}
_STAGING = {"staging": "/none"}
_FOR_EVER = "months(9999)"
_KEEP = {"limit": _FOR_EVER, "action": RetentionAction.DELETE.value}
_KEEP_STAGE = {"retention_stage": {"properties": {LIMIT_PROPERTY: _FOR_EVER}}}
_FAR = "2099-12-31T00:00Z"
"""The end of a validity without an end, and the last time that the schema of feeds allows, to the day."""
_LOADS = ("allowinsert", "updateonly")
_NO_DRIVER = {"class": "none", "jars": ["none"]}
_NO_JAR = "none"
_NO_PATH = "/none"
_NO_TABLE = "none"
_FALCONS = {own: falcon for falcon, own in ENGINES.items()}
_VERSION = "0.0"
_SECONDS, _FINEST = "seconds(", "minutes(1)"
_OWN_TIME = "now(0,0)"


def unconvert(kind: Kind, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values for a document. `content` is the JSON form of an entity without its defaults."""
    values: dict[str, Any] = _copy(content)
    properties = values.pop("properties", {})
    values["properties"] = {name: value for name, value in properties.items() if not name.startswith(reserved.PREFIX)}
    if "tags" in values:
        values["tags"] = ",".join(f"{key}={value}" for key, value in values["tags"].items())
    unconverts = {Kind.CLUSTER: _cluster, Kind.DATASOURCE: _datasource, Kind.FEED: _feed, Kind.PROCESS: _process}
    unconverts[kind](values)
    return values


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list | tuple) else value


def _cluster(values: dict[str, Any]) -> None:
    values.setdefault("colo", "default")
    values["locations"] = values.get("locations") or dict(_STAGING)
    interfaces = values.setdefault("interfaces", {})
    for name in ("readonly", "write", "execute"):
        endpoint = values["storage"] if name != "execute" else "none"
        interfaces.setdefault(name, {"endpoint": endpoint, "version": _VERSION})


def _datasource(values: dict[str, Any]) -> None:
    values.setdefault("colo", "default")
    values.setdefault("driver", _NO_DRIVER)
    for holder in (values, *values["interfaces"].values()):
        if "credential" in holder:
            credential = holder["credential"]
            way = next(key for key in ("password_file", "password", "password_alias") if key in credential)
            credential["type"] = {"password": "password-text"}.get(way, way.replace("_", "-"))


def _frequency(values: dict[str, Any]) -> None:
    """Fill in a frequency that Falcon knows, where it is missing, or seconds."""
    if values.get("frequency", _SECONDS).startswith(_SECONDS):
        values["frequency"] = _FINEST


def _feed(values: dict[str, Any]) -> None:
    _frequency(values)
    values.setdefault("acl", _NOBODY)
    values.setdefault("schema_source", _NOWHERE)
    values.pop("schema", None)
    if "table" not in values:
        values.setdefault("locations", {})
    _join(values, "groups")
    _notification(values)
    if "replication" in values:
        values["properties"] = {
            **render_properties(Replication.model_validate(values["replication"])),
            **values["properties"],
        }
    _limit_validity(values)
    for entry in values["clusters"].values():
        _retention(entry, has_lifecycle="lifecycle" in entry or "lifecycle" in values)
        if "import" in entry:
            source = entry["import"]["source"]
            source.setdefault("table", _NO_TABLE)
            extract = source.setdefault("extract", {})
            is_full = extract.setdefault("type", "full") == "full"
            extract.setdefault("merge_policy", "snapshot" if is_full else "append")
        if "export" in entry and (load := entry["export"]["target"]["load"])["type"] not in _LOADS:
            load["type"] = _LOADS[0]


def _retention(entry: dict[str, Any], *, has_lifecycle: bool) -> None:
    """Fill in the retention. Falcon can only delete: what is archived here is never removed there."""
    entry["retention"] = _KEEP | entry.get("retention", {})
    if entry["retention"]["action"] == RetentionAction.ARCHIVE:
        entry["retention"] |= _KEEP
        if has_lifecycle:
            entry["lifecycle"] = _KEEP_STAGE


def _limit_validity(values: dict[str, Any]) -> None:
    for entry in values["clusters"].values():
        entry["validity"] = {key: min(entry["validity"].get(key, _FAR), _FAR) for key in ("start", "end")}


def _process(values: dict[str, Any]) -> None:
    _frequency(values)
    for item in values.get("inputs", {}).values():
        for end in ("start", "end"):
            item.setdefault(end, _OWN_TIME)
    values.setdefault("parallel", 1)
    values.setdefault("order", "FIFO")
    _limit_validity(values)
    _join(values, "pipelines")
    _notification(values)
    workflow = values["workflow"]
    engine = workflow.get("engine", "python")
    path = workflow.setdefault("path", _NO_PATH)
    late = values.get("late_process", {}).get("inputs", {})
    for name, own in late.items():
        late[name] = path if own is None else own.get("path", _NO_PATH)
    if "lib" in workflow:
        workflow["lib"] = ",".join(workflow["lib"])
    workflow["engine"] = _FALCONS.get(engine)
    if engine == "spark-submit":
        submit = dict(workflow.get("submit", {}))
        values["spark_attributes"] = {
            "master": workflow.get("master"),
            "mode": workflow.get("deploy_mode"),
            "name": submit.pop("name", None) or values["name"],
            "class": workflow.get("main_class"),
            "jar": _NO_JAR if "," in path else path,
            "spark_opts": render_spark_options(workflow.get("conf", {}), submit) or None,
            "args": workflow.get("args", []),
        }


def _notification(values: dict[str, Any]) -> None:
    if "notification" in values:
        values["notification"].setdefault("type", "email")
        _join(values["notification"], "to")


def _join(holder: dict[str, Any], key: str) -> None:
    if key in holder:
        holder[key] = ",".join(holder[key])
