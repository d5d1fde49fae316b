"""Dagster's webserver behind the guard: who may act, who reads, who is told in the audit."""

import os
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import dagster as dg
import pytest
from dagster._cli.workspace.cli_target import workspace_opts_to_load_target
from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext, DefinitionsLoadType
from dagster._core.workspace.permissions import EDITOR_PERMISSIONS
from dagster_graphql.schema import create_schema
from dagster_shared.cli import WorkspaceOpts
from graphql import get_nullable_type, is_enum_type, is_input_object_type, is_list_type, is_non_null_type
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from feed_assets.clock import open_clock
from feed_assets.errors import SettingsError
from feed_assets.log.audit import Audit
from feed_assets.operation import Does
from feed_assets.server.application import build_application
from feed_assets.server.guard import Guard
from feed_assets.server.identity.callers import Keeper
from feed_assets.server.identity.tokens import create_token
from feed_assets.server.records import Address
from feed_assets.server.ui.records import COOKIE
from feed_assets.server.with_dagster.asker import OF_OWNERS
from feed_assets.server.with_dagster.webserver import GuardedContext, GuardedProcess, GuardedWebserver, open_webserver
from feed_assets.settings import Settings, load_settings
from feed_assets.sql.database import Database, open_database
from tests.access.project import BEHALF, PEOPLE, entities
from tests.orchestration.dagster_home import _with_tables
from tests.projects import declare, enter

LOCATION = """
from pathlib import Path

from feed_assets import build_definitions

defs = build_definitions(folder=Path(__file__).parent)
"""
UNREAD = "This is an entity of ann and the group etl that you may not read; ann and the group etl and superusers may."
SOCKET = "ws://127.0.0.1:3030/graphql"
PARTITION = "2026-01-01-00:00"
LAUNCH = """mutation ($p: ExecutionParams!) {
  launchRun(executionParams: $p) {__typename ... on LaunchRunSuccess {run {runId}} ... on PythonError {message}}
}"""
BACKFILL = """mutation ($p: LaunchBackfillParams!) {
  launchPartitionBackfill(backfillParams: $p) {__typename ... on LaunchBackfillSuccess {backfillId}}
}"""
BUTTON = """query ($k: AssetKeyInput!) {
  assetNodeOrError(assetKey: $k) {... on AssetNode {hasMaterializePermission owners {... on TeamAssetOwner {team}}}}
}"""
START = """mutation ($s: SensorSelector!) {
  startSensor(sensorSelector: $s) {__typename ... on Sensor {sensorState {id}}}
}"""
NODE = "query ($k: AssetKeyInput!) {assetNodeOrError(assetKey: $k) {__typename ... on AssetNode {owners {__typename}}}}"

CONFIGS = {"operate": {"ops": {"operation": {"config": {"action": "kill", "name": "counts"}}}}}
NEW = {
    GuardedContext: {
        *("_as_owner", "_everywhere", "_hidden", "_in_locations", "entities", "find_hidden", "hides"),
        *("hides_run", "hides_value", "require_reads"),
    },
    GuardedProcess: {"_entities", "find_entities", "is_limited"},
    GuardedWebserver: {"_give", "_note", "_report"},
}
"""What our classes add to those of Dagster; all else is called by it."""
UNLIKE = {
    *(f"{name}: []" for name in ("logTelemetry", "setNuxSeen")),
    *(
        f"{name}: [['PythonError']]"
        for name in ("launchPartitionBackfill", "reexecutePartitionBackfill", "stopRunningSchedule", "stopSensor")
    ),
}
"""Mutations that are for everybody, or for which made-up names do not do."""


@dataclass
class Dagster:
    """Dagster behind the guard, of the project of `people`."""

    client: TestClient
    guard: Guard
    database: Database
    bearers: dict[str, str]
    instance: dg.DagsterInstance
    location: str

    def headers(self, who: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.bearers[who]}"} if who in self.bearers else {}

    def ask(self, who: str, query: str, **variables: Any) -> Any:
        """Ask, also as `ann via portal` on behalf of somebody."""
        name, _, asker = who.partition(" via ")
        told, behalf = {"query": query, "variables": variables}, {"doAs": name} if asker else {}
        return self.client.post("/graphql", params=behalf, json=told, headers=self.headers(asker or name))

    def does(self, who: str, query: str, **variables: Any) -> bool:
        """Return whether a mutation is done, not refused."""
        answer = self.ask(who, query, **variables)
        refused = ("UnauthorizedError", "not have permission")
        assert answer.status_code in (200, 401, 403), answer.text
        return answer.status_code == 200 and not any(each in answer.text for each in refused)

    def selector(self, **of: Any) -> dict[str, Any]:
        """Name something of the code location."""
        return {"repositoryName": "__repository__", "repositoryLocationName": self.location, **of}

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

    def start_job(self, who: str, job: str) -> str:
        """Ask for a run of a job; return its number, or the type of what refused it."""
        of = {"repositoryName": "__repository__", "repositoryLocationName": self.location, "jobName": job}
        found = self.ask(who, LAUNCH, p={"selector": of, "runConfigData": CONFIGS.get(job, {})}).json()
        return str(found["data"]["launchRun"].get("run", {}).get("runId") or found["data"]["launchRun"])

    def backfill(self, who: str, asset: str = "totals") -> str:
        """Ask for a backfill; return its name, or the type of what refused it."""
        tags = [{"key": "feed_assets/user", "value": "bob"}]
        params = {"partitionNames": [PARTITION], "assetSelection": [{"path": ["here", asset]}], "tags": tags}
        found = self.ask(who, BACKFILL, p=params).json()["data"]["launchPartitionBackfill"]
        return str(found.get("backfillId") or found["__typename"])

    def audit(self, action: str, *, of_looker: bool = False) -> list[tuple[str, str | None, dict[str, Any]]]:
        """What the audit has of a mutation, newest first: of who only reads, or of the others."""
        with self.database.read() as connection:
            newest = Audit(connection).newest(1000)
        found = [
            (each.author, each.target, dict(each.details)) for each in newest if each.action == f"dagster {action}"
        ]
        return [each for each in found if (each[0] == "looker") is of_looker]


@contextmanager
def lay_dagster(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[tuple[Settings, Database, dict[str, str]]]:
    """Lay the project of people with a code location and a DAGSTER_HOME; yield the tokens of all who ask."""
    enter(folder, patch)
    (folder / "count.sql").write_text("select 1 as n")
    others: dict[str, Any] = {"access": {"superuser_group": "wheel", "admins": ["adm"]}, "actions": "off"}
    allowed = {"portal": {"hosts": ["127.0.0.1"], "users": ["ann", "bob"]}}
    declare(folder, *entities(folder), authorization="acl", server={"proxy_users": allowed}, **others)
    (folder / "located.py").write_text(LOCATION)
    (folder / "workspace.yaml").write_text("load_from: [{python_file: located.py}]\n")
    shutil.copytree(_with_tables(), folder / "dagster")
    (folder / "dagster/dagster.yaml").write_text("telemetry: {enabled: false}\nnux: {enabled: false}\n")
    patch.setenv("DAGSTER_HOME", str(folder / "dagster"))
    settings = load_settings()
    assert settings.state is not None
    database = open_database(settings.state, settings.namespace)
    now, bearers = open_clock(settings).now(), dict[str, str]()
    for name, groups in {**PEOPLE, "portal": (), "looker": ("etl", "wheel")}.items():
        until, may = now + timedelta(days=1), [Does.READS] if name == "looker" else [*Does]
        made = create_token(database, name, may, until, groups, author="x", now=now, dry_run=False)
        bearers[name] = made.bearer or ""
    yield settings, database, bearers
    database.close()


@pytest.fixture(scope="module")
def dagster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dagster]:
    folder = tmp_path_factory.mktemp("people")
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        settings, database, bearers = stack.enter_context(lay_dagster(folder, patch))
        target = workspace_opts_to_load_target(WorkspaceOpts(python_file=[str(folder / "located.py")]), True)
        loading = DefinitionsLoadContext(load_type=DefinitionsLoadType.INITIALIZATION)  # the webserver sets another
        stack.enter_context(DefinitionsLoadContext.scoped(loading))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")  # Dagster's about itself
        application = stack.enter_context(open_webserver(settings, database, target))
        instance = stack.enter_context(dg.DagsterInstance.from_config(os.environ["DAGSTER_HOME"]))
        keeper = Keeper(settings, database, Address(host="127.0.0.1", port=0, with_dagster=True), "host")
        guard = Guard(build_application(settings, database, application), keeper)
        client = stack.enter_context(
            TestClient(guard, base_url="http://127.0.0.1:3030", client=("127.0.0.1", 5), follow_redirects=False)
        )
        yield Dagster(client, guard, database, bearers, instance, "located.py")


def test_an_owner_launches_hers_and_the_run_names_who_asked(dagster: Dagster) -> None:
    run_id = dagster.launch("ann", "totals", tags={"feed_assets/user": "bob"})
    run = dagster.instance.get_run_by_id(run_id)
    assert run is not None, run_id
    assert run.tags["feed_assets/user"] == "ann"
    assert dagster.audit("launchRun")[0][:2] == ("ann", "process 'counts'")
    assert dagster.instance.get_run_by_id(dagster.launch("gus", "totals")) is not None


def test_a_forged_mutation_for_what_is_of_others_is_refused_and_told(dagster: Dagster) -> None:
    before = len(dagster.instance.get_runs())
    assert dagster.launch("bob", "totals") == "UnauthorizedError"
    assert dagster.launch("adm", "totals") == "UnauthorizedError"
    assert dagster.launch("ann", "totals", "nobodys") == "UnauthorizedError"
    assert len(dagster.instance.get_runs()) == before
    refused = [each for each in dagster.audit("launchRun") if "refused" in each[2]]
    assert ("bob", "process 'counts'") in [each[:2] for each in refused]
    assert dagster.launch("super", "totals").count("-") == 4


def test_what_wipes_terminates_and_reports_is_for_owners(dagster: Dagster) -> None:
    run_id = dagster.launch("ann", "totals")
    stop = "mutation ($r: String!) {terminateRun(runId: $r) {__typename ... on TerminateRunFailure {message}}}"
    refused = dagster.ask("bob", stop, r=run_id).json()["data"]["terminateRun"]
    assert refused["message"] == "You do not have permission to terminate this run"
    assert dagster.ask("gus", stop, r=run_id).json()["data"]["terminateRun"]["__typename"] == "TerminateRunSuccess"
    run = dagster.instance.get_run_by_id(run_id)
    assert run is not None
    assert run.status is dg.DagsterRunStatus.CANCELED
    assert [(each[0], "refused" in each[2]) for each in dagster.audit("terminateRun")[:2]] == [
        ("gus", False),
        ("bob", True),
    ]
    wipe = "mutation ($a: [PartitionsByAssetSelector!]!) {wipeAssets(assetPartitionRanges: $a) {__typename}}"
    of = [{"assetKey": {"path": ["here", "totals"]}}]
    told = {
        who: dagster.ask(who, wipe, a=of).json()["data"]["wipeAssets"]["__typename"] for who in ("bob", "adm", "ann")
    }
    assert told == {"bob": "UnauthorizedError", "adm": "UnauthorizedError", "ann": "AssetWipeSuccess"}
    for path in ("report_asset_materialization", "report_asset_observation", "report_asset_check"):
        given = {"json": {"partition": PARTITION, "check_name": "x", "passed": True}}
        statuses = [
            dagster.client.post(f"/{path}/here/totals", headers=dagster.headers(who), **given).status_code
            for who in ("nobody", "bob", "adm")
        ]
        assert statuses == [401, 401, 401], path
        assert [each[0] for each in dagster.audit(path)[:2]] == ["adm", "bob"]
    told = dagster.client.post(
        "/report_asset_materialization/here/totals", headers=dagster.headers("ann"), json={"partition": PARTITION}
    )
    assert told.status_code == 200, told.text
    assert dagster.audit("report_asset_materialization")[0][:2] == ("ann", "process 'counts'")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_backfills_are_for_owners_and_have_the_tag(dagster: Dagster) -> None:
    assert dagster.backfill("bob") == "UnauthorizedError"
    backfill_id = dagster.backfill("ann")
    backfill = dagster.instance.get_backfill(backfill_id)
    assert backfill is not None, backfill_id
    assert backfill.tags["feed_assets/user"] == "ann"
    cancel = "mutation ($b: String!) {cancelPartitionBackfill(backfillId: $b) {__typename}}"
    told = [
        dagster.ask(who, cancel, b=backfill_id).json()["data"]["cancelPartitionBackfill"]["__typename"]
        for who in ("bob", "gus")
    ]
    assert told == ["UnauthorizedError", "CancelBackfillSuccess"]
    assert [each[:2] for each in dagster.audit("cancelPartitionBackfill")[:2]] == [
        ("gus", "process 'counts'"),
        ("bob", "process 'counts'"),
    ]


def test_what_has_no_owner_is_for_admins(dagster: Dagster) -> None:
    stop = "mutation ($i: String!) {stopSensor(id: $i) {__typename}}"
    selector = {
        "repositoryName": "__repository__",
        "repositoryLocationName": dagster.location,
        "sensorName": "arrival_here",
    }
    told = {who: dagster.ask(who, START, s=selector).json()["data"]["startSensor"] for who in ("ann", "gus", "adm")}
    assert [each["__typename"] for each in told.values()] == ["UnauthorizedError", "UnauthorizedError", "Sensor"]
    state = told["adm"]["sensorState"]["id"]
    assert [dagster.ask(who, stop, i=state).json()["data"]["stopSensor"]["__typename"] for who in ("ann", "adm")] == [
        "UnauthorizedError",
        "StopSensorMutationResult",
    ]
    limit = 'mutation {setConcurrencyLimit(concurrencyKey: "x", limit: 1)}'
    assert dagster.ask("ann", limit).json()["data"] is None
    assert dagster.ask("adm", limit).json()["data"] == {"setConcurrencyLimit": True}
    assert [each[0] for each in dagster.audit("setConcurrencyLimit")[:2]] == ["adm", "ann"]
    reload = "mutation {reloadWorkspace {__typename}}"
    assert dagster.ask("ann", reload).json()["data"]["reloadWorkspace"]["__typename"] == "UnauthorizedError"


@pytest.mark.filterwarnings("ignore")
def test_our_jobs_are_for_admins_and_the_one_that_acts_on_entities_for_superusers(dagster: Dagster) -> None:
    told = {
        (who, job): dagster.start_job(who, job)
        for who, job in (("ann", "retention_here"), ("adm", "retention_here"), ("adm", "operate"), ("super", "operate"))
    }
    assert "-" not in told["ann", "retention_here"] + told["adm", "operate"], told
    assert told["adm", "retention_here"].count("-") == told["super", "operate"].count("-") == 4, told


STOP = "mutation ($r: String!) {terminateRun(runId: $r) {__typename ... on TerminateRunFailure {message}}}"
DELETE = "mutation ($r: String!) {deleteRun(runId: $r) {__typename}}"
AGAIN = """mutation ($p: ReexecutionParams!) {
  launchRunReexecution(reexecutionParams: $p) {__typename ... on PythonError {message}}
}"""
WIPE = "mutation ($a: [PartitionsByAssetSelector!]!) {wipeAssets(assetPartitionRanges: $a) {__typename}}"
TOLD = """mutation ($e: ReportRunlessAssetEventsParams!) {
  reportRunlessAssetEvents(eventParams: $e) {__typename ... on PythonError {message}}
}"""
CURSOR = 'mutation ($s: SensorSelector!) {setSensorCursor(sensorSelector: $s, cursor: "") {__typename}}'
SCHEDULE = "mutation ($s: ScheduleSelector!) {startSchedule(scheduleSelector: $s) {__typename}}"
OWNERS, ADMINS = {"super", "ann", "gus", "ann via portal"}, {"super", "adm"}


@pytest.mark.filterwarnings("ignore")
def test_who_may_what_by_graphql_is_as_the_table_says(dagster: Dagster) -> None:
    assert dagster.does("adm", SCHEDULE, s=dagster.selector(scheduleName="retention_here"))
    run_id = dagster.launch("ann", "totals")
    totals = {"path": ["here", "totals"]}
    by_tag = [{"key": "dagster/partition", "value": PARTITION}]
    of = dagster.selector(jobName="__ASSET_JOB", assetSelection=[totals])
    cells: dict[str, tuple[set[str], str, dict[str, Any]]] = {
        "launch": (OWNERS, LAUNCH, {"p": {"selector": of, "mode": "default", "executionMetadata": {"tags": by_tag}}}),
        "run again": (OWNERS, AGAIN, {"p": {"parentRunId": run_id, "strategy": "ALL_STEPS"}}),
        "backfill": (OWNERS, BACKFILL, {"p": {"partitionNames": [PARTITION], "assetSelection": [totals]}}),
        "terminate": (OWNERS, STOP, {"r": run_id}),
        "wipe": (OWNERS, WIPE, {"a": [{"assetKey": totals}]}),
        "report": (
            OWNERS,
            TOLD,
            {"e": {"eventType": "ASSET_OBSERVATION", "assetKey": totals, "partitionKeys": [PARTITION]}},
        ),
        "sensor": (ADMINS, START, {"s": dagster.selector(sensorName="arrival_here")}),
        "cursor": (ADMINS, CURSOR, {"s": dagster.selector(sensorName="arrival_here")}),
        "schedule": (ADMINS, SCHEDULE, {"s": dagster.selector(scheduleName="retention_here")}),
        "limit": (ADMINS, 'mutation {setConcurrencyLimit(concurrencyKey: "x", limit: 1)}', {}),
        "delete": (OWNERS, DELETE, {}),
    }
    everybody = [*PEOPLE, "looker", "nobody", *BEHALF]
    wrong = {}
    for name, (allowed, query, variables) in cells.items():
        for who in everybody:
            made = {"r": dagster.launch("ann", "totals") if who in allowed else run_id} if name == "delete" else {}
            given = {**variables, **made}
            if dagster.does(who, query, **given) != (who in allowed):
                wrong[name, who] = dagster.ask(who, query, **given).text
    assert wrong == {}
    assert {each[0] for each in dagster.audit("launchRun")} >= {"ann via portal", "bob via portal"}


def test_who_may_not_act_sees_a_grey_button(dagster: Dagster) -> None:
    told = {
        who: dagster.ask(who, BUTTON, k={"path": ["here", "totals"]}).json()["data"]["assetNodeOrError"]
        for who in ("ann", "bob")
    }
    assert [each["hasMaterializePermission"] for each in told.values()] == [True, False]
    assert [each["team"] for each in told["bob"]["owners"]] == ["ann", "etl"]


@pytest.mark.parametrize(
    "path", ["/", "/assets", "/graphql", "/server_info", "/runs/x", "/logs/x/y/z.out", "/download_debug/x", "/notebook"]
)
def test_without_a_user_nothing_is_told(dagster: Dagster, path: str) -> None:
    led = f"/ui/login?{urlencode({'next': path})}"
    for method in ("GET", "POST", "HEAD", "PUT"):
        answer = dagster.client.request(method, path)
        assert answer.status_code == 401, method
    assert dagster.client.get(path, headers={"Accept": "text/html"}).headers["location"] == led


def test_a_websocket_is_let_in_as_a_request_is(dagster: Dagster) -> None:
    for headers in ({}, {**dagster.headers("ann"), "Origin": "http://a.example"}, {"Authorization": "Bearer x"}):
        with (
            pytest.raises(WebSocketDisconnect),
            dagster.client.websocket_connect(SOCKET, ["graphql-ws"], headers=headers),
        ):
            pass
    with (
        pytest.raises(WebSocketDisconnect),
        dagster.client.websocket_connect("ws://127.0.0.1:3030/ui", headers=dagster.headers("ann")),
    ):
        pass
    run_id = dagster.launch("ann", "zqtotals")
    forged = (
        'query {capturedLogs(logKey: ["x"]) {stdout} assetNodes {assetKey {path}}}'  # Dagster runs it for each event
    )
    follow = f'subscription {{pipelineRunLogs(runId: "{run_id}") {{__typename}}}}'
    told = {}
    for who in ("bob", "ann"):
        with dagster.client.websocket_connect(SOCKET, ["graphql-ws"], headers=dagster.headers(who)) as socket:
            socket.send_json({"type": "connection_init"})
            assert socket.receive_json()["type"] == "connection_ack"
            for number, query in enumerate((forged, "mutation {reloadWorkspace {__typename}}", follow)):
                socket.send_json({"type": "start", "id": str(number), "payload": {"query": query}})
                payload = socket.receive_json()["payload"]
                told[who, number] = payload["message"] if "message" in payload else payload["data"]
    only = "A websocket is for subscriptions."
    assert [told["bob", 0], told["ann", 0], told["ann", 1]] == [only] * 3
    assert told["bob", 2].startswith("This is a")
    assert told["ann", 2] == {"pipelineRunLogs": {"__typename": "PipelineRunLogsSubscriptionSuccess"}}


def test_a_websocket_ends_and_is_asked_for_again(dagster: Dagster) -> None:
    brief = TestClient(replace(dagster.guard, socket_seconds=0.1), client=("127.0.0.1", 5))
    with brief.websocket_connect(SOCKET, ["graphql-ws"], headers=dagster.headers("ann")) as socket:
        assert socket.receive() == {"type": "websocket.close", "code": 1001}


def test_a_server_that_only_reads_lets_nobody_act(dagster: Dagster) -> None:
    keeper = replace(dagster.guard.keeper, address=replace(dagster.guard.keeper.address, read_only=True))
    reading = TestClient(replace(dagster.guard, keeper=keeper), "http://127.0.0.1:3030", client=("127.0.0.1", 5))
    reads = replace(dagster, client=reading)
    assert reads.launch("super", "totals") == "UnauthorizedError"
    assert reads.ask("super", "{assetNodes {id}}").status_code == 200
    path = "/report_asset_materialization/here/totals"
    assert reading.post(path, headers=dagster.headers("super"), json={}).status_code == 403


def test_the_cookie_of_a_browser_counts_for_dagster_too(dagster: Dagster) -> None:
    cookie = {"Cookie": f"{COOKIE}={dagster.bearers['ann']}"}
    told = {"query": "{version}"}
    assert dagster.client.post("/graphql", json=told, headers=cookie).status_code == 200
    foreign = {**cookie, "Origin": "http://a.example"}
    assert dagster.client.post("/graphql", json=told, headers=foreign).status_code == 403
    assert dagster.client.get("/api/v1/entity/list", headers=cookie).status_code == 401
    given = {"token": dagster.bearers["ann"]}
    kept = dagster.client.post("/ui/login", data=given).headers.get_list("set-cookie")
    assert sorted(each.split("Path=")[1].split(";")[0] for each in kept) == ["/", "/docs", "/ui"]
    dagster.client.cookies.clear()


def test_without_an_instance_or_a_location_the_remedy_is_told(
    dagster: Dagster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    opening = open_webserver(Settings(), dagster.database)
    with pytest.raises(SettingsError, match="Write it, or serve where one is"), opening:
        pass
    monkeypatch.delenv("DAGSTER_HOME")
    opening = open_webserver(Settings(), dagster.database)
    with pytest.raises(SettingsError, match="Set it to its folder"), opening:
        pass


def test_links_of_other_sites_act_in_nobodys_name(dagster: Dagster) -> None:
    query = {"query": "mutation {reloadWorkspace {__typename}}"}
    assert dagster.client.get("/graphql", params=query, headers=dagster.headers("adm")).status_code == 405
    html = {**dagster.headers("adm"), "Accept": "text/html"}
    assert "graphiql" in dagster.client.get("/graphql", params=query, headers=html).text
    for more in ({"Origin": "http://a.example"}, {"Sec-Fetch-Site": "cross-site"}):
        answer = dagster.client.post("/graphql", json=query, headers={**dagster.headers("adm"), **more})
        assert answer.status_code == 403
    assert not dagster.audit("reloadWorkspace") or all(each[0] == "ann" for each in dagster.audit("reloadWorkspace"))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_backfill_of_what_is_hidden_is_hidden(dagster: Dagster) -> None:
    backfill_id = dagster.backfill("ann", "zqtotals")
    feed = "{runsFeedOrError(limit: 100, view: BACKFILLS) {... on RunsFeedConnection {results {id}}}}"
    assert backfill_id in dagster.ask("ann", feed).text
    assert backfill_id not in dagster.ask("bob", feed).text
    one = "query ($b: String!) {partitionBackfillOrError(backfillId: $b) {__typename ... on PartitionBackfill {id}}}"
    assert [dagster.ask(who, one, b=backfill_id).status_code for who in ("ann", "bob")] == [200, 403]


def test_what_is_hidden_is_refused_by_its_name_and_left_out_of_lists(dagster: Dagster) -> None:
    hidden = {"path": ["here", "zqtotals"]}
    assert dagster.ask("ann", NODE, k=hidden).json()["data"]["assetNodeOrError"]["__typename"] == "AssetNode"
    answer = dagster.ask("bob", NODE, k=hidden)
    assert answer.status_code == 403
    assert answer.json()["errors"][0]["message"].startswith(
        "This is an entity of ann and the group etl that you may not read"
    )
    run_id = dagster.launch("ann", "zqtotals")
    assert dagster.launch("bob", "zqtotals").startswith("This is an entity of ann")
    lists = """{
      assetNodes {
        assetKey {path} dependencyKeys {path} dependedByKeys {path} description opNames
        metadataEntries {label ... on TextMetadataEntry {text}}
      }
      assetsOrError {... on AssetConnection {nodes {key {path}}}}
      runsOrError {... on Runs {results {runId tags {key value}}}}
      repositoriesOrError {... on RepositoryConnection {nodes {
        assetNodes {assetKey {path}} assetGroups {assetKeys {path}} jobs {name} usedSolids {definition {name}}}}}
    }"""
    theirs, own = (dagster.ask(who, lists) for who in ("bob", "ann"))
    assert theirs.status_code == own.status_code == 200, theirs.text
    assert "zq" in own.text
    assert "zq" not in theirs.text
    assert ["here__counts"] in [each["opNames"] for each in theirs.json()["data"]["assetNodes"]]
    shown = [each["assetKey"]["path"][-1] for each in theirs.json()["data"]["assetNodes"]]
    assert sorted(shown) == ["clicks", "clicks", "definitions", "nobodys", "totals"]
    assert run_id in own.text
    assert run_id not in theirs.text
    for asked in (
        '{runOrError(runId: "%s") {__typename}}',
        '{logsForRun(runId: "%s") {__typename}}',
        '{capturedLogs(logKey: ["%s", "compute_logs", "x"]) {stdout}}',
    ):
        assert dagster.ask("bob", asked % run_id).status_code == 403
    for path in (f"/download_debug/{run_id}", f"/logs/{run_id}/compute_logs/x.out"):
        assert dagster.client.get(path, headers=dagster.headers("bob")).status_code == 403
    assert dagster.client.get("/notebook?repoLocName=x&path=x.ipynb", headers=dagster.headers("ann")).status_code == 403


def value_of(kind: Any, name: str, known: Mapping[str, str]) -> Any:
    """A value of a type of arguments: lists have one, objects what they need, and names that are known."""
    kind = get_nullable_type(kind)
    if is_list_type(kind):
        return [value_of(kind.of_type, name, known)]
    if is_input_object_type(kind):
        types = {each: field.type for each, field in kind.fields.items()}
        return {each: value_of(of, each, known) for each, of in types.items() if is_non_null_type(of) or each in known}
    if is_enum_type(kind):
        return next(iter(kind.values))
    return {"Boolean": True, "Int": 1, "Float": 1.0}.get(kind.name, known.get(name, "x"))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_mutation_of_dagster_is_refused_to_who_only_reads_and_told(dagster: Dagster) -> None:
    schema = create_schema().graphql_schema
    assert schema.mutation_type is not None
    run_id, backfill_id = dagster.launch("ann", "totals"), dagster.backfill("ann")
    known = {"repositoryLocationName": dagster.location, "repositoryName": "__repository__", "jobName": "__ASSET_JOB"}
    known |= {"sensorName": "arrival_here", "strategy": "ALL_STEPS", "runId": run_id, "backfillId": backfill_id}
    unlike = set()
    for name, field in schema.mutation_type.fields.items():
        types = {each: argument.type for each, argument in field.args.items()}
        known["parentRunId"] = backfill_id if "Backfill" in name else run_id
        if "reexecutionParams" in types:
            types.pop("executionParams", None)
        given = {each: value_of(of, each, known) for each, of in types.items()}
        declared = ", ".join(f"${each}: {of}" for each, of in types.items())
        passed = ", ".join(f"{each}: ${each}" for each in types)
        asked = f"mutation {f'({declared})' if declared else ''} {{{name}{f'({passed})' if passed else ''}"
        before = len(dagster.audit(name, of_looker=True))
        dagster.ask("looker", f"{asked} {'' if str(field.type) == 'Boolean!' else '{__typename}'}}}", **given)
        told = dagster.audit(name, of_looker=True)
        if len(told) == before or "refused" not in told[0][2]:
            unlike.add(f"{name}: {[each[2]['answers'] for each in told[:1]]}")
    assert unlike == UNLIKE


def test_what_is_not_public_of_dagster_is_there() -> None:
    assert {str(each) for each in EDITOR_PERMISSIONS} >= OF_OWNERS
    for own in (GuardedContext, GuardedProcess, GuardedWebserver):
        inherited = {name for each in own.__mro__[1:] for name in vars(each)}
        assert {name for name in vars(own) if not name.startswith("__")} - inherited == NEW[own], own
