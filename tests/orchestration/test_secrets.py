"""Secrets are neither in what a code server tells Dagster, nor in Dagster's storage, nor in cached plans."""

from pathlib import Path

import pytest
from dagster import DagsterRunStatus
from dagster._core.remote_representation.external_data import RepositorySnap
from dagster_shared.serdes import serialize_value
from pyspark.sql import SparkSession

from feed_assets import masking
from feed_assets.orchestration.definitions import build_definitions
from feed_assets.plan.location import load_location
from feed_assets.settings import load_settings
from tests.orchestration.dagster_home import Home
from tests.orchestration.hand_ticked import NOON
from tests.orchestration.in_process import failure_of, materializer
from tests.orchestration.small import ENTITIES, key, land

PLANTED = "s3cr+t/Planted\\w 4711"
WITH_SECRETS = (
    ENTITIES.replace('"1"}', '"1", spark.hadoop.door: "${env:PLANTED}"}')
    .replace("name: numbers\n", 'name: numbers\n    description: "behind ${env:PLANTED}"\n')
    .replace("name: summing\n", 'name: summing\n    properties: {door: "db://me:${env:PLANTED}@here"}\n')
)
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
    compiled = load_location(settings, NOON, cache)
    (file,) = cache.glob("*.plan")
    assert b"Planted" not in file.read_bytes()
    monkeypatch.setattr(masking, "_secrets", masking._Secrets())
    cached = load_location(settings, NOON, cache)
    assert cached == compiled
    assert dict(cached.plan.clusters["here"].spark_conf)["spark.hadoop.door"] == PLANTED
    monkeypatch.setenv("PLANTED", "another one")
    renewed = load_location(settings, NOON, cache)
    assert dict(renewed.plan.clusters["here"].spark_conf)["spark.hadoop.door"] == "another one"


def test_a_plan_with_a_credential_in_clear_text_is_not_cached(home: Home) -> None:
    (file,) = (home.folder / "entities").iterdir()
    file.write_text(file.read_text().replace("{door:", "{password: xyzzy, door:"))
    cache = home.folder / "plans"
    location = load_location(load_settings(environ=settings_of(home), start=home.folder), NOON, cache)
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
