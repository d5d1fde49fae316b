"""Kills a publisher, a removal and a restore of an Iceberg table at any moment, and tells what was left.

Run as a process of its own, because it forks: `crash_lake.py FOLDER STORAGE OPTIONS KILLS`. The parent does no work
itself, so that its children inherit no threads. Prints one JSON object for each kill.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib import import_module
from pathlib import Path

from tests.lakes import BY_REGION, Lake, write

for each in ("pyiceberg.catalog.sql", "feed_assets.storage.iceberg.store", "feed_assets.storage.iceberg.trash"):
    import_module(each)  # else each child does so, which takes it most of its time

PATH, OTHER = "region=eu", "region=us"
OLD, NEW = [1, 2], [3, 4, 5]


def publish(lake: Lake, path: str, numbers: list[int], token: str) -> None:
    store, table = lake.store("clicks"), lake.table("clicks")
    staging = store.stage(path, token)
    rows = [{"region": path.partition("=")[2], "n": number} for number in numbers]
    write(staging.local_path, table, *rows)
    store.publish(staging, flag=None, guard=lambda: None, extra={"run": token})


def prepare(lake: Lake) -> None:
    """Make the table anew, with two partitions."""
    if lake.catalog.find_table("web", "clicks") is not None:
        lake.catalog.open().drop_table("web.clicks")
    location = f"{lake.storage}/clicks-{time.monotonic_ns()}"
    lake.catalog.open().create_table("web.clicks", lake.schema, location=location, partition_spec=BY_REGION)
    publish(lake, PATH, OLD, "old")
    publish(lake, OTHER, [9], "other")


Act = Callable[[Lake], object]
ACTIONS: tuple[tuple[str, Act, Act, list[int], list[int]], ...] = (
    ("publish", prepare, lambda lake: publish(lake, PATH, NEW, "new"), OLD, NEW),
    ("put", prepare, lambda lake: lake.store("clicks").trash().put("sweep", [PATH]), OLD, []),
    (
        "restore",
        lambda lake: (prepare(lake), lake.store("clicks").trash().put("sweep", [PATH])),
        lambda lake: lake.store("clicks").trash().restore("sweep", [PATH]),
        [],
        OLD,
    ),
)


def in_child(work: Callable[[], object], seconds: float | None = None) -> bool:
    """Do work in a child, which is killed after so long; return whether it has lived to the end."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as exc:  # noqa: BLE001 - a child says what it has
            print(json.dumps({"error": f"{type(exc).__name__}: {exc}"}), flush=True)
            os._exit(1)
        os._exit(0)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise SystemExit("a child has failed")
    return os.WIFEXITED(status)


def main(folder: Path, storage: str, options: dict[str, object], kills: int) -> None:
    def lake() -> Lake:
        return Lake(folder, storage, options)

    def told(number: int, name: str, old: list[int], new: list[int]) -> None:
        found = lake()
        rows = [row for row in found.rows("clicks") if row != 9]
        state = "old" if rows == old else "new" if rows == new else f"half: {rows}"
        store = found.store("clicks")
        swept = store.sweep_staging(datetime.now(UTC) + timedelta(days=1))
        again = [row for row in found.rows("clicks") if row != 9]
        print(json.dumps({"kill": number, "action": name, "state": state, "swept": swept, "same": rows == again}))
        sys.stdout.flush()

    def converged(name: str, new: list[int]) -> None:
        rows = lake().rows("clicks")
        print(json.dumps({"action": name, "converged": rows == sorted([*new, 9])}), flush=True)

    def drill(name: str, before: Act, act: Act, old: list[int], new: list[int]) -> None:
        in_child(lambda: before(lake()))
        began = time.monotonic()
        in_child(lambda: act(lake()))
        length = time.monotonic() - began
        for number in range(kills):
            in_child(lambda: before(lake()))
            in_child(lambda: act(lake()), length * 1.1 * (number + 0.5) / kills)
            in_child(partial(told, number, name, old, new))
            in_child(lambda: act(lake()))
            in_child(lambda: converged(name, new))

    for action in ACTIONS:
        drill(*action)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]), int(sys.argv[4]))
