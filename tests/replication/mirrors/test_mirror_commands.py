"""`feed-assets mirror`: what a run would do, snapshots, and new mirrors."""

from pathlib import Path

import pytest

from feed_assets.plan.location import load_location
from feed_assets.settings import load_settings
from tests.cli.project import must, rows, run, shown
from tests.instances.harness import START
from tests.retention.sweeps.test_mirror_runs import NOON, LifecycleHarness, read, write
from tests.retention.sweeps.test_mirror_runs import run as run_instance

CLUSTERS = """
kind: cluster
name: primary
storage: file://{folder}/primary
---
kind: cluster
name: backup
storage: file://{folder}/backup
"""
NEW = ("mirror", "new", "models", "--source", "primary:/models", "--target", "backup:/models", "--cluster", "primary")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two clusters, and a directory on one of them."""
    (tmp_path / "entities").mkdir()
    (tmp_path / "entities/clusters.yaml").write_text(CLUSTERS.format(folder=tmp_path))
    (tmp_path / "feed_assets.yaml").write_text(f"state: sqlite:///{tmp_path}/state.db\n")
    write(tmp_path, {"a.bin": "a", "sub/b.bin": "bb"})
    monkeypatch.chdir(tmp_path)
    return tmp_path


def prepared(project: Path, *options: str) -> LifecycleHarness:
    """A mirror as `new` has written it, where it runs."""
    must(*NEW, "--start", "2013-11-01T00:00Z", *options, "--to", "entities/models.yaml")
    lifecycle = LifecycleHarness.of(project, clusters=("primary", "backup"))
    lifecycle.use(load_location(load_settings()).plan)
    return lifecycle


def test_new_writes_a_file_that_is_in_order(project: Path) -> None:
    made = run(*NEW, "--to", "entities/models.yaml")
    assert (made.exit_code, made.stdout) == (0, "")
    assert made.stderr == "entities/models.yaml: process 'models' is written\n"
    assert run("validate").exit_code == 0
    assert "is already declared" in run(*NEW).stderr


def test_new_prints_without_a_file_and_refuses_what_is_wrong(project: Path) -> None:
    made = run(*NEW, "--snapshots", "2,5")
    assert "snapshots: {source_keep: 2, target_keep: 5}  # " in made.stdout
    assert shown(*NEW)["name"] == "models"
    refused = must(
        "mirror", "new", "models", "--source", "primary:/", "--target", "backup:/models", "--to", "x.yaml", code=1
    )
    assert "it is the root of a storage" in refused.stderr
    assert not (project / "x.yaml").exists()


def test_new_takes_falcons_properties(project: Path) -> None:
    (project / "job.properties").write_text(
        "jobName=old\nsourceDir=/models\nsourceCluster=primary\ntargetDir=/models\ntargetCluster=backup\npreserveXattr=true\n"
    )
    made = run("mirror", "new", "--file", "job.properties", "--property", "jobName=models")
    assert "name: models\n" in made.stdout
    assert made.stderr == "preserveXattr=true is left out: it has no meaning here\n"


def test_a_file_that_is_there_is_replaced_by_force_only(project: Path) -> None:
    (project / "mine.yaml").write_text("# mine\n")
    assert "mine.yaml already exists" in run(*NEW, "--to", "mine.yaml").stderr
    assert (project / "mine.yaml").read_text() == "# mine\n"
    assert run(*NEW, "--to", "mine.yaml", "--force").exit_code == 0


def test_plan_says_what_a_run_would_do_and_a_run_does_it(project: Path) -> None:
    lifecycle = prepared(project, "--remove")
    planned = must("mirror", "plan", "models")
    assert planned.stdout.splitlines() == [
        "source\ttarget\tcopies\tbytes\tremoves\tof",
        f"file://{project}/primary/models\tfile://{project}/backup/models\t2\t3\t0\t0",
        "change\tbytes\tfile\tsource",
        f"copy\t1\ta.bin\tfile://{project}/primary/models",
        f"copy\t2\tsub/b.bin\tfile://{project}/primary/models",
    ]
    assert not (project / "backup").exists()
    lifecycle.tick(NOON)
    run_instance(lifecycle, START, NOON)
    assert read(project) == {"a.bin": "a", "sub/b.bin": "bb"}


def test_plan_says_that_a_run_would_fail_and_what_allows_it(project: Path) -> None:
    lifecycle = prepared(project, "--remove")
    lifecycle.tick(NOON)
    run_instance(lifecycle, START, NOON)
    (project / "primary/models/a.bin").rename(project / "primary/models/c.bin")
    (project / "primary/models/sub/b.bin").unlink()
    planned = must("mirror", "plan", "models", "--limit", "1", code=1)
    assert planned.stdout.splitlines()[3:] == [f"remove\t\ta.bin\tfile://{project}/primary/models"]
    assert "2 of the 2 files there would be removed, more than the share 0.5" in planned.stderr
    assert "1 of 3 files; --limit shows more" in planned.stderr
    assert run("mirror", "plan", "models", "--removals", "2").exit_code == 0
    (project / "primary").rename(project / "unmounted")
    planned = must("mirror", "plan", "models", code=1)
    assert "the root is not there" in planned.stderr


def test_snapshots_are_listed_with_the_place_of_their_content(project: Path) -> None:
    lifecycle = prepared(project, "--snapshots", "2,3")
    assert "there is no snapshot" in run("mirror", "snapshots", "models").stderr
    lifecycle.tick(NOON)
    run_instance(lifecycle, START, NOON)
    source, target = rows(run("mirror", "snapshots", "models").stdout)
    assert (source[0], source[2:4], target[0]) == ("source", ["2", "3"], "target")
    assert source[1] == target[1]
    assert (Path(target[4].removeprefix("file://")) / "a.bin").read_text() == "a"
    (found,) = shown("mirror", "snapshots", "models")["snapshots"].values()
    assert [each["shelf"] for each in found] == ["source", "target"]


def test_what_is_no_mirror_has_no_plan(project: Path) -> None:
    (project / "entities/other.yaml").write_text(
        "kind: process\nname: other\nfrequency: days(1)\nworkflow: {path: 'jobs:run'}\n"
        "clusters: {primary: {validity: {start: 2013-11-01T00:00Z}}, backup: {validity: {start: 2013-11-01T00:00Z}}}\n"
    )
    assert "it runs on backup, primary" in run("mirror", "plan", "other").stderr
    refused = must("mirror", "snapshots", "other", "--cluster", "backup", code=1)
    assert "it is not a mirror; its engine is python" in refused.stderr
