"""docs/undated.md: its example runs as it says, and every question has an answer, by HTTP and as a page, too."""

import os
import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import yaml

from feed_assets.engines.port import Work
from feed_assets.entities.feed import Feed
from feed_assets.loading.bundles import load_files
from feed_assets.loading.entity_files import EntityFile, Values
from feed_assets.loading.falcon.documents import read_falcon
from feed_assets.loading.falcon.writing import render_falcon
from feed_assets.sql.database import open_database
from tests.cli.project import must, run
from tests.commands import words_of
from tests.documents.markdown import ROOT, fences
from tests.instances.harness import LifecycleHarness, at, read_inputs
from tests.projects import enter
from tests.server.project import serve

PAGE = ROOT / "docs/undated.md"
START = at("2026-11-01")
NOON = at("2026-11-03T12:30")
DAYS = [START + timedelta(days=n) for n in range(3)]
OLD, NEW = "DE,Germany\nFR,France\n", "DE,Germany\nFR,France\nIT,Italy\n"


def declared(folder: Path) -> str:
    return fences(PAGE, "yaml")[0].replace("${DATA_ROOT}", f"{folder}/data")


def joined(work: Work) -> Mapping[str, str]:
    """What a job sees is what it makes."""
    text = "".join(text for name, texts in read_inputs(work).items() for text in texts if name != "orders")
    return {each.name: text for each in work.outputs}


def write(folder: Path, text: str, modified_at: datetime) -> None:
    place = folder / "data/reference/countries"
    place.mkdir(parents=True, exist_ok=True)
    (place / "countries.csv").write_text(text)
    for each in (place / "countries.csv", place):
        os.utime(each, times=(modified_at.timestamp(), modified_at.timestamp()))


def work(lifecycle: LifecycleHarness, as_of: datetime) -> None:
    """Tick and run until nothing is asked for."""
    for _ in range(5):
        lifecycle.launch(lifecycle.tick(as_of), as_of)
        lifecycle.look_for_late(as_of)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Three days of the example; at noon of the last one the countries were overwritten."""
    folder = tmp_path_factory.mktemp("undated")
    (folder / "entities").mkdir()
    (folder / "entities/all.yaml").write_text(declared(folder))
    for name in ("name_orders", "total"):
        (folder / f"{name}.sql").write_text("SELECT * FROM countries")
    loaded = load_files(
        [EntityFile(name="all.yaml", content=declared(folder).encode())], Values(variables={}, environ={})
    )
    assert loaded.issues == ()
    state = f"sqlite:///{folder}/state.db"
    lifecycle = LifecycleHarness.of(folder, *loaded.bundle.entities, clusters=(), state=state)
    lifecycle.job = joined
    write(folder, OLD, START - timedelta(days=1))
    for day in DAYS:
        lifecycle.land("orders", day)
        work(lifecycle, day + timedelta(hours=8))
    write(folder, NEW, NOON - timedelta(minutes=5))
    work(lifecycle, NOON)
    lifecycle.database.close()
    (folder / "feed_assets.yaml").write_text(yaml.safe_dump({"state": state}))
    with pytest.MonkeyPatch.context() as patch:
        enter(folder, patch)
        yield folder


def test_the_example_does_what_the_page_says(project: Path) -> None:
    named = [(project / f"data/named-orders/{day:%Y-%m-%d}/part-0.csv").read_text() for day in DAYS]
    assert named == [OLD, OLD, NEW]
    shown = fences(PAGE, "text")[0]
    told = must("why", "countries", "2026-11-03T08:00Z").stdout
    assert re.sub(r", sha256:\w+", "", told) == shown
    assert "it is the present one" in must("why", "countries", "2026-11-03T13:00Z").stdout
    assert "the present version is that of 2026-11-03T12:30:00Z, the last of 2" in must("why", "countries").stdout
    for question in ("why", "lineage show"):
        early = must(*question.split(), "countries", "2026-10-01T00:00Z", code=1).output
        assert "no version stood there then. The first is that of 2026-11-01T08:00:00Z." in early
    assert "countries" in must("entity", "summary", "feed").stdout
    assert "\ttotals\t" in must("retention", "list").stdout


@pytest.mark.parametrize("command", fences(PAGE, "sh")[0].splitlines())
def test_its_commands_answer(command: str, project: Path) -> None:
    assert must(*words_of(command)).stdout


def test_two_readers_of_two_versions_show_two_times(project: Path) -> None:
    read = [must("lineage", "show", "name-orders", f"2026-11-0{day}", "--up").stdout for day in (2, 3)]
    assert "countries on primary 2026-11-01T00:00Z ARRIVED 2026-11-01T08:00:00Z" in read[0]
    assert "countries on primary 2026-11-01T00:00Z CHANGED 2026-11-03T12:30:00Z" in read[1]


ASKED = (
    "instance list {}",
    "instance list {} --start 2026-11-01T00:00Z",
    "instance status {}",
    "instance summary {}",
    "instance listing {}",
    "instance listing {} --look",
    "instance calendar {}",
    "instance calendar {} --day 2026-11-01",
    "instance asset {} 2026-11-01T00:00Z",
    "instance dependency {} 2026-11-01T00:00Z",
    "instance triage {} 2026-11-03T08:00Z",
    "instance search",
    "feed events {}",
    "feed files {}",
    "lineage show {} 2026-11-03T08:00Z",
    "lineage show {} --down",
    "lineage show --start 2026-11-01T00:00Z {}",
    "lineage column {}",
    "entity definition feed {}",
    "entity dependency feed {}",
    "entity list",
    "entity lookup /{}",
    "entity status feed {}",
    "entity summary feed",
    "entity unseen",
    "queue consumers {}",
    "sla alerts",
    "sla forecast",
    "retention plan --dry-run",
    "retention list",
    "state rebuild --dry-run",
    "plan",
    "why {}",
    "why {} --all",
    "search {}",
)


@pytest.mark.parametrize("feed", ["countries", "totals"])
def test_every_question_about_it_has_an_answer(feed: str, project: Path) -> None:
    for command in ASKED:
        found = run(*command.format(feed).split())
        assert found.exit_code in (0, 1), (command, found.output)
        assert "internal error" not in found.output, command


def test_the_simulator_gives_it_versions(project: Path) -> None:
    said = must("simulate", "--from", "2026-11-01T00:00Z", "--to", "2026-11-03T12:00Z", "--every", "hours(1)").stdout
    assert "arrived countries 2026-11-01T00:00Z on primary: content 2" in said
    assert "run again name-orders" in said


def test_every_page_about_it_is_there(project: Path) -> None:
    database, wanted, seen = open_database(f"sqlite:///{project}/state.db"), ["/ui", "/ui/feed/totals"], set[str]()
    with serve(database) as client:
        while wanted and len(seen) < 60:
            address = wanted.pop(0)
            seen.add(address)
            answer = client.get(address)
            assert answer.status_code == 200, (address, answer.text)
            links = re.findall(r'href="(/ui[^"#]*(?:countries|totals)[^"#]*)"', answer.text)
            wanted += [
                each.replace("&amp;", "&") for each in links if each.replace("&amp;", "&") not in (*seen, *wanted)
            ]
        assert client.get("/api/v1/why?name=countries").status_code == 200
    database.close()
    assert len(seen) > 5


def test_it_is_written_back_as_falcon_has_it(project: Path) -> None:
    loaded = load_files(
        [EntityFile(name="all.yaml", content=declared(project).encode())], Values(variables={}, environ={})
    )
    for name in ("countries", "totals"):
        feed = loaded.bundle.get_feed(name)
        document = read_falcon(render_falcon(feed))
        assert isinstance(document.value, dict)
        assert Feed.model_validate({key: value for key, value in document.value.items() if key != "kind"}) == feed
        assert "feed_assets.instances" not in render_falcon(feed)
