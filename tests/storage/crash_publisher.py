"""Kills a publisher before each of its filesystem operations, one after another, and tells what was left.

Run as a process of its own, because it forks and because audit hooks cannot be removed:
`crash_publisher.py ROOT exchange|renames same|anew`. Prints one JSON object for each death.
"""

import json
import os
import shutil
import signal
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import patch

from feed_assets.storage.errors import StagingLostError
from feed_assets.storage.local import store as local_exchange
from feed_assets.storage.local.store import LocalStore
from feed_assets.storage.records import StagingPlace
from tests.storage.harnesses import allow, cannot_exchange, publish, read_all, stage

PATH = "weather/05"
OLD = {"old-0.csv": b"old", "s/old-1.csv": b"older"}
NEW = {"new-0.csv": b"new", "s/new-1.csv": b"newer", "new-2.csv": b"newest"}
EVENTS = {"open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.scandir", "shutil.rmtree"}


def die_before(number: int) -> None:
    seen = 0

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal seen
        if event in EVENTS:
            seen += 1
            if seen == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def publish_until_death(root: Path, staging: StagingPlace, number: int) -> bool:
    """Publish in a child that dies before its n-th operation; False if it did not live to make so many."""
    child = os.fork()
    if child == 0:
        store = LocalStore(root)
        die_before(number)
        store.publish(staging, flag="_SUCCESS", guard=allow, extra={"by": "child"})
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def state(store: LocalStore) -> str:
    availability = str(store.look([PATH], "_SUCCESS")[0].availability)
    if availability == "MISSING":
        return availability
    content = {json.dumps(sorted(OLD)): "old", json.dumps(sorted(NEW)): "new"}
    files = read_all(store, PATH)
    name = content.get(json.dumps(sorted(files)), f"mix of {sorted(files)}")
    published = store.published_manifest(PATH)
    whole = published is not None and published.digest == store.manifest(PATH).digest
    return name if whole and availability == "AVAILABLE" else f"{name}, {availability}, whole: {whole}"


def left_over(root: Path) -> list[str]:
    hidden = (item for item in (root / ".feed-assets").rglob("*") if item.is_file() and item.parent.name != "locks")
    return [item.relative_to(root).as_posix() for item in hidden]


def main(root: Path, swap: str, repeat: str) -> None:
    if swap == "renames":
        patch.object(local_exchange, "exchange", cannot_exchange).start()
    number = 0
    died = True
    while died:
        number += 1
        shutil.rmtree(root, ignore_errors=True)
        store = LocalStore(root)
        publish(store, PATH, OLD)
        staging = stage(store, PATH, NEW, "run-2")
        died = publish_until_death(root, staging, number)
        report = {"number": number, "died": died, "after": state(store)}
        report["recovered"] = store.recover(PATH)
        report["then"] = state(store)
        try:
            if repeat == "same":
                store.publish(staging, flag="_SUCCESS", guard=allow, extra={})
            else:
                publish(store, PATH, NEW, token="run-3")
        except StagingLostError:
            report["lost"] = True
        report["at last"] = state(store)
        store.sweep_staging(datetime.now(UTC) + timedelta(days=1))
        report["left"] = left_over(root)
        report["swept"] = state(store)
        print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
