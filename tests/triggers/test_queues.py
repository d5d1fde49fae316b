"""`queue` and `batch` over a project in which orders and approvals come."""

from datetime import datetime
from pathlib import Path

import pytest
from sqlalchemy import update

from feed_assets.context.operation import OperationContext, open_context
from feed_assets.context.tick import open_tick
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import Cause, ProcessInstanceStatus, ProcessKey
from feed_assets.settings import load_settings
from feed_assets.sql.database import open_database
from feed_assets.timing.dates import NEVER, render_datetime
from feed_assets.triggers.apply_triggers import apply_triggers
from feed_assets.triggers.queue.tables import batches
from tests.cli.project import must, run, shown
from tests.projects import declare, enter

FEEDS = """
kind: cluster
name: here
storage: file://${PROJECT_ROOT}/data
---
{kind: feed, name: orders, signal: true, clusters: {here: {validity: {start: 2026-01-01T00:00Z}}}}
---
{kind: feed, name: approval, signal: true, clusters: {here: {validity: {start: 2026-01-01T00:00Z}}}}
---
"""
PROCESS = """\
kind: process
name: load
clusters: {here: {validity: {start: 2026-01-01T00:00Z}}}
trigger: {when: {all: [orders, approval]}}
inputs: {orders: {feed: orders, take: new}}
workflow: {engine: sql, path: load.sql}
"""
ENTITIES = FEEDS + PROCESS
TAKEN_BY = "A process that is to take them begins with trigger: {from: 20"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    enter(tmp_path, monkeypatch)
    declare(tmp_path, ENTITIES, schedule="automatic")
    (tmp_path / "load.sql").write_text("select 1 as n")
    tick(tmp_path)
    return tmp_path


def context(project: Path) -> OperationContext:
    settings = load_settings({}, start=project)
    return open_context(settings, open_database(str(settings.state)))


def tick(project: Path, cluster: str = "here", *feeds: str) -> list[str]:
    """What a tick does for triggers after notices of feeds; returns the names of the batches that were cut."""
    for feed in feeds:
        notify(feed)
    done = apply_triggers(open_tick(context(project), cluster))
    return [f"{batch.nominal_time:%Y-%m-%dT%H:%M:%SZ}" for batch in done.batches]


def notify(feed: str, marking: str = "m") -> None:
    must("feed", "notify", feed, "--marking", marking)


def test_a_queue_shows_what_has_come_and_what_its_condition_lacks(project: Path) -> None:
    notify("orders", "first")
    notify("orders", "second")
    assert tick(project) == []
    listed = run("queue", "list").stdout.splitlines()[1].split("\t")
    assert listed[:3] == ["load", "here", "2"]
    assert listed[3] == "1 of 2; approval lacks an event"
    result = run("queue", "show", "load")
    assert [line.split("\t")[5] for line in result.stdout.splitlines()[1:]] == ["first", "second"]
    assert "2 pending; 1 of 2" in result.stderr


def test_a_batch_shows_its_events_and_a_dropped_one_is_in_none(project: Path) -> None:
    for _ in range(3):
        notify("orders")
    tick(project)
    assert "would be dropped" in run("queue", "drop", "load", "--event", "2", "--reason", "twice", "--dry-run").stdout
    result = run("queue", "drop", "load", "--event", "2", "--reason", "twice")
    assert result.stdout == "event 2 at input 'orders' of 'load': was pending, dropped\n"
    for form in ((), ("--dry-run",)):
        refused = run("queue", "drop", "load", "--event", "2", "--reason", "again", *form)
        assert (refused.exit_code, "is dropped: drop changes nothing" in refused.stderr) == (1, True)
    notify("approval")
    (name,) = tick(project)
    found = shown("batch", "show", "load", name)
    assert [each["event"] for each in found["events"]] == [1, 3, 4]
    assert (
        said(found["set_aside"]) == said(shown("queue", "show", "load")["set_aside"]) == [(2, "dropped by ann: twice")]
    )
    assert "event 2 at orders is dropped by ann: twice" in run("queue", "list").stdout
    assert found["status"] == "READY"
    assert run("queue", "verify").exit_code == 0
    audited = run("admin", "audit", "--limit", "5").stdout
    assert "queue drop" in audited


def said(events: object) -> list[tuple[int, str]]:
    """What was decided about events."""
    return [(each["event"], each["decided"]) for each in events]


def test_what_is_held_or_dropped_is_named_with_who_and_why(project: Path) -> None:
    for _ in range(5):
        notify("orders")
    tick(project)
    several = ("queue", "drop", "load", "--reason", "twice", "--event", "1", "--event", "2", "--event")
    assert "it takes no event 9" in run(*several, "9").stderr
    assert run(*several, "3").stdout.splitlines() == [
        f"event {event} at input 'orders' of 'load': was pending, dropped" for event in (1, 2, 3)
    ]
    assert "events 1, 2, 3 of process 'load'" in run("admin", "audit", "--limit", "1").stdout
    run("queue", "hold", "load", "--event", "4", "--reason", "ask", "--author", "bob")
    lines = run("queue", "show", "load").stdout.splitlines()[1:]
    twice = "dropped by ann: twice"
    assert [line.split("\t")[8] for line in lines] == [twice, twice, twice, "held by bob: ask", ""]
    assert run("why", "load").stdout.splitlines()[2:] == [
        "  - event 2 at orders is dropped by ann: twice",
        "  - event 3 at orders is dropped by ann: twice",
        "  - event 4 at orders is held by bob: ask",
        "  - 1 older ones were held or dropped",
    ]


def test_a_repeated_decision_says_where_the_event_is(project: Path) -> None:
    notify("orders")
    tick(project)
    for decided, place in (("hold", "held"), ("drop", "dropped"), ("add", "pending")):
        arguments = ("queue", decided, "load", "--event", "1", "--reason", "ask")
        assert run(*arguments).exit_code == 0
        repeated = must(*arguments, code=1)
        assert repeated.stderr.endswith(f"process 'load' is {place}: {decided} changes nothing there.\n")
    notify("approval")
    (name,) = tick(project)
    taken = run("queue", "hold", "load", "--event", "1", "--reason", "ask").stderr
    assert taken.endswith(f"is taken by {name}: hold changes nothing there. To read it again, run its batch again.\n")


def test_what_came_since_the_last_tick_is_said_to_be_not_routed_yet(project: Path) -> None:
    tick(project, "here", "orders")
    notify("orders")
    notify("approval")
    for arguments in (("queue", "list"), ("queue", "show", "load"), ("why", "load")):
        assert "2 not routed yet: the next tick does it" in run(*arguments).output, arguments
    (consumer,) = shown("queue", "consumers", "orders")["consumers"]
    assert (consumer["pending"], consumer["not_routed"]) == (1, 1)
    tick(project)
    assert "not routed" not in run("queue", "list").output


def test_an_added_event_is_taken_by_the_next_batch(project: Path) -> None:
    notify("orders")
    tick(project)
    assert run("queue", "hold", "load", "--event", "1", "--reason", "ask").exit_code == 0
    notify("approval")
    assert tick(project) == []
    assert run("queue", "add", "load", "--event", "1", "--reason", "asked").exit_code == 0
    (name,) = tick(project)
    assert len(run("batch", "show", "load", name).stdout.splitlines()) == 3


def test_a_spoilt_row_is_named_with_exit_code_1(project: Path) -> None:
    notify("orders")
    notify("approval")
    tick(project)
    with context(project).database.begin() as connection:
        connection.execute(update(batches).values(count=7))
    result = must("queue", "verify", code=1)
    assert "were taken, but there are" in result.stdout


def test_why_without_an_instance_says_what_the_next_batch_waits_for(project: Path) -> None:
    notify("orders")
    tick(project)
    assert run("why", "load").stdout.splitlines() == [
        "process load on here has 1 pending event",
        "  - 1 of 2; approval lacks an event",
    ]
    tick(project, "here", "approval")
    notify("approval")
    tick(project)
    waits = "1 of 1 batches under way: none is cut before one ends"
    assert shown("why", "load")["queues"] == [
        {"process": "load", "cluster": "here", "pending": 1, "lacks": "1 of 2; orders lacks an event", "waits": [waits]}
    ]
    must("entity", "suspend", "process", "load")
    assert "it is suspended: no batch is cut, and what comes is queued" in run("why", "load").stdout


def test_why_and_the_list_name_the_newest_batch_that_has_failed(project: Path) -> None:
    names = []
    for told in ("", ", and 1 before it"):
        names += tick(project, "here", "orders", "approval")
        with context(project).database.begin() as connection:
            key = ProcessKey("load", "here", datetime.fromisoformat(names[-1]))
            failed = {
                "status": ProcessInstanceStatus.FAILED,
                "cause": Cause.FAILURE,
                "cause_detail": "no rows",
                "retry_at": NEVER,
            }
            assert ProcessInstances(connection).transition(
                key, {ProcessInstanceStatus.READY}, updated_at=key.nominal_time, **failed
            )
        said = f"batch {render_datetime(key.nominal_time)} is FAILED (no rows){told}"
        assert said in must("why", "load").stdout
        assert said in must("queue", "list").stdout


def test_the_consumers_of_a_feed_say_how_far_they_have_come(project: Path) -> None:
    for _ in range(3):
        notify("orders")
    tick(project)
    run("queue", "hold", "load", "--event", "1", "--reason", "ask")
    (found,) = shown("queue", "consumers", "orders")["consumers"]
    assert {name: found[name] for name in ("process", "input", "taken", "pending", "first", "held", "dropped")} == {
        "process": "load",
        "input": "orders",
        "taken": 0,
        "pending": 2,
        "first": 2,
        "held": 1,
        "dropped": 0,
    }
    assert run("queue", "consumers", "approval").stdout.splitlines()[1].split("\t")[:5] == [
        *("load", "here", "approval", "0", "0")
    ]


def test_a_deleted_process_leaves_no_queue_and_begins_anew_when_it_is_declared_again(project: Path) -> None:
    notify("orders")
    (name,) = tick(project, "here", "approval")
    notify("orders")
    tick(project)
    deleted = run("entity", "delete", "process", "load")
    assert "killed unfinished instances: 1" in deleted.stdout
    assert f"events on here that nobody takes any more: 1 pending. {TAKEN_BY}" in deleted.stdout
    (project / "load.yaml").write_text(PROCESS.replace("trigger: {", "trigger: {from: earliest, "))
    assert run("entity", "submit-and-schedule", "load.yaml").exit_code == 0
    (again,) = tick(project)
    assert [each["event"] for each in shown("batch", "show", "load", again)["events"]] == [1, 2, 3]
    assert run("queue", "verify").exit_code == 0
    listed = [line.split("\t") for line in run("batch", "list", "load").stdout.splitlines()[1:]]
    assert [cells[5:] for cells in listed] == [["3", "approval 1, orders 2"], ["", "gone with the queue"]]
    refused = run("instance", "rerun", "load", "--instance", name)
    assert (refused.exit_code, "has no events any more" in refused.stderr) == (1, True)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("name: load", "name: put", "process 'load': events on here that nobody takes any more: 3 pending, 1 held"),
        ("[orders, approval]", "[approval]", ""),
        ("{all: [orders, approval]}", "approval", ""),
        ("trigger: {", "trigger: {from: earliest, ", "process 'load': a changed trigger.from has no effect"),
    ],
)
def test_a_change_says_what_it_leaves_in_queues(project: Path, old: str, new: str, said: str) -> None:
    assert run("apply", "--yes").exit_code == 0
    tick(project, "here", *["orders"] * 3)
    run("queue", "hold", "load", "--event", "1", "--reason", "ask")
    notify("orders") if said.endswith("held") else None
    file = project / "entities" / "all.yaml"
    file.write_text(file.read_text().replace(old, new))
    for command in (("plan",), ("apply", "--yes")):
        found = run(*command)
        assert (found.exit_code, said in found.stderr) == (0, True), found.output
        assert ("nobody takes" in found.stderr or "no effect" in found.stderr) == bool(said)


def test_why_says_that_a_name_of_the_condition_is_not_declared_any_more(project: Path) -> None:
    file = project / "entities" / "all.yaml"
    file.write_text(ENTITIES.replace("[orders, approval]", "[orders, {any: [approval, ticket]}]"))
    tick(project, "here", "orders")
    assert run("why", "load").stdout.splitlines() == [
        "process load on here has 1 pending event",
        "  - 1 of 2; approval lacks an event or ticket is not declared",
    ]
