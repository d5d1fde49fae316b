"""Lineage outlives what was declared: what the record has is answered, what it has not is said."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from feed_assets.context.errors import InstanceQueryError
from feed_assets.context.operation import OperationContext
from feed_assets.entities.bundle import AnyEntity
from feed_assets.entities.common import Kind
from feed_assets.errors import WrongUsageError
from feed_assets.instances.commands import events
from feed_assets.lineage.commands import column, show
from feed_assets.lineage.records import LineageGraph
from feed_assets.log.events import EventLog
from feed_assets.releases.timeline import ReleaseTimeline
from feed_assets.timing.errors import InstanceError
from tests.context.contexts import context_of
from tests.instances.harness import START, LifecycleHarness, at, feed, hours, process

FIRST = "2013-11-01T00:00Z"
EVERY = {"inputs": {"clicks": "now(0,0)"}, "outputs": {"counts": "now(0,0)"}}


def counted(tmp_path: Path, *more: AnyEntity, state: str | None = None, **given: Any) -> LifecycleHarness:
    """Two hours were counted on primary, by 05:00."""
    found = LifecycleHarness.of(
        tmp_path, feed("clicks"), feed("counts"), process("count", **EVERY), *more, state=state, **given
    )
    found.land("clicks", *hours(2))
    found.tick(at("01T04:00"))
    for hour in hours(2):
        found.run("count", hour, at("01T04:10"), f"run-{hour.hour}")
    found.now = at("01T05:00")
    return found


def anew(lifecycle: LifecycleHarness, as_of: datetime) -> OperationContext:
    """The context of a command that begins then: it reads the releases anew."""
    lifecycle.timeline = ReleaseTimeline(lifecycle.plan)
    return context_of(lifecycle, as_of)


def asked(lifecycle: LifecycleHarness, *names: str, **given: Any) -> LineageGraph:
    found = show(anew(lifecycle, at("02")), names=names, **given)
    assert isinstance(found, LineageGraph)
    return found


@pytest.mark.both_databases
def test_a_feed_that_was_moved_has_the_lineage_of_its_old_cluster(tmp_path: Path, state_url: str) -> None:
    lifecycle = counted(tmp_path, clusters=("primary", "east"), state=state_url)
    before = asked(lifecycle, "counts", FIRST).nodes
    lifecycle.declare(
        feed("clicks", clusters=("east",)),
        feed("counts", clusters=("east",)),
        process("count", clusters=("east",), **EVERY),
        clusters=("primary", "east"),
    )
    assert {each.id for each in before} <= {each.id for each in asked(lifecycle, "counts", FIRST).nodes}
    assert asked(lifecycle, "counts", FIRST, clusters=("primary",)).nodes
    assert events(anew(lifecycle, at("02")), feed="counts").events


@pytest.mark.parametrize("now", [feed("counts", "hours(3)"), feed("counts", start=at("05"))], ids=["other", "later"])
def test_only_an_instance_that_neither_the_definitions_nor_the_record_have_is_refused(
    tmp_path: Path, now: AnyEntity
) -> None:
    lifecycle = counted(tmp_path)
    lifecycle.declare(feed("clicks"), now)
    assert asked(lifecycle, "counts", "2013-11-01T01:00Z").nodes
    with pytest.raises(InstanceError):
        asked(lifecycle, "counts", "2013-11-01T02:00Z")


def test_the_day_of_a_deleted_feed_is_that_of_its_time_zone(tmp_path: Path) -> None:
    day: dict[str, Any] = {"start": datetime(2013, 10, 31, 23, tzinfo=UTC), "timezone": "Europe/Berlin"}
    clicks, counts = (feed(name, "days(1)", **day) for name in ("clicks", "counts"))
    lifecycle = LifecycleHarness.of(tmp_path, clicks, counts, process("count", "days(1)", **EVERY, **day))
    lifecycle.land("clicks", day["start"])
    lifecycle.tick(at("01T23:10"))
    lifecycle.run("count", day["start"], at("01T23:10"), "r")
    assert asked(lifecycle, "counts", "2013-11-01").nodes
    lifecycle.declare(clicks)
    assert asked(lifecycle, "counts", "2013-11-01").nodes
    assert asked(lifecycle, "count", "2013-11-01").nodes


def test_a_deleted_feed_is_meant_if_the_record_has_it_though_a_process_has_its_name_since(tmp_path: Path) -> None:
    lifecycle = counted(tmp_path)
    lifecycle.declare(
        feed("clicks"), feed("sums"), process("counts", inputs={"clicks": "now(0,0)"}, outputs={"sums": "now(0,0)"})
    )
    found = asked(lifecycle, "counts", FIRST)
    assert {"counts", "count", "clicks"} <= {each.name for each in found.nodes}
    assert "feed 'counts' is meant" in found.notes[-1]
    of_process = asked(lifecycle, "counts", FIRST, kind=Kind.PROCESS)
    assert (of_process.nodes, of_process.notes[-1]) == ((), f"nothing is recorded of process 'counts' at {FIRST}")


@pytest.mark.both_databases
def test_an_instance_whose_history_was_cleaned_up_has_its_attempt(tmp_path: Path, state_url: str) -> None:
    lifecycle = counted(tmp_path, state=state_url)
    with lifecycle.database.begin() as connection:
        log = EventLog(connection)
        log.remove([each.seq for each in log.read(0, 100, ["counts"])])
    found = asked(lifecycle, "counts", FIRST)
    assert {"count", "clicks"} <= {each.name for each in found.nodes}
    assert "it was cleaned up" in found.notes[-1]


def test_what_is_not_recorded_is_said(tmp_path: Path) -> None:
    lifecycle = counted(tmp_path)
    later = "2013-11-01T09:00Z"
    assert asked(lifecycle, "counts", later).notes == (f"nothing is recorded of feed 'counts' at {later}",)
    before = asked(lifecycle, "counts", FIRST, as_of=at("01T01:00"))
    assert before.notes == (f"nothing is recorded of feed 'counts' at {FIRST} up to 2013-11-01T01:00Z",)


def test_clusters_and_kinds_that_cannot_be_are_refused(tmp_path: Path) -> None:
    lifecycle = counted(tmp_path)
    context = anew(lifecycle, at("02"))
    for given in ({"names": ("counts", FIRST)}, {"names": ("counts",), "start": START}):
        with pytest.raises(InstanceQueryError, match=r"cluster 'nowhere': it never was declared\. Known are primary"):
            show(context, clusters=("nowhere",), **given)
        with pytest.raises(WrongUsageError, match="A cluster has no instances"):
            show(context, kind=Kind.CLUSTER, **given)
    with pytest.raises(InstanceQueryError, match="it never was declared"):
        column(context, feed="counts", clusters=("nowhere",))
    with pytest.raises(InstanceQueryError, match="it never was declared"):
        events(context, feed="counts", cluster="nowhere")
    with pytest.raises(WrongUsageError, match="is after --end 2013-11-01T00:00Z"):
        events(context, feed="counts", start=at("02"), end=START)


def test_a_deleted_feed_has_its_events(tmp_path: Path) -> None:
    lifecycle = counted(tmp_path)
    lifecycle.declare(feed("clicks"))
    assert len(events(anew(lifecycle, at("02")), feed="counts").events) == 2
