"""The pages of an entity and its versions, of an instance and of a run."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from types import MappingProxyType
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo

from feed_assets.entities.common import Kind
from feed_assets.entities.flow_names import is_flow
from feed_assets.operation_list import find_operation
from feed_assets.plan.edges import OutputEdge
from feed_assets.server.ui.addresses import question_address
from feed_assets.server.ui.catalog import words_of
from feed_assets.server.ui.records import Asked, View
from feed_assets.server.ui.tables import Cell, Table, ask_table, find_table, make_table
from feed_assets.timing.dates import parse_datetime, render_datetime

_Records: TypeAlias = Sequence[Any]
_MORE: Mapping[Kind, Mapping[str, Callable[[_Records], bool]]] = MappingProxyType(
    {
        Kind.FEED: {
            "instance listing": bool,
            "feed events": bool,
            "feed files": lambda on: len(on) == 1 and on[0].has_data,
            "quality history": lambda on: (
                any(not is_flow(each.process) for each in _list_writers(on)) or any(each.is_judged for each in on)
            ),
            "replication status": lambda on: any(is_flow(each.process) for each in _list_writers(on)),
            "hold list": bool,
            "queue consumers": bool,
        },
        Kind.PROCESS: {
            "instance list": bool,
            "facts history": bool,
            "queue show": lambda on: any(each.trigger for each in on),
            "batch list": lambda on: any(each.trigger for each in on),
            "sla backlog": bool,
        },
        Kind.DATASOURCE: {f"datasource {each}": bool for each in ("check", "tables")},
    }
)
"""What else may be asked about a feed or a process, each a page of its own, if it says something about its records."""


def _list_writers(on: _Records) -> list[OutputEdge]:
    return [edge for each in on for edge in each.outputs_of if edge.quarantine_of is None]


def show_entity(asked: Asked) -> View:
    """Show an entity: its state, words, definition, neighbours and newest instances."""
    kind, name = asked.one("kind"), asked.one("name")
    given = {"kind": kind, "name": name}
    instances = _ask_instances(asked, kind, name)
    on = [each for (named, _), each in asked.context.records(Kind(kind)).items() if named == name]
    more = [each for each, is_fit in _MORE.get(Kind(kind), {}).items() if is_fit(on)]
    parts: dict[str, Any] = {
        "status": ask_table(asked, "entity status", given),
        "neighbours": ask_table(asked, "entity dependency", given),
        "history": ask_table(asked, "entity history", given),
        "definition": asked.ask("entity definition", **given),
        "instances": instances,
        "assets": asked.find("instance asset", **given) if instances else None,
        "more": {each: _address_about(each, kind, name) for each in more},
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
