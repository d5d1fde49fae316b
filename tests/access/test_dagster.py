"""Dagster's webserver behind the guard: who may act, who reads, who is told in the audit."""

import os
import shutil
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._cli.workspace.cli_target import workspace_opts_to_load_target
from dagster_shared.cli import WorkspaceOpts
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from feed_assets.clock import open_clock
from feed_assets.log.audit import Audit
from feed_assets.operation import Does
from feed_assets.server.application import build_application
from feed_assets.server.callers import Keeper
from feed_assets.server.guard import Guard
from feed_assets.server.records import Address
from feed_assets.server.tokens import create_token
from feed_assets.server.with_dagster.webserver import open_webserver
from feed_assets.settings import load_settings
from feed_assets.sql.database import Database, open_database
from tests.access.project import PEOPLE, entities
from tests.orchestration.dagster_home import _with_tables
from tests.projects import declare, enter

LOCATION = """
from pathlib import Path

from feed_assets import build_definitions

defs = build_definitions(folder=Path(__file__).parent)
"""
UNREAD = "This is an entity of ann and the group etl that you may not read; ann and the group etl and superusers may."
PARTITION = "2026-01-01-00:00"
LAUNCH = "mutation ($p: ExecutionParams!) {launchRun(executionParams: $p) {__typename ... on LaunchRunSuccess {run {runId}}}}"
NODE = "query ($k: AssetKeyInput!) {assetNodeOrError(assetKey: $k) {__typename ... on AssetNode {owners {__typename}}}}"


@dataclass
class Dagster:
    """Dagster behind the guard, of the project of `people`."""

    client: TestClient
    database: Database
    bearers: dict[str, str]
    instance: dg.DagsterInstance
    location: str

    def headers(self, who: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.bearers[who]}"} if who in self.bearers else {}

    def ask(self, who: str, query: str, **variables: Any) -> Any:
        told = {"query": query, "variables": variables}
        return self.client.post("/graphql", json=told, headers=self.headers(who))

    def launch(self, who: str, *assets: str, tags: dict[str, str] | None = None) -> str:
        """Ask for a run of assets; return its number, or the type of what refused it."""
        said = {"dagster/partition": PARTITION, **(tags or {})}
        params = {
            "mode": "default",
            "selector": {
                "repositoryName": "__repository__",
                "repositoryLocationName": self.location,
                "jobName": "__ASSET_JOB",
                "assetSelection": [{"path": ["here", each]} for each in assets],
            },
            "executionMetadata": {"tags": [{"key": key, "value": value} for key, value in said.items()]},
        }
        answer = self.ask(who, LAUNCH, p=params).json()
        found = answer["data"] and answer["data"]["launchRun"]
        if not found:
            return str(answer["errors"][0]["message"])
        return str(found["run"]["runId"] if "run" in found else found["__typename"])

    def audit(self, action: str) -> list[tuple[str, str | None, dict[str, Any]]]:
        with self.database.read() as connection:
            newest = Audit(connection).newest(100)
        return [(each.author, each.target, dict(each.details)) for each in newest if each.action == f"dagster {action}"]


@pytest.fixture(scope="module")
def dagster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dagster]:
    folder = tmp_path_factory.mktemp("people")
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        enter(folder, patch)
        (folder / "count.sql").write_text("select 1 as n")
        access = {"superuser_group": "wheel", "admins": ["adm"]}
        declare(folder, *entities(folder), authorization="acl", access=access, actions="off")
        (folder / "located.py").write_text(LOCATION)
        shutil.copytree(_with_tables(), folder / "dagster")
        patch.setenv("DAGSTER_HOME", str(folder / "dagster"))
        settings = load_settings()
        assert settings.state is not None
        database = open_database(settings.state, settings.namespace)
        stack.callback(database.close)
        now = open_clock(settings).now()
        bearers = {}
        for name, groups in PEOPLE.items():
            until = now + timedelta(days=1)
            made = create_token(database, name, [*Does], until, groups, author="x", now=now, dry_run=False)
            bearers[name] = made.bearer or ""
        target = workspace_opts_to_load_target(WorkspaceOpts(python_file=[str(folder / "located.py")]), True)
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")  # Dagster's about itself
        application = stack.enter_context(open_webserver(settings, database, target))
        instance = stack.enter_context(dg.DagsterInstance.from_config(os.environ["DAGSTER_HOME"]))
        keeper = Keeper(settings, database, Address(host="127.0.0.1", port=0, with_dagster=True), "host")
        guard = Guard(build_application(settings, database, application), keeper)
        client = stack.enter_context(
            TestClient(guard, base_url="http://127.0.0.1:3030", client=("127.0.0.1", 5), follow_redirects=False)
        )
        yield Dagster(client, database, bearers, instance, "located.py")


def test_an_owner_launches_hers_and_the_run_names_who_asked(dagster: Dagster) -> None:
    run_id = dagster.launch("ann", "totals", tags={"feed_assets/user": "bob"})
    run = dagster.instance.get_run_by_id(run_id)
    assert run is not None, run_id
    assert run.tags["feed_assets/user"] == "ann"
    assert dagster.audit("launchRun")[0][:2] == ("ann", "process 'counts'")
    assert dagster.instance.get_run_by_id(dagster.launch("gus", "totals")) is not None
