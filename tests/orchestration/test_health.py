"""What fails in the ticks is told to other programs when it begins and when it is over."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from feed_assets.orchestration.location.health import Health, tell_health
from feed_assets.state.database import Database
from feed_assets.state.outbox import Outbox
from feed_assets.state.payloads import HealthPayload
from feed_assets.state.tick_records import TickFailure, TickStep
from feed_assets.topics import Topic
from tests.databases import open_migrated
from tests.state.samples import hour

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
