"""Measures the tick of the sensor for deadlines. Arguments: folder, feeds, hours of history, repetitions."""

import json
import sqlite3
import sys
import time
from datetime import datetime
from pathlib import Path

from benchmarks.tick_harness import STATE, TickedLocation, open_location
from benchmarks.workload import CLUSTER, HOUR, START
from feed_assets.alerts.deadlines.checks import note_looked
from feed_assets.orchestration.location.reloading import follow_plan
from feed_assets.orchestration.sensors.deadlines import run_sla_tick
from feed_assets.plan.records import Plan
from feed_assets.sql.column_types import to_micros
from feed_assets.sql.database import open_database

FEED = """
---
kind: feed
name: {name}
frequency: hours(1)
format: csv
locations: {{data: "/{name}/${{YEAR}}-${{MONTH}}-${{DAY}}/${{HOUR}}"}}
sla: {{low: hours(1), high: hours(3)}}
clusters: {{{cluster}: {{validity: {{start: {start}}}}}}}
"""
_FILL = """
WITH RECURSIVE
    feeds (n) AS (SELECT :first UNION ALL SELECT n + 1 FROM feeds WHERE n + 1 < :feeds),
    hours (n) AS (SELECT :from UNION ALL SELECT n + 1 FROM hours WHERE n + 1 < :to)
INSERT INTO fa_feed_instances (feed, cluster, nominal_time, status, updated_at, available_at, fence)
SELECT 'feed' || feeds.n, :cluster, :begin + hours.n * :step, 'AVAILABLE', :begin + hours.n * :step,
       :begin + hours.n * :step + 60, 0
FROM feeds CROSS JOIN hours
"""
LATE_SHARE = 10
NOTHING = "no deadline has passed"


def main(folder: str, feeds: str, hours: str, repeats: str) -> None:
    """Print the seconds of each tick, and how many instances were late in the last ones."""
    place, count, history = Path(folder), int(feeds), int(hours)
    write(place, count)
    now = START + history * HOUR

    def fill(_: Plan, state: Path) -> None:
        fill_instances(state, count, 0, history)

    with open_location(place, now, fill) as location:
        follow_plan(location.runtime, location.runtime.location, location.runtime.database(location.instance), now)
        while tick(location, now)[1] != NOTHING:
            pass
        idle = [tick(location, now + n * HOUR / 600)[0] for n in range(1, int(repeats) + 1)]
        due = []
        for n in range(1, int(repeats) + 1):
            fill_instances(place / STATE, count, history + n - 1, history + n)
            due.append(tick(location, now + n * HOUR + HOUR / 60)[0])
        begun, stop = history + int(repeats), history + int(repeats) + history // LATE_SHARE
        fill_instances(place / STATE, count, begun, stop, first=1)  # nobody delivers a tenth of a history of feed 0
        last = START + stop * HOUR + HOUR / 60
        while tick(location, last)[1] != NOTHING:
            pass
        late = count_late(place / STATE)
        beside = [tick(location, last + n * HOUR / 600)[0] for n in range(1, int(repeats) + 1)]
    print(json.dumps({"idle": idle, "due": due, "beside_late": beside, "late": late}))


def write(folder: Path, feeds: int) -> None:
    """Write the entities of feeds with an SLA."""
    (folder / "entities").mkdir(parents=True)
    documents = [f"kind: cluster\nname: {CLUSTER}\nstorage: file://{folder}/data\n"]
    start = START.strftime("%Y-%m-%dT%H:%MZ")
    documents += [FEED.format(name=f"feed{n}", cluster=CLUSTER, start=start) for n in range(feeds)]
    (folder / "entities/all.yaml").write_text("".join(documents))


def tick(location: TickedLocation, at: datetime) -> tuple[float, str]:
    """Run a tick at a time up to which arrivals were looked for; return its seconds, and what it says."""
    location.set_clock(at)
    note_looked(location.runtime.database(location.instance), CLUSTER, at)
    begun = time.perf_counter()
    said = run_sla_tick(location.runtime, location.layout, CLUSTER, location.instance).skip_message
    return time.perf_counter() - begun, said or ""


def fill_instances(state: Path, feeds: int, first_hour: int, stop_hour: int, *, first: int = 0) -> None:
    """Let hours of the feeds from number `first` on be there, each in its hour."""
    open_database(f"sqlite:///{state}").migrate()
    values = {
        "cluster": CLUSTER,
        "begin": to_micros(START),
        "step": to_micros(START + HOUR) - to_micros(START),
        "first": first,
        "feeds": feeds,
        "from": first_hour,
        "to": stop_hour,
    }
    with sqlite3.connect(state) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute(_FILL, values)
    connection.close()


def count_late(state: Path) -> int:
    """Count the instances that are late."""
    with sqlite3.connect(state) as connection:
        query = "SELECT count(DISTINCT name || nominal_time) FROM fa_sla WHERE recovered_at IS NULL"
        (count,) = connection.execute(query).fetchone()
    return int(count)


if __name__ == "__main__":
    main(*sys.argv[1:])
