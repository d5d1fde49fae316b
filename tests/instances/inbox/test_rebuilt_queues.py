"""What batches have taken, and what inboxes have had, comes back from manifests after the state was lost."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from feed_assets.clock import FrozenClock
from feed_assets.entities.bundle import AnyEntity
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process
from feed_assets.instances.inbox.inbox_files import FileStatus, list_inbox
from feed_assets.instances.inbox.ingest import take_files
from feed_assets.log.records import ProcessInstanceStatus, ProcessKey
from feed_assets.rebuild.rebuilding import Rebuilt, rebuild_instances
from feed_assets.storage.paths import MANIFEST_NAME
from feed_assets.triggers.apply_triggers import apply_triggers
from feed_assets.triggers.queue.batches import Batches
from feed_assets.triggers.queues import verify_queues
from tests.context.contexts import context_of
from tests.instances.harness import START, LifecycleHarness, feed, hours

NOW = START + timedelta(hours=8)
TIMES = hours(4)
SECOND = timedelta(seconds=1)
LATER = datetime(2100, 1, 1, tzinfo=UTC)
ON = {"primary": {"validity": {"start": "2013-11-01T00:00Z"}}}


def entities(start: str = "earliest") -> tuple[AnyEntity, ...]:
    """`ld` takes what comes in `src`, one by one."""
    made = {"dst": {"feed": "dst", "instance": "now(0,0)"}}
    fields = {"name": "ld", "clusters": ON, "workflow": {"path": "jobs:run"}, "outputs": made}
    taken = {"src": {"feed": "src", "take": "new"}}
    trigger = {"from": start, "batch": {"max": 1}}
    return feed("src"), coming("dst"), Process.model_validate({**fields, "inputs": taken, "trigger": trigger})


def coming(name: str, **more: Any) -> Feed:
    place = f"/{name}/${{YEAR}}-${{MONTH}}-${{DAY}}/${{HOUR}}${{MINUTE}}${{SECOND}}"
    return Feed(name=name, instances="as-they-come", format="csv", locations={"data": place}, clusters=ON, **more)


def cut(lifecycle: LifecycleHarness, as_of: datetime) -> list[ProcessKey]:
    return list(apply_triggers(lifecycle.open_tick(as_of)).batches)


def taken(lifecycle: LifecycleHarness, batch: ProcessKey) -> list[datetime]:
    with lifecycle.database.read() as connection:
        return [event.nominal_time for each in Batches(connection).events_of(batch) for event in each.events]


def rebuild(lifecycle: LifecycleHarness) -> Rebuilt:
    rebuilt = rebuild_instances(context_of(lifecycle, NOW))
    with lifecycle.database.read() as connection:
        assert verify_queues(connection, lifecycle.plan, "primary", lifecycle.now) == []
    return rebuilt


def loaded(root: Path, start: str, count: int) -> dict[datetime, list[datetime]]:
    """The instances that each of some batches has taken."""
    declared = entities(start) if start == "earliest" else (feed("src"),)
    lifecycle = LifecycleHarness.of(root, *declared, state=f"sqlite:///{root / 'first.db'}")
    found = {}
    lifecycle.land("src", *TIMES)
    if start == "now":
        lifecycle.arrive(START)
        lifecycle.declare(*entities("now"))
    for time in TIMES:
        lifecycle.arrive(time)
        for batch in cut(lifecycle, time)[: count - len(found)]:
            lifecycle.run("ld", batch.nominal_time, time)
            found[batch.nominal_time] = taken(lifecycle, batch)
    return found


def lost(root: Path, start: str, state: str) -> LifecycleHarness:
    return LifecycleHarness.of(root, *entities(start), state=state)


@pytest.mark.parametrize("start", ["earliest", "now"])
@pytest.mark.parametrize("is_damaged", [False, True])
def test_batches_come_back_with_their_events_and_the_next_one_takes_the_next(
    tmp_path: Path, state_url: str, start: str, is_damaged: bool
) -> None:
    before = loaded(tmp_path, start, 2)
    lifecycle = lost(tmp_path, start, state_url)
    first = min(before)
    file = lifecycle.folder("dst", first) / MANIFEST_NAME
    whole = file.read_text()
    if is_damaged:
        file.write_text(whole[:-9])
        assert not rebuild(lifecycle).is_complete
        file.write_text(whole)

    rebuilt = rebuild(lifecycle)

    assert {time: taken(lifecycle, ProcessKey("ld", "primary", time)) for time in before} == before
    assert rebuild(lifecycle).is_empty
    assert [each.begins_anew for each in rebuilt.processes] == [False]
    left = [time for time in TIMES if [time] > min(before.values()) and [time] not in before.values()]
    for time in left:
        (batch,) = cut(lifecycle, NOW)
        assert taken(lifecycle, batch) == [time]
        lifecycle.run("ld", batch.nominal_time, NOW)
        with lifecycle.database.read() as connection:
            assert verify_queues(connection, lifecycle.plan, "primary", lifecycle.now) == []
    assert cut(lifecycle, NOW) == []
    assert set(lifecycle.statuses("ld").values()) == {ProcessInstanceStatus.SUCCEEDED}


def test_a_rerun_reads_what_the_first_attempt_has_read(tmp_path: Path) -> None:
    before = loaded(tmp_path, "earliest", 1)
    lifecycle = lost(tmp_path, "earliest", f"sqlite:///{tmp_path / 'empty.db'}")
    rebuild(lifecycle)
    ((time, read),) = before.items()
    lifecycle.run("ld", time, NOW, "again")
    (row,) = lifecycle.instances("ld").values()
    assert (row.attempt, list(row.inputs[0].nominal_times)) == (2, read)


def test_a_queue_of_which_nothing_is_left_is_named(tmp_path: Path) -> None:
    loaded(tmp_path, "now", 0)
    lifecycle = lost(tmp_path, "now", f"sqlite:///{tmp_path / 'empty.db'}")
    assert [each.begins_anew for each in rebuild(lifecycle).processes] == [True]
    assert cut(lifecycle, NOW) == []
    lifecycle.land("src", TIMES[-1] + timedelta(hours=1))
    lifecycle.arrive(NOW)
    (batch,) = cut(lifecycle, NOW)
    assert taken(lifecycle, batch) == [TIMES[-1] + timedelta(hours=1)]


def take(lifecycle: LifecycleHarness, as_of: datetime) -> dict[str, FileStatus]:
    record = lifecycle.feed("orders")
    found = list_inbox(lifecycle.context(as_of), record)
    seen = take_files(lifecycle.context(as_of, real_clock=FrozenClock(LATER)), record, found, is_asked=True)
    return {each.name: each.status for each in seen}


def test_an_inbox_knows_what_it_has_had(tmp_path: Path, state_url: str) -> None:
    orders = coming("orders", inbox={"directory": "/in", "pattern": "*.json"})
    lifecycle = LifecycleHarness.of(tmp_path, orders, state=f"sqlite:///{tmp_path / 'first.db'}")
    inbox = tmp_path / "primary/in"
    inbox.mkdir(parents=True)
    (inbox / "a.json").write_text("1")
    assert take(lifecycle, START) == {"a.json": FileStatus.TAKEN}
    (inbox / "b.json").write_text("1")
    assert take(lifecycle, NOW) == {"b.json": FileStatus.DUPLICATE}
    rebuilt = LifecycleHarness.of(tmp_path, orders, state=state_url)

    assert [(each.recorded, each.begins_anew) for each in rebuild(rebuilt).feeds] == [(1, False)]

    assert take(rebuilt, NOW) == {"b.json": FileStatus.DUPLICATE}
    (inbox / "a.json").write_text("1")
    assert take(rebuilt, NOW + SECOND) == {"a.json": FileStatus.KNOWN, "b.json": FileStatus.DUPLICATE}
    assert rebuild(rebuilt).is_empty
    (row,), (before,) = rebuilt.feed_instances("orders").values(), lifecycle.feed_instances("orders").values()
    assert (row.nominal_time, row.manifest_digest) == (before.nominal_time, before.manifest_digest)


def test_an_inbox_of_which_nothing_is_left_is_named(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, coming("orders", inbox={"directory": "/in"}))
    (tmp_path / "primary/in").mkdir(parents=True)
    (tmp_path / "primary/in/a").write_text("1")
    assert [each.begins_anew for each in rebuild(lifecycle).feeds] == [True]
    take(lifecycle, NOW)
    assert [each.begins_anew for each in rebuild(lifecycle).feeds] == [False]
