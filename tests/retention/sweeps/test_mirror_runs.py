"""Mirrors as processes: from their definition through ticks and attempts to what stands at the target."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from feed_assets.engines.port import WorkReport
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.process import Process
from feed_assets.instances.attempts.execution import ALL_TIMES
from feed_assets.instances.gates.actions import InstanceAction, apply_action
from feed_assets.log.leases import Leases
from feed_assets.log.records import ProcessInstanceStatus
from feed_assets.log.removals.records import SweepState
from feed_assets.log.removals.store import Sweeps
from feed_assets.plan.location import declare_location
from feed_assets.retention.sweeps.purging import find_purgeable, purge_sweeps
from feed_assets.retention.sweeps.undoing import undo_sweep
from feed_assets.sql.errors import FencedOutError, LeaseHeldError
from feed_assets.transfer.errors import RemovalLimitError
from tests.instances.harness import START, LifecycleHarness

DAY = timedelta(days=1)
NOON = START + timedelta(hours=12)


def mirror(source: object = "/models", target: object = None, name: str = "models", **more: Any) -> Process:
    """A mirror of a directory on `primary`, which runs there, to `backup`."""
    sides = {
        "source": source if isinstance(source, Mapping) else {"directory": source},
        "target": target or {"cluster": "backup", "directory": "/models"},
    }
    return Process.model_validate(
        {
            "name": name,
            "frequency": "days(1)",
            "order": "LAST_ONLY",
            "clusters": {"primary": {"validity": {"start": START}}},
            "workflow": {"engine": "directory-mirror", "mirror": {**sides, **more}},
        }
    )


def harness_of(root: Path, *mirrors: Process) -> LifecycleHarness:
    return LifecycleHarness.of(root, *mirrors, clusters=("primary", "backup"))


def write(root: Path, files: Mapping[str, str], cluster: str = "primary", below: str = "models") -> None:
    for name, text in files.items():
        file = root / cluster / below / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def read(root: Path, cluster: str = "backup", below: str = "models") -> dict[str, str]:
    folder = root / cluster / below
    found = {file.relative_to(folder).as_posix(): file for file in folder.rglob("*") if file.is_file()}
    return {name: file.read_text() for name, file in found.items() if ".feed-assets" not in name}


def run(lifecycle: LifecycleHarness, time: datetime, as_of: datetime, name: str = "models") -> WorkReport:
    """Run an instance as a Dagster run does; what the attempt says of itself."""
    told: dict[datetime, WorkReport] = {}
    active = lifecycle.active_release(name, time)
    assert active is not None
    runner = lifecycle.runner(as_of, lifecycle.run_id(), real_now=as_of + timedelta(days=10_000))
    context = replace(runner.context, plan=active.plan, release=active.release)
    runner = replace(runner, context=context, engines=None, on_report=told.__setitem__)
    runner.run(active.record, time, lambda _: None)
    return told[time]


def test_row_141_instances_of_a_mirror_make_the_target_equal(tmp_path: Path) -> None:
    lifecycle = harness_of(tmp_path, mirror(removed_files="remove"))
    write(tmp_path, {"a.bin": "a", "sub/b.bin": "b"})
    (request,) = lifecycle.tick(NOON)
    assert request.nominal_times == (START,)
    report = run(lifecycle, START, NOON)
    assert read(tmp_path) == {"a.bin": "a", "sub/b.bin": "b"}
    assert lifecycle.statuses("models") == {START: ProcessInstanceStatus.SUCCEEDED}
    assert (report.details["copied_files"], report.details["copied_bytes"]) == (2, 2)
    assert report.details["source"] == f"file://{tmp_path}/primary/models"
    assert report.details["target"] == f"file://{tmp_path}/backup/models"
    write(tmp_path, {"a.bin": "other"})
    (tmp_path / "primary/models/sub/b.bin").unlink()
    lifecycle.tick(NOON + DAY)
    report = run(lifecycle, START + DAY, NOON + DAY)
    assert read(tmp_path) == {"a.bin": "other"}
    assert (report.details["copied_files"], report.details["removed_files"]) == (1, 1)


def test_of_what_was_missed_only_the_newest_is_run(tmp_path: Path) -> None:
    lifecycle = harness_of(tmp_path, mirror())
    write(tmp_path, {"a.bin": "a"})
    (request,) = lifecycle.tick(NOON + 3 * DAY)
    assert request.nominal_times == (START + 3 * DAY,)


def test_row_141_what_would_remove_too_much_fails_with_the_reason_until_somebody_approves(tmp_path: Path) -> None:
    lifecycle = harness_of(tmp_path, mirror(removed_files="remove"))
    write(tmp_path, {str(number): "x" for number in range(10)})
    lifecycle.tick(NOON)
    run(lifecycle, START, NOON)
    for number in range(7):
        (tmp_path / "primary/models" / str(number)).unlink()
    lifecycle.tick(NOON + DAY)
    with pytest.raises(RemovalLimitError):
        run(lifecycle, START + DAY, NOON + DAY)
    row = lifecycle.instances("models")[START + DAY]
    assert row.status is ProcessInstanceStatus.FAILED
    assert "7 of the 10 files there would be removed, more than the share 0.5" in str(row.reason)
    assert str(row.reason).endswith("--clusters primary --property mirror.removals=7")
    assert len(read(tmp_path)) == 10
    apply_action(
        lifecycle.context(NOON + DAY).by("ann"), InstanceAction.RERUN, [row.key], overrides={"mirror.removals": "7"}
    )
    run(lifecycle, START + DAY, NOON + DAY)
    assert len(read(tmp_path)) == 3


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_what_others_wrote_at_the_target_is_a_sweep_that_can_be_undone_and_purged(
    tmp_path: Path, state_url: str, is_elsewhere: bool
) -> None:
    target = {"directory": f"file://{tmp_path}/else/out"} if is_elsewhere else {"cluster": "backup", "directory": "out"}
    folder = tmp_path / ("else" if is_elsewhere else "backup")
    lifecycle = LifecycleHarness.of(
        tmp_path,
        mirror({"directories": ["a", "b"]}, target, removed_files="remove"),
        clusters=("primary", "backup"),
        state=state_url,
    )
    for name in "ab":
        write(tmp_path, {"ours": "1", "more": "1"}, below=name)
    lifecycle.tick(NOON)
    run(lifecycle, START, NOON)
    for name in "ab":
        write(tmp_path, {"theirs": name}, folder.name, f"out/{name}")
        write(tmp_path, {"ours": "2"}, below=name)
    lifecycle.tick(NOON + DAY)
    details = run(lifecycle, START + DAY, NOON + DAY).details
    theirs = {f"{name}/theirs": name for name in "ab"}
    ours = {f"{name}/{file}": text for name in "ab" for file, text in (("ours", "2"), ("more", "1"))}
    assert read(tmp_path, folder.name, "out") == ours
    context = lifecycle.sweep_context(NOON + DAY)
    with lifecycle.database.read() as connection:
        sweeps = sorted(Sweeps(connection).newest(10), key=lambda sweep: sweep.sweep_id)
    assert [(sweep.cluster, sweep.state, sweep.paths) for sweep in sweeps] == [
        ("primary" if is_elsewhere else "backup", SweepState.DONE, 1)
    ] * 2
    assert [count.feed for sweep in sweeps for count in sweep.counts] == ["mirror/models"] * 2
    assert (details["displaced_files"], sorted(str(details["displaced_to"]).split(", "))) == (
        2,
        [sweep.sweep_id for sweep in sweeps],
    )
    assert [undo_sweep(context, sweep.sweep_id).restored for sweep in sweeps] == [1, 1]
    assert read(tmp_path, folder.name, "out") == {**ours, **theirs}
    lifecycle.tick(NOON + 2 * DAY)
    write(tmp_path, {"ours": "3"}, below="a")
    run(lifecycle, START + 2 * DAY, NOON + 2 * DAY)
    cluster = sweeps[0].cluster
    purged = purge_sweeps(context, cluster, find_purgeable(context, cluster, NOON, at_once=True))
    assert [each.obstacle for each in purged] == [None] * 3
    assert [*folder.rglob("theirs")] == [folder / "out/b/theirs"]


def test_sides_are_on_the_cluster_of_the_process_unless_they_say_otherwise(tmp_path: Path) -> None:
    elsewhere = tmp_path / "else where" / "out"
    lifecycle = harness_of(
        tmp_path,
        mirror({"cluster": "backup", "directory": "in"}, {"directory": "/${cluster.colo}/out"}),
        mirror({"directory": "/primary-colo/out/"}, {"directory": f"file://{elsewhere}"}, name="onwards"),
    )
    write(tmp_path, {"a.bin": "a"}, "backup", "in")
    lifecycle.tick(NOON)
    run(lifecycle, START, NOON)
    assert read(tmp_path, "primary", "primary-colo/out") == {"a.bin": "a"}
    run(lifecycle, START, NOON, name="onwards")
    assert (elsewhere / "a.bin").read_text() == "a"
    assert not (elsewhere / ".feed-assets").exists()


def test_two_instances_of_a_mirror_never_run_together(tmp_path: Path) -> None:
    lifecycle = harness_of(tmp_path, mirror())
    write(tmp_path, {"a.bin": "a"})
    lifecycle.tick(NOON)
    real_now = NOON + timedelta(days=10_000)
    leases = Leases(lifecycle.database)
    lease = leases.acquire("mirror/models", "primary", ALL_TIMES, "another run", real_now, DAY)
    with pytest.raises(LeaseHeldError):
        run(lifecycle, START, NOON)
    assert read(tmp_path) == {}
    leases.release_many([lease])
    run(lifecycle, START, NOON)
    assert read(tmp_path) == {"a.bin": "a"}


def test_a_worker_that_was_overtaken_publishes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lifecycle = harness_of(tmp_path, mirror(snapshots={"source_keep": 1, "target_keep": 1}))
    write(tmp_path, {"a.bin": "a"})
    lifecycle.tick(NOON)
    runner = replace(lifecycle.runner(NOON, "run-1", real_now=NOON + timedelta(days=10_000)), engines=None)
    active = lifecycle.active_release("models", START)
    assert active is not None
    kind = type(lifecycle.store("backup"))
    prepare = kind.flush

    def overtaken(self: Any, assemblies: Any) -> None:
        prepare(self, assemblies)
        with lifecycle.database.begin() as connection:
            Leases(lifecycle.database).release_all(connection, "run-1")

    monkeypatch.setattr(kind, "flush", overtaken)
    with pytest.raises(FencedOutError):
        runner.run(active.record, START, lambda _: None)
    assert read(tmp_path) == {}
    monkeypatch.undo()
    report = run(lifecycle, START, NOON)
    assert read(tmp_path) == {"a.bin": "a"}
    assert str(report.details["snapshot"]).startswith("models.20131101T0000Z.")


def test_a_mirror_depends_on_the_clusters_of_its_sides(tmp_path: Path) -> None:
    lifecycle = harness_of(tmp_path, mirror())
    record = lifecycle.process("models")
    assert record.members == (("process", "models"), ("cluster", "backup"), ("cluster", "primary"))
    assert record.work_text == f"directory-mirror file://{tmp_path}/primary/models → file://{tmp_path}/backup/models"


def test_another_place_of_the_target_makes_a_new_release(tmp_path: Path) -> None:
    def fingerprint(place: str) -> str:
        storages = {"primary": "file:///primary", "backup": f"file:///{place}"}
        clusters = [Cluster(name=name, storage=storage) for name, storage in storages.items()]
        return declare_location([*clusters, mirror()]).plan.processes["models", "primary"].fingerprint

    assert fingerprint("backup") == fingerprint("backup")
    assert fingerprint("backup") != fingerprint("elsewhere")
