"""The pages of an entity and its versions, of an instance and of a run."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

from feed_assets.entities.common import Kind
from feed_assets.operation_list import find_operation
from feed_assets.server.ui.addresses import question_address
from feed_assets.server.ui.catalog import words_of
from feed_assets.server.ui.records import Asked, View
from feed_assets.server.ui.tables import Cell, Table, ask_table, find_table, make_table
from feed_assets.timing.dates import parse_datetime, render_datetime

_MORE = {
    Kind.FEED: (
        "instance listing",
        "feed events",
        "feed files",
        "quality history",
        "replication status",
        "hold list",
        "queue consumers",
    ),
    Kind.PROCESS: ("instance list", "facts history", "queue show", "batch list", "sla backlog"),
}
"""What else may be asked about a feed or a process, each a page of its own."""


def show_entity(asked: Asked) -> View:
    """Show an entity: its state, words, definition, neighbours and newest instances."""
    kind, name = asked.one("kind"), asked.one("name")
    given = {"kind": kind, "name": name}
    instances = _ask_instances(asked, kind, name)
    parts: dict[str, Any] = {
        "status": ask_table(asked, "entity status", given),
        "neighbours": ask_table(asked, "entity dependency", given),
        "history": ask_table(asked, "entity history", given),
        "definition": asked.ask("entity definition", **given),
        "instances": instances,
        "assets": asked.find("instance asset", **given) if instances else None,
        "more": {each: _address_about(each, kind, name) for each in _MORE.get(Kind(kind), ())},
    }
    return View(template="entity.html", title=name, parts={**given, **parts, **words_of(asked, f"{kind}/{name}")})


def show_version(asked: Asked) -> View:
    """Show a version of an entity: what it has changed, as a table of fields, and its text."""
    kind, name, number = asked.one("kind"), asked.one("name"), asked.one("version")
    given = {"kind": kind, "name": name}
    versions = {str(each.row.version): each for each in asked.ask("entity history", **given)}
    found = versions.get(number)
    is_deletion = found is not None and found.row.text is None
    definition = "" if is_deletion else asked.ask("entity definition", **given, version=number)
    rows = [[each.field, *map(_render, (each.before, each.after))] for each in (found.changes if found else ())]
    changes = Table(header=("field", "before", "after"), rows=[[*map(Cell, each)] for each in rows])
    parts = {"found": found, "versions": versions, "definition": definition, "changes": changes}
    return View(template="version.html", title=f"{name}, version {number}", parts={**given, **parts})


def _render(value: object) -> str:
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def _ask_instances(asked: Asked, kind: str, name: str) -> Table | None:
    if kind == Kind.FEED:
        found = ask_table(asked, "instance listing", {"feed": name, "num_results": "10"})  # the newest, oldest first
        at = [*found.header, "instance"].index("instance")
        return replace(found, rows=sorted(found.rows, key=lambda row: row[at].text, reverse=True))
    return ask_table(asked, "instance list", {"kind": kind, "name": name}) if kind == Kind.PROCESS else None


def _address_about(operation: str, kind: str, name: str) -> str:
    if operation == "instance list":
        return question_address(operation, {"kind": kind, "name": name})
    return question_address(operation, {kind: name})


def show_instance(asked: Asked) -> View:
    """Show an instance: why it is as it is, its attempts and steps, its quality, and what is one step away."""
    kind, name, instance = asked.one("kind"), asked.one("name"), asked.one("instance")
    given, subject = {"kind": kind, "name": name, "instance": instance}, {kind: name, "instance": instance}
    parts: dict[str, Any] = {
        "why": asked.ask("why", **given),  # which refuses what is no kind
        "moment": parse_datetime(instance, seconds=True),
        "zone": _find_zone(asked, kind, name),
        "neighbours": find_table(asked, "instance dependency", given),
        "assets": asked.find("instance asset", **given),
    }
    if kind == Kind.FEED:
        alone = {"feed": name, "start": instance, "end": render_datetime(parts["moment"] + timedelta(seconds=1))}
        tables = {"On each cluster": ("instance listing", alone), "Quality": ("quality show", subject)}
    else:
        tables = {"Steps": ("instance steps", subject), "Properties": ("instance params", given)}
    parts |= {"tables": {title: find_table(asked, *each) for title, each in tables.items()}}
    return View(template="instance.html", title=f"{name} {instance}", parts={**given, **parts})


def _find_zone(asked: Asked, kind: str, name: str) -> ZoneInfo | None:
    records = asked.context.records(Kind(kind))
    return next((record.sequence.timezone for (found, _), record in records.items() if found == name), None)


def show_run(asked: Asked) -> View:
    """Show a run as it was."""
    run = asked.one("run")
    found = asked.ask("lineage run", run=run)
    then = make_table(find_operation("lineage run"), found, {})
    parts = {
        "run": run,
        "found": found,
        "then": then,
        "url": asked.context.run_url(run),
    }
    return View(template="run.html", title=f"Run {run}", parts={**parts, **words_of(asked, f"run/{run}")})
