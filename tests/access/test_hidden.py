"""What somebody may not read: left out of lists, without a name where it is a cause, in no answer of any kind."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from feed_assets.access.principals import Principal
from feed_assets.access.records import NOBODYS, AclRecord
from feed_assets.access.rights import Rights
from feed_assets.cli.door import CONSOLE
from feed_assets.operation_list import find_operation
from feed_assets.server.aliases.records import Alias
from feed_assets.server.aliases.table import ALIASES
from feed_assets.server.limiting import redact
from feed_assets.server.ui.records import Page
from feed_assets.server.ui.table import PAGES
from feed_assets.setting_sections import AccessSettings
from tests.access.cells import OPERATIONS, iter_filled
from tests.access.project import PEOPLE, START, Served, served
from tests.cli.project import must
from tests.drills import sized

HIDDEN = ("zqfeed", "zqtotals", "zqprocess", "zqsource", "zqcluster")
UNREAD = "an entity of ann and the group etl that you may not read"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """With metadata, messages and an audit of what is hidden."""
    with pytest.MonkeyPatch.context() as patch, served(tmp_path_factory.mktemp("people"), patch) as found:
        for name in ("zqfeed", "clicks"):
            given = {"entity": f"feed/{name}", "properties": {"steward": f"{name}-s"}}
            assert found.ask("ann", find_operation("metadata put"), given).status_code == 200
            hold = {"name": f"of{len(name)}", "feed": [name], "reason": "x"}
            assert found.ask("ann", find_operation("hold add"), hold).status_code == 201
        for name in ("feed/zqfeed/column/a", "feed/clicks/column/a"):
            given = {"entity": name, "properties": {"keeper": "x"}}
            assert found.ask("ann", find_operation("metadata put"), given).status_code == 200
        assert found.ask("ann", find_operation("entity suspend"), {"names": ["zqprocess"]}).status_code == 200
        yield found


def list_rows(server: Served, who: str, operation: str, rows: str, **given: str) -> tuple[list[dict[str, object]], int]:
    answer = server.ask(who, find_operation(operation), given)
    assert answer.status_code == 200, answer.text
    document = answer.json()
    assert not any(name in answer.text for name in HIDDEN) or who != "bob"
    return document[rows], document["total"]


@pytest.mark.parametrize(
    ("operation", "rows", "given", "all_of_it", "of_bob"),
    [
        ("entity list", "entities", {}, 13, 7),
        ("entity list", "entities", {"num_results": "2"}, 13, 7),
        ("entity summary", "entities", {"kind": "feed", "cluster": "here"}, 6, 3),
        ("search", "results", {"text": "steward:*"}, 2, 1),
        ("keys list", "keys", {"beginning": "steward"}, 1, 1),
        ("admin audit show", "audit", {}, None, None),
        ("admin messages", "messages", {"topic": "metadata"}, None, None),
    ],
)
def test_lists_leave_out_what_is_hidden_and_totals_count_what_is_shown(
    server: Served, operation: str, rows: str, given: dict[str, str], all_of_it: int | None, of_bob: int | None
) -> None:
    total = list_rows(server, "gus", operation, rows, **given)[1]
    theirs, less = list_rows(server, "bob", operation, rows, **given)
    assert all_of_it in (None, total)
    assert of_bob in (None, less)
    assert total > less or operation == "keys list"
    assert len(theirs) == less or given.get("num_results")
    assert list_rows(server, "super", operation, rows, **given)[1] >= total > 0


@pytest.mark.parametrize(
    ("operation", "rows", "limit"),
    [
        ("admin audit show", "audit", "limit"),
        ("admin messages", "messages", "limit"),
        ("hold list", "holds", "limit"),
        ("entity list", "entities", "num_results"),
    ],
)
def test_a_list_with_a_limit_is_the_beginning_of_the_whole_one(
    server: Served, operation: str, rows: str, limit: str
) -> None:
    whole, total = list_rows(server, "bob", operation, rows, **{limit: "1000"})
    assert 0 < len(whole) == total < list_rows(server, "super", operation, rows, **{limit: "1000"})[1]
    for most in range(1, 4):
        assert list_rows(server, "bob", operation, rows, **{limit: str(most)}) == (whole[:most], total)


def test_work_that_a_hidden_feed_declares_is_hidden(server: Served) -> None:
    for operation, given in (("feed events", {"feed": "zqfeed@here"}), ("instance list", {"name": "zqfeed.import"})):
        assert server.ask("bob", find_operation(operation), given).status_code == 403


def test_a_command_from_afar_that_is_refused_is_a_line_in_the_log(
    server: Served, caplog: pytest.LogCaptureFixture
) -> None:
    path = find_operation("feed events").path
    told = server.get("bob", path, params={"feed": "zqfeed"}, headers={"Accept": CONSOLE})
    assert (told.status_code, told.json()["exit_code"]) == (403, 1)
    assert caplog.messages[-1].endswith(f"GET {path} 403")


def test_a_search_does_not_tell_names_letter_by_letter(server: Served) -> None:
    for text, is_found in (("zq*", True), ("zqfeed", True), ("inputs:zq*", False), ("zqfeeed", False)):
        answers = [server.ask(who, find_operation("search"), {"text": text}) for who in ("bob", "ann")]
        assert [each.json()["total"] > 0 for each in answers] == [False, is_found], text
        assert UNREAD not in answers[0].text


def test_hints_of_spelling_leave_out_what_is_hidden(server: Served) -> None:
    for operation, given in (("entity status", {"name": "zqfeeds"}), ("feed events", {"feed": "zqfeedd"})):
        told = {who: server.ask(who, find_operation(operation), given).text for who in ("ann", "bob")}
        assert ("Did you mean 'zqfeed'" in told["ann"], "mean" in told["bob"]) == (True, False)
        assert "Declare a" in told["bob"]
    told = redact(
        b"Did you mean 'a' or 'clicks'?",
        Rights(AccessSettings(), Principal(name="bob"), {("feed", "a"): AclRecord("x", None, "0")}),
    )
    assert told == b"Did you mean 'clicks'?"


def test_values_of_properties_count_what_is_shown(server: Served) -> None:
    asked = find_operation("keys show"), {"key": "steward"}
    assert [server.ask(who, *asked).json()["entities"] for who in ("ann", "bob")] == [2, 1]


def test_a_cause_is_not_left_out_but_has_no_name(server: Served) -> None:
    for operation, given in (
        ("why", {"name": "counts", "instance": START}),
        ("entity dependency", {"kind": "process", "name": "counts"}),
        ("lineage group", {"kind": "cluster", "name": "here"}),
        ("entity dependency", {"kind": "feed", "name": "clicks"}),
    ):
        told = {who: server.ask(who, find_operation(operation), given) for who in ("ann", "bob")}
        assert {each.status_code for each in told.values()} == {200}, told["bob"].text
        assert (UNREAD in told["bob"].text, UNREAD in told["ann"].text) == (True, False)
        assert not any(name in told["bob"].text for name in HIDDEN)
        assert ["file://" in each.text for each in told.values()] == [operation == "why", False]  # where it is


@pytest.mark.sample
def test_no_answer_names_what_is_hidden(server: Served) -> None:
    """Questions without an entity, and about those that everybody reads; pages; the paths of others; metrics."""
    asked = [
        (each.path, filled.given)
        for each in OPERATIONS
        if each.method == "GET"
        for filled in iter_filled(each)
        if not any(name.startswith(("zq", "nobodys")) for _, name in filled.reads)
    ][:: sized(3, 1)]
    both: tuple[Page | Alias, ...] = (*PAGES, *ALIASES)
    paths = [each.path for each in both if each.method == "GET"]
    for kind, name in (("process", "counts"), ("feed", "clicks")):
        for path in paths:
            parts = {
                "kind": kind,
                "type": kind,
                "name": name,
                "entity": f"{kind}/{name}",
                "ns": "default",
                "key": "steward",
            }
            parts |= {"instance": START, "id": name, "dataset": name, "types": kind, "version": "1"}
            for part, value in parts.items():
                path = path.replace(f"{{{part}}}", value).replace(f"{{{part}:path}}", value)
            asked.append((path, {}))
    asked.append(("/metrics", {}))
    refused, named = [], []
    for path, given in asked:
        ours = server.get("super", path, params=given)
        answer = server.get("bob", path, params=given)
        named += [path for name in HIDDEN if name in ours.text]
        assert not any(name in f"{answer.text}{answer.headers}" for name in HIDDEN), (path, given, answer.text)
        refused += [path] if answer.status_code == 403 else []
        assert answer.status_code < 500 or ours.status_code >= 500
    assert len(set(named)) > 10  # there is something to hide
    assert len({*refused}) < len({path for path, _ in asked}) / 3


def test_pages_and_paths_by_name_are_refused(server: Served) -> None:
    for path in ("/ui/feed/zqfeed", "/ui/process/zqprocess", "/ui/feed/zqfeed/lineage", "/ui/feed/zqfeed/columns"):
        answers = {who: server.get(who, path, headers={"Accept": "text/html"}) for who in PEOPLE}
        assert {who: each.status_code for who, each in answers.items()} == {
            "super": 200,
            "ann": 200,
            "gus": 200,
            "adm": 403,
            "bob": 403,
        }, path
        assert UNREAD in answers["bob"].text
    for path in ("/api/entities/definition/feed/zqfeed", "/api/entities/status/process/zqprocess"):
        assert [server.get(who, path).status_code for who in ("ann", "bob")] == [200, 403]


def test_of_two_with_one_name_the_hidden_one_is_as_if_it_was_not_there(server: Served) -> None:
    for operation, given in (("entity status", {}), ("why", {"instance": START}), ("entity definition", {})):
        asked = find_operation(operation), {"name": "counts", **given}
        found = {who: server.ask(who, *asked) for who in ("ann", "bob")}
        assert found["bob"].status_code == 200, found["bob"].text
        assert operation == "why" or found["ann"].status_code == 400
        assert server.ask("bob", asked[0], {**asked[1], "kind": "feed"}).status_code == 403


def test_forms_are_for_who_may_act(server: Served) -> None:
    pages = {who: server.get(who, "/ui/feed/clicks", headers={"Accept": "text/html"}).text for who in PEOPLE}
    has_form = {who: 'action="/ui/do/' in page for who, page in pages.items()}
    assert has_form == {"super": True, "adm": False, "ann": True, "gus": True, "bob": False}


def test_plan_names_what_has_no_acl_and_hides_what_is_hidden(server: Served) -> None:
    must_have = "1 without acl, which superusers alone may change: feed 'nobodys'"
    whole = Path("entities/all.yaml").read_text()
    Path("entities/all.yaml").write_text(whole.replace("name: zqfeed\n", "name: zqfeed\ndescription: zqtext\n"))
    told = {who: server.ask(who, find_operation("plan"), {}) for who in ("ann", "bob")}
    Path("entities/all.yaml").write_text(whole)
    assert [must_have in each.headers["Feed-Assets-Notes"] for each in told.values()] == [True, True]
    assert ["zqtext" in each.text for each in told.values()] == [True, False]
    assert "zqfeed" not in told["bob"].text
    must("entity", "list")


def test_a_name_that_others_have_is_left_out_where_its_kind_stands_beside_it() -> None:
    closed = {name: AclRecord(owner, None, "0") for name, owner in (("a", "ann"), ("table", "x"))}
    acls = {**{("feed", name): acl for name, acl in closed.items()}, ("process", "a"): NOBODYS}
    rights = Rights(AccessSettings(), Principal(name="bob"), acls)
    text = '{"kind": "feed",\n "name": "a", "process": "a", "feed": "a"} '
    text += "feed 'a', process 'a'; feed/a/column <table>/data/table"
    told = "an entity of ann that you may not read"
    assert redact(text.encode(), rights).decode() == (
        f'{{"kind": "feed",\n "name": "{told}", "process": "a", "feed": "{told}"}} '
        f"{told}, process 'a'; feed/{told}/column <table>/data/{told.replace('ann', 'x')}"
    )
    told = "an entity of x that you may not read"
    for kept in (
        "a table of",
        "<table>",
        "Tables: the table is",
        '{"table": 1}',
        "x_table",
        "table-b",
        "time(table-x)",
    ):
        assert redact(kept.encode(), rights) == kept.encode()
    for named in (
        "feed table is",
        "a, table",
        '"table"',
        "in=table out=c",
        "read: table\\n",
        "b\\ntable\\n",
        "table@east",
    ):
        assert redact(named.encode(), rights).decode() == named.replace("table", told)
    lines = b'up{feed="table"} 1\nup{feed="b"} 1\n'
    assert redact(lines, rights, by_line=True) == b'up{feed="b"} 1\n'
