"""What columns were made of: recorded once for each different set, and named by the events of productions."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from feed_assets.catalog.column_sets import NOT_TOLD, ColumnSet, ColumnSets, FeedColumn
from feed_assets.catalog.tables import column_sets
from feed_assets.entities.content.column_lineage import DECLARED, ColumnLineage, ColumnSource, SourceKind
from feed_assets.entities.process import Process
from feed_assets.log.events import EventLog
from feed_assets.log.records import FeedEventKind
from feed_assets.masking import remember
from tests.instances.harness import START, LifecycleHarness, at, feed

DIRECT, INDIRECT = SourceKind.DIRECT, SourceKind.INDIRECT
ID = FeedColumn("views", "id", DIRECT, "count(id)")
AT = FeedColumn("views", "at", DIRECT)
USER = FeedColumn("views", "user", INDIRECT, "user <> '***'")
READ = ColumnLineage(
    columns={
        "number": (ColumnSource(input="clicks", column="id", kind=DIRECT, text="count(id)"),) * 2,
        "Day": (ColumnSource(input="clicks", column="at", kind=DIRECT, text="clicks.at"),),
    },
    indirect=(ColumnSource(input="clicks", column="user", kind=INDIRECT, text="user <> 'hunter2'"),),
    beyond=("external/file:///prices",),
)


def counting(**declared: object) -> Process:
    return Process.model_validate(
        {
            "name": "count",
            "frequency": "hours(1)",
            "clusters": {"primary": {"validity": {"start": START}}},
            "inputs": {"clicks": {"feed": "views", "start": "now(0,0)", "end": "now(0,0)"}},
            "outputs": {"counts": {"feed": "totals", "instance": "now(0,0)", "column_lineage": declared}},
            "workflow": {"path": "jobs:run"},
        }
    )


@pytest.fixture
def lifecycle(tmp_path: Path, state_url: str) -> LifecycleHarness:
    found = LifecycleHarness.of(tmp_path, feed("views"), feed("totals"), counting(), state=state_url)
    found.land("views", *(START + timedelta(hours=hour) for hour in range(3)))
    return found


def run(lifecycle: LifecycleHarness, hour: int = 0, **lineage: Any) -> ColumnSet | None:
    """Run an instance whose engine tells a lineage; return the set that its event names."""
    lifecycle.lineage = lineage
    lifecycle.run("count", START + timedelta(hours=hour), at("02T00:00"))
    with lifecycle.database.read() as connection:
        event = EventLog(connection).for_feed("totals", "primary", FeedEventKind.PRODUCED)[-1]
        digest = event.payload.get("columns")
        return None if digest is None else ColumnSets(connection).find([str(digest)])[str(digest)]


def count_sets(lifecycle: LifecycleHarness) -> int:
    with lifecycle.database.read() as connection:
        return connection.scalar(select(func.count()).select_from(column_sets)) or 0


@pytest.mark.both_databases
def test_a_production_names_what_its_columns_were_made_of_by_feeds(lifecycle: LifecycleHarness) -> None:
    remember("hunter2", "password")
    found = run(lifecycle, counts=READ)
    assert found is not None
    assert found.columns == {"number": (ID,), "Day": (AT,)}
    assert ([each._replace(text="") for each in found.indirect], found.unknown) == ([USER._replace(text="")], None)
    assert "hunter2" not in found.indirect[0].text
    assert found.beyond == ("external/file:///prices",)


@pytest.mark.both_databases
def test_equal_sets_are_recorded_once(lifecycle: LifecycleHarness) -> None:
    swapped = ColumnLineage(columns=dict(reversed(READ.columns.items())), indirect=READ.indirect, beyond=READ.beyond)
    first, second = run(lifecycle, 0, counts=READ), run(lifecycle, 1, counts=swapped)
    assert (first, count_sets(lifecycle)) == (second, 1)
    unknown = run(lifecycle, 2, counts=ColumnLineage(unknown="it reads an RDD"))
    assert (unknown, count_sets(lifecycle)) == (ColumnSet(unknown="it reads an RDD"), 2)


def test_times_in_expressions_make_no_other_set(lifecycle: LifecycleHarness) -> None:
    for hour in range(2):
        by = f"(at >= 2013-11-01 0{hour}:00:00)"
        filtered = ColumnLineage(indirect=(ColumnSource(input="clicks", column="at", kind=INDIRECT, text=by),))
        found = run(lifecycle, hour, counts=filtered)
        assert found is not None
        assert found.indirect == (FeedColumn("views", "at", INDIRECT, "(at >= <time>)"),)
    assert count_sets(lifecycle) == 1


def test_a_work_that_tells_nothing_records_nothing(lifecycle: LifecycleHarness) -> None:
    assert (run(lifecycle), count_sets(lifecycle)) == (None, 0)


def test_what_is_declared_wins_and_makes_no_release(lifecycle: LifecycleHarness) -> None:
    lifecycle.declare(
        feed("views"), feed("totals"), counting(number=["clicks.size", "clicks.unit"], day=[], made="clicks.id")
    )
    assert [each.step for each in lifecycle.decisions] == ["in place"]
    sources = tuple(FeedColumn("views", name, DIRECT, DECLARED) for name in ("size", "unit"))
    declared = {"number": sources, "day": (), "made": (FeedColumn("views", "id", DIRECT, DECLARED),)}
    found = run(lifecycle, counts=READ)
    assert found is not None
    assert (found.columns, len(found.indirect), found.unknown) == (declared, 1, None)
    assert run(lifecycle, 1) == ColumnSet(columns=declared, unknown=NOT_TOLD)
