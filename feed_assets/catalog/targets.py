"""Find the entities that metadata describe, by their paths: kinds and names in turn.

`feed/flights`, `feed/flights/column/dep_delay`, `feed/flights/cluster/primary/instance/2013-11-03`, `run/ID`; and
whatever people want to describe, such as `dashboard/otd`.
"""

import re
from typing import NoReturn

from sqlalchemy import Connection

from feed_assets.access.rights import find_hidden, require_reads
from feed_assets.catalog.descriptions import COLUMN
from feed_assets.catalog.writing import Target
from feed_assets.entities.common import Kind
from feed_assets.entities.content.columns import iter_columns
from feed_assets.entities.errors import EntityNotFoundError, MetadataRefusedError
from feed_assets.entities.metadata import MOST_BYTES, Metadata, MetadataKey, measure
from feed_assets.errors import Fault, find_similar
from feed_assets.log.instances.attempts import Attempts
from feed_assets.plan.records import Plan
from feed_assets.timing.dates import render_datetime
from feed_assets.timing.sequence import InstanceSequence, parse_instance, zone_of_keys

RUN = "run"
INSTANCE = "instance"

_KIND = re.compile(r"[a-z][a-z0-9-]{0,49}")
_LONGEST_NAME = 200
_BELOW = {COLUMN: "feed/NAME/column/COLUMN", INSTANCE: "feed/NAME/cluster/CLUSTER/instance/TIME"}
_OF_FEED = (Kind.FEED.value, COLUMN)
_OF_INSTANCE = (Kind.CLUSTER.value, INSTANCE)


def find_target(plan: Plan, connection: Connection, path: str) -> Target:
    """Return the entity at a path, as a plan of the current definitions declares it.

    Raises:
        MetadataRefusedError: this is no path, and not the name of one declared entity.
        EntityNotFoundError: the feed, process, cluster, data source, column or run does not exist.
        InstanceError: the time is no instance.
    """
    parts = path.strip("/").split("/")
    if len(parts) == 1 and (declared := [kind for kind, name in plan.facts if name == parts[0]]):
        if len(declared) > 1:
            written = " or ".join(f"{kind}/{parts[0]}" for kind in sorted(declared))
            raise MetadataRefusedError(entity=path, reason="several entities have it", next_step=f"Write {written}.")
        parts = [*declared, *parts]
    kinds, names = tuple(parts[::2]), tuple(parts[1::2])
    for kind, name in zip(kinds, names, strict=False):
        if _KIND.fullmatch(kind) is None:
            raise _refusal(path, f"the kind {kind!r} is not 1 to 50 small letters, digits and '-'")
        if not name or len(name) > _LONGEST_NAME or not name.isprintable():
            raise _refusal(path, f"a name has 1 to {_LONGEST_NAME} printable characters")
    if len(kinds) != len(names):
        raise _refusal(path, "it is not made of kinds and names in turn")
    if kinds[0] in _BELOW:
        raise MetadataRefusedError(
            entity=path,
            reason=f"the kind {kinds[0]!r} only stands below another one",
            next_step=f"Write it like {_BELOW[kinds[0]]}.",
        )
    if kinds[0] == RUN:
        _require_run(connection, names[0])
    if kinds == (RUN,):
        return Target(path="/".join(parts), kind=RUN, name=names[0], is_declared=True)
    if kinds[0] not in list(Kind):
        return Target(path="/".join(parts), kind=kinds[-1], name=names[-1], is_declared=False)
    _require_declared(plan, kinds[0], names[0])
    return _find_below(plan, Kind(kinds[0]), parts, kinds, names)


def find_place(plan: Plan, path: str, key: MetadataKey) -> str | None:
    """Return the file and line that say a property or tag of an entity or column; None if that is not known."""
    kind, name, *below = path.split("/", 3)
    facts = plan.facts.get((kind, name))
    if facts is None or facts.file is None:
        return None
    column = below[-1] if below else None
    line = next((each.line for each in facts.metadata if (each.column, each.key) == (column, key)), facts.line)
    return f"{facts.file}:{line}"


def refuse_declared(plan: Plan, path: str, key: MetadataKey, next_step: str, fault: Fault = Fault.STATE) -> NoReturn:
    """Refuse to say what a declaration says already. Raises MetadataRefusedError."""
    place = find_place(plan, path, key)
    reason = f"{key.kind.value} {key.name!r} is declared{f' in {place}' if place else ''}"
    raise MetadataRefusedError(entity=path, reason=reason, next_step=next_step, fault=fault)


def require_room(path: str, before: Metadata, after: Metadata, next_step: str, fault: Fault = Fault.STATE) -> None:
    """Require that the metadata of an entity do not become too large. Raises MetadataRefusedError."""
    size = measure(after)
    if size > MOST_BYTES and size > measure(before):
        reason = f"its metadata would have {size:,} bytes, more than {MOST_BYTES:,}"
        raise MetadataRefusedError(entity=path, reason=reason, next_step=next_step, fault=fault)


def _find_below(plan: Plan, kind: Kind, parts: list[str], kinds: tuple[str, ...], names: tuple[str, ...]) -> Target:
    """Return what is at a path that begins with a declared entity."""
    if len(kinds) == 1:
        return Target(path="/".join(parts), kind=kind.value, name=names[0], is_declared=True)
    if kinds == _OF_FEED:
        name = _find_column(plan, *names)
        return Target(path="/".join(parts), kind=COLUMN, name=name, is_declared=True)
    if kinds[1:] == _OF_INSTANCE and kind in (Kind.FEED, Kind.PROCESS):
        sequence = _find_sequence(plan, kind, *names[:2])
        moment = parse_instance(names[2], zone_of_keys(sequence))
        sequence.index(moment)
        name = render_datetime(moment)
        return Target(path="/".join([*parts[:-1], name]), kind=INSTANCE, name=name, is_declared=True)
    return Target(path="/".join(parts), kind=kinds[-1], name=names[-1], is_declared=False)


def _require_declared(plan: Plan, kind: str, name: str) -> None:
    if (kind, name) not in plan.facts:
        similar = tuple(find_similar(name, [each for of_kind, each in plan.facts if of_kind == kind], n=2))
        raise EntityNotFoundError(kind=kind, name=name, suggestions=similar)


def _find_column(plan: Plan, feed: str, path: str) -> str:
    """Return the name of a column, or of a field in one.

    Raises:
        EntityNotFoundError: the feed declares its columns, and this is none of them.
    """
    declared = next((record.columns for record in plan.feeds.values() if record.feed == feed), None)
    if declared is None:
        return path
    known = {column.path: column.name for column in iter_columns(declared)}
    if path not in known:
        similar = tuple(find_similar(path, known, n=2))
        raise EntityNotFoundError(kind=COLUMN, name=f"{feed}.{path}", suggestions=similar)
    return known[path]


def _find_sequence(plan: Plan, kind: Kind, name: str, cluster: str) -> InstanceSequence:
    record = plan.feeds.get((name, cluster)) if kind is Kind.FEED else plan.processes.get((name, cluster))
    if record is None:
        known = tuple(sorted(each for of_name, each in (*plan.feeds, *plan.processes) if of_name == name))
        raise EntityNotFoundError(kind=Kind.CLUSTER.value, name=cluster, suggestions=known)
    return record.sequence


def _require_run(connection: Connection, run_id: str) -> None:
    if find_hidden():
        require_reads(("process", each.key.process) for each in Attempts(connection).of_run(run_id))
    if not Attempts(connection).has_run(run_id):
        raise MetadataRefusedError(
            entity=f"{RUN}/{run_id}",
            reason="there is no such run",
            next_step="Name one that has worked on an instance.",
            fault=Fault.MISSING,
        )


def _refusal(path: str, reason: str) -> MetadataRefusedError:
    return MetadataRefusedError(
        entity=path or "''", reason=reason, next_step="Write it like feed/NAME, or dashboard/NAME."
    )
