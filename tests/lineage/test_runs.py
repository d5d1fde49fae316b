"""A run as it was, whatever was said, changed and deleted since."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from feed_assets.catalog.editing import update_metadata
from feed_assets.context.errors import InstanceQueryError
from feed_assets.entities.bundle import AnyEntity
from feed_assets.lineage.commands import run as show_run
from feed_assets.lineage.runs import AttemptThen, find_run_then
from feed_assets.log.instances.attempts import Attempts
from feed_assets.log.records import ProcessKey
from tests.context.contexts import context_of
from tests.instances.harness import START, LifecycleHarness, at, counted_statements, feed, hours, process
from tests.lineage.batched import batched

NOON = at("01T12:00")
COUNT = process("count", inputs={"clicks": "now(0,0)"}, outputs={"counts": "now(0,0)"})


def counts(**more: Any) -> AnyEntity:
    return feed("counts", **{"description": "Clicks of an hour", "tags": {"owner": "ops"}, **more})


def said(lifecycle: LifecycleHarness, path: str, **properties: str) -> None:
    lifecycle.now += timedelta(seconds=1)
    update_metadata(context_of(lifecycle, lifecycle.now).by("ann"), path, properties, ())


def ran(tmp_path: Path, state: str | None = None) -> LifecycleHarness:
    """An hour was counted by run-1, after the steward of the clicks was named."""
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"), counts(), COUNT, state=state)
    said(lifecycle, "feed/clicks", steward="ann")
    said(lifecycle, "process/count", ticket="7")
    lifecycle.land("clicks", START)
    lifecycle.code = lambda context: context.fact("rows-read", 12)
    lifecycle.run("count", START, NOON, "run-1")
    return lifecycle


def then(lifecycle: LifecycleHarness, run: str = "run-1") -> AttemptThen:
    (found,) = find_run_then(context_of(lifecycle, at("02")), run).attempts
    return found


@pytest.mark.both_databases
def test_what_was_said_of_a_run_stays_whatever_is_said_and_deleted_since(tmp_path: Path, state_url: str) -> None:
    lifecycle = ran(tmp_path, state_url)
    before = then(lifecycle)
    assert before.words is not None
    assert before.words["feed/clicks"]["USER"]["properties"] == {"steward": "ann"}
    assert before.words["process/count"]["USER"]["properties"] == {"ticket": "7"}
    assert before.words["feed/counts"]["SYSTEM"]["properties"]["description"] == "Clicks of an hour"
    assert before.words["feed/counts"]["USER"]["properties"] == {"owner": "ops"}
    assert "cluster/primary" in before.words
    said(lifecycle, "feed/clicks", steward="bob")
    said(lifecycle, "process/count", ticket="8")
    lifecycle.now = at("01T13:00")
    lifecycle.declare(feed("clicks"), counts(description="Others", tags={"owner": "web"}), COUNT)
    assert then(lifecycle).words == before.words
    lifecycle.now = at("01T14:00")
    lifecycle.declare(feed("clicks"))
    gone = then(lifecycle)
    lifecycle.now = at("01T15:00")
    lifecycle.declare(feed("clicks"), counts(description="Once more"), COUNT)
    for after in (gone, then(lifecycle)):
        assert replace(after, properties=before.properties) == before


def test_a_run_is_told_with_its_definitions_inputs_outputs_and_facts(tmp_path: Path) -> None:
    lifecycle = ran(tmp_path)
    found = then(lifecycle)
    (output,) = found.outputs
    read = found.row.inputs[0].digests[0]
    lines = [*found.text]
    first = "process 'count' on primary at 2013-11-01T00:00Z, attempt 1: SUCCEEDED, 2013-11-01T12:00:00Z to"
    assert lines[0].startswith(first)
    assert {each.split(",")[0] for each in lines if each.startswith("  by ")} == {
        f"  by {each} version 1" for each in ("cluster primary", "feed clicks", "feed counts", "process count")
    }
    for line in (
        f"  read clicks: feed clicks at 2013-11-01T00:00Z, {read}",
        f"  made counts: feed counts on primary at 2013-11-01T00:00Z, {output.row.manifest_digest}, "
        f"event {output.row.seq}",
        "  fact program/rows-read: 12",
        "  feed/clicks USER steward: ann",
        "  feed/clicks SYSTEM tag external",
    ):
        assert line in lines, lines
    assert found.properties is not None
    assert found.properties["nominalTime"] == "2013-11-01-00-00"
    assert any(line.startswith("  property nominalTime: ") for line in lines)


def test_a_later_attempt_has_the_properties_and_the_run_of_the_first_its_own(tmp_path: Path) -> None:
    lifecycle = ran(tmp_path)
    lifecycle.run("count", START, at("01T13:00"), "run-2")
    first, second = then(lifecycle), then(lifecycle, "run:run-2")
    assert (first.row.attempt, first.properties) == (1, None)
    assert (second.row.attempt, second.properties is None) == (2, False)
    assert "  its properties are not known: there was another attempt or release since" in [*first.text]


def test_what_is_not_known_is_said(tmp_path: Path) -> None:
    lifecycle = ran(tmp_path)
    with lifecycle.database.begin() as connection:
        (attempt,) = Attempts(connection).of(ProcessKey("count", "primary", START))
        old = replace(
            attempt, nominal_time=at("01T01:00"), run_id="old", metadata_seq=None, outputs=(99,), release=None
        )
        Attempts(connection).begin(old)
    lines = [*then(lifecycle, "old").text]
    assert "  made 1 more, whose events of long ago were cleaned up" in lines
    assert lines[-1].startswith("  what was said then is not known")


def test_a_run_that_has_worked_on_no_instance_is_refused(tmp_path: Path) -> None:
    lifecycle = ran(tmp_path)
    with pytest.raises(InstanceQueryError, match="run 'run-9': it worked on no instance"):
        show_run(context_of(lifecycle, at("02")), run="run-9")


@pytest.mark.both_databases
def test_a_run_of_a_batch_has_what_the_batch_took(tmp_path: Path, state_url: str) -> None:
    found = then(batched(tmp_path, state_url), "b1")
    (taken,) = found.row.inputs
    assert f"  read {taken.name}: feed src at 2013-11-01T00:00Z, {taken.digests[0]}" in [*found.text]
    assert found.words is not None
    assert "feed/src" in found.words


def test_a_run_of_many_instances_costs_a_few_statements_and_is_told_in_part(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"), counts(), COUNT)
    lifecycle.land("clicks", *hours(20))
    lifecycle.tick(at("01T20:00"))
    for hour in hours(20):
        lifecycle.run("count", hour, at("01T20:00"), "big")
    with counted_statements() as statements:
        found = find_run_then(context_of(lifecycle, at("02")), "big")
    assert len(statements) < 30
    assert ([each.row.nominal_time for each in found.attempts], found.notes) == (hours(20), ())
    first = show_run(context_of(lifecycle, at("02")), run="big", limit=3)
    assert [each.row.nominal_time for each in first.attempts] == hours(3)
    assert first.notes == ("only the first 3 of 20 attempts; --limit shows more",)
