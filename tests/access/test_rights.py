"""Who may change what: definitions, what is selected, clusters; and commands on the database itself."""

import json
from collections.abc import Iterator
from os import getuid
from pathlib import Path
from pwd import getpwuid
from typing import Any

import pytest
import yaml

from feed_assets.log.instances.attempts import Attempts
from feed_assets.log.records import Attempt, Cause, ProcessInstanceStatus
from feed_assets.operation_list import find_operation
from tests.access.project import KEEPER, PUBLIC, Served, feed, process, served
from tests.cli.project import must
from tests.log.samples import hour
from tests.projects import declare, enter

BOBS = {"owner": "bob", "group": "ops"}
YAML = {"Content-Type": "application/yaml", "Feed-Assets-File": "new.yaml"}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    with served(tmp_path, monkeypatch) as found:
        yield found


def send(server: Served, who: str, name: str, *documents: dict[str, Any], **given: Any) -> tuple[int, str]:
    """Send definitions to an operation; return the status, and what is said."""
    operation = find_operation(name)
    body = "\n---\n".join(map(json.dumps, documents))
    answer = server.clients[who].post(f"{server.url}{operation.path}", data=body, params=given, headers=YAML)
    return answer.status_code, answer.text


def ask(server: Served, who: str, operation: str, /, **given: Any) -> int:
    return server.ask(who, find_operation(operation), given).status_code


def test_who_declares_is_owner_or_of_the_group_before_and_after(server: Served) -> None:
    changed = feed("clicks", acl=PUBLIC, description="of Ann")
    assert send(server, "bob", "entity update", changed)[0] == 403
    assert send(server, "bob", "entity update", {**changed, "acl": BOBS})[0] == 403  # nobody takes what is of others
    status, text = send(server, "ann", "entity update", {**changed, "acl": BOBS})
    assert (status, "feed 'clicks' (then of bob" in text) == (403, True)  # nor gives away
    status, text = send(server, "bob", "apply", feed("taps", acl=BOBS), changed, yes=True)
    assert (status, "feed 'clicks' (of ann and the group etl)" in text) == (403, True)
    assert ask(server, "bob", "entity status", name="taps") == 404  # all or none
    assert send(server, "gus", "entity update", changed)[0] == 200
    assert send(server, "super", "entity update", {**changed, "acl": BOBS})[0] == 200
    assert send(server, "bob", "entity update", {**changed, "acl": BOBS, "description": "of Bob"})[0] == 200


def test_what_somebody_declares_reads_what_they_may_read_and_writes_what_is_theirs(server: Served) -> None:
    mine = process("mine", "clicks", "taps", acl=BOBS)
    assert send(server, "bob", "entity submit", feed("taps", acl=BOBS))[0] == 201
    for reads, writes, status in (("zqfeed", "taps", 403), ("clicks", "totals", 403), ("clicks", "taps", 201)):
        answer, text = send(server, "bob", "entity submit", process("mine", reads, writes, acl=BOBS))
        assert (answer, "zqfeed" in text) == (status, False), text
    assert send(server, "bob", "entity update", {**mine, "description": "x"})[0] == 200
    assert send(server, "super", "entity update", feed("clicks", acl={**PUBLIC, "permission": "0x750"}))[0] == 200
    assert send(server, "bob", "entity update", {**mine, "description": "y"})[0] == 200  # it read that before


def test_what_is_new_is_declared_by_its_owner_and_what_has_no_acl_by_superusers(server: Served) -> None:
    assert send(server, "ann", "entity submit", feed("taps", acl=BOBS))[0] == 403
    assert send(server, "ann", "entity submit", feed("taps"))[0] == 403
    assert send(server, "bob", "entity submit", feed("taps", acl=BOBS))[0] == 201
    assert send(server, "super", "entity submit", feed("more"))[0] == 201
    assert send(server, "bob", "entity update", feed("more", description="x"))[0] == 403
    assert ask(server, "bob", "entity delete", names=["more"]) == 403
    assert ask(server, "bob", "entity delete", names=["taps"]) == 200
    assert ask(server, "ann", "entity rename", kind="feed", name="nobodys", new="mine") == 403


def test_a_rename_that_changes_what_is_of_others_is_refused(server: Served) -> None:
    counts = yaml.safe_load_all(Path("entities/all.yaml").read_text())
    found = next(each for each in counts if each["name"] == "counts" and each["kind"] == "process")
    bobs = {**found, "name": "bobs", "acl": BOBS, "outputs": {}}
    bobs["inputs"]["a"]["feed"] = "clicks"
    assert send(server, "bob", "entity submit", bobs)[0] == 201
    assert ask(server, "ann", "entity rename", kind="feed", name="clicks", new="taps") == 403


def test_the_audit_of_what_is_hidden_stays_hidden_under_its_former_name(server: Served) -> None:
    for each in ({"kind": "process", "names": ["zqprocess"]}, {"kind": "process", "names": ["counts"]}):
        assert ask(server, "ann", "entity suspend", **each) == 200
    assert ask(server, "ann", "entity rename", kind="process", name="zqprocess", new="zqnew") == 200
    told = {who: server.ask(who, find_operation("admin audit show"), {}).text for who in ("ann", "bob")}
    assert all(name in told["ann"] and name not in told["bob"] for name in ("zqprocess", "zqnew"))
    assert "counts" in told["bob"]


def test_bd_60_admins_see_who_has_which_role_and_of_hidden_entities_nothing(server: Served) -> None:
    assert ask(server, "bob", "admin users") == 403
    users = {(each["what"], each["name"]): each for each in said_users(server, "adm")}
    assert users["user", "adm"]["roles"] == ["admin", "has a token"]
    assert users["group", "wheel"]["roles"] == ["superuser", "has a token"]
    ann, of_super = users["user", "ann"], {each["name"]: each for each in said_users(server, "super")}
    assert (ann["roles"], len(ann["may"]), ann["groups"]) == (["has a token", "owner"], 5, [])
    assert users["user", "gus"]["groups"] == ["etl"]
    assert (ann["entities"], users["group", "etl"]["entities"], of_super["ann"]["entities"]) == (5, 5, 11)


def said_users(server: Served, who: str) -> list[dict[str, Any]]:
    answer = server.ask(who, find_operation("admin users"), {})
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["users"]
    return found


def test_row_105_clusters_are_changed_by_superusers(server: Served) -> None:
    cluster = {"kind": "cluster", "name": "here", "storage": f"file://{Path.cwd()}/data", "acl": PUBLIC}
    assert ask(server, "super", "admin safemode", switch="on") == 200
    assert send(server, "super", "entity update", cluster)[0] == 200
    assert send(server, "ann", "entity update", {**cluster, "description": "x"})[0] == 403
    assert ask(server, "ann", "entity delete", kind="cluster", names=["here"]) == 403
    assert ask(server, "ann", "entity update-cluster-dependents", cluster="here", dry_run=True) == 403


def test_who_acts_on_what_is_found_is_asked_for_all_of_it(server: Served) -> None:
    held = {"name": "h", "feed": ["clicks"], "reason": "audit"}
    assert ask(server, "bob", "hold add", **held) == 403
    assert ask(server, "ann", "hold add", **held) == 201
    assert ask(server, "super", "hold add", **{**held, "feed": ["nobodys"]}) == 201
    assert ask(server, "ann", "hold release", name="h") == 403  # one of them is of superusers
    assert ask(server, "super", "hold release", name="h") == 200
    assert ask(server, "super", "hold add", name="all", every_feed=True, reason="audit") == 201
    assert ask(server, "ann", "hold release", name="all") == 403
    document = {"mutations": [{"entity": "feed/nobodys", "update": {"properties": {"a": "b"}}}]}
    assert send(server, "ann", "metadata import", document)[0] == 403
    assert ask(server, "ann", "metadata put", entity="clicks", properties={"a": "b"}) == 200
    assert ask(server, "ann", "metadata put", entity="feed/nobodys", properties={"a": "b"}) == 403


def test_superusers_are_made_by_superusers(server: Served) -> None:
    for name, groups in (("x", ["wheel"]), (KEEPER, [])):
        made = {"name": name, "may": ["reads"], "groups": groups, "dry_run": True}
        assert [ask(server, who, "token create", **made) for who in ("bob", "adm", "super")] == [403, 403, 200]
    assert ask(server, "adm", "token create", name="x", may=["reads"], groups=["etl"], dry_run=True) == 200


def test_what_nobody_declares_is_described_by_superusers_and_a_run_by_who_may_act_on_its_processes(
    server: Served,
) -> None:
    with server.database.begin() as connection:
        of = {"cluster": "here", "attempt": 1, "status": ProcessInstanceStatus.RUNNING, "cause": Cause.COMMAND}
        for run, process in (("r", "counts"), ("h", "zqprocess")):
            at = {"nominal_time": hour(0), "started_at": hour(1), "release": 1}
            Attempts(connection).begin(Attempt(process=process, run_id=run, cause_detail="x", **of, **at))
    said = {"properties": {"a": "b"}}
    for path, of_ann, of_bob in (
        ("dashboard/otd", 403, 403),
        ("run/r", 200, 403),
        ("run/r/note/x", 200, 403),
        ("run/h", 200, 403),
        ("run/absent/note/x", 404, 404),
        ("feed/clicks/page/x", 200, 403),
    ):
        assert ask(server, "ann", "metadata put", entity=path, **said) == of_ann, path
        assert ask(server, "bob", "metadata put", entity=path, **said) == of_bob, path
    document = {"mutations": [{"entity": "dashboard/otd", "update": said}]}
    assert send(server, "ann", "metadata import", document)[0] == 403
    assert ask(server, "super", "metadata put", entity="dashboard/otd", **said) == 200
    assert ask(server, "bob", "metadata get", entity="dashboard/otd") == 200


def test_the_acl_of_what_is_deleted_or_cannot_be_read_goes_on(server: Served) -> None:
    assert ask(server, "super", "plan") == 200
    assert ask(server, "ann", "entity history", name="zqfeed") == 200  # which records it
    whole = Path("entities/all.yaml").read_text()
    Path("entities/all.yaml").write_text(whole.replace("name: zqfeed\n", "name: zqfeed\nfrequenzy: x\n"))
    assert ask(server, "bob", "entity definition", name="zqfeed", version=1) == 403
    assert "zqfeed" not in server.get("bob", "/api/v1/entity/list").text
    assert send(server, "bob", "entity update", feed("zqfeed", acl=BOBS))[0] == 403
    Path("entities/all.yaml").write_text(whole)
    assert ask(server, "ann", "entity delete", names=["zqprocess"]) == 200
    assert ask(server, "bob", "entity history", kind="process", name="zqprocess") == 403


def test_a_command_that_asks_a_server_may_what_its_token_may(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    for who, code in (("bob", 1), ("ann", 0)):
        monkeypatch.setenv(
            "FEED_ASSETS_TOKEN", str(server.clients[who].headers["Authorization"]).removeprefix("Bearer ")
        )
        answer = must("--server", server.url, "entity", "suspend", "clicks", code=code)
        assert ("'bob' may not change or act on feed 'clicks'" in answer.output) == (who == "bob")
    assert "zqfeed" in must("--server", server.url, "entity", "list").output


def test_commands_on_the_database_are_for_superusers_with_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter(tmp_path, monkeypatch)
    monkeypatch.delenv("FEED_ASSETS_AUTHOR")
    user = getpwuid(getuid()).pw_name
    monkeypatch.setenv("LOGNAME", "ann")
    monkeypatch.setenv("USER", "ann")
    cluster = {"kind": "cluster", "name": "here", "storage": f"file://{tmp_path}/data"}
    declare(tmp_path, cluster, feed("clicks"), authorization="acl", access={"superusers": ["ann"]})
    for command in (
        ("admin", "safemode", "on"),
        ("state", "rebuild", "--yes"),
        ("instance", "listing", "clicks", "--look"),
    ):
        told = must(*command, code=1).stderr
        assert f"only superusers change the state itself, and {user!r} is none" in told
    must("entity", "list")
    must("instance", "listing", "clicks")
    declare(tmp_path, authorization="acl", access={"superusers": [user]})
    must("admin", "safemode", "on")
    assert "not 'bob'" in must("admin", "safemode", "off", "--author", "bob", code=1).stderr
    must("admin", "safemode", "off", "--author", user)
    declare(tmp_path, authorization=False)
    must("admin", "safemode", "on", "--author", "bob")
