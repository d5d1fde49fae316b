"""Requests by Falcon's paths, with the members and status codes of its documentation."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from starlette.testclient import TestClient

from feed_assets.sql.database import Database
from tests.cli.project import must
from tests.cli.test_golden import FIRST, record_instances, record_late
from tests.definitions.extensions.samples import files_of, lay
from tests.definitions.verbs.harness import COUNTING, COUNTS
from tests.server.project import open_project, serve

RANGE = "start=2013-11-03T05:00Z&end=2013-11-03T06:00Z"
COPIED = "2013-11-03T10:00Z"
_ON = {"clusters": {"primary": {"validity": {"start": FIRST, "end": "2013-12-01T00:00Z"}}}}
SUMS = {
    **COUNTS,
    **_ON,
    "name": "sums",
    "locations": {"data": "/sums/${YEAR}-${MONTH}-${DAY}/${HOUR}"},
    "groups": ["daily"],
}
_FEED = {"start": "now(0,0)", "end": "now(0,0)"}
_OF = {**COUNTING, **_ON, "pipelines": ["chain"]}
CHAIN = (
    SUMS,
    {
        **_OF,
        "name": "adding",
        "inputs": {"a": {"feed": "counts", **_FEED}},
        "outputs": {"b": {"feed": "sums", "instance": "now(0,0)"}},
    },
    {**_OF, "name": "telling", "inputs": {"a": {"feed": "sums", **_FEED}}, "outputs": {}},
)
"""Two processes, of which one hands to the other what it makes of counts."""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Database]]:
    folder = tmp_path_factory.mktemp("served")
    with pytest.MonkeyPatch.context() as patch:
        database = open_project(folder, patch)
        record_instances(folder)
        record_late(folder)
        (folder / "chain.yaml").write_text(yaml.safe_dump_all(CHAIN))
        must("entity", "submit", "chain.yaml")
        must("replication", "repair", "clicks", "--start", COPIED, "--end", "2013-11-03T11:00Z")
        yield folder, database


@pytest.fixture
def client(project: tuple[Path, Database]) -> TestClient:
    return serve(project[1])


def ask(client: TestClient, path: str) -> Any:
    answer = client.get(f"/api/{path}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def message_of(told: dict[str, str]) -> str:
    assert {*told} >= {"status", "message", "requestId"}
    return told["message"]


def test_entities(client: TestClient) -> None:
    assert ask(client, "entities/list/process?fields=status,pipelines&filterBy=PIPELINES:reports&user.name=ann") == {
        "totalResults": 1,
        "entity": [
            {"type": "process", "name": "counting", "status": "RUNNING", "pipelines": {"pipeline": ["reports"]}}
        ],
    }
    names = [each["name"] for each in ask(client, "entities/list?nameseq=cnt&sortOrder=desc&numResults=1")["entity"]]
    assert names == ["counts"]
    assert message_of(ask(client, "entities/status/process/counting")) == "default/RUNNING\n"
    assert ask(client, "entities/dependencies/process/counting")["entity"] == [
        {"name": "primary", "type": "cluster"},
        {"name": "clicks", "type": "feed", "tag": ["Input"]},
        {"name": "counts", "type": "feed", "tag": ["Output"]},
    ]


def test_a_definition_is_xml_that_can_be_submitted_again(client: TestClient) -> None:
    answer = client.get("/api/entities/definition/feed/clicks")
    assert answer.headers["content-type"] == "text/xml; charset=utf-8"
    assert answer.text.lstrip().startswith("<?xml")
    assert message_of(client.post("/api/entities/validate/feed", content=answer.text).json()).endswith(
        "(feed) clicks\n"
    )
    again = client.post("/api/entities/update/feed/clicks", content=answer.text)
    assert (again.status_code, again.json()["status"]) == (200, "SUCCEEDED")


@pytest.mark.parametrize(
    ("method", "path", "content", "said"),
    [
        ("GET", "entities/status/process/nobody", "", "there is no process 'nobody'"),
        ("GET", "entities/status/thing/counting", "", "'thing' is not one of"),
        ("GET", "entities/status/process/counting?colo=west", "", "There is no colo 'west' here"),
        ("GET", "entities/status/process/counting?doAs=joe", "", "There is no parameter 'doAs' here"),
        ("GET", "entities/status/process/counting?na=me", "", "There is no parameter 'na' here"),
        ("POST", "instance/kill/process/counting?start=2013-11-03T05:00Z", "", "Give start and end"),
        ("POST", f"instance/kill/process/counting?{RANGE}&colo=west", "", "There is no colo 'west' here"),
        ("POST", "entities/submit/process", "kind: feed\nname: clicks\n", "The body declares the feed 'clicks'"),
        ("POST", "entities/update/feed/views", "kind: feed\nname: clicks\n", "The body declares the feed 'clicks'"),
        ("POST", "entities/schedule/cluster/primary", "", "cluster"),
        ("GET", "instance/dependencies/process/counting?instanceTime=2013-11-03T05:30Z", "", "05:30"),
        ("GET", "instance/listing/process/counting", "", "The type is feed"),
        ("GET", "entities/lookup/feed", "", "path is missing"),
        ("GET", "instance/params/process/counting", "", "start is missing"),
        ("GET", "entities/summary/cluster?cluster=primary", "", "a cluster has no instances"),
        ("POST", "entities/updateClusterDependents/nobody", "", "there is no cluster 'nobody'"),
        ("GET", "admin/setSafeMode/maybe", "", "neither true nor false"),
    ],
)
def test_what_is_refused_has_the_status_400_and_says_failed(
    client: TestClient, method: str, path: str, content: str, said: str
) -> None:
    answer = client.request(method, f"/api/{path}", content=content)
    assert (answer.status_code, answer.json()["status"]) == (400, "FAILED")
    assert said in message_of(answer.json())


def test_deleting_what_is_not_there_has_succeeded(client: TestClient) -> None:
    answer = client.delete("/api/entities/delete/feed/nobody")
    assert (answer.status_code, answer.json()["status"]) == (200, "SUCCEEDED")
    assert message_of(answer.json()) == "default/missing (feed) nobody\n"
    refused = client.delete("/api/entities/delete/cluster/primary")
    assert (refused.status_code, refused.json()["status"]) == (400, "FAILED")


def test_entities_are_suspended_and_resumed(client: TestClient) -> None:
    for verb, state in (("suspend", "SUSPENDED"), ("resume", "RUNNING"), ("schedule", "RUNNING")):
        assert client.post(f"/api/entities/{verb}/process/counting").json()["status"] == "SUCCEEDED"
        assert message_of(ask(client, "entities/status/process/counting")) == f"default/{state}\n"


def test_a_job_of_an_extension_is_changed_as_a_whole_and_its_entities_are_not(
    client: TestClient, project: tuple[Path, Database]
) -> None:
    must("extension", "register", str(lay(project[0] / "recipe", files_of())))
    (project[0] / "tables.yaml").write_text("tables: [{name: orders, hours: 1}]")
    (project[0] / "empty.sql").write_text("select 1")
    must("extension", "job", "submit", "shop-tables", "nightly", "--file", str(project[0] / "tables.yaml"))
    assert message_of(ask(client, "extension/describe/shop-tables")) == "default/# Tables of a shop\n"
    for verb, state in (("schedule", "RUNNING"), ("suspend", "SUSPENDED"), ("resume", "RUNNING")):
        assert client.post(f"/api/extension/{verb}/nightly").json()["status"] == "SUCCEEDED"
        assert message_of(ask(client, "entities/status/feed/nightly-orders")) == f"default/{state}\n"
    for method, path in (("POST", "entities/suspend"), ("DELETE", "entities/delete")):
        refused = client.request(method, f"/api/{path}/feed/nightly-orders")
        assert (refused.status_code, refused.json()["status"]) == (400, "FAILED")
        assert "it belongs to job 'nightly'" in message_of(refused.json())
    assert client.post("/api/extension/disable/shop-tables").json()["status"] == "SUCCEEDED"
    assert "it is disabled" in message_of(client.post("/api/extension/schedule/nightly").json())
    assert client.post("/api/extension/enable/shop-tables").json()["status"] == "SUCCEEDED"
    assert client.delete("/api/extension/delete/nightly").json()["status"] == "SUCCEEDED"
    assert client.post("/api/extension/unregister/shop-tables").json()["status"] == "SUCCEEDED"


def test_instances(client: TestClient) -> None:
    killed = client.post(f"/api/instance/kill/process/counting?{RANGE}&colo=*").json()
    assert [(each["instance"], each["status"]) for each in killed["instances"]] == [("2013-11-03T05:00Z", "KILLED")]
    (found,) = ask(client, f"instance/status/process/counting?{RANGE}")["instances"]
    assert (found["instance"], found["status"], found["cluster"]) == ("2013-11-03T05:00Z", "KILLED", "primary")
    rerun = client.post(f"/api/instance/rerun/process/counting?{RANGE}", content="a=1\n")
    assert [each["status"] for each in rerun.json()["instances"]] == ["WAITING"]
    (summary,) = ask(client, f"instance/summary/process/counting?{RANGE}")["instancesSummary"]
    assert (summary["cluster"], {"key": "WAITING", "value": "1"} in summary["map"]["entry"]) == ("primary", True)
    assert ask(client, "instance/dependencies/process/counting?instanceTime=2013-11-03T05:00Z")["dependencies"][0] == {
        "cluster": "primary",
        "entityName": "clicks",
        "entityType": "FEED",
        "instanceTime": "2013-11-03T05:00Z",
        "tags": "Input",
    }
    (graph,) = ask(client, "instance/triage/process/counting?start=2013-11-03T05:00Z")["triageGraphs"]
    waits, lacks = "(PROCESS) counting (2013-11-03T05:00Z) [WAITING]", "(FEED) clicks (2013-11-03T05:00Z) [MISSING]"
    assert {*graph["vertices"]} >= {waits}
    assert all({each["from"], each["to"]} <= {*graph["vertices"]} for each in graph["edges"]), lacks


def test_metadata(client: TestClient) -> None:
    found = {
        kind: ask(client, f"metadata/discovery/{kind}/list")["results"] for kind in ("feed_entity", "user", "tags")
    }
    assert found == {"feed_entity": ["clicks", "counts", "sums", "views"], "user": ["web"], "tags": ["owner=web"]}
    assert ask(client, "metadata/discovery/feed_entity/list?cluster=backup") == {"results": ["clicks"], "totalSize": 1}
    assert ask(client, "metadata/discovery/process_entity/counting/relations") == {
        "name": "counting",
        "type": "PROCESS_ENTITY",
        "inVertices": [{"name": "clicks", "type": "FEED_ENTITY", "label": "input"}],
        "outVertices": [
            {"name": "primary", "type": "CLUSTER_ENTITY", "label": "runs-on"},
            {"name": "counts", "type": "FEED_ENTITY", "label": "output"},
            {"name": "reports", "type": "PIPELINES", "label": "pipeline"},
        ],
    }
    of_pipeline = ask(client, "metadata/discovery/pipelines/reports/relations")["inVertices"]
    assert of_pipeline == [{"name": "counting", "type": "PROCESS_ENTITY", "label": "pipeline"}]
    told = {"vertices": ["adding", "telling"], "edges": [{"from": "adding", "to": "telling", "label": "sums"}]}
    for path in ("metadata/lineage/entities", "entities/lineage"):
        assert ask(client, f"{path}?pipeline=chain") == told
    for path in ("metadata/discovery/thing/list", "metadata/lineage/entities?pipeline=nobody"):
        assert client.get(f"/api/{path}").status_code == 400
    assert client.get("/api/metadata/discovery/feed_entity/nobody/relations").status_code == 404


RAN = {"instance": FIRST, "cluster": "primary", "status": "SUCCEEDED", "details": ""}
TIMES = {"startTime": "2013-11-03T00:00:00Z", "endTime": "2013-11-03T00:05:00Z", "runId": 1}
CLICKS = {"feedName": "clicks", "locationType": "DATA"}
LATE = {"cluster": "primary", "entityName": "views", "entityType": "FEED", "instanceTime": "2013-11-03T02:00Z"}
VERTEX = {"type": "CLUSTER_ENTITY", "label": "stored-in"}
FIRST_HOUR = f"start={FIRST}&end=2013-11-03T01:00Z"
ANSWERS: dict[str, tuple[str, Any]] = {
    f"instance/logs/process/counting?{FIRST_HOUR}&runid=1": (
        "instances",
        [{**RAN, **TIMES, "actions": [{"action": "counting", "status": "SUCCEEDED"}]}],
    ),
    f"instance/logs/process/counting?{FIRST_HOUR}&runid=2": ("instances", []),
    f"instance/list/process/counting?{FIRST_HOUR}": ("instances", [{**RAN, **TIMES}]),
    f"instance/listing/feed/clicks?start={COPIED}&end=2013-11-03T11:00Z": ("instances.0.status", "AVAILABLE"),
    f"instance/listing/feed/views?{FIRST_HOUR}": ("instances.0.size", -1),
    "instance/search?type=process&nameseq=cntng&instanceStatus=RUNNING": (
        "instances.0.nominalTime",
        "2013-11-03T02:00Z",
    ),
    "instance/search?type=feed,PROCESS&nameseq=cntng&instanceStatus=running,failed": ("instances.0.type", "PROCESS"),
    "instance/search?type=feed&tagkeys=web&numResults=1": ("instances.0.tags", {"tag": ["owner=web"]}),
    "entities/summary/process?cluster=primary&nameseq=counting&numInstances=5": (
        "entitySummaries.0.instances.4",
        {**RAN, "startTime": TIMES["startTime"], "endTime": TIMES["endTime"]},
    ),
    "entities/summary/process?cluster=primary&filterBy=NAME:models": (
        "entitySummaries",
        [{"type": "process", "name": "models", "status": "RUNNING"}],
    ),
    "entities/lookup/feed?path=/clicks/2013-11-03/05": (
        "feed",
        [{**CLICKS, "clusterName": "backup"}, {**CLICKS, "clusterName": "primary"}],
    ),
    "entities/lookup/feed?path=/clicks/2013-11-03": ("feed", []),
    f"entities/sla-alert/feed?start={FIRST}": ("instances", [{**LATE, "tags": "Missed SLA Low"}]),
    f"entities/sla-alert/process?start={FIRST}&name=models": ("instances.0.tags", "Missed SLA High"),
    "metadata/discovery/clicks/replication-metrics/list?type=feed&numResults=1": ("totalSize", 0),
    "metadata/discovery/colo/list?cluster=primary": ("results", ["default"]),
    "metadata/discovery/cluster_entity/list?cluster=primary": ("results", ["primary"]),
    "metadata/discovery/groups/list": ("results", ["daily"]),
    "metadata/discovery/GROUPS/daily/relations": ("inVertices.0.name", "sums"),
    "metadata/discovery/cluster_entity/backup/relations": (
        "outVertices",
        [{"name": "default", "type": "COLO", "label": "collocated"}],
    ),
    "metadata/discovery/feed_entity/clicks/relations": (
        "outVertices",
        [
            {"name": "backup", **VERTEX},
            {"name": "primary", **VERTEX},
            {"name": "counting", "type": "PROCESS_ENTITY", "label": "input"},
            {"name": "web", "type": "USER", "label": "owned-by"},
            {"name": "owner=web", "type": "TAGS", "label": "owner"},
        ],
    ),
}


@pytest.mark.parametrize("path", ANSWERS)
def test_each_question_has_the_members_of_falcon(client: TestClient, path: str) -> None:
    members, expected = ANSWERS[path]
    found = ask(client, path)
    for member in members.split("."):
        found = found[int(member) if member.isdecimal() else member]
    assert found == expected


def test_what_is_passed_to_the_work_and_what_was_copied(client: TestClient) -> None:
    (file, *_) = ask(client, f"instance/listing/feed/clicks?start={COPIED}&end=2013-11-03T11:00Z")["instances"]
    assert (file["cluster"], file["size"] > 0, file["creationTime"] > 10**12) == ("backup", True, True)
    (found,) = ask(client, f"instance/params/process/counting?start={FIRST}")["instances"]
    assert {"key": "falconInputs", "value": "clicks"} in found["wfParams"]
    copies = ask(client, "metadata/discovery/clicks/replication-metrics/list?type=feed")["results"]
    assert [(each["name"], each["COPY"]) for each in copies] == [(f"clicks/{COPIED}", 1)]
    assert {*copies[0]} == {"name", "TIMETAKEN", "BYTESCOPIED", "COPY"}


def test_entities_are_touched_and_moved_to_their_cluster(client: TestClient) -> None:
    for path in ("touch/process/counting?skipDryRun=true", "updateClusterDependents/primary"):
        assert client.post(f"/api/entities/{path}").json()["status"] == "SUCCEEDED"


def test_row_155_the_server_tells_about_itself(client: TestClient) -> None:
    found = {each["key"]: each["value"] for each in ask(client, "admin/version")["properties"]}
    assert (found["Mode"], found["safemode"]) == ("embedded", "false")
    assert client.get("/api/admin/setSafeMode/true").text == "true"
    try:
        assert {"key": "safemode", "value": "true"} in ask(client, "admin/version")["properties"]
    finally:
        client.get("/api/admin/setSafeMode/false")
    settings = ask(client, "admin/config/runtime")["properties"]
    assert {"key": "entities", "value": "entities"} in settings
    assert "token=abc" not in client.get("/api/admin/config/runtime").text
    assert client.get("/api/admin/getuser", headers={"Accept": "text/xml"}).text
    answer = client.get("/api/entities/status/process/counting", headers={"Accept": "text/xml"})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    for name in ("doAs", "properties"):
        refused = client.post(f"/api/instance/rerun/process/counting?start=x&end=x&{name}=x")
        assert (refused.status_code, f"no parameter '{name}' here" in refused.text) == (400, True)
    assert "thread" in client.get("/api/admin/stack").text
