"""`feed-assets replication`: from nothing to copies, what is wrong with them, and making them right."""

import subprocess
import sys
from pathlib import Path
from shutil import rmtree

import pytest
import yaml

from feed_assets.clock import TimeBudget
from tests.cli.project import must, ok, run, table
from tests.replication.project import EAST, REPLICATED, WEST, instance, project, replication

__all__ = ["project"]


@pytest.fixture
def copied(project: Path) -> Path:
    """All hours are copied."""
    assert len(replication("repair", "clicks")["copies"]) == 3
    return project


def test_what_was_never_copied_is_missing_and_a_repair_copies_it(project: Path) -> None:
    found = replication("verify", "clicks", exit_code=1)
    assert found["counts"] == {"missing": 3}
    done = run("replication", "repair", "clicks")
    assert table(done)[0][:7] == ["east", "west", "2013-11-01T00:00Z", "missing", "repaired", "8", "1"]
    assert "repaired 3 of 3 findings: 24 bytes in 3 files" in done.stderr
    assert (instance(project, 2) / "part.csv").read_text() == "clicks 2"
    assert replication("verify", "clicks", "--deep")["counts"] == {"in sync": 3}
    assert replication("repair", "clicks")["copies"] == []


def test_row_68_status_has_a_line_for_the_flow_and_one_for_each_copy(copied: Path) -> None:
    flow, _, newest, *rest = table(run("replication", "status", "clicks"))
    hour = "2013-11-01T02:00Z"
    assert flow[:8] == ["east", "west", "3 in sync", hour, hour, "none", "24", "3"]
    assert newest[:5] == ["east", "west", hour, "SUCCEEDED", "in sync"]
    assert (newest[6:8], newest[11], len(rest)) == (["8", "1"], "transferred", 2)
    assert newest[12] == newest[13] != ""
    (row,) = replication("status", "clicks", "--start", "2013-11-01-01:00", "--end", hour)["instances"]
    assert row["nominal_time"] == "2013-11-01T01:00Z"
    assert (
        run("replication", "status", "clicks", "--num-results", "1").stderr
        == "1 of 3 copies; --num-results shows more\n"
    )


def test_verify_names_what_it_found_and_exits_with_1(copied: Path) -> None:
    rmtree(instance(copied, 0))
    (instance(copied, 1) / "mine.csv").write_text("1")
    (instance(copied, 2) / "part.csv").write_text("clicks x")
    shallow = must("replication", "verify", "clicks", code=1)
    rows = [line.split("\t") for line in shallow.stdout.splitlines()[1:]]
    assert [(row[2], row[3]) for row in rows] == [
        ("2013-11-01T00:00Z", "missing"),
        ("2013-11-01T01:00Z", "extra"),
        ("2013-11-01T02:00Z", "in sync"),
    ]
    assert rows[1][5] == "1 extra (mine.csv)"
    assert "1 missing, 1 extra, 1 in sync" in shallow.stderr
    deep = replication("verify", "clicks", "--deep", "--cluster", "west", "--source", "east", exit_code=1)
    assert deep["counts"] == {"missing": 1, "rotten": 1, "extra": 1}
    replication("repair", "clicks", "--deep", "--dry-run")
    assert not instance(copied, 0).exists()
    replication("repair", "clicks", "--deep")
    assert replication("verify", "clicks", "--deep")["counts"] == {"in sync": 3}


def test_what_could_not_be_repaired_exits_with_1(copied: Path) -> None:
    rmtree(instance(copied, 0, "east"))
    rmtree(instance(copied, 0))
    result = run("replication", "repair", "clicks")
    assert "the source no longer has it" in result.stdout
    assert result.exit_code == 1
    assert not instance(copied, 0).exists()


def test_row_112_the_instance_verbs_speak_of_the_copies_of_a_feed(copied: Path) -> None:
    rows = table(run("instance", "list", "feed", "clicks"))
    assert [(row[0], row[1], row[2], row[-1]) for row in rows] == [
        ("west", f"2013-11-01T0{hour}:00Z", "SUCCEEDED", "east") for hour in (2, 1, 0)
    ]
    assert table(run("instance", "list", "process", "clicks@east")) == rows
    assert table(run("instance", "summary", "feed", "clicks", "--lifecycle", "replication"))[0][:2] == [
        "west",
        "SUCCEEDED",
    ]
    assert table(run("instance", "list", "feed", "clicks", "--lifecycle", "eviction")) == []
    assert {row[0] for row in table(run("instance", "list", "feed", "clicks", "--clusters", "east"))} == {"east"}
    assert "a repair by ann" in ok(run("why", "clicks@east", "2013-11-01T01:00Z"))
    params = table(run("instance", "params", "clicks", "2013-11-01-01:00"))
    assert ["west", "source", f"file://{instance(copied, 1, 'east')}"] in params


def test_a_repair_that_is_killed_leaves_nothing_half_done_and_a_repeat_goes_on_at_once(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = {**REPLICATED, "replication": {"bandwidth": "200KB"}}
    (project / "entities/all.yaml").write_text(yaml.safe_dump_all([EAST, WEST, slow]))
    (instance(project, 0, "east") / "part.csv").write_bytes(bytes(1_000_000))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    command = [sys.executable, "-m", "feed_assets", "replication", "repair", "clicks"]
    with subprocess.Popen(command, cwd=project, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as repairing:
        budget = TimeBudget(120)
        while {row["sync"] for row in replication("status", "clicks")["instances"]} != {"running"}:
            assert repairing.poll() is None, "it was over before it could be killed"
            assert not budget.is_spent
        repairing.kill()
    assert not (project / "west/clicks").exists() or not instance(project, 0).exists()
    slow["replication"] = {"bandwidth": "50MB"}
    (project / "entities/all.yaml").write_text(yaml.safe_dump_all([EAST, WEST, slow]))
    done = replication("repair", "clicks")
    assert {each["outcome"] for each in done["copies"]} == {"repaired"}
    assert replication("verify", "clicks", "--deep")["counts"] == {"in sync": 3}
