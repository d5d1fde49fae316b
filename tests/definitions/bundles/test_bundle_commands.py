"""Bundles between two projects: everything, in part, again, and what collides."""

import json
import secrets
import zipfile
from pathlib import Path

import pytest
import yaml

from feed_assets.catalog.store import MetadataStore
from feed_assets.sql.database import open_database
from tests.cli.project import must, prepare, run, set_clock, shown
from tests.definitions.verbs.harness import ALL, COUNTING, changed
from tests.projects import enter

COUNTING_SQL = "select count(*) as n from clicks"
SQL_COUNTING = changed(COUNTING, workflow={"engine": "sql", "path": "sql/counting.sql"})


def share_database(folder: Path, url: str) -> None:
    """Let a project have a namespace of a server's database, instead of a file."""
    if url.startswith("postgresql"):
        settings = folder / "feed_assets.yaml"
        own = {"state": url, "namespace": f"{folder.name}_{secrets.token_hex(4)}"}
        settings.write_text(yaml.safe_dump(yaml.safe_load(settings.read_text()) | own))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database_url: str) -> Path:
    """A project with entities, a SQL file and metadata; its folder is the working directory."""
    here = tmp_path / "here"
    here.mkdir()
    prepare(here)
    set_clock(here, "2013-11-03T12:00Z")
    share_database(here, database_url)
    entities = [each if each["kind"] != "process" else SQL_COUNTING for each in ALL]
    (here / "all.yaml").write_text(
        yaml.safe_dump_all(entities, sort_keys=False).replace("kind: feed", "# ü\nkind: feed")
    )
    (here / "sql").mkdir()
    (here / "sql" / "counting.sql").write_text(COUNTING_SQL)
    enter(here, monkeypatch)
    ok("entity", "submit", "all.yaml")
    ok("metadata", "put", "feed/clicks", "steward=ann")
    ok("metadata", "tag", "feed/clicks/cluster/primary/instance/2013-11-03T05:00Z", "checked")
    return here


@pytest.fixture
def there(here: Path, tmp_path: Path, database_url: str) -> Path:
    """An empty project."""
    there = tmp_path / "there"
    there.mkdir()
    prepare(there)
    set_clock(there, "2013-11-03T12:00Z")
    share_database(there, database_url)
    (there / "counting.sql").unlink()
    return there


def ok(*arguments: str) -> str:
    result = must(*arguments)
    return result.stdout


def test_a_bundle_makes_an_empty_location_the_same(here: Path, there: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ok("metadata", "put", "dashboard/otd", "owner=bob")
    ok("bundle", "export", "--all", "--to", "../all.zip")
    said = ok("metadata", "export")
    monkeypatch.chdir(there)
    planned = ok("bundle", "import", "../all.zip", "--dry-run").splitlines()
    assert planned[:6] == [
        "cluster 'primary': would be added",
        "feed 'clicks': would be added",
        "feed 'counts': would be added",
        "process 'counting': would be added",
        "file sql/counting.sql: would be added",
        "dashboard/otd: added owner=bob (dry run: nothing was changed)",
    ]
    assert not list((there / "entities").iterdir())
    assert not (there / "sql").exists()
    assert json.loads(ok("metadata", "export"))["mutations"] == []
    assert ok("bundle", "import", "../all.zip").splitlines()[4] == "file sql/counting.sql: added"
    assert (there / "sql" / "counting.sql").read_text() == COUNTING_SQL
    assert (there / "entities" / "feed" / "clicks.yaml").read_text().startswith("# ü\nkind: feed")
    assert ok("plan") == "Nothing would change.\n"
    assert ok("metadata", "export") == said
    assert shown("bundle", "import", "../all.zip")["is_change"] is False
    ok("bundle", "export", "--all", "--to", "../again.zip")
    assert (there.parent / "again.zip").read_bytes() == (there.parent / "all.zip").read_bytes()


def test_a_bundle_has_what_is_named_and_on_request_what_that_needs(here: Path) -> None:
    assert ok("bundle", "export", "process/counting", "--to", "a.zip").splitlines() == [
        "process 'counting'",
        "file sql/counting.sql",
        "metadata of 0",
    ]
    assert ok("bundle", "export", "counting", "--with-dependencies", "--to", "a.zip").splitlines() == [
        "cluster 'primary'",
        "feed 'clicks'",
        "feed 'counts'",
        "process 'counting'",
        "file sql/counting.sql",
        "metadata of 2",
    ]
    unknown = run("bundle", "export", "clciks", "--to", "a.zip")
    assert (unknown.exit_code, "Did you mean 'clicks'?" in unknown.stderr) == (1, True)
    assert run("bundle", "export", "--to", "a.zip").exit_code == 2
    assert run("bundle", "export", "clicks", "--all", "--to", "a.zip").exit_code == 2


def test_an_entity_with_the_id_of_the_bundle_is_changed_with_its_file(
    here: Path, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ok("bundle", "export", "--all", "--to", "../one.zip")
    monkeypatch.chdir(there)
    ok("bundle", "import", "../one.zip")
    monkeypatch.chdir(here)
    (here / "sql" / "counting.sql").write_text("select 2 as n from clicks")
    (here / "new.yaml").write_text(yaml.safe_dump(changed(SQL_COUNTING, parallel=2), sort_keys=False))
    ok("entity", "update", "new.yaml")
    ok("bundle", "export", "--all", "--to", "../two.zip")
    monkeypatch.chdir(there)
    done = ok("bundle", "import", "../two.zip").splitlines()
    assert done[2:] == ["feed 'counts': unchanged", "process 'counting': changed", "file sql/counting.sql: changed"]
    assert "parallel: 2" in (there / "entities" / "process" / "counting.yaml").read_text()
    assert (there / "sql" / "counting.sql").read_text() == "select 2 as n from clicks"


def test_what_is_another_one_here_collides_and_nothing_is_changed(
    here: Path, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ok("bundle", "export", "--all", "--to", "../all.zip")
    monkeypatch.chdir(there)
    (there / "sql").mkdir()
    (there / "sql" / "counting.sql").write_text("select 3")
    other = [each if each["name"] != "clicks" else {**each, "description": "others"} for each in ALL[:2]]
    (there / "all.yaml").write_text(yaml.safe_dump_all(other, sort_keys=False))
    ok("entity", "submit", "all.yaml")
    refused = run("bundle", "import", "../all.zip")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr == (
        "feed-assets: all.zip: feed 'clicks' is another one here, with another definition, in "
        "entities/feed/clicks.yaml; the file sql/counting.sql is another one here. Nothing was changed. Rename or "
        "remove what is here, or leave it out of the bundle.\n"
    )
    assert (there / "sql" / "counting.sql").read_text() == "select 3"
    assert not (there / "entities" / "process").exists()


def test_an_id_that_another_entity_has_here_collides(here: Path, there: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ok("bundle", "export", "clicks", "--with-dependencies", "--to", "../clicks.zip")
    monkeypatch.chdir(there)
    ok("bundle", "import", "../clicks.zip")
    with zipfile.ZipFile("../clicks.zip") as file:
        parts = {name: file.read(name).decode() for name in file.namelist()}
    with zipfile.ZipFile("../taps.zip", "w") as file:
        for name, part in parts.items():
            file.writestr(name.replace("clicks", "taps"), part.replace("clicks", "taps"))
    refused = run("bundle", "import", "../taps.zip")
    assert "feed 'taps' is feed/clicks here: it has the same id" in refused.stderr


def test_a_refusal_in_the_midst_leaves_neither_files_nor_ids(
    here: Path, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ok("bundle", "export", "--all", "--to", "../all.zip")
    monkeypatch.chdir(there)
    ok("admin", "safemode", "on")
    ok("bundle", "import", "../all.zip", "--dry-run")
    refused = must("bundle", "import", "../all.zip", code=1)
    assert "safe mode" in refused.stderr
    assert not (there / "sql").exists()
    assert not list((there / "entities").iterdir())
    with open_database(f"sqlite:///{there}/state.db").read() as connection:
        assert MetadataStore(connection).ids_of(["feed/clicks", "process/counting"]) == {}


def test_a_bundle_that_lacks_what_it_needs_is_refused(here: Path, there: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ok("bundle", "export", "counting", "--to", "../process.zip")
    with zipfile.ZipFile("../process.zip") as file:
        parts = {name: file.read(name) for name in file.namelist() if not name.startswith("files/")}
    with zipfile.ZipFile("../bare.zip", "w") as file:
        for name, part in parts.items():
            file.writestr(name, part)
    monkeypatch.chdir(there)
    assert "process 'counting': there is no feed 'counts'" in run("bundle", "import", "../process.zip").stderr
    assert "'.': Is a directory" in run("bundle", "import", ".").stderr
    assert "Name a file that bundle export has written." in run("bundle", "import", "feed_assets.yaml").stderr
    refused = run("bundle", "import", "../bare.zip", "--dry-run")
    assert "process 'counting' names the file sql/counting.sql, which is neither here nor in it" in refused.stderr


def test_a_link_that_leads_out_of_the_project_is_not_followed(
    here: Path, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ok("bundle", "export", "--all", "--to", "../all.zip")
    monkeypatch.chdir(there)
    (there / "sql").symlink_to(here.parent)
    refused = run("bundle", "import", "../all.zip")
    assert "the file sql/counting.sql leads out of the project, by a link" in refused.stderr
    assert not (here.parent / "counting.sql").exists()


def test_a_bundle_says_nothing_of_entities_that_are_not_in_it(
    here: Path, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ok("bundle", "export", "counting", "--with-dependencies", "--to", "../counting.zip")
    said = {"mutations": [{"entity": "feed/views/column/page", "update": {"tags": ["seen"]}}]}
    with zipfile.ZipFile("../counting.zip") as file:
        parts = {name: file.read(name) for name in file.namelist()}
    with zipfile.ZipFile("../more.zip", "w") as file:
        for name, part in {**parts, "metadata.json": json.dumps(said).encode()}.items():
            file.writestr(name, part)
    monkeypatch.chdir(there)
    refused = run("bundle", "import", "../more.zip")
    assert (refused.exit_code, refused.stderr.count("changes feed/views/column/page, which is not in it")) == (1, 1)
