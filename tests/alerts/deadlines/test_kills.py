"""A week with 200 late instances, whose process is killed again and again: each is told once, and none twice."""

import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from feed_assets.log.messages.outbox import Outbox
from feed_assets.log.messages.payloads import SlaPayload
from feed_assets.receivers import Topic
from feed_assets.sql.database import open_database
from feed_assets.timing.dates import render_datetime
from tests.alerts.deadlines.week import late_instances
from tests.drills import drill_seed
from tests.instances.harness import hours

KILLS = 50


@pytest.mark.drill
@pytest.mark.timeout(1800)
def test_no_kill_tells_an_alert_twice_or_leaves_one_out(tmp_path: Path, state_url: str) -> None:
    dice, kills, place = random.Random(drill_seed()), 0, tmp_path / "now"
    while not (tmp_path / "over").exists():
        command = [sys.executable, "-m", "tests.alerts.deadlines.week", str(tmp_path), state_url, str(kills)]
        before = place.read_text() if place.exists() else ""
        process = subprocess.Popen(command)
        if kills < KILLS:
            while process.poll() is None and (not place.exists() or place.read_text() == before):
                time.sleep(0.005)
            time.sleep(dice.uniform(0.0, 0.2))
            process.kill()
            kills += 1
        process.wait()
    assert kills == KILLS
    database = open_database(state_url)
    with database.read() as connection:
        messages = Outbox(connection).read(0, 100_000, Topic.SLA)
    keys = Counter(message.idempotency_key for message in messages)
    told: Counter[tuple[str, str, str, str]] = Counter()
    for message in messages:
        payload = message.payload
        assert isinstance(payload, SlaPayload)
        told.update((payload.event.value, payload.sla.value, payload.entity, each) for each in payload.instances)
    times = [render_datetime(time) for time in hours(7 * 24)]
    late = {(name, times[hour]) for name, hour in late_instances()}
    expected = {("missed", level, *each) for level in ("low", "high") for each in late}
    expected |= {("recovered", "high", *each) for each in late}
    print(f"{kills} kills, {len(messages)} messages, {sum(told.values())} instances named")
    assert set(told) == expected
    assert max(told.values()) == max(keys.values()) == 1
    database.close()
