"""Lineage goes by what has happened, whatever the definitions say by now."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from feed_assets.context.operation import resolve_subject
from feed_assets.entities.process import Process
from feed_assets.instances.late import hanging
from feed_assets.lineage import recorded
from feed_assets.lineage.commands import show
from feed_assets.lineage.instance_views import find_dependencies
from feed_assets.lineage.records import LineageGraph
from feed_assets.log.records import FeedKey
from feed_assets.triggers.apply_triggers import apply_triggers
from tests.context.contexts import context_of
from tests.instances.harness import START, LifecycleHarness, at, feed, hours, process
from tests.instances.inbox.test_rebuilt_queues import coming
from tests.lineage.test_recorded import lineage
from tests.replication.test_flows import harness_of, pass_time, replicated

FEEDS = (feed("clicks"), feed("counts"))
ALL = {"clicks", "count", "counts"}


def counting(frequency: str = "hours(1)", **more: Any) -> Process:
    """A process that counts the clicks of each hour."""
    fields = {"inputs": {"clicks": "now(0,0)"}, "outputs": {"counts": "now(0,0)"}, **more}
    return process("count", frequency, **fields)


def counted(root: Path, state: str | None, *entities: Any, times: Sequence[datetime] = (START,)) -> LifecycleHarness:
    """Some hours of clicks were counted."""
    lifecycle = LifecycleHarness.of(root, *(entities or (*FEEDS, counting())), state=state)
    lifecycle.land("clicks", *hours(4))
    lifecycle.tick(at("01T03:10"))
    for time in times:
        lifecycle.run("count", time, at("01T03:10"), f"run-{time.hour}")
    lifecycle.now = at("01T04:30")
    return lifecycle


def names_of(
    lifecycle: LifecycleHarness, name: str, time: datetime = START, *, up: bool = False, down: bool = False
) -> set[str]:
    """What is in the lineage of an instance on `primary` long after."""
    graph = show(context_of(lifecycle, at("20")), names=(name, time.isoformat()), up=up, down=down)
    assert isinstance(graph, LineageGraph)
    assert graph.notes == ()
    return {each.name for each in graph.nodes}


@pytest.mark.both_databases
def test_who_reads_a_feed_no_longer_has_read_it(tmp_path: Path, state_url: str) -> None:
    both = {"clicks": "now(0,0)", "weather": "now(0,0)"}
    lifecycle = counted(tmp_path, state_url, *FEEDS, feed("weather"), counting(inputs=both, optional=["weather"]))
    lifecycle.land("weather", START)
    lifecycle.arrive(at("01T04:00"))
    lifecycle.run("count", START, at("01T04:10"), "again")
    lifecycle.declare(*FEEDS, feed("weather"), counting())
    assert names_of(lifecycle, "weather", down=True) == {"weather", "count", "counts"}


@pytest.mark.both_databases
def test_a_deleted_process_has_read_and_written(tmp_path: Path, state_url: str) -> None:
    lifecycle = counted(tmp_path, state_url)
    lifecycle.declare(*FEEDS)
    assert names_of(lifecycle, "clicks", down=True) == ALL == names_of(lifecycle, "counts", up=True)
    context = context_of(lifecycle, at("20"))
    found = find_dependencies(context, resolve_subject(context, "clicks", START))
    assert [(each.tag, each.name, each.by) for each in found.items] == [("Input", "count", "clicks")]


def test_instances_after_an_end_that_was_set_later_have_read(tmp_path: Path) -> None:
    lifecycle = counted(tmp_path, None, times=hours(4))
    lifecycle.declare(*FEEDS, counting(end=at("01T02:00")))
    assert names_of(lifecycle, "clicks", at("01T03:00"), down=True) == ALL


def test_a_process_that_left_the_cluster_has_read_there(tmp_path: Path) -> None:
    both = ("primary", "other")
    feeds = feed("clicks", clusters=both), feed("counts", clusters=both)
    lifecycle = LifecycleHarness.of(tmp_path, *feeds, counting(), clusters=both)
    lifecycle.land("clicks", START)
    lifecycle.tick(at("01T03:10"))
    lifecycle.run("count", START, at("01T03:10"), "run")
    lifecycle.now = at("01T04:30")
    lifecycle.declare(*feeds, counting(clusters=("other",)), clusters=both)
    assert names_of(lifecycle, "clicks", down=True) == ALL


def test_a_past_instance_by_a_newer_definition_has_read(tmp_path: Path) -> None:
    lifecycle = counted(tmp_path, None, *FEEDS, counting("hours(2)"), times=hours(4)[::2])
    lifecycle.declare(*FEEDS, counting("hours(1)"))
    lifecycle.tick(at("01T04:40"))
    lifecycle.run("count", at("01T01:00"), at("01T04:50"), "by-hand")
    assert names_of(lifecycle, "clicks", at("01T01:00"), down=True) == ALL


def test_a_feed_whose_validity_begins_later_now_was_read_before(tmp_path: Path) -> None:
    lifecycle, later = counted(tmp_path, None), {"start": at("05")}
    lifecycle.declare(*(feed(each.name, **later) for each in FEEDS), counting(**later))
    context, key = context_of(lifecycle, at("20")), FeedKey("clicks", "primary", START)
    with context.read() as connection:
        port = recorded.RecordedLineage(context.timeline, connection)
        assert [each.attempt.key for each in port.find_readers([key])] == [("count", "primary", START)]


def test_a_flow_that_was_taken_away_has_copied(tmp_path: Path) -> None:
    lifecycle = harness_of(tmp_path, replicated(flag="_DONE"))
    lifecycle.land("clicks", START)
    lifecycle.flag("clicks", START)
    pass_time(lifecycle, at("01T00:10"))
    lifecycle.now = at("01T02:00")
    lifecycle.declare(feed("clicks"), clusters=("primary", "backup"))
    down = lineage(context_of(lifecycle, at("01T03:00")), "clicks", clusters=["primary"], down=True)
    assert {each.cluster for each in down.nodes} == {"primary", "backup"}


def test_where_a_long_line_of_instances_has_not_read_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hanging, "_PAGE", 1)
    monkeypatch.setattr(hanging, "_MOST_OTHERS", 2)
    both = {"clicks": "now(0,0)", "weather": "latest(0)"}
    entities = *FEEDS, feed("weather"), counting(inputs=both, optional=["weather"])
    lifecycle = counted(tmp_path, None, *entities, times=hours(4))
    lifecycle.land("weather", START)
    lifecycle.arrive(at("01T04:00"))
    graph = lineage(context_of(lifecycle, at("20")), "weather", down=True)
    context = context_of(lifecycle, at("20"))
    found = find_dependencies(context, resolve_subject(context, "weather", START))
    told = (
        "whether process count on primary has read it at instances after 2013-11-01T01:00Z was not looked for: "
        "many before have not",
    )
    assert graph.notes == found.remarks == told


def load(**more: Any) -> Process:
    """A process that is run somehow."""
    clusters = {"primary": {"validity": {"start": START}}}
    return Process.model_validate({"name": "load", "clusters": clusters, "workflow": {"path": "jobs:run"}, **more})


WINDOW = {"src": {"feed": "src", "start": "now(0,0)", "end": "now(0,0)"}}
SCHEDULED = load(frequency="hours(1)", inputs=WINDOW, outputs={"next": {"feed": "next", "instance": "now(0,0)"}})


@pytest.mark.both_databases
@pytest.mark.parametrize(
    "entities",
    [(feed("src"), coming("dst")), (feed("another"),), (feed("src"), coming("dst"), feed("next"), SCHEDULED)],
    ids=["without-process", "without-feeds", "with-a-schedule"],
)
def test_batches_are_known_by_the_record(tmp_path: Path, state_url: str, entities: Sequence[Any]) -> None:
    made = {"dst": {"feed": "dst", "instance": "now(0,0)"}}
    before = feed("src"), coming("dst"), load(outputs=made, trigger={"when": "src"})
    lifecycle = LifecycleHarness.of(tmp_path, *before, state=state_url)
    lifecycle.tick(START)
    apply_triggers(lifecycle.open_tick(START))
    lifecycle.land("src", START)
    lifecycle.tick(at("01T00:10"))
    (batch,) = apply_triggers(lifecycle.open_tick(at("01T00:11"))).batches
    lifecycle.run("load", batch.nominal_time, at("01T00:20"), "run")
    lifecycle.now = at("01T05:00")
    lifecycle.declare(*entities)
    assert names_of(lifecycle, "src", down=True) == {"src", "load", "dst"}
    assert names_of(lifecycle, "dst", batch.nominal_time, up=True) == {"src", "load", "dst"}
