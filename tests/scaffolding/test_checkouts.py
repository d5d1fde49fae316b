"""A project that is cloned, copied or moved has a place of its own, and says what it lacks until then."""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from dagster import DagsterInstance
from dotenv import dotenv_values

from feed_assets import build_definitions, load_instance, locate_instance, open_metadata
from feed_assets.errors import SettingsError
from tests.cli.project import must
from tests.documents.shell import Shell, commands_of
from tests.scaffolding.test_init import contents, load
from tests.servers import run_tls_postgres

HERE = "feed-assets init --here"
PG_URL = "postgresql://u@db/feeds?sslmode=require"


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A new project in a repository; the working directory is beside it."""
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    return make(tmp_path / "origin")


def make(place: Path, *options: str) -> Path:
    must("init", str(place), "--name", "team-shop", *options)
    author = ("-c", "user.name=team", "-c", "user.email=team@example.org")
    for words in (("init", "-q"), ("add", "-A"), (*author, "commit", "-q", "-m", "the project")):
        subprocess.run(["git", *words], cwd=place, check=True)
    return place


def clone(shop: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone of a project, which is the working directory."""
    place = shop.parent / "clone"
    subprocess.run(["git", "clone", "-q", str(shop), str(place)], check=True)
    monkeypatch.chdir(place)
    return place


def test_the_lines_of_the_readme_for_a_colleague_and_for_ci_run_in_a_clone(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = commands_of(str(shop / "README.md"))
    begin = next(number for number, line in enumerate(lines) if line.startswith("git clone"))
    ci = lines[-1]
    assert ci == "feed-assets validate --strict && pytest"
    colleague = [line for line in lines[begin:] if line != ci]
    assert HERE in colleague
    shell = Shell(monkeypatch=monkeypatch, words={"REPOSITORY": str(shop)}, elsewhere=["pytest"])
    shell.run(colleague[0])
    assert not Path(".env").exists()
    shell.run(ci)
    load(Path("tests/test_daily_revenue.py")).test_a_day_runs_once_its_orders_have_arrived()
    for line in colleague[1:]:
        shell.run(line)
    assert "daily-revenue" in must("entity", "list").stdout
    assert Path("dagster_home/feed_assets.db").exists()
    assert not (shop / "dagster_home/feed_assets.db").exists()


def test_a_clone_says_that_env_is_missing_to_commands_and_to_programs(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = clone(shop, monkeypatch)
    said = f"{place}/.env is missing: git ignores it, so a clone has none. This writes it: {HERE}\n"
    assert said in must("entity", "list", code=2).stderr
    with pytest.raises(SettingsError) as refused, open_metadata(author="nightly"):
        pass
    assert said in str(refused.value)
    with pytest.raises(SettingsError) as refused:
        load_instance(None, "orders", as_="pandas")
    assert said in str(refused.value)
    (place / ".env").write_text("LAKE_KEY=abc\n")
    assert "is not configured. " + said.partition(" is missing")[0] in must("entity", "list", code=2).stderr
    assert f"{place}/.env names no DAGSTER_HOME. This writes it: {HERE}\n" in must("entity", "list", code=2).stderr


def test_what_is_missing_is_written_once_and_all_else_stays(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = clone(shop, monkeypatch)
    monkeypatch.chdir(place / "entities")
    before = contents(place)
    assert "would write what was missing" in must("init", "--here", "--dry-run").stdout
    assert contents(place) == before
    assert must("init", "--here").stdout.splitlines() == [
        f"wrote what was missing in {place}:",
        "  .env: DAGSTER_HOME",
        f"{place}/data does not exist: git holds no data. README.md says where a clone gets orders.",
    ]
    (place / "data").mkdir()
    assert contents(place) == {**before, ".env": contents(place)[".env"]}
    assert must("init", "--here").stdout == f"nothing is missing in {place}\n"
    assert (place / ".env").stat().st_mode & 0o077 == 0
    (place / "dagster_home/dagster.yaml").unlink()
    assert must("init", "--here").stdout.splitlines()[1:] == ["  dagster_home/dagster.yaml"]
    assert contents(place)["dagster_home/dagster.yaml"] == before["dagster_home/dagster.yaml"]


def test_a_copy_is_kept_from_the_state_of_its_original(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = shop.parent / "copy"
    shutil.copytree(shop, copy)
    monkeypatch.chdir(copy)
    said = f"{shop}/dagster_home is the home of the project in {shop}, whose state a copy in {copy} would change."
    refused = must("entity", "list", code=2).stderr
    assert said in refused
    assert f"with: {HERE}\n" in refused
    with pytest.raises(SettingsError, match="is the home of the project"), open_metadata(author="x", folder=copy):
        pass
    with monkeypatch.context() as dagster:
        dagster.setenv("DAGSTER_HOME", str(shop / "dagster_home"))  # as `dagster dev` reads it
        with pytest.raises(SettingsError, match="is the home of the project"):
            build_definitions(folder=copy)
    with (copy / ".env").open("a") as file:
        file.write("export LAKE_KEY='a b'\n")
    must("init", "--here")
    assert dotenv_values(copy / ".env") == {"DAGSTER_HOME": f"{copy}/dagster_home", "LAKE_KEY": "a b"}
    must("entity", "list")
    assert not (shop / "dagster_home/feed_assets.db").exists()
    assert not (shop / "dagster_home/actions.jsonl").exists()
    assert must("init", "--here").stdout == f"nothing is missing in {copy}\n"


def test_a_moved_project_says_how_it_gets_its_new_place(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moved = shop.rename(shop.parent / "moved")
    monkeypatch.chdir(moved)
    assert f"the folder {shop}/dagster_home does not exist" in must("entity", "list", code=2).stderr
    must("init", "--here")
    must("entity", "list")


@pytest.mark.parametrize("where", ["a home of its own", "the home of another project, with a namespace"])
def test_a_home_that_a_team_shares_on_purpose_is_used(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    place = clone(shop, monkeypatch)
    home = tmp_path / "srv"
    home.mkdir()
    if "namespace" in where:
        home = shop / "dagster_home"
        with (place / "feed_assets.yaml").open("a") as file:
            file.write("namespace: web\n")
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    must("entity", "list")
    assert must("init", "--here").stdout.splitlines()[0] == f"nothing is missing in {place}"


def test_a_clone_on_postgresql_asks_for_the_address_of_its_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    shop = make(tmp_path / "origin", "--postgres", PG_URL)
    assert "feed-assets init --here --postgres URL" in contents(shop)["README.md"]
    place = clone(shop, monkeypatch)
    refused = must("init", "--here", code=2).stderr
    assert "needs DAGSTER_PG_URL, and nothing has it. Give the address of the database with --postgres." in refused
    written = must("init", "--here", "--postgres", PG_URL).stdout.splitlines()
    assert written[1:-1] == ["  .env: DAGSTER_HOME, DAGSTER_PG_URL"]
    assert "is set already" in must("init", "--here", "--postgres", PG_URL, code=2).stderr
    (place / ".env").unlink()
    monkeypatch.setenv("DAGSTER_PG_URL", PG_URL)  # as on a server
    assert must("init", "--here").stdout.splitlines()[1:-1] == ["  .env: DAGSTER_HOME"]


def test_only_a_project_is_completed(tmp_path: Path) -> None:
    refused = must("init", str(tmp_path), "--here", code=2).stderr
    assert f"{tmp_path} is in no project" in refused
    assert "it takes no --add, --name and --storage" in must("init", "--here", "--add", code=2).stderr


def test_a_program_finds_the_project_as_commands_do(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (day,) = sorted(path.name for path in (shop / "data/orders").iterdir())[:1]
    with open_metadata(author="nightly", folder=shop / "entities") as metadata:
        metadata.put("dashboard/sales", {"checked": "yes"})
    assert (shop / "dagster_home/feed_assets.db").exists()
    monkeypatch.chdir(shop / "entities")
    assert str(locate_instance(None, "orders", day)) == f"{shop}/data/orders/{day}"
    assert load_instance(None, "orders", day, as_="pandas")["product"].nunique() == 3
    assert yaml.safe_load(must("metadata", "get", "dashboard/sales", "--output", "json").stdout)


@pytest.mark.server
def test_a_project_keeps_its_state_behind_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    with run_tls_postgres() as url:
        place = make(tmp_path / "shop", "--postgres", url)
        monkeypatch.chdir(place)
        assert "daily-revenue" in must("entity", "list").stdout
        with monkeypatch.context() as dagster:
            dagster.setenv("DAGSTER_PG_URL", dotenv_values(".env")["DAGSTER_PG_URL"] or "")
            with DagsterInstance.from_config(str(place / "dagster_home")) as instance:
                assert instance.get_runs_count() == 0
        text = (place / ".env").read_text()
        (place / ".env").write_text(text.replace("sslmode=verify-full", "sslmode=disable"))
        assert "no encryption" in must("entity", "list", code=2).stderr
