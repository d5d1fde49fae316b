"""`init`: the project that it makes is complete, and nothing is overwritten."""

import importlib.util
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from dotenv import dotenv_values
from sqlalchemy import make_url

from feed_assets.sql.dagster_home import find_state_url
from tests.cli.project import must, run

URL = "postgresql://team:p%40ss'w\\ord@db.example:6543/feeds"


def contents(folder: Path) -> dict[str, str]:
    found = (path for path in folder.rglob("*") if path.is_file() and ".git" not in path.parts)
    return {str(path.relative_to(folder)): path.read_text() for path in found}


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A new project, which is the working directory."""
    assert run("init", str(tmp_path / "web-shop")).exit_code == 0
    monkeypatch.chdir(tmp_path / "web-shop")
    return tmp_path / "web-shop"


@pytest.fixture
def importable(shop: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(shop))
    yield shop
    for name in [name for name in sys.modules if name.split(".")[0] == "web_shop"]:
        del sys.modules[name]


def test_a_new_project_is_valid_even_strictly_and_for_its_functions(importable: Path) -> None:
    validated = run("validate", "--strict")
    assert (validated.exit_code, validated.stdout) == (0, "")
    assert "usable: 1 cluster, 2 feeds, 1 process" in validated.stderr


def load(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"shop_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_dagster_loads_a_new_project(importable: Path) -> None:
    defs = load(importable / "definitions.py").defs
    keys = {key.to_user_string() for key in defs.resolve_all_asset_keys()}
    assert {"primary/orders", "primary/daily-revenue"} <= keys


def test_commands_in_a_new_project_find_its_dagster_home_and_leave_the_environment_as_it_was(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    (shop / "entities" / "below").mkdir()
    monkeypatch.chdir(shop / "entities" / "below")
    listed = run("entity", "list", "--kind", "feed")
    assert (listed.exit_code, listed.stderr) == (0, "")
    assert (shop / "dagster_home" / "feed_assets.db").exists()
    assert "DAGSTER_HOME" not in os.environ


def test_the_password_of_postgresql_is_in_a_file_that_only_its_owner_reads_and_git_ignores(tmp_path: Path) -> None:
    assert run("init", str(tmp_path / "shop"), "--postgres", URL).exit_code == 0
    env = tmp_path / "shop" / ".env"
    values = dotenv_values(env)
    url = make_url(values.pop("DAGSTER_PG_URL") or "")
    assert values == {"DAGSTER_HOME": str(tmp_path / "shop" / "dagster_home")}
    assert (url.username, url.password, url.host, url.port) == ("team", "p@ss'w\\ord", "db.example", 6543)
    assert (url.drivername, url.database) == ("postgresql+psycopg2", "feeds")
    assert stat.S_IMODE(env.stat().st_mode) == 0o600
    assert ".env" in (tmp_path / "shop" / ".gitignore").read_text().splitlines()
    database = yaml.safe_load((tmp_path / "shop" / "dagster_home" / "dagster.yaml").read_text())["storage"]["postgres"]
    assert database == {"postgres_url": {"env": "DAGSTER_PG_URL"}}


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        (
            "postgresql://u@db/feeds?sslmode=verify-full&sslrootcert=/etc/our ca.pem",
            {"host": "db", "dbname": "feeds", "user": "u", "sslmode": "verify-full", "sslrootcert": "/etc/our ca.pem"},
        ),
        ("postgres://u@/feeds?host=/run/pg", {"host": "/run/pg", "dbname": "feeds", "user": "u"}),
    ],
)
def test_tls_and_sockets_of_postgresql_are_told_to_dagster_and_to_us(
    tmp_path: Path, url: str, kept: dict[str, str]
) -> None:
    must("init", str(tmp_path / "shop"), "--postgres", url)
    values = dotenv_values(tmp_path / "shop/.env")
    ours = find_state_url(tmp_path / "shop/dagster_home", {"DAGSTER_PG_URL": values["DAGSTER_PG_URL"] or ""})
    assert ours == values["DAGSTER_PG_URL"]
    told = make_url(ours).get_dialect()().create_connect_args(make_url(ours))[1]
    assert told == kept


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://db/feeds?sslmod=require", "'sslmod', which is no parameter of PostgreSQL"),
        ("postgresql://db:port/feeds", "is no URL"),
        ("postgresql://user@db", "names no database"),
        ("postgresql://me:p@ss@db/feeds", "has a second '@'. Write %40 for each '@'"),
        ("postgresql://me:p@s/s@db/feeds", "has a second '@'. Write %40 for each '@'"),
        ("mysql://db/feeds", "is an address of mysql, not of PostgreSQL"),
    ],
)
def test_an_address_of_postgresql_that_cannot_be_kept_is_refused(tmp_path: Path, url: str, said: str) -> None:
    refused = must("init", str(tmp_path / "shop"), "--postgres", url, code=2)
    assert said in refused.stderr
    assert "Write postgresql://user@host:5432/database?sslmode=" in refused.stderr
    assert contents(tmp_path) == {}


@pytest.mark.parametrize(
    ("storage", "said"),
    [
        ("lake/feeds", "Write file://HERE/lake/feeds for a folder of this machine, or s3://lake/feeds for a bucket."),
        ("file://data", "it names a host. Write file:///directory, with three '/'."),
        ("ftp://host/data", "'ftp' storage is not supported"),
        ("s3://", "it names no bucket"),
    ],
)
def test_a_storage_that_nothing_can_open_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, storage: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = must("init", "shop", "--storage", storage, code=2)
    assert said.replace("HERE", str(tmp_path)) in refused.stderr
    assert contents(tmp_path) == {}


@pytest.mark.parametrize(
    ("storage", "access"), [("s3://lake/feeds", "AWS_ACCESS_KEY_ID"), ("hdfs://lake/feeds", "HADOOP_CONF_DIR")]
)
def test_a_project_elsewhere_says_so_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, storage: str, access: str
) -> None:
    steps = must("init", str(tmp_path / "shop"), "--storage", storage).stdout.partition("Now:\n")[2]
    assert "README.md says what .env and entities/cluster.yaml need" in steps
    assert steps.splitlines()[2:] == ["  feed-assets validate --live", "  python deliver_orders.py", "  dagster dev"]
    monkeypatch.chdir(tmp_path / "shop")
    monkeypatch.syspath_prepend(str(tmp_path / "shop"))
    must("validate", "--strict")
    made = contents(tmp_path / "shop")
    extra = storage.partition(":")[0]
    assert f"One machine, data in {storage} and an embedded Spark." in made["entities/cluster.yaml"]
    assert f'dependencies = ["feed-assets[{extra}]"]' in made["pyproject.toml"]
    for said in (
        f'[{extra},server]"',
        "python deliver_orders.py",
        f"`{storage}/daily-revenue`",
        access,
        "`storage_options` in",
    ):
        assert said in made["README.md"]
    assert access == "AWS_ACCESS_KEY_ID" or "AWS" not in made["README.md"]


def test_a_folder_that_is_not_empty_is_refused_and_stays_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    refused = must("init", str(tmp_path), code=1)
    assert f"no project was made in {tmp_path}: it is not empty (notes.txt)" in refused.stderr
    assert f"feed-assets init {tmp_path} --add" in refused.stderr
    assert contents(tmp_path) == {"notes.txt": "mine"}


def test_adding_keeps_every_file_that_exists(tmp_path: Path) -> None:
    (tmp_path / "definitions.py").write_text("defs = 1\n")
    added = run("init", str(tmp_path), "--add", "--name", "shop")
    assert added.exit_code == 0
    assert "definitions.py exists, and stays as it is" in added.stdout
    assert "Definitions.merge(defs, build_definitions())" in added.stdout
    made = contents(tmp_path)
    assert made["definitions.py"] == "defs = 1\n"
    again = run("init", str(tmp_path), "--add", "--name", "shop", "--output", "json")
    assert (again.exit_code, contents(tmp_path)) == (0, made)
    assert '"files": []' in again.stdout


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    shown = run("init", str(tmp_path / "shop"), "--dry-run")
    assert (shown.exit_code, (tmp_path / "shop").exists()) == (0, False)
    assert "would make the project shop" in shown.stdout


def test_a_name_that_no_package_can_have_is_refused(tmp_path: Path) -> None:
    refused = must("init", str(tmp_path / "2024"), code=1)
    assert "--name" in refused.stderr
    assert not (tmp_path / "2024").exists()
