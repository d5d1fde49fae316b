"""A project for `metadata`: flights on a cluster, and a process that reads them."""

import json
from pathlib import Path

import pytest

from tests.cli.project import run
from tests.databases import open_migrated
from tests.projects import enter

VALIDITY = "clusters: {here: {validity: {start: 2026-01-01T00:00Z}}}"
NESTED = ", plane struct<tail: string, seats: array<struct<row: int>>>"
FLIGHTS = f"""\
kind: feed
name: flights
description: Departures of a day.
frequency: days(1)
format: csv
schema: "dep_delay double{NESTED}"
locations: {{data: "/flights/${{YEAR}}-${{MONTH}}-${{DAY}}"}}
tags: {{owner: ops}}
{VALIDITY}
"""
ENTITIES = {
    "here": "kind: cluster\nname: here\nstorage: file://${PROJECT_ROOT}/data\n",
    "flights": FLIGHTS,
    "delays": f"""\
kind: process
name: delays
frequency: days(1)
{VALIDITY}
inputs: {{flights: {{feed: flights, start: "now(0,0)", end: "now(0,0)"}}}}
workflow: {{engine: sql, path: delays.sql}}
""",
}


def prepare(folder: Path, patch: pytest.MonkeyPatch, state: str, settings: str = "") -> None:
    """Flights on a cluster, and a process that reads them, are applied; other versions of the feed lie there."""
    enter(folder, patch)
    for name in ("entities", "data"):
        (folder / name).mkdir()
    for name, text in ENTITIES.items():
        (folder / "entities" / f"{name}.yaml").write_text(text)
    (folder / "delays.sql").write_text("select 1 as n")
    later = f"{FLIGHTS}availability_flag: _SUCCESS\n"
    (folder / "next.yaml").write_text(later)
    (folder / "again.yaml").write_text(later.replace("Departures of a day", "Flights"))
    (folder / "narrow.yaml").write_text(later.replace(NESTED, ""))
    of_system = {"entity": "feed/flights", "update": {"properties": {"format": {"value": "x", "origin": "system"}}}}
    (folder / "of-system.json").write_text(json.dumps({"mutations": [of_system]}))
    (folder / "feed_assets.yaml").write_text(f"state: {state}\n{settings}")
    open_migrated(state).close()
    applied = run("apply", "--yes")
    assert applied.exit_code == 0, applied.output
