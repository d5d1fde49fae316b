"""What lineage says, and how: each edge, what was left out, secrets, and sweeps as they were."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from feed_assets.cli.render import shown
from feed_assets.context.operation import OperationContext, resolve_subject
from feed_assets.entities.common import Kind
from feed_assets.entities.errors import EntityNotFoundError
from feed_assets.entities.process import Process
from feed_assets.instances.arrival.arrival_notices import Notice, record_notice
from feed_assets.instances.commands import events
from feed_assets.lineage.recorded import RecordedLineage, show_lineage
from feed_assets.lineage.records import LineageGraph
from feed_assets.lineage.walk import walk_lineage
from feed_assets.lineage.windows import find_window_lineage
from feed_assets.log.records import FeedKey
from tests.context.contexts import context_of
from tests.instances.harness import START, LifecycleHarness, at, counted_statements, feed, hours, process, validity
from tests.retention.harness import RetentionHarness, kept_feed


def lineage(context: OperationContext, name: str, **given: Any) -> LineageGraph:
    subject = resolve_subject(context, name, START, kind=Kind.FEED)
    return show_lineage(context, subject, **{"up": False, "down": False, "levels": 10, **given})


def summed(tmp_path: Path, count: int) -> LifecycleHarness:
    """The hours of a day were summed up at 24:00."""
    work = process("sum", "days(1)", inputs={"clicks": f"now(0,0) now({count - 1},0)"}, outputs={"sums": "now(0,0)"})
    found = LifecycleHarness.of(tmp_path, feed("clicks"), feed("sums", "days(1)"), work)
    found.land("clicks", *hours(count))
    found.tick(at("02"))
    found.run("sum", START, at("02"), "r")
    return found


def test_two_inputs_that_are_one_instance_are_both_told(tmp_path: Path) -> None:
    window = {"feed": "clicks", "start": "now(0,0)", "end": "now(0,0)"}
    twice = Process.model_validate(
        {
            "name": "count",
            "frequency": "hours(1)",
            "clusters": {"primary": validity(START, None)},
            "inputs": {"one": window, "other": window},
            "outputs": {"counts": {"feed": "counts", "instance": "now(0,0)"}},
            "workflow": {"path": "jobs:run"},
        }
    )
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"), feed("counts"), twice)
    lifecycle.land("clicks", START)
    lifecycle.tick(at("01T02:00"))
    lifecycle.run("count", START, at("01T02:10"), "r")
    context = context_of(lifecycle, at("01T04:00"))
    up, down = lineage(context, "counts", up=True).text, lineage(context, "clicks", down=True).text
    assert "    read (one, other) feed clicks on primary 2013-11-01T00:00Z ARRIVED" in up
    assert "  read by (one, other) process count on primary 2013-11-01T00:00Z attempt 1" in down
    assert "instances)" not in up + down


def test_a_graph_is_cut_only_if_more_follows_and_each_form_says_so(tmp_path: Path) -> None:
    lifecycle = summed(tmp_path, 3)
    with lifecycle.database.read() as connection:
        port = RecordedLineage(lifecycle.timeline, connection)
        start = [FeedKey("sums", "primary", START)]
        whole = walk_lineage(port, start, up=True, down=False, levels=10, most=4)
        assert (len(whole.nodes), whole.is_whole) == (5, True)
        cut = walk_lineage(port, [FeedKey("clicks", "primary", START)], up=False, down=True, levels=1, most=0)
        assert cut.is_whole
        assert "... and more" not in whole.dot + whole.text
    told = LineageGraph(starts=(), nodes=(), edges=(), is_whole=False)
    assert '  "... and more";' in told.dot.splitlines()
    assert told.text.endswith("... and more")


def test_levels_end_where_nothing_follows(tmp_path: Path) -> None:
    context = context_of(summed(tmp_path, 2), at("03"))
    with counted_statements() as few:
        lineage(context, "sums", levels=3)
    with counted_statements() as many:
        lineage(context, "sums", levels=2_000_000)
    assert len(few) == len(many)
    assert find_window_lineage(context, "sums", start=START, levels=2_000_000).relations


def test_a_masked_secret_leaves_the_graph_a_graph(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"))
    lifecycle.land("clicks", START)
    author = 'https://example.org/"p"?token=abc'
    record_notice(context_of(lifecycle, at("01T04:00")).by(author), Notice(feed="clicks", nominal_time=START))
    dot = shown(lineage(context_of(lifecycle, at("01T05:00")), "clicks").dot)
    assert "abc" not in dot
    assert '?token=***" ' in dot
    assert all(line.replace('\\"', "").count('"') % 2 == 0 for line in dot.splitlines()), dot


@pytest.mark.both_databases
def test_before_it_was_undone_and_purged_a_sweep_was_done(tmp_path: Path, state_url: str) -> None:
    harness = RetentionHarness.of(tmp_path, kept_feed(), state=state_url)
    harness.land("clicks", START)
    harness.arrive(at("01T00:10"))
    harness.wait(at("20"))
    sweep = harness.sweep_now("clicks")
    harness.wait(at("20T02:00"))
    harness.undo(sweep)
    context = context_of(harness.lifecycle, at("20T03:00"))
    assert "UNDONE" in lineage(context, "clicks").text
    then = lineage(context, "clicks", as_of=at("20T01:00")).text
    assert f"sweep {sweep.sweep_id} on primary DONE" in then
    assert "undo brings it back" in then


def test_a_payload_is_asked_for_and_shown_as_json_and_a_secret_is_not_confirmed(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"))
    lifecycle.land("clicks", START)
    payload = {"ok": True, "none": None, "rows": 3, "password": "hunter2"}
    notice = Notice(feed="clicks", nominal_time=START, payload=payload)
    record_notice(context_of(lifecycle, at("01T04:00")).by("ann"), notice)
    context = context_of(lifecycle, at("01T04:00") + timedelta(hours=1))
    for name, value, is_found in (
        ("ok", "true", True),
        ("ok", "True", False),
        ("none", "null", True),
        ("absent", "null", False),
        ("absent", "None", False),
        ("rows", "3", True),
        ("password", "hunter2", False),
    ):
        assert bool(events(context, feed="clicks", payload={name: value}).events) is is_found, name
    assert events(context, feed="clicks").events[0].said.startswith("ok=true, none=null, rows=3")


def test_what_no_entity_has_is_not_to_be_declared() -> None:
    assert str(EntityNotFoundError(kind="tag", name="x")).endswith("No entity has a tag.")
