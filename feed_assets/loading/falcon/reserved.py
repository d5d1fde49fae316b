"""Properties `feed_assets.<path>`: values of our entities, as JSON, for which Falcon's documents have no element.

`feed_assets.format` = `"csv"` replaces the value that the document gives for `format`; `null` removes it.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

PREFIX = "feed_assets."
MAX_DEPTH = 20
_PART = re.compile(r"[A-Za-z0-9_-]+")  # clusters, primary, archive_to
_ABSENT = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """A value for a path; None removes the value there."""

    path: tuple[str, ...]
    value: Any

    @property
    def property_name(self) -> str:
        """The name of the property that stands for this override."""
        return PREFIX + ".".join(self.path)

    @property
    def property_value(self) -> str:
        """The value of the property that stands for this override."""
        return json.dumps(self.value, ensure_ascii=True)


def parse_override(name: str, value: str) -> Override | str:
    """Return the override that a property stands for, or why it is not an override.

    >>> parse_override("feed_assets.clusters.primary.retention", "null")
    Override(path=('clusters', 'primary', 'retention'), value=None)
    >>> parse_override("feed_assets.format", "csv")
    'its value is not JSON'
    """
    path = tuple(name.removeprefix(PREFIX).split("."))
    if not all(_PART.fullmatch(part) for part in path):
        return "its name is not a path of keys"
    try:
        parsed = json.loads(value, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return "its value is not JSON"
    return Override(path=path, value=parsed) if _depth_is_small(parsed) else "its value is nested too deep"


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def _depth_is_small(value: object) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        below: list[object] = []
        for item in level:
            below.extend(item.values() if isinstance(item, dict) else item if isinstance(item, list) else ())
        if not below:
            return True
        level = below
    return False


def apply_override(values: dict[str, Any], override: Override) -> bool:
    """Set the value at the path of the override; return False if something other than a map is on the way."""
    place = values
    for part in override.path[:-1]:
        below = place.setdefault(part, {})
        if not isinstance(below, dict):
            return False
        place = below
    if override.value is None:
        place.pop(override.path[-1], None)
    else:
        place[override.path[-1]] = override.value
    return True


def iter_overrides(
    given: Mapping[str, Any], target: Mapping[str, Any], path: tuple[str, ...] = ()
) -> Iterator[Override]:
    """Yield the overrides that turn `given` into `target`, as few as possible.

    >>> [override.path for override in iter_overrides({"a": {"b": 1, "c": 2}}, {"a": {"b": 3, "c": 2}})]
    [('a', 'b')]
    """
    for key in sorted(given.keys() | target.keys()):
        old, new = given.get(key, _ABSENT), target.get(key, _ABSENT)
        if old == new and type(old) is type(new):
            continue
        here = (*path, key)
        if isinstance(old, Mapping) and isinstance(new, Mapping) and _can_go_below(old, new):
            yield from iter_overrides(old, new, here)
        else:
            yield Override(path=here, value=None if new is _ABSENT else new)


def _can_go_below(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Return whether the difference can be expressed key by key.

    Every key must be usable as part of a path, no target value may be null, and the order of keys must stay the same.
    """
    if not all(_PART.fullmatch(key) for key in old.keys() | new.keys()):
        return False
    kept = [key for key in old if key in new]
    return None not in new.values() and list(new)[: len(kept)] == kept
