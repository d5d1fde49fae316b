"""What a plan says of the batches that a new or changed trigger would cut at once."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from feed_assets.definitions.edits import Put
from feed_assets.definitions.verbs.context import EntityContext, open_entity_context
from feed_assets.definitions.verbs.planning import PlannedChanges, plan_edits
from feed_assets.definitions.verbs.schedules import change_work
from feed_assets.definitions.verbs.verb_results import EntityVerb
from feed_assets.entities.common import Kind
from feed_assets.log.events import EventLog
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import FeedEventKind, NewFeedEvent, ProcessInstance, ProcessInstanceStatus
from feed_assets.plan.rendering import Effect, render_difference
from feed_assets.settings import load_settings
from tests.databases import open_migrated

NOW = datetime(2026, 1, 2, tzinfo=UTC)
ON = "clusters: {primary: {validity: {start: 2026-01-01T00:00Z}}}"
CLUSTER = "{kind: cluster, name: primary, storage: file:///data}"
WAITING = "{when: [orders, rates], from: earliest}"
FIRST = "process 'load' on primary: would cut "


def signal(name: str, **fields: str) -> str:
    more = "".join(f"{key}: {value}\n" for key, value in fields.items())
    return f"kind: feed\nname: {name}\nsignal: true\n{ON}\n{more}"


def load(trigger: str, name: str = "load", more: str = "") -> str:
    return f"kind: process\nname: {name}\n{ON}\ntrigger: {trigger}\nworkflow: {{path: 'jobs:load'}}\n{more}"


@pytest.fixture
def context(tmp_path: Path) -> EntityContext:
    """Five orders have come, and no rates, for a process that waits for both."""
    folder = tmp_path / "entities"
    folder.mkdir()
    files = {"cluster": CLUSTER, "orders": signal("orders"), "rates": signal("rates"), "load": load(WAITING)}
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)
    database = open_migrated(f"sqlite:///{tmp_path / 'state.db'}")
    opened = open_entity_context(
        load_settings({"entities": str(folder)}, {}, tmp_path), database, author="ann", now=NOW
    )
    opened.store.record_found(NOW)
    come(opened, "orders", 5)
    return opened


def come(context: EntityContext, feed: str, count: int) -> None:
    event = NewFeedEvent(
        feed=feed,
        cluster="primary",
        nominal_time=NOW,
        kind=FeedEventKind.SIGNALLED,
        origin="a test",
        recorded_at=NOW,
    )
    with context.database.begin() as connection:
        EventLog(connection).append([event] * count)


def put(context: EntityContext, *texts: str) -> PlannedChanges:
    return plan_edits(context, [Put(text=text) for text in texts])


def told(planned: PlannedChanges) -> list[str]:
    """What the plan says of batches."""
    lines = render_difference(planned.difference).splitlines()
    return [line.strip() for line in lines if "would cut" in line]


@pytest.mark.parametrize(
    ("trigger", "first"),
    [
        (
            "{when: {any: [orders, rates]}, from: earliest}",
            "1 batch at the next tick, with 5 of 5 pending events of orders",
        ),
        (
            "{when: orders, from: earliest, batch: {max: 2}}",
            "3 batches from the next tick on, the first with 2 of 5 pending events of orders",
        ),
        (
            "{when: orders, from: earliest, batch: {min: 2, max: 2}}",
            "2 batches from the next tick on, the first with 2 of 5 pending events of orders",
        ),
        (
            "{when: orders, from: earliest, backlog: latest}",
            "1 batch at the next tick, with 1 of 5 pending events of orders (4 passed over)",
        ),
        ("{when: orders, from: earliest, batch: {quiet: minutes(5)}}", None),
        ("{when: orders, from: now}", None),
        ("{when: orders, from: 2026-01-03T00:00Z}", None),
    ],
)
def test_a_plan_says_what_a_changed_trigger_would_cut_at_once(
    context: EntityContext, trigger: str, first: str | None
) -> None:
    assert told(put(context, load(trigger))) == ([] if first is None else [FIRST + first])


def test_a_new_process_takes_what_comes_and_has_no_instances_that_are_due(context: EntityContext) -> None:
    planned = put(context, load("{when: orders, from: earliest}", "history"))
    assert planned.difference.count(Effect.DUE) == 0
    assert "process 'history' on primary: begins to take what comes" in render_difference(planned.difference)
    (batches,) = planned.difference.batches
    assert (batches.process, batches.batches, batches.are_more, batches.busy) == ("history", 1, False, 0)
    assert [(each.input, each.feed, each.taken, each.pending) for each in batches.first] == [("orders", "orders", 5, 5)]


def test_a_feed_that_joins_a_group_fires_those_who_wait_for_the_group(context: EntityContext) -> None:
    context.store.change(
        [Put(text=load("{when: 'group:news', from: earliest}"))], author="ann", origin="a test", now=NOW
    )
    planned = put(context, signal("orders", groups="[news]"))
    assert told(planned) == [f"{FIRST}1 batch at the next tick, with 5 of 5 pending events of orders"]


def test_what_would_be_cut_anyhow_or_must_wait_is_told_so(context: EntityContext) -> None:
    fires = load("{when: orders, from: earliest}")
    row = ProcessInstance(
        process="load",
        cluster="primary",
        nominal_time=NOW,
        status=ProcessInstanceStatus.RUNNING,
        updated_at=NOW,
    )
    with context.database.begin() as connection:
        ProcessInstances(connection).add_waiting([row])
    assert told(put(context, fires)) == [
        f"{FIRST}1 batch once one under way has ended, with 5 of 5 pending events of orders"
    ]
    context.store.change([Put(text=fires)], author="ann", origin="a test", now=NOW)
    assert told(put(context, f"{fires}description: of orders\n")) == []


def test_what_is_suspended_or_wrong_cuts_nothing(context: EntityContext) -> None:
    fires = load("{when: orders, from: earliest}")
    broken = put(context, fires, load("{}", "other", "inputs: {x: {feed: nothing, take: new}}\n"))
    assert (len(broken.errors), told(broken)) == (1, [])
    change_work(context, EntityVerb.SUSPEND, Kind.PROCESS, ["load"])
    assert told(put(context, fires)) == []
