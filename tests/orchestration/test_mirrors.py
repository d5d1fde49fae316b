"""Mirrors in the real Dagster: an asset of their own, run by Dagster, large copies on Spark's executors."""

from pathlib import Path

import pytest
from dagster import AssetKey

from feed_assets.log.records import ProcessInstanceStatus
from feed_assets.orchestration.definitions import build_definitions
from feed_assets.settings import load_settings
from feed_assets.testing.projects import failure_of
from feed_assets.transfer.executors import WORTH_BYTES
from tests.cli.project import run
from tests.log.samples import count_by_status
from tests.orchestration.dagster_home import Home, materialized, sqlite_state

ENTITIES = """
    kind: cluster
    name: here
    storage: file://${DATA_ROOT}
    spark:
      master: "local[2]"
      conf: {spark.eventLog.enabled: "true", spark.eventLog.dir: "file://${DATA_ROOT}-events"}
    ---
    kind: cluster
    name: there
    storage: file://${DATA_ROOT}-there
    ---
    kind: process
    name: models
    frequency: days(1)
    clusters: {here: {validity: {start: 2026-01-01T00:00Z, end: 2026-02-01T00:00Z}}}
    workflow:
      engine: directory-mirror
      mirror:
        source: {directory: /models}
        target: {cluster: there, directory: /models}
        snapshots: {source_keep: 2, target_keep: 3}
"""
SELECT = ("asset", "materialize", "-f", "definitions.py", "--select", "here/models", "--partition")
KEY = AssetKey(["here", "models"])


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(folder=tmp_path)
    made.prepare(ENTITIES, "")
    (tmp_path / "data-events").mkdir()
    return made


def test_a_mirror_is_an_asset_of_its_own(home: Home) -> None:
    environ = {"FEED_ASSETS_ENTITIES": "entities", "FEED_ASSETS_VARIABLES__DATA_ROOT": str(home.data)}
    definitions = build_definitions(settings=load_settings(environ=environ, start=home.folder))
    node = definitions.resolve_asset_graph().get(KEY)
    assert node.is_executable
    assert {"process", "directory-mirror"} <= node.kinds
    work = node.metadata["feed_assets/workflow"]
    assert work == f"directory-mirror file://{home.data}/models → file://{home.data}-there/models"


def test_a_mirror_writes_nothing_where_a_feed_is_that_cannot_be_read_at_present(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared, feed = home.folder / "entities/all.yaml", home.folder / "entities/kept.yaml"
    text = declared.read_text()
    declared.write_text(text.rpartition("---")[0])  # without the mirror
    feed.write_text(
        "kind: feed\nname: kept\nfrequency: days(1)\nlocations: {data: '/models/${YEAR}-${MONTH}-${DAY}'}\n"
        "clusters: {there: {validity: {start: 2026-01-01T00:00Z}}}\n"
    )
    monkeypatch.chdir(home.folder)
    for name, value in home.environment.items():
        monkeypatch.setenv(name, value)
    assert "feed 'kept': submitted" in run("apply", "--yes", "--skip-checks").stdout
    feed.write_text("kind: feed: [")
    declared.write_text(text)
    (home.data / "models").mkdir()
    (home.data / "models/new").touch()
    (home.folder / "data-there/models/2026-01-01").mkdir(parents=True)

    settings = load_settings(environ=home.environment, start=home.folder)
    made = build_definitions(settings=settings, resources={"spark_here": object()})
    with home.instance() as instance:
        result = made.resolve_implicit_global_asset_job_def().execute_in_process(
            asset_selection=[KEY], partition_key="2026-01-01", instance=instance, raise_on_error=False
        )

    assert "the data of feed 'kept' on there, which is left out of the plan at present, is inside it" in failure_of(
        result
    )
    assert [path.name for path in (home.folder / "data-there/models").iterdir()] == ["2026-01-01"]


@pytest.mark.spark
def test_row_141_a_run_of_dagster_mirrors_with_spark_and_its_partition_says_what_was_copied(home: Home) -> None:
    source, target = home.data / "models", home.folder / "data-there" / "models"
    (source / "sub").mkdir(parents=True)
    with (source / "large.bin").open("wb") as file:
        for block in range(WORTH_BYTES >> 20):
            file.write(bytes([block]) * (1 << 20))
        file.write(b"the end")
    (source / "sub" / "small.txt").write_text("small")
    size = WORTH_BYTES + len(b"the end") + len("small")

    done = home.run(*SELECT, "2026-01-01")

    assert done.returncode == 0, done.stderr[-3000:]
    assert (target / "large.bin").read_bytes() == (source / "large.bin").read_bytes()
    assert (target / "sub" / "small.txt").read_text() == "small"
    metadata = told(home)
    assert (metadata["copy"], metadata["copied_bytes"], metadata["copied_files"]) == ("copied", size, 2)
    assert metadata["removed_files"] == 0
    assert metadata["source"] == f"file://{source}"
    first = metadata["snapshot"]
    assert str(first).startswith("models.20260101T0000Z.")
    assert {"copy_seconds", "bandwidth", "verification", "target"} <= metadata.keys()
    assert len(applications(home)) == 1

    (source / "sub" / "small.txt").write_text("later")
    done = home.run(*SELECT, "2026-01-02")

    assert done.returncode == 0, done.stderr[-3000:]
    metadata = told(home)
    assert (metadata["copied_bytes"], metadata["copied_files"]) == (5, 1)
    assert metadata["snapshot"] != first
    assert len(applications(home)) == 1  # so little is not worth a session
    with home.instance() as instance:
        assert materialized(instance, "here", "models") == {"2026-01-01", "2026-01-02"}
    with sqlite_state(home).read() as connection:
        assert count_by_status(connection, "models", "here") == {ProcessInstanceStatus.SUCCEEDED: 2}


def applications(home: Home) -> list[Path]:
    """What Spark has written down of the sessions that were opened."""
    return list((home.folder / "data-events").iterdir())


def told(home: Home) -> dict[str, object]:
    """What the newest materialization says."""
    with home.instance() as instance:
        event = instance.fetch_materializations(KEY, limit=1).records[0].asset_materialization
    assert event is not None
    prefix = "detail/"
    return {name.removeprefix(prefix): value.value for name, value in event.metadata.items() if name.startswith(prefix)}
