"""Write the descriptions of what a plan declares.

Keys that a declaration no longer has are gone with the next plan; what people and programs say stays.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from sqlalchemy import Connection

from feed_assets.catalog.descriptions import NOBODY, SCHEDULE, Circumstances, Description, by_cluster, iter_descriptions
from feed_assets.catalog.store import MetadataStore
from feed_assets.catalog.writing import Target, Writing, write_many, write_metadata
from feed_assets.entities.common import Kind
from feed_assets.entities.metadata import (
    Create,
    Declare,
    MetadataKey,
    MetadataKind,
    MetadataValue,
    Mutation,
    Origin,
    Remove,
    Scope,
    Update,
    decide_mutations,
)
from feed_assets.log.definitions.records import ScheduleState
from feed_assets.log.definitions.schedules import Schedules, state_without_row
from feed_assets.log.definitions.store import Definitions
from feed_assets.plan.records import Plan
from feed_assets.setting_sections import SystemMetadataSettings

_FORM = 1
"""Grows when descriptions say something new: then what exists is described again."""


def sign_descriptions(connection: Connection, plan: Plan, chosen: SystemMetadataSettings) -> str:
    """Return what decides whether the descriptions of a plan are others, apart from schedules and the record."""
    said = repr((_FORM, plan.digest, chosen.include, chosen.exclude, state_without_row(connection)))
    return hashlib.sha256(said.encode()).hexdigest()


def apply_descriptions(connection: Connection, plan: Plan, chosen: SystemMetadataSettings, now: datetime) -> int:
    """Write the descriptions that are new or different, and remove what is not declared any more.

    An entity that the plan lacks and the record of definitions has is still declared: its file cannot be read, or has
    errors. Costs one read of all digests; it is called when the plan is another one. Returns how many were written.
    """
    store = MetadataStore(connection)
    circumstances = _find_circumstances(connection, chosen)
    known = store.described()
    new = [each for each in iter_descriptions(plan, circumstances) if known.pop(each.target.path, None) != each.digest]
    _write(connection, new, now)
    store.forget(_find_gone(plan, circumstances, known), NOBODY, now)
    return len(new)


def mend_descriptions(
    connection: Connection, plan: Plan, chosen: SystemMetadataSettings, now: datetime, *, dry_run: bool
) -> int:
    """Write the descriptions that are not what is stored, whatever their digests say, and remove those of what is not
    declared any more. Returns how many there are; with `dry_run` nothing is written.
    """
    store = MetadataStore(connection)
    circumstances = _find_circumstances(connection, chosen)
    known = store.described()
    every = list(iter_descriptions(plan, circumstances))
    entities = store.find_many([each.target.path for each in every])
    said = store.read_many([each.id for each in entities.values()])
    wrong = []
    for each in every:
        entity = entities.get(each.target.path)
        before = said.get(entity.id, {}) if entity is not None else {}
        is_known = known.pop(each.target.path, None) is not None
        if not is_known or decide_mutations(before, _mutations(each)) != before:
            wrong.append(each)
    gone = _find_gone(plan, circumstances, known)
    if not dry_run:
        _write(connection, wrong, now)
        store.forget(gone, NOBODY, now)
    return len(wrong) + len(gone)


def _find_circumstances(connection: Connection, chosen: SystemMetadataSettings) -> Circumstances:
    return Circumstances(
        chosen=chosen,
        without_row=state_without_row(connection),
        recorded=Definitions(connection).recorded(),
        schedules=Schedules(connection).all(),
    )


def _mutations(description: Description) -> tuple[Mutation, ...]:
    """Return what makes the metadata of an entity be its description, and leaves what people and programs say."""
    said = description.metadata()
    system: Mutation = Create(said) if said else Remove(scopes=[Scope.SYSTEM])
    return system, Declare(description.of_declaration())


def _write(connection: Connection, descriptions: Sequence[Description], now: datetime) -> None:
    writings = [Writing(target=each.target, mutations=_mutations(each), author=each.author) for each in descriptions]
    write_many(connection, writings, origin=Origin.SYSTEM, now=now)
    MetadataStore(connection).set_described({each.target.path: each.digest for each in descriptions})


def _find_gone(plan: Plan, circumstances: Circumstances, paths: Iterable[str]) -> list[str]:
    """Return the paths of what is not declared any more."""
    found = {path: tuple(path.split("/")[:2]) for path in paths}
    return [path for path, key in found.items() if key in plan.facts or key not in circumstances.recorded]


def apply_schedule_description(
    connection: Connection,
    kind: Kind,
    name: str,
    states: Mapping[str, ScheduleState],
    chosen: SystemMetadataSettings,
    now: datetime,
) -> None:
    """Write the states of the schedules of a feed or process that has been described, by cluster."""
    path = f"{kind.value}/{name}"
    if not chosen.allows(kind.value, SCHEDULE) or MetadataStore(connection).find(path) is None:
        return
    target = Target(path=path, kind=kind.value, name=name, is_declared=True)
    key = MetadataKey(Scope.SYSTEM, MetadataKind.PROPERTY, SCHEDULE)
    value = MetadataValue(
        by_cluster({cluster: state.value for cluster, state in states.items()}), Origin.SYSTEM, NOBODY
    )
    write_metadata(connection, target, [Update({key: value})], author=NOBODY, origin=Origin.SYSTEM, now=now)
