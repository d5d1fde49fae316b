"""The commands of the pages are run, in the order of each page, in a project that the page speaks of."""

import re
from datetime import date, timedelta
from pathlib import Path

import pytest
import yaml

from feed_assets.alerts.deadlines.records import SlaMiss
from feed_assets.alerts.deadlines.store import SlaMisses
from feed_assets.clock import SystemClock
from feed_assets.log.messages.levels import SlaLevel
from feed_assets.log.records import ProcessInstanceStatus
from tests.catalog.project import prepare as prepare_metadata
from tests.cli.pasting import TIME, begin
from tests.cli.project import prepare as prepare_clicks
from tests.cli.project import set_clock
from tests.databases import lay_tables, open_migrated
from tests.definitions.verbs.harness import CLICKS, CLUSTER, COUNTING, COUNTS
from tests.documents.markdown import DOCS, ROOT, fences
from tests.documents.shell import Shell, commands_of, programs_of, whole_commands_of
from tests.documents.test_readme import SHOWN
from tests.instances.harness import at
from tests.projects import declare, enter, land
from tests.triggers.test_queues import tick

ELSEWHERE = {
    "dagster": "needs Spark or never ends: tests/documents/test_your_assets.py, tests/documents/test_newcomer.py",
    "dg": "not installed here; the same components are made by tests/orchestration/test_component.py",
    "eval": "a line for a shell's start-up file: tests/cli/test_completion.py",
    "feed-assets completion fish | source": "a line for a shell's start-up file: tests/cli/test_completion.py",
    "feed-assets front": "never ends: tests/front/test_sites.py",
    "feed-assets front --port 3030": "never ends: tests/front/test_sites.py",
    "feed-assets serve": "never ends: tests/server/test_serving.py",
    "feed-assets mirror new --file job.properties": "needs a file: tests/replication/mirrors/test_mirror_commands.py",
    "feed-assets mirror new": "named without its options",
    "feed-assets validate --live": "needs PostgreSQL and S3: tests/documents/test_newcomer.py",
    "feed-assets serve --host 0.0.0.0": "never ends: tests/server/test_serving.py",
    "feed-assets serve --with-dagster": "never ends: tests/access/test_dagster.py",
    "make": "people and CI run its targets; `make help` is run by tests/test_documents.py",
    "pg_dump": "of PostgreSQL",
    "pip": "installs into an environment of its own: tests/documents/newcomer.py",
    "pytest": "runs the tests of a new project: tests/scaffolding/test_checkouts.py, tests/documents/test_newcomer.py",
}
"""Programs and lines of the pages that are not run here: why, and what runs them."""
PAGES = {
    "README.md": "test_the_commands_of_the_front_door_run",
    "docs/bundles.md": "test_the_commands_of_the_page_about_bundles_run",
    "docs/deadlines.md": "test_the_commands_of_the_page_about_deadlines_run",
    "docs/extensions.md": "tests/documents/test_extensions.py",
    "docs/falcon.md": "test_what_comes_from_falcon_is_imported_and_exported",
    "docs/first-project.md": "test_the_first_commands_of_a_newcomer_do_what_their_page_says",
    "docs/http.md": "tests/documents/test_http.py",
    "docs/install.md": "test_the_commands_of_the_front_door_run",
    "docs/lineage.md": "tests/documents/test_lineage.py",
    "docs/log-in.md": "tests/server/test_on_behalf.py",
    "docs/metadata.md": "test_the_commands_of_the_page_about_metadata_run",
    "docs/metrics.md": "tests/documents/test_metrics.py",
    "docs/postgresql-and-s3.md": "test_a_project_on_postgresql_is_made",
    "docs/registration.md": "tests/documents/test_registration.py",
    "docs/sites.md": "tests/front/test_sites.py",
    "docs/recipes.md": "tests/documents/test_recipes.py",
    "docs/reruns.md": "tests/documents/test_reruns.py",
    "docs/search.md": "tests/documents/test_search.py",
    "docs/tour.md": "test_the_commands_of_the_tour_run",
    "docs/triggers.md": "test_the_commands_of_the_page_about_triggers_run",
}
"""Pages with commands of ours, and what runs them: a test of this module, or another one."""


def test_every_command_of_a_page_is_run_by_a_test() -> None:
    for file in [ROOT / "README.md", *DOCS]:
        page = str(file.relative_to(ROOT))
        ours = [line for line in commands_of(page) if not {line, *programs_of(line)} & ELSEWHERE.keys()]
        assert not ours or page in PAGES, ours
    assert all(name in globals() or (ROOT / name).exists() for name in PAGES.values())
    for reason in ELSEWHERE.values():
        assert all((ROOT / path).exists() for path in re.findall(r"tests/[\w/]+\.py", reason)), reason


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A shell in an empty folder."""
    enter(tmp_path, monkeypatch)
    return Shell(monkeypatch=monkeypatch, elsewhere=ELSEWHERE)


def test_the_commands_of_the_front_door_run(shell: Shell) -> None:
    shown = [match[2] for match in SHOWN.finditer((ROOT / "README.md").read_text("utf-8"))]
    shell.elsewhere = {*ELSEWHERE, *shown}  # these by test_readme.py
    shell.run_page("docs/install.md")
    shell.run_page("README.md")
    (asked,) = [answer for line, answer in shell.answers.items() if line.startswith("feed-assets why")]
    assert asked.splitlines()[1].startswith("process daily-revenue on primary at ")


def test_a_project_on_postgresql_is_made(shell: Shell, tmp_path: Path) -> None:
    shell.run_page("docs/postgresql-and-s3.md")
    assert "db.example" in (tmp_path / "shop/.env").read_text()


def test_what_comes_from_falcon_is_imported_and_exported(shell: Shell, tmp_path: Path) -> None:
    declared = [CLUSTER, CLICKS, COUNTS, {**COUNTING, "name": "daily"}]
    (tmp_path / "old.yaml").write_text(yaml.safe_dump_all(declared))
    (tmp_path / "sql").mkdir()
    for file in ("sql/daily.sql", "counting.sql"):
        (tmp_path / file).write_text("select count(*) as n from clicks")
    shell.monkeypatch.setenv("FEED_ASSETS_ENTITIES", "old.yaml")
    shell.run("feed-assets export-falcon --all --to exported")
    shell.monkeypatch.delenv("FEED_ASSETS_ENTITIES")
    (tmp_path / "falcon").mkdir()
    for file in (tmp_path / "exported").rglob("*.xml"):
        file.rename(tmp_path / "falcon" / file.name)
    workflows = next(body for body in fences(ROOT / "docs/falcon.md", "") if "workflows:" in body)
    (tmp_path / "map.yaml").write_text(workflows)
    shell.run_page("docs/falcon.md")


TOUR_DAYS = [date(2013, 11, 1) + timedelta(days=day) for day in range(25)]
MORE = """
kind: cluster
name: backup
storage: file://${DATA_ROOT}/backup
---
kind: feed
name: weather
frequency: hours(1)
locations: {data: "/weather/${YEAR}/${MONTH}/${DAY}/${HOUR}"}
clusters: {primary: {validity: {start: 2013-11-01T04:00Z}}}
"""
"""What the commands of the tour name, and its entities do not have."""


def lay_tour(folder: Path) -> None:
    """The entities and the function of the page, with a month of flights, which are kept for 20 days and copied."""
    (text, *_) = fences(ROOT / "docs/tour.md", "yaml")
    (code, *_) = fences(ROOT / "docs/tour.md", "python")
    declared = [*yaml.safe_load_all(text), *yaml.safe_load_all(MORE)]
    flights = next(each for each in declared if each["name"] == "flights")
    own = flights["clusters"]["primary"]
    own["retention"]["limit"] = "days(20)"
    flights["clusters"]["backup"] = {"type": "target", "validity": own["validity"]}
    for name in ("entities", "my_project", "new"):
        (folder / name).mkdir()
    (folder / "entities/all.yaml").write_text(yaml.safe_dump_all(declared))
    (folder / "my_project/jobs.py").write_text(code)
    clicks = {
        "kind": "feed",
        "name": "clicks",
        "frequency": "days(1)",
        "locations": {"data": "/c/${YEAR}-${MONTH}-${DAY}"},
    }
    clicks["clusters"] = {"primary": {"validity": {"start": "2013-11-01T00:00Z"}}}
    (folder / "new/clicks.yaml").write_text(yaml.safe_dump(clicks))
    lay_tables(folder / "state.db")
    set_clock(folder, "2013-11-28T12:00Z")
    with (folder / "feed_assets.yaml").open("a") as file:
        file.write(f"variables: {{DATA_ROOT: {folder}/data}}\n")
    for day in TOUR_DAYS:
        land(folder / f"data/flights/{day}", "UA,2.0,EWR,2013-11-01T10:00:00Z\n", is_flagged=True)


def test_the_commands_of_the_tour_run(shell: Shell, tmp_path: Path) -> None:
    lay_tour(tmp_path)
    shell.monkeypatch.syspath_prepend(str(tmp_path))
    shell.run("feed-assets replication repair flights")
    for line in commands_of("docs/tour.md"):
        if "init shop" in line:
            continue
        shell.run(line)
        if digest := re.search(r"^Plan (\w+)$", shell.answers.get(line, ""), re.MULTILINE):
            shell.words = {"4f0c91d2": digest[1][:8]}
    there = sorted(path.name for path in (tmp_path / "data/flights").iterdir())
    assert there == ["2013-11-03", *(str(day) for day in TOUR_DAYS if day >= date(2013, 11, 9))]
    assert "hold 'audit-2013'" in shell.answers["feed-assets why flights 2013-11-03"]
    assert "25 in sync" in shell.answers["feed-assets replication status flights"]


def test_the_first_commands_of_a_newcomer_do_what_their_page_says(shell: Shell) -> None:
    today = SystemClock().now().date()
    shell.words = {"TODAY": f"{today}", "YESTERDAY": f"{today - timedelta(days=1)}"}
    needs_ticks = "feed-assets instance rerun daily-revenue --instance YESTERDAY"
    shell.elsewhere = {*shell.elsewhere, needs_ticks}
    shell.run_page("docs/first-project.md")
    shell.elsewhere = ()
    with pytest.raises(AssertionError, match=r"no tick has created .* on primary yet"):
        shell.run(needs_ticks)
    assert "usable: 1 cluster, 2 feeds, 1 process" in shell.answers["feed-assets validate"]
    asked = shell.answers["feed-assets why daily-revenue TODAY"].splitlines()
    assert asked[0].startswith("no tick of cluster primary has ever come")
    assert asked[2] == f"  because feed orders on primary at {today}T00:00Z is MISSING"
    assert "1 instance found in storage and recorded" in shell.answers["feed-assets why daily-revenue TODAY --look"]


def test_the_commands_of_the_page_about_mirrors_run(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "new-york/models").mkdir(parents=True)
    clusters = [
        {"kind": "cluster", "name": name, "storage": f"file://{tmp_path}/{name}"} for name in ("new-york", "lake")
    ]
    (tmp_path / "entities").mkdir()
    (tmp_path / "entities/clusters.yaml").write_text(yaml.safe_dump_all(clusters))
    (tmp_path / "feed_assets.yaml").write_text(f"state: sqlite:///{tmp_path}/state.db\n")
    lay_tables(tmp_path / "state.db")
    for line in whole_commands_of("docs/mirroring.md"):
        shell.run(line)
    assert (tmp_path / "entities/models.yaml").exists()


def test_the_commands_of_the_page_about_bundles_run(shell: Shell, tmp_path: Path) -> None:
    prepare_clicks(tmp_path)
    set_clock(tmp_path, "2013-11-03T12:00Z")
    shell.run("feed-assets entity submit all.yaml")
    shell.run_page("docs/bundles.md")
    assert "process 'tap-counting': unchanged" in "".join(shell.answers.values())


def test_the_commands_of_the_page_about_deadlines_run(shell: Shell, tmp_path: Path) -> None:
    prepare_clicks(tmp_path)
    set_clock(tmp_path, "2013-11-07T12:00Z")
    weather = {**CLICKS, "name": "weather", "locations": {"data": "/weather/${YEAR}-${MONTH}-${DAY}/${HOUR}"}}
    sla = {"low": "hours(1)", "high": "hours(3)"}
    (tmp_path / "entities/all.yaml").write_text(yaml.safe_dump_all([CLUSTER, {**weather, "sla": sla}]))
    late = SlaMiss(
        kind="feed",
        name="weather",
        cluster="primary",
        nominal_time=at("07T05"),
        level=SlaLevel.LOW,
        due_at=at("07T06"),
        missed_at=at("07T06:01"),
    )
    with open_migrated(f"sqlite:///{tmp_path}/state.db").begin() as connection:
        SlaMisses(connection).add([late])
    shell.run_page("docs/deadlines.md")
    assert all("weather" in answer for line, answer in shell.answers.items() if "backlog" not in line)


def test_the_commands_of_the_page_about_triggers_run(shell: Shell, tmp_path: Path) -> None:
    (entities,) = [text for text in fences(ROOT / "docs/triggers.md", "yaml") if "by: " in text]
    moment = "2026-03-01T07:00Z"
    replay = {"origin": moment, "real_start": moment, "speed": 1, "until": moment}
    declare(tmp_path, entities, variables={"DATA_ROOT": f"{tmp_path}/data"}, demo={"replay": replay})
    tick(tmp_path, "primary")
    for second in ("060000", "060001"):
        land(tmp_path / "data/orders/2026-03-01" / second)
    for line in commands_of("docs/triggers.md"):
        shell.run(line)
        tick(tmp_path, "primary")
    said = [shell.answers["feed-assets why load-orders"], shell.answers[f"feed-assets batch show load-orders {moment}"]]
    assert [body.split() for body in fences(ROOT / "docs/triggers.md", "text")] == [text.split() for text in said]


def test_the_commands_of_the_page_about_metadata_run(shell: Shell, tmp_path: Path) -> None:
    prepare_metadata(tmp_path, shell.monkeypatch, f"sqlite:///{tmp_path}/state.db")
    shell.run_page("docs/metadata.md")
    assert "run-book" in shell.answers["feed-assets metadata history feed/flights"]
    for line in whole_commands_of("docs/metadata.md"):
        if "*" not in line:  # the others are run by test_metadata.py
            shell.run(line)


def test_what_operating_watches_shows_what_waits_and_fails_behind_the_newest(shell: Shell, tmp_path: Path) -> None:
    prepare_clicks(tmp_path)
    set_clock(tmp_path, "2013-11-06T12:00Z")
    shell.run("feed-assets entity submit all.yaml")
    text = " ".join((ROOT / "docs/operating.md").read_text("utf-8").split())
    watched = re.findall(r"`(feed-assets instance search --status (\w+) [^`]+)`", text)
    assert [status for _, status in watched] == ["WAITING", "FAILED"]
    for line, status in watched:
        begin(tmp_path, ProcessInstanceStatus(status))
        shell.run(line)
        assert f"counting\tprimary\t{TIME}\t{status}" in shell.answers[line], shell.answers[line]


def test_whole_commands_in_the_text_of_all_pages_run(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    shell.run(f"cd {tmp_path}/store")
    others = {"docs/extensions.md", "docs/http.md", "docs/metadata.md", "docs/mirroring.md"}  # in projects of their own
    pages = {str(file.relative_to(ROOT)) for file in DOCS} - others
    found = {line for page in pages for line in whole_commands_of(page)}
    assert "feed-assets entity suspend process daily-revenue" in found
    for line in sorted(found, key=lambda line: ("shop" in line, line != "feed-assets init", line)):
        shell.run(line)
