"""Write the descriptions of what a plan declares.

Keys that a declaration no longer has are gone with the next plan; what people and programs say stays.
"""

import hashlib
from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import Connection

from feed_assets.entities.common import Kind
from feed_assets.entities.metadata import (
    Create,
    MetadataKey,
    MetadataKind,
    MetadataValue,
    Mutation,
    Origin,
    Remove,
    Scope,
    Update,
)
from feed_assets.lifecycle.metadata.descriptions import NOBODY, SCHEDULE, Circumstances, by_cluster, iter_descriptions
from feed_assets.lifecycle.metadata.writing import Target, write_metadata
from feed_assets.plan.records import Plan
from feed_assets.settings import SystemMetadataSettings
from feed_assets.state.definition_records import ScheduleState
from feed_assets.state.definitions import Definitions
from feed_assets.state.metadata_store import MetadataStore
from feed_assets.state.schedules import Schedules

DESCRIBED = "metadata/described"
"""The cursor with the sign of the descriptions that were written last."""

_FORM = 1
"""Grows when descriptions say something new: then what exists is described again."""


def sign_descriptions(plan: Plan, chosen: SystemMetadataSettings, without_row: ScheduleState) -> str:
    """Return what decides whether the descriptions of a plan are others, apart from schedules and the record."""
    said = repr((_FORM, plan.digest, chosen.include, chosen.exclude, without_row))
    return hashlib.sha256(said.encode()).hexdigest()


def apply_descriptions(
    connection: Connection, plan: Plan, chosen: SystemMetadataSettings, without_row: ScheduleState, now: datetime
) -> int:
    """Write the descriptions that are new or different, and remove what is not declared any more.

    An entity that the plan lacks and the record of definitions has is still declared: its file cannot be read, or has
    errors. Costs one read of all digests; it is called when the plan is another one. Returns how many were written.
    """
    store = MetadataStore(connection)
    circumstances = Circumstances(
        chosen=chosen,
        without_row=without_row,
        recorded=Definitions(connection).recorded(),
        schedules=Schedules(connection).all(),
    )
    known = store.described()
    written = 0
    for each in iter_descriptions(plan, circumstances):
        before = known.pop(each.target.path, None)
        if before == each.digest:
            continue
        mutations: list[Mutation] = [
            Create(each.metadata()) if each.metadata() else Remove(scopes=[Scope.SYSTEM]),
            Remove(scopes=[Scope.USER], origins=[Origin.DEFINITION]),
            Update(each.of_declaration()),
        ]
        write_metadata(connection, each.target, mutations, author=NOBODY, origin=Origin.SYSTEM, now=now)
        store.set_described(each.target.path, each.digest)
        written += 1
    for path in known:
        kind, name = path.split("/")[:2]
        if (kind, name) in plan.facts or (kind, name) not in circumstances.recorded:
            store.forget(path)
    return written


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
