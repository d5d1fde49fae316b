"""Write an entity as a tidy YAML document that reads back as the same entity.

The kind comes first, then every value that differs from its default, in the order of the model. Short maps and lists
are on one line.

The document is written as events, so that every plain scalar has the value that `yaml_nodes.parse_scalar` returns.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from feed_assets.entities.bundle import AnyEntity
from feed_assets.entities.cluster import LOCAL_MASTER, Cluster, InterfaceType
from feed_assets.entities.common import Entity, Kind
from feed_assets.loading.entity_files import escape_references
from feed_assets.loading.yaml_nodes import parse_scalar

WIDTH = 100
_ENDLESS = 1_000_000
_MERGE = "<<"
_IN_BLOCKS = frozenset({"clusters", "inputs", "outputs", "interfaces"})
"""Maps by name that are written with one entry per line."""


def render_yaml(entity: AnyEntity, *, has_references: bool = False) -> str:
    """Return the YAML document of an entity.

    Args:
        entity: any entity.
        has_references: True if texts contain `${env:NAME}` as a reference; otherwise `${` is escaped.
    """
    content = content_of(entity) if has_references else escaped_content(entity)
    return render_plain({"kind": entity.kind.value, **content})


def render_plain(written: Mapping[str, Any]) -> str:
    """Return the YAML document of plain values."""
    events = [
        yaml.StreamStartEvent(),
        yaml.DocumentStartEvent(explicit=False),
        *_events(written, depth=0),
        yaml.DocumentEndEvent(explicit=False),
        yaml.StreamEndEvent(),
    ]
    text: str = yaml.emit(events, allow_unicode=True, width=_ENDLESS)
    return text


def _events(value: Any, *, depth: int, key: str = "", flow: bool = False) -> Iterator[yaml.Event]:
    if isinstance(value, Mapping):
        flow = flow or (depth > 0 and key not in _IN_BLOCKS and _fits(value, depth, key))
        yield yaml.MappingStartEvent(None, None, implicit=True, flow_style=flow or not value)
        for name, item in value.items():
            yield _key(name)
            yield from _events(item, depth=depth + 1, key=name, flow=flow)
        yield yaml.MappingEndEvent()
    elif isinstance(value, Sequence) and not isinstance(value, str):
        flow = flow or _fits(value, depth, key)
        yield yaml.SequenceStartEvent(None, None, implicit=True, flow_style=flow or not value)
        for item in value:
            yield from _events(item, depth=depth + 1, flow=flow)
        yield yaml.SequenceEndEvent()
    else:
        yield _scalar(value)


def _fits(value: Any, depth: int, key: str) -> bool:
    """Return whether a map or list of scalars fits on one line."""
    items = list(value.values()) if isinstance(value, Mapping) else list(value)
    if any(isinstance(item, Mapping | list) or (isinstance(item, str) and "\n" in item) for item in items):
        return False
    names = list(value) if isinstance(value, Mapping) else []
    width = 2 * depth + len(key) + sum(len(str(item)) + 6 for item in items) + sum(map(len, names))
    return width <= WIDTH


def _key(name: str) -> yaml.ScalarEvent:
    is_plain = name.isprintable() and name != _MERGE
    return yaml.ScalarEvent(None, None, (is_plain, True), name, style=None if is_plain else '"')


def _scalar(value: Any) -> yaml.ScalarEvent:
    if isinstance(value, str):
        is_plain = value.isprintable() and parse_scalar(value) == value
        style = None if is_plain else '"'
        lines = value.split("\n")
        if len(lines) > 1 and value.strip() and all(line.isprintable() and line == line.rstrip() for line in lines):
            style = "|"
        return yaml.ScalarEvent(None, None, (is_plain, True), value, style=style)
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)
    return yaml.ScalarEvent(None, None, (True, False), text)


def content_of(entity: Entity) -> dict[str, Any]:
    """Return an entity's JSON values under the keys used in files, leaving out defaults."""
    content: dict[str, Any] = entity.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    if isinstance(entity, Cluster) and InterfaceType.SPARK in entity.interfaces:
        content.setdefault("spark", {"master": LOCAL_MASTER})  # else the interface would name the master
    return content


def escaped_content(entity: Entity) -> dict[str, Any]:
    """Return `content_of` the entity with `${` escaped, so that no text is read as a reference to an outside value."""
    escaped: dict[str, Any] = escape_references(content_of(entity), with_variables=entity.kind is Kind.CLUSTER)
    return escaped
