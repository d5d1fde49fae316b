"""The differences between two definitions of one entity, field by field."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from feed_assets.entities.common import Entity
from feed_assets.issues import FieldPath
from feed_assets.json_form import shown
from feed_assets.masking import HIDDEN

_PLAIN = re.compile(r"[A-Za-z_][\w-]*")  # late_arrival, daily-clicks
_SECRET = re.compile(r"pass|secret|token|key|credential", re.IGNORECASE)  # password, aws_secret_access_key
_WITH_SECRETS = frozenset({"storage_options", "catalog_options", "properties", "conf", "credential"})
_NEVER_SECRET = frozenset({"user", "password_file", "alias", "provider"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldChange:
    """A changed field: its path and its JSON values. A value is None if it is left out and has no default.

    >>> FieldChange(path=("spark", "conf", "spark.ui.port"), before="1", after=None).field
    'spark.conf[spark.ui.port]'
    """

    path: FieldPath
    before: object
    after: object

    @shown
    def field(self) -> str:
        """The path as people write it."""
        return render_field(self.path)


def render_field(path: FieldPath) -> str:
    """Return a path as one text; names that are not plain words are in brackets.

    >>> render_field(("clusters", "primary", "validity", "end"))
    'clusters.primary.validity.end'
    """
    text = ""
    for part in path:
        if isinstance(part, str) and _PLAIN.fullmatch(part):
            text += f".{part}" if text else part
        else:
            text += f"[{part}]"
    return text


def diff_entities(before: Entity | None, after: Entity | None) -> tuple[FieldChange, ...]:
    """Return the fields that differ, in the order of the model; if one entity is None, all fields written in the other.

    Maps are compared key by key, and lists as a whole. A map that gains or loses a key without a value is returned with
    its keys. If only the order of an ordered map differs, the map itself is
    returned with its keys. Changed secrets are returned without their values. Two entities without a difference have
    the same digest.
    """
    old, new = _Content.of(before), _Content.of(after)
    changes = []
    for path in old.written | new.written:
        if old.is_map(path) and new.is_map(path):
            continue  # empty in one of them: the entries of the other have paths of their own
        one, other = old.find(path), new.find(path)
        if one != other:
            changes.append(FieldChange(path=path, before=_shown(path, one), after=_shown(path, other)))
        elif old.has(path) != new.has(path):
            names = FieldChange(path=path[:-1], before=old.keys(path[:-1]), after=new.keys(path[:-1]))
            changes += [names] if names not in changes else []
    return tuple(changes) + _reordered(old, new)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Content:
    """The content of an entity, and the paths of the fields that are not defaults."""

    values: Mapping[str, object]
    written: dict[FieldPath, None]

    @classmethod
    def of(cls, entity: Entity | None) -> "_Content":
        if entity is None:
            return cls(values={}, written={})
        values = entity.model_dump(mode="json", by_alias=True)
        written = entity.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        return cls(values=values, written=dict.fromkeys(_leaves(written, ())))

    def find(self, path: FieldPath) -> object:
        value: object = self.values
        for part in path:
            if not isinstance(value, Mapping) or part not in value:
                return None
            value = value[part]
        return value

    def has(self, path: FieldPath) -> bool:
        """Return whether there is a value, also if it is None."""
        above = self.find(path[:-1])
        return isinstance(above, Mapping) and path[-1] in above

    def keys(self, path: FieldPath) -> list[str] | None:
        """Return the keys of a map; None if there is none."""
        found = self.find(path)
        return list(found) if isinstance(found, Mapping) else None

    def is_map(self, path: FieldPath) -> bool:
        return isinstance(self.find(path), Mapping)


def _leaves(value: object, path: FieldPath) -> Iterator[FieldPath]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _leaves(item, (*path, key))
    elif path:
        yield path


def _reordered(old: _Content, new: _Content) -> tuple[FieldChange, ...]:
    """Return changes of order. Inputs and outputs are ordered: a workflow sees them as they are written."""
    changes = []
    for name in ("inputs", "outputs"):
        one, other = old.values.get(name), new.values.get(name)
        if isinstance(one, Mapping) and isinstance(other, Mapping) and _order(one, other) != _order(other, one):
            changes.append(FieldChange(path=(name,), before=list(one), after=list(other)))
    return tuple(changes)


def _order(keys: Mapping[str, object], others: Mapping[str, object]) -> list[str]:
    return [key for key in keys if key in others]


def _shown(path: FieldPath, value: object) -> object:
    if value is None or path[-1] in _NEVER_SECRET or not _WITH_SECRETS.intersection(path):
        return value
    return HIDDEN if _SECRET.search(str(path[-1])) else value
