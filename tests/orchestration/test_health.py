"""What fails in the ticks is told to other programs when it begins and when it is over."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from feed_assets.context.bulkheads import TickFailure, TickStep
from feed_assets.log.messages.outbox import Outbox
from feed_assets.log.messages.payloads import HealthPayload
from feed_assets.orchestration.graph.layout import lay_out
from feed_assets.orchestration.location.health import Health, find_health, tell_health
from feed_assets.orchestration.runs.feed_checks import evaluate_changed
from feed_assets.receivers import Topic
from feed_assets.sql.database import Database
from tests.databases import open_migrated
from tests.instances.harness import at
from tests.instances.inbox.test_inboxes import FIRST, NOW, look, put
from tests.instances.inbox.test_inboxes import harness as inbox_harness
from tests.log.samples import hour
from tests.replication.test_flows import FLOW, published, republish

MINUTE = timedelta(minutes=1)
AWAY = TickFailure(
    cluster="primary", step=TickStep.WATCHES, subject="clicks", reason="away", since=hour(0), next_try_at=hour(0)
)
WELL = Health(issues=(), failures=(), obstructed=())


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = open_migrated(f"sqlite:///{tmp_path / 'state.db'}")
    yield made
    made.close()


def told(database: Database) -> list[int]:
    with database.read() as connection:
        found = [each.payload for each in Outbox(connection).read(0, 9, Topic.HEALTH)]
    return [each.count for each in found if isinstance(each, HealthPayload)]


def test_a_failure_that_lasts_is_told_once_and_its_end_once(database: Database) -> None:
    ill = replace(WELL, failures=(AWAY,))
    for health, minutes in ((WELL, 0), (ill, 0), (WELL, 1), (ill, 1), (ill, 2)):
        tell_health(database, health, hour(0) + minutes * MINUTE, hour(0) + minutes * MINUTE)
    assert told(database) == [1]
    for minutes in (3, 4):
        tell_health(database, WELL, hour(0) + minutes * MINUTE, hour(0) + minutes * MINUTE)
    assert told(database) == [1, 0]


def test_the_ticks_of_two_clusters_at_once_tell_once(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    ill, at = replace(WELL, failures=(AWAY,)), hour(0) + 2 * MINUTE
    sentences = Health.sentences

    def overtaken(health: Health, cluster: str | None = None) -> list[str]:
        monkeypatch.setattr(Health, "sentences", sentences)
        tell_health(database, ill, at, at)
        return sentences(health, cluster)

    monkeypatch.setattr(Health, "sentences", overtaken)
    tell_health(database, ill, at + MINUTE, at + MINUTE)
    assert told(database) == [1]


def test_a_file_of_the_future_in_an_inbox_is_logged_and_told_once_and_its_end_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lifecycle = inbox_harness(tmp_path)
    put(lifecycle, "new.json", "one", ago=-timedelta(days=800))
    put(lifecycle, "old.json", "two")
    for minute in range(3):
        look(lifecycle, FIRST + minute * MINUTE)
        health = find_health(lifecycle.database, lifecycle.plan, (), FIRST)
        tell_health(lifecycle.database, health, FIRST + minute * MINUTE, NOW)
    (logged,) = caplog.messages
    said = "its time is 2028-03-11T12:00Z, and it waits until then; give it the present one (touch)"
    assert f"/in/orders/new.json stays in the inbox: {said}. " in logged
    assert health.sentences("primary") == [f"in the inbox of feed orders on primary waits new.json: {said}"]
    assert health.sentences("elsewhere") == []
    assert told(lifecycle.database) == [1]
    put(lifecycle, "new.json", "one")
    assert look(lifecycle, FIRST + 3 * MINUTE).arrived == 1
    tell_health(lifecycle.database, find_health(lifecycle.database, lifecycle.plan, (), FIRST), FIRST + 3 * MINUTE, NOW)
    assert told(lifecycle.database) == [1, 0]


def test_a_file_of_the_future_is_taken_when_its_time_has_come(tmp_path: Path) -> None:
    lifecycle = inbox_harness(tmp_path)
    put(lifecycle, "new.json", "one", ago=-timedelta(days=1))
    assert look(lifecycle).arrived == 0
    assert look(lifecycle, FIRST + MINUTE, NOW + timedelta(days=2)).arrived == 1


def test_replicas_that_stay_behind_fail_the_checks_of_replica_and_location_and_are_told_once_with_the_end(
    tmp_path: Path,
) -> None:
    lifecycle = published(tmp_path)
    layout, said, told_before = lay_out(lifecycle.plan), [], {}
    blocked = (tmp_path / "backup" / "clicks").rename(tmp_path / "aside").parent / "backup" / "clicks"
    blocked.write_text("in the way")
    republish(lifecycle, "second", at("02"))
    lifecycle.tick(at("02T00:01"), "other")
    for minute in (5, 10, 60):
        if minute == 60:
            blocked.unlink()
            (tmp_path / "aside").rename(blocked)
            lifecycle.copy(FLOW, [at("01")], at("02T00:30"))
            lifecycle.tick(at("02T01"), "backup")
        now = at("02") + minute * MINUTE
        health = find_health(lifecycle.database, lifecycle.plan, (), now)
        tell_health(lifecycle.database, health, now, now)
        said += [
            (minute, each.passed, each.asset_key.path)
            for each in evaluate_changed(layout, "backup", health.behind, told_before)
        ]
        told_before = {each.flow: each.instances for each in health.behind}
    assert said == [(10, False, ["backup", "clicks"]), (60, True, ["backup", "clicks"])]
    assert told(lifecycle.database) == [1, 0]
