"""Measures the first ticks over a feed every five minutes since 2015 and a process that reads it, with nothing in
storage. Arguments: folder, number of ticks.
"""

import json
import sqlite3
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.tick_harness import STATE, open_location
from benchmarks.workload import pairs_of, write_entities
from feed_assets.sql.column_types import to_micros

AT = datetime(2026, 1, 1, tzinfo=UTC)
PAUSE = timedelta(seconds=10)
CHANGES = (("hours(1)", "minutes(5)"), ("/${HOUR}", "/${HOUR}-${MINUTE}"), ("start: 2025", "start: 2015"))


def main(folder: str, ticks: str) -> None:
    """Print the seconds of each tick, and how many instances of today the first has left out."""
    root = Path(folder)
    write_entities(root / "entities", pairs_of(1), root / "data")
    (root / "data").mkdir()
    for file in (root / "entities").glob("process-*.yaml"):
        text = file.read_text()
        for old, new in CHANGES:
            text = text.replace(old, new)
        file.write_text(text)
    with open_location(root, AT) as location:
        seconds = [location.tick()[0]]
        lacking = 2 - _count(root, "fa_feed_instances") - _count(root, "fa_process_instances")
        for number in range(1, int(ticks)):
            location.set_clock(AT + number * PAUSE)
            seconds.append(location.tick()[0])
    print(json.dumps({"seconds": seconds, "lacking": lacking}))


def _count(root: Path, table: str) -> int:
    with sqlite3.connect(root / STATE) as connection:
        (count,) = connection.execute(f"SELECT count(*) FROM {table} WHERE nominal_time = {to_micros(AT)}").fetchone()
    return int(count)


if __name__ == "__main__":
    main(*sys.argv[1:])
