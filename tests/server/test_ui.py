"""Pages: what they show, where they lead, and what they never do."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from starlette.testclient import TestClient

from feed_assets.orchestration.graph.layout import lay_out
from feed_assets.orchestration.location.asset_places import note_places
from feed_assets.plan.location import load_location
from feed_assets.settings import load_settings
from tests.cli.project import must
from tests.cli.test_golden import FIRST, LAST, record_instances
from tests.server.project import open_project, serve

ENOUGH = 4
"""Of pages that differ in numbers alone, such as those of the hours of a day, so many are looked at."""


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    database = open_project(tmp_path, monkeypatch)
    with serve(database) as client:
        yield client
    database.close()


def addresses_in(text: str) -> set[str]:
    return {each.replace("&amp;", "&") for each in re.findall(r'href="(/ui[^"#]*)"', text)}


WILD = "<script>alert(1)"
SAID_OF = ("description", "tag", "column", "payload", "file", "word", "reason")


def say_wild_things(folder: Path) -> None:
    """Let whatever people may name or say be markup, or an address that is a script."""
    document = yaml.safe_load((folder / "more.yaml").read_text())
    document |= {
        "description": f"{WILD}description",
        "tags": {"owner": f"{WILD}tag"},
        "schema": f"`{WILD}column` string, `in/out` string",
    }
    (folder / "more.yaml").write_text(yaml.safe_dump(document))
    must("entity", "submit-and-schedule", "more.yaml")
    (folder / f"primary/views/2013-11-03/00/{WILD}file").write_text("x")
    payload = json.dumps({"note": f"{WILD}payload", "at": "javascript:alert(1)"})
    must("feed", "notify", "views", "2013-11-03T00:00Z", "--payload", payload)
    for entity in ("feed/clicks", "feed/hits", f"feed/hits/column/{WILD}column"):
        must("metadata", "put", entity, f"note={WILD}word", "where=javascript:alert(1)")
    must("hold", "add", "audit", "--feed", "hits", "--reason", f"{WILD}reason")


def test_whatever_a_page_leads_to_is_a_page_and_no_text_of_people_is_markup(client: TestClient, tmp_path: Path) -> None:
    say_wild_things(tmp_path)
    start = {"/ui", f"/ui/keys?beginning={WILD}", "/ui/search?text=note:script", f"/ui/words?entity={WILD}"}
    seen, new, alike, texts = set[str](), {*start}, Counter[str](), list[str]()
    while new:
        page = new.pop()
        seen.add(page)
        alike[re.sub(r"\d+", "0", page)] += 1
        if alike[re.sub(r"\d+", "0", page)] > ENOUGH:
            continue
        answer = client.get(page)
        assert answer.status_code == 200 or page in start, (page, answer.text)
        assert "{&#39;" not in answer.text or page == "/ui/ask/schema", page
        assert not re.search('<script|(href|action)="(javascript|data)', answer.text), page
        texts.append(answer.text)
        form = answer.text.partition("Show</button>")[0] if page.startswith("/ui/ask/") else ""
        assert "--" not in form, page
        assert "frame-ancestors 'none'" in answer.headers.get("content-security-policy", "") or page.endswith(
            (".css", ".svg")
        )
        new |= addresses_in(answer.text) - seen
    assert {"/ui/feed/clicks", "/ui/process/counting", "/ui/ask/queue/list", "/ui/keys"} <= seen
    assert "/ui/cluster/every" not in seen
    assert client.get("/ui/feed/hits/column/in%2Fout").status_code == 200
    shown = " ".join(texts)
    assert [each for each in SAID_OF if f"&lt;script&gt;alert(1){each}" not in shown] == []
    assert shown.count("javascript:alert(1)") > 1


def test_what_is_not_there_is_told_on_a_page(client: TestClient) -> None:
    answer = client.get("/ui/feed/nothing")
    assert answer.status_code == 404
    assert "nothing" in answer.text
    assert answer.headers["content-type"].startswith("text/html")
    for page in ("", "/at/2013-11-03T05:00Z", "/version/1", "/lineage", "/calendar"):
        answer = client.get(f"/ui/feeds/clicks{page}")
        assert (answer.status_code, "Kinds are" in answer.text) == (404, True), page
    assert client.get("/ui/ask/nothing").status_code == 404


def test_af_35_the_first_page_shows_feeds_that_never_came_until_something_has(client: TestClient) -> None:
    def never_came() -> str:
        return client.get("/ui").text.partition("<h2>Never came ")[2].partition("</section>")[0]

    assert 'href="/ui/feed/clicks"' in never_came()
    assert 'href="/ui/feed/views"' in never_came()
    assert client.post("/api/v1/feed/notify", json={"feed": "clicks", "instance": LAST}).status_code == 200
    assert 'href="/ui/feed/clicks"' not in never_came()
    assert 'href="/ui/feed/views"' in never_came()


def test_pages_lead_to_dagster_once_it_has_told_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEED_ASSETS_WEBSERVER", "https://dagster.example.org/")
    database = open_project(tmp_path, monkeypatch)
    asset = "https://dagster.example.org/assets/primary/counts"
    partition = f"{asset}?view=partitions&amp;partition=2013-11-03-00%3A00"
    with closing(database), serve(database) as client:
        pages = "/ui/feed/counts", "/ui/process/counting", f"/ui/process/counting/at/{FIRST}"
        assert not any("dagster.example.org" in client.get(page).text for page in pages)
        note_places(database, lay_out(load_location(load_settings()).plan))
        found = [re.findall('href="(https://dagster[^"]*)"', client.get(page).text) for page in pages]
    assert found == [[asset], [asset], [partition]]


def cells_of(page: str) -> list[list[str]]:
    rows = re.findall("<tr>(.*?)</tr>", page, re.DOTALL)
    return [re.findall(r"<td[^>]*>(?:<a [^>]*>)?(.*?)(?:</a>)?</td>", each) for each in rows]


def test_versions_lead_to_what_they_have_changed_and_to_who_set_a_field(client: TestClient, tmp_path: Path) -> None:
    must("apply", "changed.yaml", "--yes")
    page = "/ui/process/counting"
    assert f"{page}/version/1" in addresses_in(client.get(page).text)
    second = client.get(f"{page}/version/2")
    assert ["parallel", "2", "3"] in cells_of(second.text)
    assert "parallel: 3" in second.text
    assert addresses_in(second.text) & {f"{page}/version/{each}" for each in (1, 2, 3)} == {f"{page}/version/1"}
    first = client.get(f"{page}/version/1").text
    assert ["parallel", "", "2"] in cells_of(first)
    (blame,) = (each for each in addresses_in(client.get(page).text) if "/blame?" in each)
    blamed = client.get(blame).text
    assert ["parallel", "3"] in [each[:2] for each in cells_of(blamed)]
    assert f"{page}/version/2" in addresses_in(blamed)
    must("entity", "delete", "process", "counting")
    assert "DELETED" in client.get(f"{page}/version/3").text
    assert client.get(f"{page}/version/4").status_code == 404
    assert client.get(f"{page}/version/x").status_code == 400


def test_the_plan_of_what_stands_in_the_files_is_a_page(client: TestClient, tmp_path: Path) -> None:
    (file,) = (each for each in (tmp_path / "entities").rglob("*.yaml") if "name: counting" in each.read_text())
    file.write_text(file.read_text().replace("parallel: 2", "parallel: 4"))
    page = client.get("/ui/ask/plan").text
    assert "parallel: 2 -&gt; 4" in page
    assert "changes in place" in page
    file.write_text(file.read_text().replace("parallel: 4", "parallel: none"))
    assert "parallel" in client.get("/ui/ask/plan").text
    assert client.get(f"/ui/ask/plan?files={file}").status_code == 400


def test_quality_over_time_is_a_picture_above_its_table(client: TestClient, tmp_path: Path) -> None:
    page = "/ui/ask/quality/history?feed=counts"
    assert "<svg" not in client.get(page).text
    record_instances(tmp_path)
    text = client.get(page).text
    svg, _, table = text.partition("<svg")[2].partition("</svg>")
    (label,) = re.findall('aria-label="([^"]*)"', svg)
    since = "2013-11-03T00:00Z"
    assert label == (f"Good rows on primary: 1 instance from {since} to {since}, between 97.0 % and 97.0 %; 1 failed")
    assert f'<g class="red"><title>{since}: 97.0 %, needed are 99.0 %</title>' in svg
    assert "style=" not in text
    assert "<table>" in table


def test_an_instance_of_a_copy_stands_beside_that_of_its_source(client: TestClient) -> None:
    assert client.post("/api/v1/feed/notify", json={"feed": "clicks", "instance": FIRST}).status_code == 200
    text = client.get(f"/ui/feed/clicks/at/{FIRST}").text.partition("<h2>On each cluster</h2>")[2]
    found = [each[:3] for each in cells_of(text.partition("</section>")[0]) if each]
    assert found == [["backup", FIRST, "MISSING"], ["primary", FIRST, "AVAILABLE"]]


def test_what_is_not_all_on_a_page_leads_on_and_back(client: TestClient) -> None:
    page = "/ui/ask/instance/listing?feed=clicks&num_results=2"
    assert "Further" not in client.get(page).text  # it has no pages
    page = client.get("/ui/ask/entity/list?num_results=2").text
    (further,) = re.findall('href="([^"]+)">Further', page)
    assert "2 of " in page
    assert "--offset" not in page
    second = client.get(further.replace("&amp;", "&")).text
    (before,) = re.findall('href="([^"]+)">Before', second)
    assert re.findall("<td>(.*?)</td>", client.get(before.replace("&amp;", "&")).text) == re.findall(
        "<td>(.*?)</td>", page
    )
    (more,) = re.findall('href="([^"]+)">More', client.get("/ui/ask/admin/audit/show?limit=1").text.split("<main")[1])
    assert more.endswith("limit=5")


def test_a_page_without_a_row_leads_to_more_and_not_to_itself(client: TestClient, tmp_path: Path) -> None:
    record_instances(tmp_path)
    page = client.get("/ui/ask/instance/list?kind=process&name=counting&end=2013-11-03T11:00Z&num_results=1").text
    assert ("0 of 4 instances" in page, "Further" in page) == (True, False)
    (more,) = re.findall('href="([^"]+)">More</a>', page.split("</nav>")[1])
    assert more.endswith("num_results=5")


def test_a_form_takes_several_values_and_says_what_it_lacks(client: TestClient) -> None:
    page = client.get("/ui/ask/lineage/show?names=clicks&names=2013-11-03T00:00Z&names=&kind=feed").text
    assert re.findall('name="names" value="([^"]*)"', page) == ["clicks", "2013-11-03T00:00Z", ""]
    assert "<option selected>feed</option>" in page
    assert "nothing is recorded of feed &#39;clicks&#39; at 2013-11-03T00:00Z" in page
    page = client.get("/ui/ask/retention/list?state=DONE&state=PLANNED").text
    assert re.findall(r'name="state" value="(\w+)" checked', page) == ["PLANNED", "DONE"]
    assert 'name="state" value="RUNNING">' in page
    for page in ("/ui/ask/feed/files?feed=", "/ui/ask/lineage/show?names=&names=&levels="):
        answer = client.get(page)
        assert (answer.status_code, "Nothing is asked yet: fill in" in answer.text) == (400, True)
    assert 'role="alert"' not in client.get("/ui/ask/feed/files").text


def test_a_search_without_a_result_leads_to_others(client: TestClient) -> None:
    page = client.get("/ui/search?text=click&scope=user").text
    assert "Nothing is found." in page
    assert {"/ui/search?text=click%2A&scope=user", "/ui/search?text=click", "/ui/keys"} <= addresses_in(page)
    assert 'scope=user" aria-current="true">Said by people' in page


def test_the_newest_instances_of_a_feed_stand_first_as_those_of_a_process_do(client: TestClient) -> None:
    found = re.findall('/ui/feed/clicks/at/([^"]+)', client.get("/ui/feed/clicks").text)
    assert found
    assert found == sorted(found, reverse=True)


def test_what_is_not_due_yet_is_not_called_missing(client: TestClient) -> None:
    page = client.get("/ui/feed/clicks/at/2013-11-10T00:00Z").text
    assert "feed clicks on primary at 2013-11-10T00:00Z is not due yet" in page
    assert "MISSING" not in page


def test_a_page_does_nothing_that_needs_more_than_the_right_to_read(client: TestClient) -> None:
    for page in ("instance/listing?feed=clicks", "why?name=clicks&instance=2024-05-01T00:00Z"):
        answer = client.get(f"/ui/ask/{page}&look=true")
        assert answer.status_code == 400
        assert "needs the right notifies" in answer.text
