"""Validates and plans in one process, and prints the seconds of each step. Arguments: the folder of the entities, a
file with another definition of one of them, and a file for the state.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from feed_assets.clock import SystemClock
from feed_assets.definitions.checks.declared_definitions import validate_location
from feed_assets.definitions.verbs.context import open_entity_context
from feed_assets.definitions.verbs.planning import PlannedChanges, plan_edits, plan_folder, read_edits
from feed_assets.loading.entity_files import read_entity_files
from feed_assets.settings import load_settings
from feed_assets.sql.database import open_database

T = TypeVar("T")


def main(entities: str, changed: str, state: str) -> None:
    """Validate all; record them; plan the change of one, first as a separate file and then in place."""
    settings = load_settings({"entities": entities}, {})
    now = SystemClock().now()
    database = open_database(f"sqlite:///{state}")
    database.migrate()
    seconds: dict[str, float] = {}

    def timed(name: str, work: Callable[[], T]) -> T:
        begun = time.perf_counter()
        result = work()
        seconds[name] = time.perf_counter() - begun
        return result

    report = timed("validate", lambda: validate_location(settings))
    assert not report.issues, report.issues[0].render()
    context = open_entity_context(settings, database, author="benchmark", now=now)
    context.store.record_found(now)
    context = open_entity_context(settings, database, author="benchmark", now=now)
    timed("load", lambda: context.store.load(now))

    def plan_one() -> PlannedChanges:
        return plan_edits(context, read_edits(context, read_entity_files(changed)))

    planned = timed("plan", plan_one)
    assert len(planned.difference.entities) == len(planned.difference.processes) == 1
    target = next(file for file in Path(entities).rglob("*.yaml") if planned.edits and _names(file, planned))
    before = target.read_text()
    _, _, old = before.split("---\n")
    target.write_text(before.replace(old, Path(changed).read_text()))
    try:
        again = open_entity_context(settings, database, author="benchmark", now=now)
        planned = timed("plan_folder", lambda: plan_folder(again))
        assert len(planned.difference.entities) == 1
    finally:
        target.write_text(before)
    print(json.dumps(seconds))


def _names(file: Path, planned: PlannedChanges) -> bool:
    (name,) = (key[1] for key in planned.keys)
    return f"name: {name}\n" in file.read_text()


if __name__ == "__main__":
    main(*sys.argv[1:])
