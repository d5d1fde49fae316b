"""The JSON of every command, one small file each in `golden`: what scripts and programs outside can rely on.

`pytest tests/cli/test_golden.py --update-golden` writes the files anew. Look at the difference before you commit it.
"""

import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import Result
from pyiceberg.catalog.sql import SqlCatalog

from feed_assets.alerts.deadlines.records import Recovery, SlaMiss
from feed_assets.alerts.deadlines.store import SlaMisses
from feed_assets.catalog.run_metadata import PROGRAM, Facts
from feed_assets.clock import FrozenClock
from feed_assets.instances.steps.records import StepRun, StepStatus
from feed_assets.instances.steps.store import Steps
from feed_assets.log.audit import Audit
from feed_assets.log.instances.attempts import Attempts
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.messages.levels import SlaLevel
from feed_assets.log.records import Attempt, Cause, FrozenInput, ProcessInstance, ProcessInstanceStatus
from feed_assets.operation import Does
from feed_assets.operation_list import list_operations
from feed_assets.orchestration.graph.layout import lay_out
from feed_assets.orchestration.location.asset_places import note_places
from feed_assets.plan.copy_records import StoreAddress
from feed_assets.plan.location import load_location
from feed_assets.settings import load_settings
from feed_assets.sql.database import open_database
from feed_assets.storage.pool import StorePool
from feed_assets.storage.port import InstanceStore
from tests.cli.project import let_ticks_come, must, run, set_clock
from tests.commands import iter_commands
from tests.definitions.extensions.samples import files_of, lay
from tests.definitions.verbs.harness import CLICKS, COUNTING, COUNTS
from tests.instances.harness import LifecycleHarness, at
from tests.projects import enter
from tests.retention.sweeps.test_mirror_runs import run as run_mirror
from tests.retention.sweeps.test_mirror_runs import write
from tests.triggers.test_queues import ENTITIES as ORDERS
from tests.triggers.test_queues import tick

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).parent / "golden"
DOCUMENTS = Path(__file__).parents[1] / "loading" / "falcon" / "documents"
NOON = "2013-11-03T12:00Z"
FIRST = "2013-11-03T00:00Z"
DAY = timedelta(days=1)
LAST = "2013-11-03T05:00Z"
RANGE = ("--start", FIRST, "--end", "2013-11-03T04:00Z")
ONE = ("--start", FIRST, "--end", "2013-11-03T01:00Z")
S = ProcessInstanceStatus

ELSEWHERE = """
---
kind: process
name: fetch
clusters: {here: {validity: {start: 2026-01-01T00:00Z}}}
trigger: {from: earliest}
inputs: {orders: {feed: orders, take: new}}
workflow: {engine: external, steps: {get: {}}}
---
kind: feed
name: letters
instances: as-they-come
inbox: {directory: /in/letters}
locations: {data: "/letters/${YEAR}-${MONTH}-${DAY}/${HOUR}${MINUTE}${SECOND}"}
clusters: {here: {validity: {start: 2026-01-01T00:00Z}}}
"""
"""A process whose batches are taken by programs, and a feed with an inbox."""
COMMANDS: dict[str, tuple[str, ...]] = {
    "validate": ("validate", "wrong.yaml"),
    "entity validate": ("entity", "validate", "all.yaml"),
    "entity submit": ("entity", "submit", "all.yaml"),
    "entity submit-and-schedule": ("entity", "submit-and-schedule", "all.yaml", "--dry-run"),
    "entity clone": ("entity", "clone", "feed", "clicks", "taps", "--replace", "/clicks/=/taps/", "--dry-run"),
    "entity schedule": ("entity", "schedule", "process", "counting", "models"),
    "entity suspend": ("entity", "suspend", "process", "counting"),
    "entity resume": ("entity", "resume", "process", "counting"),
    "plan": ("plan", "changed.yaml"),
    "apply": ("apply", "changed.yaml", "--yes"),
    "entity update": ("entity", "update", "updated.yaml"),
    "entity touch": ("entity", "touch", "process", "counting", "--effective-from", "2013-11-03T20:00Z"),
    "entity delete": ("entity", "delete", "process", "models", "--dry-run"),
    "entity rename": ("entity", "rename", "feed", "views", "page-views", "--dry-run"),
    "entity status": ("entity", "status", "process", "counting"),
    "entity list": ("entity", "list", "--fields", "STATUS,TAGS,PIPELINES,CLUSTERS,INPUTS,OUTPUTS"),
    "entity dependency": ("entity", "dependency", "process", "counting"),
    "entity summary": ("entity", "summary", "process", "--cluster", "primary"),
    "entity lookup": ("entity", "lookup", "/clicks/2013-11-03/05"),
    "entity unseen": ("entity", "unseen"),
    "entity history": ("entity", "history", "feed", "clicks"),
    "entity blame": ("entity", "blame", "feed", "clicks", "replication"),
    "entity governing": ("entity", "governing", "counting", LAST, "--cluster", "primary"),
    "entity verify-store": ("entity", "verify-store"),
    "entity update-cluster-dependents": ("entity", "update-cluster-dependents", "primary"),
    "instance list": ("instance", "list", "process", "counting", *RANGE),
    "instance status": ("instance", "status", "feed", "counts", *ONE),
    "instance running": ("instance", "running", "process", "counting"),
    "instance summary": ("instance", "summary", "process", "counting", *RANGE),
    "instance calendar": ("instance", "calendar", "counting", "--day", "2013-11-03"),
    "instance asset": ("instance", "asset", "counting", FIRST),
    "settings": ("settings",),
    "instance params": ("instance", "params", "counting", FIRST),
    "instance steps": ("instance", "steps", "counting", FIRST),
    "instance logs": ("instance", "logs", "process", "counting", *RANGE),
    "instance listing": ("instance", "listing", "clicks", *ONE, "--clusters", "primary", "--look"),
    "instance dependency": ("instance", "dependency", "process", "counting", FIRST),
    "instance triage": ("instance", "triage", "process", "counting", LAST),
    "lineage show": ("lineage", "show", "clicks", "--start", FIRST, "--end", "2013-11-04T00:00Z"),
    "lineage group": ("lineage", "group", "cluster", "primary"),
    "lineage column": ("lineage", "column", "clicks", "--down"),
    "lineage run": ("lineage", "run", "run-1"),
    "instance search": ("instance", "search", "--kind", "process", "--nameseq", "counting", *RANGE),
    "quality show": ("quality", "show", "counts", FIRST),
    "quality history": ("quality", "history", "counts"),
    "why": ("why", "counting", "2013-11-03T11:00Z"),
    "feed notify": ("feed", "notify", "clicks", LAST, "--cluster", "primary"),
    "instance kill": ("instance", "kill", "counting", "--start", LAST, "--end", "2013-11-03T06:00Z"),
    "instance suspend": ("instance", "suspend", "counting", *RANGE, "--dry-run"),
    "instance resume": ("instance", "resume", "counting", *RANGE, "--dry-run"),
    "instance rerun": ("instance", "rerun", "counting", "--start", LAST, "--end", "2013-11-03T06:00Z"),
    "replication verify": ("replication", "verify", "clicks", "--start", "2013-11-03T09:00Z", "--end", NOON),
    "replication repair": ("replication", "repair", "clicks", "--start", "2013-11-03T03:00Z", "--end", NOON),
    "replication status": ("replication", "status", "clicks", "--start", "2013-11-03T08:00Z", "--end", NOON),
    "hold add": ("hold", "add", "audit", "--feed", "clicks", "--instance", FIRST, "--reason", "numbers"),
    "hold list": ("hold", "list"),
    "retention plan": ("retention", "plan", "--feed", "clicks", "--feed", "views"),
    "retention approve": ("retention", "approve", "<asking>", "--dry-run"),
    "retention cancel": ("retention", "cancel", "<sweep>", "--dry-run"),
    "retention run": ("retention", "run", "<sweep>"),
    "retention show": ("retention", "show", "<sweep>", "--limit", "2"),
    "retention list": ("retention", "list", "--state", "done"),
    "retention report": ("retention", "report", "<sweep>"),
    "retention undo": ("retention", "undo", "<sweep>", "--instance", LAST),
    "retention purge": ("retention", "purge", "<sweep>", "--now"),
    "hold release": ("hold", "release", "audit"),
    "mirror plan": ("mirror", "plan", "models"),
    "mirror snapshots": ("mirror", "snapshots", "models"),
    "mirror new": ("mirror", "new", "others", "--source", "primary:/others", "--target", "backup:/others"),
    "import-falcon": ("import-falcon", str(DOCUMENTS / "clicks.xml"), "--to", "imported"),
    "export-falcon": ("export-falcon", "cluster", "primary"),
    "simulate": ("simulate", "--from", FIRST, "--to", "2013-11-03T02:00Z", "--every", "hours(1)", "--seed", "1"),
    "queue list": ("queue", "list"),
    "queue show": ("queue", "show", "load"),
    "queue consumers": ("queue", "consumers", "orders"),
    "queue hold": ("queue", "hold", "load", "--event", "<first>", "--reason", "numbers"),
    "queue drop": ("queue", "drop", "load", "--event", "<first>", "--reason", "numbers"),
    "queue add": ("queue", "add", "load", "--event", "<first>", "--reason", "numbers"),
    "queue verify": ("queue", "verify"),
    "batch list": ("batch", "list", "load"),
    "batch show": ("batch", "show", "load", NOON),
    "batch init": ("batch", "init", "fetch"),
    "batch step-start": ("batch", "step-start", "fetch", "get"),
    "batch step-fail": ("batch", "step-fail", "fetch", "get"),
    "batch fail": ("batch", "fail", "fetch"),
    "batch step-end": ("batch", "step-end", "fetch", "get"),
    "batch end": ("batch", "end", "fetch", "--marking", "DAILY_END"),
    "feed events": ("feed", "events", "clicks", "--limit", "1"),
    "feed take": ("feed", "take", "letters"),
    "feed files": ("feed", "files", "letters"),
    "metadata put": ("metadata", "put", "feed/clicks", "note=late on Mondays", "steward=ann"),
    "metadata tag": ("metadata", "tag", "dashboard/hits", "public", "checked"),
    "metadata copy": ("metadata", "copy", "feed/clicks", "feed/views"),
    "metadata import": ("metadata", "import", "said.json", "--dry-run"),
    "bundle export": ("bundle", "export", "counting", "--to", "counting.zip"),
    "bundle import": ("bundle", "import", "counting.zip", "--dry-run"),
    "extension register": ("extension", "register", "recipe"),
    "extension list": ("extension", "list"),
    "extension show": ("extension", "show", "shop-tables"),
    "extension job validate": ("extension", "job", "validate", "shop-tables", "nightly", "--file", "tables.yaml"),
    "extension job submit": ("extension", "job", "submit", "shop-tables", "nightly", "--file", "tables.yaml"),
    "extension job schedule": ("extension", "job", "schedule", "nightly"),
    "extension job suspend": ("extension", "job", "suspend", "nightly"),
    "extension job resume": ("extension", "job", "resume", "nightly"),
    "extension job update": ("extension", "job", "update", "nightly", "--parameter", "parallel=3"),
    "extension job list": ("extension", "job", "list"),
    "extension job show": ("extension", "job", "show", "nightly"),
    "extension job delete": ("extension", "job", "delete", "nightly"),
    "extension disable": ("extension", "disable", "shop-tables"),
    "extension enable": ("extension", "enable", "shop-tables"),
    "extension unregister": ("extension", "unregister", "shop-tables"),
    "metadata untag": ("metadata", "untag", "dashboard/hits", "checked"),
    "metadata remove": ("metadata", "remove", "feed/views", "--all", "--dry-run"),
    "metadata get": ("metadata", "get", "feed/clicks"),
    "metadata history": ("metadata", "history", "dashboard/hits"),
    "search": (
        "search",
        "steward:ann",
        "--target",
        "feed",
        "--sort",
        "entity-name asc",
        "--limit",
        "1",
        "--cursors",
        "1",
    ),
    "keys list": ("keys", "ste"),
    "keys show": ("keys", "show", "steward"),
    "metadata reindex": ("metadata", "reindex", "--dry-run"),
    "metadata drop": ("metadata", "drop", "dashboard/hits"),
    "admin cleanup": ("admin", "cleanup", "--clusters", "primary", "--dry-run"),
    "registration verify": ("registration", "verify", "sales"),
    "registration repair": ("registration", "repair", "sales"),
    "admin safemode": ("admin", "safemode", "on", "--reason", "storage moves"),
    "admin audit show": ("admin", "audit", "--limit", "2"),
    "admin audit verify": ("admin", "audit", "verify"),
    "admin users": ("admin", "users"),
    "admin messages": ("admin", "messages", "--limit", "2", "--topic", "eviction"),
    "facts history": ("facts", "history", "counting", "--start", "2013-11", "--name", "clicks-read"),
    "sla alerts": ("sla", "alerts", "--start", FIRST, "--name", "views"),
    "sla backlog": ("sla", "backlog"),
    "sla forecast": ("sla", "forecast", "--within", "days(2)"),
    "sla ack": ("sla", "ack", "--start", FIRST, "--kind", "process"),
    "sla history": ("sla", "history", "--start", FIRST, "--kind", "process"),
    "notify list": ("notify", "list"),
    "notify send": ("notify", "send", "--dry-run"),
    "notify test": ("notify", "test", "ops", "--dry-run"),
    "notify retry": ("notify", "retry"),
    "state rebuild": ("state", "rebuild", "--dry-run"),
    "token create": ("token", "create", "loader", "--may", "reads,notifies"),
    "token list": ("token", "list"),
    "token revoke": ("token", "revoke", "loader"),
}
"""The commands in the order in which they are given to one project; each with what they find there."""


ASKING = {"feed files", "mirror plan", "mirror snapshots", "registration verify", "replication verify"}
"""The commands that ask storages, though they change nothing: what they tell is there, or is asked for by an option."""


WORKING: dict[str, tuple[str, ...]] = {
    "moving": ("entity", "update", "moved.yaml"),
    "admin safemode": ("admin", "safemode", "off"),
    "entity update-cluster-dependents": ("entity", "update-cluster-dependents", "primary"),
    "metadata import": ("metadata", "import", "said.json"),
    "metadata remove": ("metadata", "remove", "feed/views", "--all"),
    "entity clone": ("entity", "clone", "feed", "clicks", "taps", "--replace", "/clicks/=/taps/"),
    "entity submit-and-schedule": ("entity", "submit-and-schedule", "more.yaml"),
    "instance suspend": ("instance", "suspend", "counting", "--instance", LAST),
    "instance resume": ("instance", "resume", "counting", "--instance", LAST),
    "retention approve": ("retention", "approve", "<asking>"),
    "retention cancel": ("retention", "cancel", "<asking>"),
    "bundle export": ("bundle", "export", "taps", "--to", "taps.zip"),
    "entity delete": ("entity", "delete", "feed", "taps"),
    "bundle import": ("bundle", "import", "taps.zip"),
    "entity rename": ("entity", "rename", "feed", "taps", "touches"),
    "admin cleanup": ("admin", "cleanup"),
}
"""Commands that only say above what they would do, as they do it at the end, outside of safe mode."""
AUDITED_ELSEWHERE = {
    "metadata reindex": "test_reindexing.py: it needs a wrong index",
    "notify retry": "test_notifying.py: it needs dead letters",
}
"""What changes something, and leaves its row in the audit elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Story:
    """What commands tell and do, by their names."""

    texts: dict[str, str] = field(default_factory=dict)
    asks: set[str] = field(default_factory=set)
    """Those that have opened a storage: one that hangs would have kept them from telling anything."""
    audited: dict[str, list[str]] = field(default_factory=dict)
    """The authors in the rows of the audit that they have written."""
    refused: dict[str, str] = field(default_factory=dict)
    """What those that safe mode stops say then."""


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> _Story:
    with pytest.MonkeyPatch.context() as patch:
        return _tell_story(tmp_path_factory.mktemp("golden"), patch)


@pytest.fixture(scope="module")
def printed(story: _Story) -> dict[str, str]:
    """What each command prints, by its name."""
    return story.texts


def _tell_story(folder: Path, patch: pytest.MonkeyPatch) -> _Story:
    prepare(folder, patch)
    story = _Story()
    opened: list[StoreAddress] = []

    class Noting(StorePool):
        def get(self, address: StoreAddress) -> InstanceStore:
            opened.append(address)
            return super().get(address)

    patch.setattr("feed_assets.context.operation.StorePool", Noting)
    audited = 0

    def note(name: str) -> None:
        nonlocal audited
        with open_database(str(load_settings().state)).read() as connection:
            rows = Audit(connection).newest(1000)
        story.audited.setdefault(name, []).extend(each.author for each in rows[: len(rows) - audited])
        audited = len(rows)

    for name, result in run_commands(folder, "--output", "json"):
        assert result.stdout.startswith("{"), (name, result.output)
        story.texts[name] = stable(result.stdout, folder)
        story.asks.update([name] if opened else [])
        opened.clear()
        if (folder / "state.db").exists():
            note(name)
    stops = [each.name for each in list_operations().items if each.stops_in_safe_mode]
    story.refused.update((name, run(*COMMANDS[name]).stderr) for name in stops)
    note("refused")
    (asking,) = json.loads(run("retention", "list", "--state", "asking", "--output", "json").stdout)["sweeps"]
    for name, arguments in WORKING.items():
        if name == "admin cleanup":
            patch.setattr("feed_assets.context.operation.open_clock", lambda _: FrozenClock(at("03T12:00") + 100 * DAY))
            patch.setenv("DAGSTER_HOME", str(folder / "dagster"))
        must(*(asking["sweep_id"] if each == "<asking>" else each for each in arguments))
        note(name)
    return story


def run_commands(folder: Path, *form: str, give: Callable[..., Result] = run) -> Iterator[tuple[str, Result]]:
    """Give all commands to a prepared project, and yield what each prints: as JSON, or in its own form without one."""
    sweeps: dict[str, str] = {}
    for name, arguments in COMMANDS.items():
        if name == "plan":
            let_ticks_come(f"sqlite:///{folder}/state.db", until=DAY)
        if name == "instance list":
            record_instances(folder)
        if name == "mirror snapshots":
            _run_mirror(folder)
        if name == "queue list":
            sweeps |= {"<first>": _bring_orders(folder)}
        if name == "batch list":
            assert len(tick(folder, "primary", "approval")) == 1
        if name == "sla alerts":
            record_late(folder)
        if name == "feed take":
            _write_letter(folder)
        if name == "registration verify":
            _bring_sales(folder)
        if name == "batch step-end":
            for words in (("init", "fetch"), ("step-start", "fetch", "get")):
                assert run("batch", *words).exit_code == 0
        with pytest.MonkeyPatch.context() as patch:
            if name == "admin cleanup":
                (folder / "dagster").mkdir(exist_ok=True)
                patch.setenv("DAGSTER_HOME", str(folder / "dagster"))
            result = give(*(sweeps.get(text, text) for text in arguments), *form)
        if name == "retention plan":
            listed = run("retention", "list", "--output", "json").stdout
            sweeps = {_SWEEPS[sweep["state"]]: sweep["sweep_id"] for sweep in json.loads(listed)["sweeps"]}
        yield name, result


def _bring_orders(folder: Path) -> str:
    """Declare a process that takes orders when they are approved, let two orders come, and return the first event."""
    documents = (ORDERS + ELSEWHERE).split("---", 1)[1].replace("here", "primary").replace("2026-01-01T00:00Z", FIRST)
    (folder / "orders.yaml").write_text(documents)
    (folder / "load.sql").write_text("select 1 as n")
    must("entity", "submit-and-schedule", "orders.yaml")
    tick(folder, "primary")
    tick(folder, "primary", "orders", "orders")
    shown = json.loads(run("queue", "show", "load", "--output", "json").stdout)
    return str(shown["events"][0]["event"])


def record_late(folder: Path) -> None:
    """A view and a mirror of models that are late, and a view that was."""
    first = at("03T00:00")
    late = SlaMiss(
        kind="feed",
        name="views",
        cluster="primary",
        nominal_time=at("03T02:00"),
        level=SlaLevel.LOW,
        due_at=at("03T03:00"),
        missed_at=at("03T03:01"),
        told_at=at("03T03:01"),
    )
    came = replace(late, nominal_time=first, told_at=None, recovered_at=at("03T02:30"), recovered_by=Recovery.ARRIVED)
    mirror = replace(late, kind="process", name="models", nominal_time=first, level=SlaLevel.HIGH)
    with open_database(str(load_settings().state)).begin() as connection:
        SlaMisses(connection).add([late, came, mirror])


def _write_letter(folder: Path) -> None:
    """Put a file into the inbox that was written a day ago."""
    letter = folder / "primary/in/letters/a.csv"
    letter.parent.mkdir(parents=True)
    letter.write_text("a")
    then = letter.stat().st_mtime - 86_400
    os.utime(letter, (then, then))


def _bring_sales(folder: Path) -> None:
    """Declare a feed with a table in a catalog, which has nothing of it, and let an instance come."""
    catalog = f"sqlite:///{folder}/catalog.db"
    SqlCatalog("default", uri=catalog).create_namespace("shop")
    cluster = {
        "kind": "cluster",
        "name": "lake",
        "storage": f"file://{folder}/lake",
        "catalog": f"iceberg+{catalog}",
        "catalog_options": {"warehouse": f"file://{folder}/warehouse"},
    }
    feed = {
        "kind": "feed",
        "name": "sales",
        "frequency": "days(1)",
        "schema": "amount long",
        "locations": {"data": "/sales/${YEAR}-${MONTH}-${DAY}"},
        "catalog_table": "catalog:shop:sales",
        "clusters": {"lake": {"validity": {"start": FIRST}}},
    }
    (folder / "sales.yaml").write_text(yaml.safe_dump_all([cluster, feed]))
    place = folder / "lake/sales/2013-11-03"
    place.mkdir(parents=True)
    pq.write_table(pa.table({"amount": [7]}), place / "part-0.parquet")
    must("entity", "submit-and-schedule", "sales.yaml")
    must("feed", "notify", "sales", FIRST)


def prepare(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Clicks lie on `primary`, are counted there and copied to `backup`; a mirror of models; a change to come."""
    enter(folder, patch)
    patch.setenv("FEED_ASSETS_NOTIFY__OPS__URL", "https://hooks.example.org/T0?token=abc")
    patch.setattr("feed_assets.context.operation.open_clock", lambda _: FrozenClock(at("03T12:00")))
    validity = {"validity": {"start": FIRST, "end": "2013-12-01T00:00Z"}}
    clusters = [
        {"kind": "cluster", "name": name, "storage": f"file://${{PROJECT_ROOT}}/{name}"}
        for name in ("primary", "backup")
    ]
    on_primary = {"clusters": {"primary": validity}}
    clicks = {
        **CLICKS,
        "tags": {"owner": "web"},
        "clusters": {
            "primary": {"type": "source", "retention": {"limit": "hours(6)"}, **validity},
            "backup": {"type": "target", **validity},
        },
        "availability_flag": "_SUCCESS",
    }
    views = {
        **CLICKS,
        "name": "views",
        "locations": {"data": "/views/${YEAR}-${MONTH}-${DAY}/${HOUR}"},
        "clusters": {"primary": {"retention": {"limit": "hours(6)"}, **validity}},
    }
    counting = {**COUNTING, **on_primary, "pipelines": ["reports"], "parallel": 2}
    models = {
        "kind": "process",
        "name": "models",
        "frequency": "days(1)",
        "sla": {"should_end_in": "hours(2)"},
        **on_primary,
        "workflow": {
            "engine": "directory-mirror",
            "mirror": {
                "source": {"directory": "/models"},
                "target": {"cluster": "backup", "directory": "/models"},
                "removed_files": "remove",
                "snapshots": {"source_keep": 1, "target_keep": 1},
            },
        },
    }
    files = {
        "all": [*clusters, clicks, views, {**COUNTS, **on_primary}, counting, models],
        "changed": [{**clicks, "replication": {"removed_files": "remove"}}, {**counting, "parallel": 3}],
        "updated": [{**counting, "parallel": 4, "description": "clicks of each hour"}],
        "moved": [{**clusters[0], "colo": "nyc"}],
        "more": [{**views, "name": "hits", "locations": {"data": "/hits/${YEAR}-${MONTH}-${DAY}/${HOUR}"}}],
        "wrong": [{**clicks, "frequency": "hours(0)"}],
    }
    for name, documents in files.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump_all(documents, sort_keys=False))
    (folder / "said.json").write_text('{"mutations": [{"entity": "dashboard/hits", "create": {"tags": ["draft"]}}]}')
    (folder / "entities").mkdir()
    (folder / "backup").mkdir()
    (folder / "counting.sql").write_text("select count(*) as n from clicks")
    (folder / "empty.sql").write_text("select 1")
    lay(folder / "recipe", files_of())
    (folder / "tables.yaml").write_text("tables: [{name: orders, hours: 1}]")
    write(folder, {"a.bin": "a", "sub/b.bin": "bb"})
    for hour in range(11):
        write(folder, {"part.csv": f"clicks {hour}", "_SUCCESS": ""}, below=f"clicks/2013-11-03/{hour:02d}")
    for hour in range(2):
        write(folder, {"part.csv": f"views {hour}"}, below=f"views/2013-11-03/{hour:02d}")
    set_clock(folder, NOON)


def record_instances(folder: Path) -> None:
    """One instance of the process in each state that lists show."""
    first = at("03T00:00")
    base = ProcessInstance(
        process="counting", cluster="primary", nominal_time=first, status=S.WAITING, updated_at=first, release=1
    )
    ran = replace(base, attempt=1, run_id="run-1", started_at=first, ended_at=first + timedelta(minutes=5))
    succeeded = replace(ran, status=S.SUCCEEDED)
    failed = replace(ran, status=S.FAILED, nominal_time=at("03T01:00"))
    rows = [
        succeeded,
        replace(failed, cause=Cause.FAILURE, cause_detail="ValueError: a column is missing"),
        replace(ran, status=S.RUNNING, nominal_time=at("03T02:00"), ended_at=None),
        replace(base, nominal_time=at("03T05:00")),
        replace(base, nominal_time=at("03T11:00")),
    ]
    attempt = Attempt(
        process="counting",
        cluster="primary",
        nominal_time=first,
        attempt=1,
        run_id="run-1",
        status=S.SUCCEEDED,
        started_at=first,
        ended_at=succeeded.ended_at,
        cause=Cause.INPUTS,
        release=1,
        inputs=(FrozenInput(name="clicks", feed="clicks", nominal_times=(first,), digests=("blake3:1",)),),
    )
    step = StepRun(
        process="counting",
        cluster="primary",
        nominal_time=first,
        attempt=1,
        step="count",
        position=0,
        status=StepStatus.SUCCEEDED,
        basis="",
        made_in=1,
        started_at=first,
        ended_at=succeeded.ended_at,
        frames={"rows": {"counts": 1}},
    )
    with open_database(str(load_settings().state)).begin() as connection:
        ProcessInstances(connection).add_waiting(rows)
        Attempts(connection).begin(attempt)
        Steps(connection).add([step])
        Facts(connection).add(succeeded.key, 1, "quality/counts", COUNTED, first)
        Facts(connection).add(succeeded.key, 1, PROGRAM, {"clicks-read": "1000"}, first)
    note_places(open_database(str(load_settings().state)), lay_out(load_location(load_settings()).plan))


def _run_mirror(folder: Path) -> None:
    lifecycle = LifecycleHarness.of(folder, clusters=("primary", "backup"), state=f"sqlite:///{folder}/mirror.db")
    lifecycle.use(load_location(load_settings()).plan)
    lifecycle.tick(at("03T12:00"))
    run_mirror(lifecycle, at("03T00:00"), at("03T12:00"))


COUNTED = {
    "records.count": "1000",
    "good.records.count": "970",
    "rejected.records.count": "30",
    "good.records.percent": "97",
    "good.records.threshold": "99",
    "did.dq.pass": "false",
    "rule.counted": "30",
}
"""The facts of an attempt whose rows are not good enough."""
_SWEEPS = {"PLANNED": "<sweep>", "ASKING": "<asking>"}
_UNSTABLE = (
    (re.compile(r'("(?:seconds|bandwidth)": )[\d.e-]+'), r"\1-1"),
    (re.compile(r"\b\d{8}-\d{6}-[0-9a-f]{6}\b"), "<sweep>"),
    (re.compile(r"20(?!13)\d\d-\d\d-\d\dT[\d:.]+(Z|\+00:00)"), "<now>"),
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "<uid>"),
    (re.compile(r"\b[0-9a-f]{16,64}\b"), "<digest>"),
    (re.compile(r'("idempotency_key": ")[\w-]{22}"'), r'\1<key>"'),
    (re.compile(r"\bfa_[0-9a-f]{64}\b"), "<token>"),
    (re.compile(r"\brepair:ann:[^\"]*"), "repair:ann:<worker>"),
)


def stable(text: str, folder: Path) -> str:
    """What is printed, without what differs from run to run."""
    text = text.replace(str(folder), "<project>").replace(str(ROOT), "<repository>")
    for pattern, stand_in in _UNSTABLE:
        text = pattern.sub(stand_in, text)
    return text


@pytest.mark.parametrize("name", COMMANDS)
def test_the_json_of_a_command_is_that_of_its_file_and_its_keys_are_in_snake_case(
    name: str, printed: dict[str, str], request: pytest.FixtureRequest
) -> None:
    file = GOLDEN / f"{name.replace(' ', '-')}.json"
    if request.config.getoption("--update-golden"):
        file.write_text(printed[name])
    assert printed[name] == file.read_text()
    assert [key for key in _iter_keys(json.loads(printed[name])) if re.search(r"[a-z][A-Z]", key)] == []


def _iter_keys(document: object) -> Iterator[str]:
    """The keys, but those of the properties of jobs, which are Falcon's."""
    if isinstance(document, dict):
        for key, value in document.items():
            yield key
            if key != "properties":
                yield from _iter_keys(value)
    elif isinstance(document, list):
        for each in document:
            yield from _iter_keys(each)


def test_who_reads_the_record_asks_no_storage(story: _Story) -> None:
    changing = {name for name, each in iter_commands() if _CHANGING & {param.name for param in each.params}}
    assert story.asks - changing == ASKING


def test_what_safe_mode_stops_says_so_and_leaves_no_row_in_the_audit(story: _Story) -> None:
    told = "it is not allowed during safe mode (ann has switched it on: storage moves)"
    assert story.refused
    assert [name for name, text in story.refused.items() if told not in text] == []
    assert story.audited["refused"] == []


def test_who_changes_something_is_in_the_audit(story: _Story) -> None:
    changing = {each.name for each in list_operations().items if each.does not in (Does.READS, Does.NOTIFIES)}
    audited = {name for name, authors in story.audited.items() if "ann" in authors}
    assert changing - audited == AUDITED_ELSEWHERE.keys()
    preparing = {"queue list", "batch list", "batch step-end", "registration verify"}
    assert audited - changing == {"feed notify", "moving"} | preparing


_CHANGING = {"author", "dry_run"}


def test_every_command_that_prints_json_has_a_file() -> None:
    elsewhere = {
        "admin operations",
        "datasource check",
        "datasource columns",
        "datasource tables",
        "import marks",
        "import plan",
        "import new",
        "init",
        "try",
    }  # test_derived.py, of real databases, test_init.py (days before today), test_try.py
    with_json = {name for name, each in iter_commands() if _prints_json(each)}
    assert with_json - elsewhere == {*COMMANDS}
    assert {file.stem for file in GOLDEN.iterdir()} == {name.replace(" ", "-") for name in COMMANDS}


def _prints_json(command: click.Command) -> bool:
    return any(
        each.name == "output" and isinstance(each.type, click.Choice) and "json" in each.type.choices
        for each in command.params
    )
