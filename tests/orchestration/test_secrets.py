"""Secrets are neither in what a code server tells Dagster, nor in Dagster's storage, nor in cached plans."""

import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from dagster import DagsterRunStatus
from dagster._core.remote_representation.external_data import RepositorySnap
from dagster_shared.serdes import serialize_value
from pyspark.sql import SparkSession
from sqlalchemy import URL, create_engine, inspect, make_url, text

from feed_assets import masking
from feed_assets.orchestration.definitions import build_definitions
from feed_assets.plan.location import load_location
from feed_assets.settings import load_settings
from feed_assets.testing.projects import failure_of
from tests.orchestration.dagster_home import Home, home_on_postgresql, runs_of, wait_until
from tests.orchestration.in_process import materializer
from tests.orchestration.small import ENTITIES, key, land

PLANTED = "s3cr+t/Planted\\w 4711"
WITH_SECRETS = (
    ENTITIES.replace('"1"}', '"1", spark.hadoop.door: "${env:PLANTED}"}')
    .replace("name: numbers\n", 'name: numbers\n    description: "behind ${env:PLANTED}"\n')
    .replace("name: summing\n", 'name: summing\n    properties: {door: "db://me:${env:PLANTED}@here"}\n')
)
AWAY = """
    ---
    kind: cluster
    name: away
    storage: s3://nobody-has-this
    storage_options:
      endpoint_url: "http://127.0.0.1:9"
      key: "${env:PLANTED}"
      secret: "${env:PLANTED}"
      client_kwargs: {region_name: us-east-1}
    ---
    kind: feed
    name: distant
    frequency: hours(1)
    locations: {data: "/distant/${YEAR}-${MONTH}-${DAY}/${HOUR}"}
    clusters: {away: {type: source, validity: {start: 2026-01-01T00:00Z, end: 2026-01-02T00:00Z}}}
"""
FAILING_JOBS = """
    import os

    def summing(numbers):
        try:
            raise OSError(5, "no way through " + os.environ["PLANTED"])
        except OSError as exc:
            raise RuntimeError("cannot open " + os.environ["PLANTED"]) from exc
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("PLANTED", PLANTED)
    made = Home(folder=tmp_path)
    made.prepare(WITH_SECRETS, FAILING_JOBS)
    return made


def settings_of(home: Home) -> dict[str, str]:
    return {"FEED_ASSETS_ENTITIES": "entities", "FEED_ASSETS_VARIABLES__DATA_ROOT": str(home.data)}


def test_a_cached_plan_has_no_secret_and_gives_it_back(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, cache = load_settings(environ=settings_of(home), start=home.folder), home.folder / "plans"
    compiled = load_location(settings, cache)
    (file,) = cache.glob("*.plan")
    assert b"Planted" not in file.read_bytes()
    monkeypatch.setattr(masking, "_secrets", masking._Secrets())
    cached = load_location(settings, cache)
    assert cached == compiled
    assert dict(cached.plan.clusters["here"].spark_conf)["spark.hadoop.door"] == PLANTED
    monkeypatch.setenv("PLANTED", "another one")
    renewed = load_location(settings, cache)
    assert dict(renewed.plan.clusters["here"].spark_conf)["spark.hadoop.door"] == "another one"


def test_a_plan_with_a_credential_in_clear_text_is_not_cached(home: Home) -> None:
    (file,) = (home.folder / "entities").iterdir()
    file.write_text(file.read_text().replace("{door:", "{password: xyzzy, door:"))
    cache = home.folder / "plans"
    location = load_location(load_settings(environ=settings_of(home), start=home.folder), cache)
    assert [issue.code for issue in location.issues] == ["clear-text-credential"]
    assert not cache.exists()


@pytest.mark.filterwarnings("ignore:Property `ScheduleDefinition.environment_vars`")
def test_a_code_server_tells_no_secret(home: Home) -> None:
    made = build_definitions(settings=load_settings(environ=settings_of(home), start=home.folder))
    told = serialize_value(RepositorySnap.from_def(made.get_repository_def()))
    assert "behind ${env:PLANTED}" in told
    assert "Planted" not in told


@pytest.mark.spark
def test_a_run_that_fails_with_a_secret_in_its_message_leaves_none(
    home: Home, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    land(home.data, 0, 1, 2)
    with home.instance() as instance, materializer(home, instance, spark, monkeypatch) as made:
        done = made.run(key(0))
        assert [run.status for run in instance.get_runs()] == [DagsterRunStatus.FAILURE]
    assert "cannot open ${env:PLANTED}" in failure_of(done)
    assert "Planted" not in failure_of(done)
    files = [file for file in home.folder.rglob("*") if file.is_file()]
    assert any(file.suffix == ".db" for file in files)
    assert [file for file in files if b"Planted" in file.read_bytes()] == []
    assert "Planted" not in "".join(capfd.readouterr())


@pytest.mark.drill
@pytest.mark.daemon
@pytest.mark.spark
@pytest.mark.server
def test_the_daemon_on_postgresql_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTED", PLANTED)
    with home_on_postgresql(tmp_path) as home:
        home.prepare(f"{WITH_SECRETS}{AWAY}", FAILING_JOBS)
        land(home.data, 0, 1, 2)
        url = make_url(f"postgresql+psycopg2://postgres@127.0.0.1:{home.settings['DAGSTER_PG_PORT']}/postgres")
        with home.instance() as instance, home.daemon():
            wait_until(lambda: any(run.is_failure for run in runs_of(instance, "summing")), home.log)
            wait_until(lambda: "distant" in "".join(rows_of(url, "fa_arrival_polls")), home.log)
        engine = create_engine(url)
        tables = inspect(engine).get_table_names()
        engine.dispose()
        told = {table: list(rows_of(url, table)) for table in tables}
        assert {"fa_process_instances", "event_logs", "runs", "job_ticks", "snapshots"} <= told.keys()
        assert "cannot open ${env:PLANTED}" in "".join(told["event_logs"])
        assert [table for table, rows in told.items() if any("Planted" in row for row in rows)] == []
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert any(file.suffix == ".plan" for file in files)
    assert any(file.suffix == ".err" for file in files)
    assert [file for file in files if b"Planted" in file.read_bytes()] == []


def rows_of(url: URL, table: str) -> Iterator[str]:
    """The rows of a table as text; what is compressed is unpacked."""
    engine = create_engine(url)
    with engine.connect() as connection:
        for row in connection.execute(text(f'SELECT * FROM "{table}"')):
            yield " ".join(_unpack(bytes(each)) if isinstance(each, memoryview) else str(each) for each in row)
    engine.dispose()


def _unpack(content: bytes) -> str:
    with suppress(zlib.error):
        content = zlib.decompress(content)
    return content.decode(errors="replace")
