"""The table of rights: what each operation needs for the entities that it names, and for itself.

It follows from what an operation does; here is what does not. What acts and names no entity is for superusers, unless
it asks for what it selects (`require_acts`). What is declared is asked where definitions are changed.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from types import MappingProxyType
from typing import Any

from feed_assets.access.rights import Needs, find_hidden, find_rights, reads
from feed_assets.entities.common import Kind
from feed_assets.issues import EntityKey
from feed_assets.operation import Does, Operation, Parameter

OF_DOES: Mapping[Does, Needs] = MappingProxyType(
    {
        Does.READS: Needs.KNOWN,
        Does.NOTIFIES: Needs.OWNER,
        Does.ACTS: Needs.OWNER,
        Does.DECLARES: Needs.OWNER,
        Does.ADMINISTERS: Needs.ADMIN,
    }
)
"""What each kind of operation needs."""

OF_OPERATIONS: Mapping[str, Needs] = MappingProxyType(
    {
        **dict.fromkeys(("notify test", "notify send", "notify retry", "token list"), Needs.ADMIN),
        **dict.fromkeys(("admin audit verify", "admin users"), Needs.ADMIN),
        "entity update-cluster-dependents": Needs.SUPERUSER,
    }
)
"""Of these, something else."""

SELECTS = frozenset(
    {
        "extension job resume",
        "extension job schedule",
        "extension job suspend",
        "hold release",
        "metadata import",
        "retention approve",
        "retention cancel",
    }
)
"""They act on what they find, and ask for it then."""

_SELECTION = (Kind.CLUSTER,)
"""By these, something else is selected."""
ALL_OF_IT = frozenset({"export-falcon", "metadata export"})
"""They give everything, if no entity is named."""
_CAUSES = frozenset({"entity dependency", "instance dependency", "instance triage", "lineage", "plan", "why"})
"""Groups and operations that say what hangs together."""
_NAMES = ("name", "entity", "feed", "process", "target")
"""Members of rows that name an entity."""
_TARGET = re.compile(r"(cluster|datasource|feed|process)[ /]'?([^'/ ]+)")  # feed 'clicks', feed/clicks/column/user
_ONLY_READ = frozenset({("entity clone", "name"), ("metadata copy", "entity")})
"""Entities that what changes others only reads."""


def find_does(operation: Operation, given: Mapping[str, Any]) -> Does:
    """Return what an operation does with what is given: `status` only reads, and `--look` records what has come."""
    if given.get("switch") == "status":
        return Does.READS
    needed = (each.param.needs for each in operation.parameters if each.param.needs and given.get(each.name))
    return next(needed, operation.does)


def find_need(operation: Operation, given: Mapping[str, Any]) -> Needs:
    """Return what an operation needs: of `OWNER`, for each entity that it names or selects."""
    if given.get("namespace"):  # entities of other projects say nothing here
        return Needs.SUPERUSER
    return OF_OPERATIONS.get(operation.name, OF_DOES[find_does(operation, given)])


def require_rights(operation: Operation, given: dict[str, Any]) -> None:
    """Require that who asks may do what an operation does with the entities that it names.

    Args:
        operation: what is asked for.
        given: all its parameters, by name. Of a question, the kind is added if of several entities with the name the
            others are hidden.

    Raises:
        AccessRefusedError: something is not allowed.
    """
    if (rights := find_rights()) is None:
        return
    need = find_need(operation, given)
    named = list(find_named(operation, given, need))
    if operation.does is Does.READS and "kind" in given and given["kind"] is None:
        kinds = {kind for (kind, name), _ in named if rights.find_acl((kind, name)) and rights.reads(kind, name)}
        if len(kinds) == 1:
            given["kind"] = Kind(kinds.pop())
            named = list(find_named(operation, given, need))
    acts = operation.does in (Does.NOTIFIES, Does.ACTS) and need is Needs.OWNER
    if acts and operation.name not in SELECTS and not any(needs is Needs.OWNER for _, needs in named):
        need = Needs.SUPERUSER
    if operation.name in ALL_OF_IT and not named and rights.hidden:
        need = Needs.SUPERUSER
    rights.require(named, need)


def leave_out(operation: Operation, result: Any) -> Any:
    """Return the result of a question without the rows about what who asks may not read. Causes stay, without names."""
    hidden, rows = find_hidden(), operation.rows
    if not hidden or operation.does is not Does.READS or operation.group in _CAUSES or operation.name in _CAUSES:
        return result
    if isinstance(result, tuple):
        return tuple(filter(_is_read, result))
    names = [each.name for each in fields(result)] if is_dataclass(result) else []
    at = next((each for each in (rows, "items") if each in names), "")
    found = getattr(result, at, None)
    if not isinstance(found, tuple) or len(kept := tuple(filter(_is_read, found))) == len(found):
        return result
    total = {"total": result.total - len(found) + len(kept)} if "total" in names and type(result.total) is int else {}
    return replace(result, **{at: kept}, **total)


def _is_read(row: Any) -> bool:
    return all(reads(*key) for key in _iter_named(row))


def _iter_named(row: Any) -> Iterator[EntityKey]:
    """Yield the entities that a row is about, by its kind and name, feed, process, entity or target."""
    kind = getattr(row, "kind", None)
    told = {name: text for name in _NAMES if isinstance(text := getattr(row, name, None), str)}
    for name, text in told.items():
        if name in (Kind.FEED, Kind.PROCESS):
            yield name, text
        elif (said := _TARGET.match(text)) is not None:
            yield said[1], said[2]
        elif kind in list(Kind):
            yield str(kind), text
    if (subject := getattr(getattr(row, "payload", None), "subject", None)) is not None:
        yield subject


def find_named(operation: Operation, given: Mapping[str, Any], need: Needs) -> Iterator[tuple[EntityKey, Needs]]:
    """Yield the entities that an operation may name, of all kinds that are possible, with what each needs."""
    has_kind = any(each.type is Kind for each in operation.parameters)
    for each in operation.parameters:
        value = given.get(each.name)
        kinds = _kinds_of(each, given.get("kind"), has_kind=has_kind)
        if value is None or each.type is not str or not kinds:
            continue
        is_read = tuple(each.param.of) == _SELECTION or (operation.name, each.name) in _ONLY_READ
        needs = Needs.OWNER if need is Needs.OWNER and not is_read else Needs.KNOWN
        for text in value if each.is_several else (value,):
            keys = keys_at(text) if each.param.proposes == "entities" else ((kind.value, text) for kind in kinds)
            yield from ((key, needs) for key in keys)


def _kinds_of(parameter: Parameter, kind: Any, *, has_kind: bool) -> tuple[Kind, ...]:
    """Return the kinds of the entities that a parameter names; none if it names something else."""
    param = parameter.param
    if param.proposes == "groups":
        return (Kind.CLUSTER,) if kind == Kind.CLUSTER else ()
    is_name = param.of or param.proposes in ("names", "entities") or (parameter.name == "name" and has_kind)
    kinds = tuple(map(Kind, param.of)) or tuple(Kind)
    if not is_name:
        return ()
    return (Kind(kind),) if kind in kinds and param.proposes != "entities" and kinds != _SELECTION else kinds


def keys_at(path: str) -> tuple[EntityKey, ...]:
    """Return the entities that a path of metadata may mean: `feed/clicks/column/user`, or a name alone.

    >>> keys_at("/feed/clicks/column/user")
    (('feed', 'clicks'),)
    """
    first, *more = path.strip("/").split("/")
    return ((first, more[0]),) if more else tuple((kind.value, first) for kind in Kind)
