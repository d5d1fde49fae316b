"""Lineage of instances from a real record, on both databases."""

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, update

from feed_assets.context.errors import InstanceQueryError
from feed_assets.context.operation import OperationContext, resolve_subject
from feed_assets.entities.common import Kind
from feed_assets.entities.errors import EntityNotFoundError
from feed_assets.errors import WrongUsageError
from feed_assets.lineage.commands import show
from feed_assets.lineage.recorded import show_lineage
from feed_assets.lineage.records import EdgeKind, LineageGraph, NodeKind
from feed_assets.log.events import EventLog
from feed_assets.log.instances.attempts import Attempts
from feed_assets.log.instances.tables import attempts
from feed_assets.log.records import ProcessKey
from feed_assets.timing.errors import InstanceError
from tests.context.contexts import context_of, counting_harness
from tests.instances.gates import test_imports
from tests.instances.harness import START, LifecycleHarness, at, counted_statements, feed, hours, process
from tests.replication.test_flows import FLOW, HOUR, harness_of, pass_time, replicated
from tests.retention.harness import RetentionHarness, kept_feed
from tests.retention.sweeps import test_mirror_runs


def lineage(context: OperationContext, name: str, time: datetime = START, **more: Any) -> LineageGraph:
    """The lineage of an instance, by default both ways."""
    options = {key: more.pop(key) for key in ("kind", "clusters") if key in more}
    given = {"up": False, "down": False, "levels": 10, **more}
    return show_lineage(context, resolve_subject(context, name, time, **options), **given)


def told(graph: LineageGraph) -> set[tuple[str, str | None, int | None]]:
    """What is in a graph: names, states, and hours."""
    return {(each.name, each.state, each.nominal_time.hour if each.nominal_time else None) for each in graph.nodes}


def edges_of(graph: LineageGraph) -> set[tuple[str, str, str]]:
    """The edges of a graph in words, without the instances."""
    names = {each.id: each for each in graph.nodes}
    words = {name: f"{each.name} {each.number}" if each.number else each.name for name, each in names.items()}
    return {(words[each.source], each.kind.value, words[each.target]) for each in graph.edges}


def run_all(lifecycle: LifecycleHarness) -> None:
    """Four hours of clicks are counted, the first of them twice, and a report is made after each time."""
    lifecycle.land("clicks", *hours(4))
    lifecycle.flag("clicks", *hours(4))
    lifecycle.arrive(at("01T04:00"))
    texts = iter("abcdefgh")
    lifecycle.job = lambda work: {target.name: next(texts) for target in work.outputs}
    for time in hours(4):
        lifecycle.run("count", time, at("01T04:10"), f"count-{time.hour}")
    lifecycle.run("report", START, at("01T04:20"), "report-1")
    lifecycle.run("count", START, at("01T05:00"), "again")
    lifecycle.run("report", START, at("01T05:10"), "report-2")


@pytest.mark.both_databases
def test_row_128_up_leads_through_what_was_frozen_to_attempts_and_to_arrivals(tmp_path: Path, state_url: str) -> None:
    lifecycle = counting_harness(tmp_path, state_url)
    run_all(lifecycle)
    context = context_of(lifecycle, at("01T06:00"))
    graph = lineage(context, "reports", up=True)
    assert told(graph) == {
        *(("clicks", "ARRIVED", hour) for hour in range(4)),
        *((name, state, hour) for name, state in (("count", "SUCCEEDED"), ("counts", "PRODUCED")) for hour in range(4)),
        ("report", "SUCCEEDED", 0),
        ("reports", "PRODUCED", 0),
    }
    attempts = [(each.name, each.number, each.run_id) for each in graph.nodes if each.kind is NodeKind.ATTEMPT]
    assert {each for each in attempts if each[0] == "report"} == {("report", 1, "report-1"), ("report", 2, "report-2")}
    assert ("count", 2, "again") in attempts
    read = {(s, t) for s, kind, t in edges_of(graph) if kind == "read" and t.startswith("report ")}
    first, again = (
        each.number for each in graph.nodes if (each.name, each.nominal_time) == ("counts", START) and each.number
    )
    assert {(f"counts {first}", "report 1"), (f"counts {again}", "report 2")} <= read
    assert (f"counts {again}", "report 1") not in read
    early = lineage(context, "reports", up=True, as_of=at("01T04:30"))
    assert {each.number for each in early.nodes if each.name == "report"} == {1}
    assert (again, "again") not in {(each.number, each.run_id) for each in early.nodes}
    assert {each.name for each in lineage(context, "reports", up=True, levels=1).nodes} == {
        "reports",
        "report",
        "counts",
    }


@pytest.mark.both_databases
def test_down_leads_to_who_has_frozen_it_and_a_level_costs_a_few_statements(tmp_path: Path, state_url: str) -> None:
    lifecycle = counting_harness(tmp_path, state_url)
    run_all(lifecycle)
    context = context_of(lifecycle, at("01T06:00"))
    graph = lineage(context, "clicks", down=True)
    assert {each.name for each in graph.nodes} == {"clicks", "count", "counts", "report", "reports"}
    assert {each.nominal_time for each in graph.nodes if each.name == "counts"} == {START}
    last = lineage(context, "clicks", START + 3 * HOUR, down=True)
    assert {(each.name, each.number) for each in last.nodes if each.kind is NodeKind.ATTEMPT} == {
        ("count", 1),
        ("report", 1),
        ("report", 2),
    }
    with counted_statements() as statements:
        lineage(context, "reports", up=True)
    assert len(statements) < 16
    # By its run, each attempt of a backfill of thousands would be read.
    assert not [each for each in statements if "fa_attempts.run_id =" in each]
    with counted_statements() as statements:
        lineage(context, "clicks", down=True)
    assert len(statements) < 16


def test_data_of_another_time_than_their_process_have_their_maker(tmp_path: Path) -> None:
    shift = process("shift", inputs={"clicks": "now(0,0)"}, outputs={"later": "now(1,0)"})
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"), shift, feed("later"))
    lifecycle.land("clicks", START)
    lifecycle.flag("clicks", START)
    lifecycle.arrive(at("01T00:10"))
    lifecycle.run("shift", START, at("01T00:20"), "run-1")
    context = context_of(lifecycle, at("01T06:00"))
    found = {("later", "PRODUCED", 1), ("shift", "SUCCEEDED", 0), ("clicks", "ARRIVED", 0)}
    assert told(lineage(context, "later", START + HOUR, up=True)) == told(lineage(context, "clicks")) == found


@pytest.mark.both_databases
def test_copies_lead_from_the_source_to_the_target_and_back(tmp_path: Path, state_url: str) -> None:
    lifecycle = harness_of(tmp_path, replicated(flag="_DONE"))
    lifecycle.land("clicks", START)
    lifecycle.flag("clicks", START)
    pass_time(lifecycle, at("01T00:10"))
    context = context_of(lifecycle, at("01T01:00"))
    with counted_statements() as statements:
        down = lineage(context, "clicks", clusters=["primary"], down=True)
    assert sum("fa_feed_events" in each for each in statements) == 2  # those of the copy once
    assert [(each.name, each.cluster, each.state) for each in down.nodes] == [
        ("clicks", "primary", "ARRIVED"),
        (FLOW, "backup", "SUCCEEDED"),
        ("clicks", "backup", "REPLICATED"),
    ]
    up = lineage(context, "clicks", clusters=["backup"], up=True)
    assert {each.cluster for each in up.nodes} == {"backup", "primary"}
    flow = lineage(context, FLOW, clusters=["backup"], up=True)
    assert {each.state for each in flow.nodes} == {"SUCCEEDED", "ARRIVED"}
    # The source may change between freezing and copying: what was copied counts.
    with lifecycle.database.begin() as connection:
        (attempt,) = Attempts(connection).of(ProcessKey(FLOW, "backup", START))
        before = replace(attempt.inputs[0], digests=("sha256:before",))
        connection.execute(update(attempts).where(attempts.c.process == FLOW).values(inputs=(before,)))
    assert lineage(context, "clicks", clusters=["primary"], down=True) == down
    assert lineage(context, "clicks", clusters=["backup"], up=True) == up


def test_what_was_evicted_says_whether_undo_brings_it_back(tmp_path: Path, state_url: str) -> None:
    harness = RetentionHarness.of(tmp_path, kept_feed(), state=state_url)
    harness.land("clicks", START)
    harness.arrive(at("01T00:10"))
    harness.wait(at("20"))
    sweep = harness.sweep_now("clicks")
    context = context_of(harness.lifecycle, at("20T01:00"))
    gone = lineage(context, "clicks")
    assert [each.state for each in gone.nodes] == ["ARRIVED", "EVICTED", sweep.state.value]
    assert gone.nodes[0].remarks == (f"evicted by sweep {sweep.sweep_id}: undo brings it back",)
    harness.undo(sweep)
    back = lineage(context, "clicks")
    assert [each.state for each in back.nodes if each.kind is NodeKind.EVENT] == ["ARRIVED", "EVICTED", "RESTORED"]
    assert back.nodes[0].remarks == (f"evicted by sweep {sweep.sweep_id}, and brought back since",)


@pytest.mark.both_databases
def test_latest_is_found_from_both_sides_of_the_time_until_what_was_frozen_has_passed(
    tmp_path: Path, state_url: str
) -> None:
    peek = process("peek", inputs={"clicks": "latest(0)"}, outputs={"peeks": "now(0,0)"})
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"), feed("peeks"), peek, state=state_url)
    lifecycle.land("clicks", *hours(3))
    lifecycle.arrive(at("01T02:10"))
    for hour in range(3):
        lifecycle.run("peek", START + hour * HOUR, at("01T02:20"), f"run-{hour}")
    context = context_of(lifecycle, at("01T03:00"))
    assert {each.name for each in lineage(context, "clicks", START + HOUR, down=True).nodes} == {"clicks"}
    read = lineage(context, "clicks", START + 2 * HOUR, down=True)
    assert {each.nominal_time.hour for each in read.nodes if each.name == "peek" and each.nominal_time} == {0, 1, 2}


def test_attempts_that_were_cleaned_up_are_answered_from_the_instance(tmp_path: Path, state_url: str) -> None:
    lifecycle = counting_harness(tmp_path, state_url)
    run_all(lifecycle)
    context = context_of(lifecycle, at("01T06:00"))
    with lifecycle.database.begin() as connection:
        log = EventLog(connection)
        counts = [each.seq for each in log.read(0, 100, ["counts"]) if each.nominal_time == START]
        log.remove(counts)
    up = lineage(context, "reports", up=True)
    gone = [each for each in up.nodes if each.kind is NodeKind.FEED]
    assert {each.name for each in gone} == {"counts"}
    assert all("cleaned up" in each.remarks[0] for each in gone)
    assert ("clicks", "ARRIVED", 0) in told(up)
    down = lineage(context, "count", down=True)
    assert {each.remarks for each in down.nodes if each.name == "count"} == {
        ("events of what it has made were cleaned up: who has read that is not looked for",)
    }


@pytest.mark.both_databases
def test_who_has_published_after_it_was_read_has_not_made_it(tmp_path: Path, state_url: str) -> None:
    lifecycle = counting_harness(tmp_path, state_url)
    run_all(lifecycle)
    with lifecycle.database.begin() as connection:
        log = EventLog(connection)
        log.remove([each.seq for each in log.read(0, 100, ["counts"]) if each.nominal_time == START])
        connection.execute(delete(attempts).where(attempts.c.run_id == "count-0"))
    graph = lineage(context_of(lifecycle, at("01T06:00")), "reports", up=True)
    remarks = {each.id: each.remarks for each in graph.nodes if each.kind is NodeKind.FEED}
    unknown = {name for name, told in remarks.items() if told[-1] == "what has brought it is not known"}
    read = {each.source: each.target for each in graph.edges if each.source in remarks}
    assert {read[name][-1] for name in unknown} == {"1"}
    made = {each.target: each.source for each in graph.edges if each.target in remarks}
    assert {(name[-1], read[target][-1]) for target, name in made.items()} == {("2", "2")}


def test_what_is_deleted_still_has_its_lineage(tmp_path: Path) -> None:
    lifecycle = counting_harness(tmp_path)
    run_all(lifecycle)
    lifecycle.declare(feed("clicks", flag="_SUCCESS"), feed("weather"))
    context = context_of(lifecycle, at("01T06:00"))
    graph = show(context, names=("reports", "2013-11-01T00:00Z"), up=True)
    assert isinstance(graph, LineageGraph)
    assert {each.name for each in graph.nodes} == {"reports", "report", "counts", "count", "clicks"}
    assert graph.notes == ()
    down = show(context, names=("counts", "2013-11-01"), down=True, clusters=("primary",))
    assert isinstance(down, LineageGraph)
    assert {each.name for each in down.nodes} == {"counts", "report", "reports"}
    assert down.notes == ()
    work = show(context, names=("count", "2013-11-01"), kind=Kind.PROCESS, down=True, levels=1)
    assert isinstance(work, LineageGraph)
    assert {each.name for each in work.nodes} == {"count", "counts"}
    with pytest.raises(EntityNotFoundError, match="there is no feed or process 'count5'"):
        show(context, names=("count5", "2013-11-01"))


def test_a_mirror_leads_from_directory_to_directory(tmp_path: Path) -> None:
    lifecycle = test_mirror_runs.harness_of(tmp_path, test_mirror_runs.mirror())
    test_mirror_runs.write(tmp_path, {"a": "1"})
    test_mirror_runs.run(lifecycle, START, test_mirror_runs.NOON)
    graph = lineage(context_of(lifecycle, at("02")), "models")
    source, target = (f"place file://{tmp_path}/{cluster}/models" for cluster in ("primary", "backup"))
    work = "process models on primary 2013-11-01T00:00Z attempt 1"
    assert [each.label.partition(" SUCCEEDED")[0] for each in graph.nodes] == [work, source, target]
    assert [each.kind.value for each in graph.edges] == ["read", "made"]
    lifecycle.declare(clusters=("primary", "backup"))
    assert show(context_of(lifecycle, at("03")), names=("models", "2013-11-01T00:00Z")).nodes == graph.nodes


def test_an_import_comes_of_a_table(tmp_path: Path) -> None:
    lifecycle = test_imports.harness_of(tmp_path)
    lifecycle.launch(lifecycle.tick(at("01T00:10")), at("01T00:10"))
    graph = lineage(context_of(lifecycle, at("02")), "orders")
    assert [each.label.partition(" SUCCEEDED")[0] for each in graph.nodes if each.kind is NodeKind.PLACE] == [
        "place datasource/shop/orders"
    ]
    (read,) = (each for each in graph.edges if each.kind is EdgeKind.READ)
    assert (read.source, read.target) == (
        "place/datasource/shop/orders",
        "attempt/orders.import/primary/2013-11-01T00:00Z/1",
    )


def test_what_does_not_exist_is_refused(tmp_path: Path) -> None:
    context = context_of(counting_harness(tmp_path), at("02"))
    with pytest.raises(WrongUsageError, match="Give INSTANCE, too, or --start"):
        show(context, names=("count",))
    with pytest.raises(EntityNotFoundError, match="nothing"):
        lineage(context, "nothing")
    with pytest.raises(InstanceQueryError, match="cluster 'elsewhere': it never was declared"):
        lineage(context, "clicks", kind=Kind.FEED, clusters=["elsewhere"])
    with pytest.raises(InstanceError, match="between two instances"):
        lineage(context, "counts", at("01T00:30"))
