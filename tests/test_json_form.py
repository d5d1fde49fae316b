"""The JSON form of results, and its schema for programs."""

from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import TypeAdapter

from feed_assets.definitions.checks.declared_definitions import ValidationReport
from feed_assets.definitions.lists.history import Governing, HistoryEntry
from feed_assets.definitions.lists.listing import EntityPage
from feed_assets.definitions.lists.reading import EntitySummary
from feed_assets.definitions.verbs.planning import PlannedChanges
from feed_assets.definitions.verbs.verb_results import VerbResult
from feed_assets.entities.common import Kind
from feed_assets.errors import FeedAssetsError
from feed_assets.explain.records import Explanation
from feed_assets.instances.arrival.arrival_notices import NoticeResult
from feed_assets.instances.lists.control import Controlled
from feed_assets.instances.lists.feed_listings import FeedListing
from feed_assets.instances.lists.queries import InstancePage, InstanceSummary
from feed_assets.issues import EntityKey
from feed_assets.json_form import (
    VERSION,
    Hidden,
    NominalTime,
    ShownError,
    ShownKey,
    parse_json,
    render_document,
    shown,
    shows,
)
from feed_assets.lineage.instance_views import TriageGraph
from feed_assets.replication.auditing import Verified
from feed_assets.replication.mirrors.templates import MirrorPlans, MirrorSnapshotList
from feed_assets.replication.repairing import Repaired
from feed_assets.replication.status import ReplicationStatus
from feed_assets.retention.planning import RetentionPlan
from feed_assets.retention.running import PurgeResult, ShownSweep, SweepRuns
from feed_assets.retention.sweeps.undoing import UndoResult

NOON = datetime(2013, 11, 3, 12, tzinfo=UTC)
RESULTS = (
    UndoResult, Controlled, PurgeResult, EntityPage, EntitySummary, Explanation, FeedListing, Governing, HistoryEntry,
    InstancePage, InstanceSummary, MirrorPlans, MirrorSnapshotList, NoticeResult, PlannedChanges, SweepRuns, Repaired,
    ReplicationStatus, RetentionPlan, ShownSweep, TriageGraph, ValidationReport, VerbResult, Verified,
)  # fmt: skip


class Opaque:
    """What pydantic does not know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A result with a field of each sort."""

    key: ShownKey
    kinds: tuple[Kind, ...]
    nominal_time: NominalTime
    recorded_at: datetime
    error: ShownError[FeedAssetsError] | None
    inside: Hidden[Opaque]
    owner: str | None = None

    @shown
    def count(self) -> int:
        """How many kinds there are."""
        return len(self.kinds)


def example(key: EntityKey = ("feed", "clicks")) -> Example:
    return Example(
        key=key,
        kinds=(Kind.FEED,),
        nominal_time=NOON,
        recorded_at=NOON,
        error=FeedAssetsError("it is full"),
        inside=Opaque(),
    )


def test_fields_and_shown_properties_are_keys_and_hidden_ones_are_not() -> None:
    assert render_document(example()) == {
        "version": VERSION,
        "key": {"kind": "feed", "name": "clicks"},
        "kinds": ["feed"],
        "nominal_time": "2013-11-03T12:00Z",
        "recorded_at": "2013-11-03T12:00:00Z",
        "error": "it is full",
        "owner": None,
        "count": 1,
    }
    assert example().count == 1


def test_members_stand_beside_a_result() -> None:
    document = render_document(None, examples=[example()], total=1, first=None)
    assert [document["examples"][0]["count"], document["total"], document["first"]] == [1, 1, None]


@shows("found", "count, at=nominal_time, owner")
@dataclass(frozen=True)
class Row:
    """A row of a list, about a record that may be missing."""

    found: Hidden[Example | None]


def test_a_row_shows_attributes_of_its_record_under_its_own_names_and_in_its_schema() -> None:
    found = Row(example())
    assert render_document(found) == {"version": VERSION, "count": 1, "at": "2013-11-03T12:00Z", "owner": None}
    assert render_document(Row(None)) == {"version": VERSION, "count": None, "at": None, "owner": None}
    schema = TypeAdapter(Row).json_schema(mode="serialization")
    assert schema["properties"]["count"]["anyOf"] == [{"type": "integer"}, {"type": "null"}]


def test_a_row_of_an_attribute_that_its_record_has_not_cannot_be_declared() -> None:
    with pytest.raises(AttributeError):
        shows("found", "size")(Row)


@pytest.mark.parametrize("result", RESULTS)
def test_every_result_has_a_schema(result: Any) -> None:
    schema = TypeAdapter(result).json_schema(mode="serialization")
    definition = schema if "properties" in schema else schema["$defs"][result.__name__]  # one that has itself in it
    assert set(definition["properties"]) & {each.name for each in fields(result)}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b'{"a": "\xff"}', "not UTF-8"),
        ("[" * 100_000, "nested too deep"),
        ('[{"a": {"b": 1, "c": 2, "b": 3}}]', "'b' stands twice"),
        ("{", "Expecting property name"),
    ],
)
def test_hostile_json_is_refused_with_a_reason(text: str | bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_json(text)
