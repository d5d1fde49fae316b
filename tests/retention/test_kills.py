"""`feed-assets retention run` and `undo`, killed at random moments: nothing is lost, and the same command goes on."""

import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path

import pytest
import yaml

from feed_assets.clock import TimeBudget
from feed_assets.context.operation import open_context
from feed_assets.context.tick import open_tick
from feed_assets.instances.arrival.polling import apply_arrivals
from feed_assets.instances.gates.plan_changes import apply_plan
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.records import FeedInstanceStatus
from feed_assets.settings import load_settings
from feed_assets.sql.database import open_database
from tests.cli.project import ok, run, set_clock
from tests.databases import open_migrated
from tests.definitions.verbs.harness import CLICKS, CLUSTER, with_validity
from tests.drills import drill_seed, sized
from tests.instances.harness import at
from tests.projects import enter
from tests.retention.harness import Tree, tree_of
from tests.retention.project import retention

KILLS = sized(2, 40)
FEEDS = [f"clicks-{letter}" for letter in "abcdefghij"]
HOURS = 30
EXPIRED = [f"{feed}/2013-11-0{1 + hour // 24}/{hour % 24:02d}" for feed in FEEDS for hour in range(HOURS)]
YOUNG = [f"{feed}/2013-11-03/{hour:02d}" for feed in FEEDS for hour in range(6, 12)]
LONGEST_LIFE = 2.5
AFTER_A_MOVE = 0.05

Facts = Mapping[tuple[str, datetime], tuple[object, ...]]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ten feeds with thirty expired hours each, all of them on record."""
    enter(tmp_path, monkeypatch)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    policy = {"limit": "hours(6)", "sweep_limits": {"share": 1.0}}
    documents: list[Mapping[str, object]] = [CLUSTER]
    for name in FEEDS:
        location = f"/{name}/${{YEAR}}-${{MONTH}}-${{DAY}}/${{HOUR}}"
        feed = with_validity({**CLICKS, "name": name, "locations": {"data": location}, "availability_flag": "_SUCCESS"})
        feed["clusters"]["primary"]["retention"] = policy  # type: ignore[index]
        documents.append(feed)
    (tmp_path / "entities").mkdir()
    (tmp_path / "entities/all.yaml").write_text(yaml.dump_all(documents, Dumper=_Plain))
    set_clock(tmp_path, "2013-11-03T12:00Z")
    for number, path in enumerate([*EXPIRED, *YOUNG]):
        folder = tmp_path / "data" / path
        (folder / "sub").mkdir(parents=True, mode=0o700 + number % 64)
        (folder / "part.csv").write_bytes(path.encode() * (number % 5))
        (folder / "sub/.hidden").symlink_to("../part.csv")
        (folder / "_SUCCESS").touch()
    settings = load_settings()
    database = open_migrated(f"sqlite:///{tmp_path}/state.db")
    context = open_context(settings, database)
    apply_plan(database, context.timeline, context.as_of)
    apply_arrivals(open_tick(context, "primary"))
    return tmp_path


class _Plain(yaml.SafeDumper):
    """YAML without references, in which each feed is read for itself."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        return True


@pytest.mark.long
@pytest.mark.sample
@pytest.mark.timeout(1800)
def test_no_kill_of_a_sweep_or_an_undo_loses_anything(project: Path) -> None:
    seed = drill_seed()
    chance = random.Random(seed)
    tree, facts = tree_of(project / "data"), rows()
    assert len(facts) == len(EXPIRED) + len(YOUNG)
    killed = rounds = 0
    while killed < KILLS:
        rounds += 1
        (planned,) = retention("plan")["sweeps"]
        sweep = planned["sweep_id"]
        assert planned["paths"] == len(EXPIRED), f"seed {seed}"
        for _ in range(chance.randint(1, 3)):
            killed += kill(project, chance, "run", sweep)
            require_whole(project, sweep, tree, f"seed {seed}, kill {killed}")
        if state(sweep) == "PLANNED" or chance.random() < 0.7:
            ok(run("retention", "run"))
            require_gone(project, sweep, f"seed {seed}, round {rounds}")
        for _ in range(chance.randint(1, 3)):
            killed += kill(project, chance, "undo", sweep, "--no-hold")
            require_whole(project, sweep, tree, f"seed {seed}, kill {killed}")
        ok(run("retention", "undo", sweep, "--no-hold"))
        assert state(sweep) == "UNDONE", f"seed {seed}, round {rounds}"
        assert tree_of(project / "data") == tree, f"seed {seed}, round {rounds}"
        assert rows() == facts, f"seed {seed}, round {rounds}"
    print(f"seed {seed}: {killed} kills in {rounds} rounds")


def kill(project: Path, chance: random.Random, *command: str) -> bool:
    """Give a command and kill it: at a random moment, or right after a random path has moved; whether it still ran."""
    path = project / "data" / chance.choice(EXPIRED)
    stood = path.exists()
    process = subprocess.Popen(
        [sys.executable, "-c", "from feed_assets.cli.main import main; main()", "retention", *command],
        cwd=project,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        if chance.random() < 0.25:
            _wait(process, chance.uniform(0.0, LONGEST_LIFE), lambda: False)
        else:
            _wait(process, 60.0, lambda: path.exists() != stood)
            _wait(process, chance.choice((0.0, chance.uniform(0.0, AFTER_A_MOVE), LONGEST_LIFE / 10)), lambda: False)
    finally:
        still_ran = process.poll() is None
        process.kill()
        process.wait()
    return still_ran


def _wait(process: subprocess.Popen[bytes], seconds: float, is_time: Callable[[], bool]) -> None:
    budget = TimeBudget(seconds)
    while not budget.is_spent and process.poll() is None and not is_time():
        time.sleep(0.0005)


def state(sweep: str) -> str:
    return str(retention("show", sweep, "--limit", "0")["sweep"]["state"])


def rows() -> Facts:
    """What the record says of each instance, but for the event that said so."""
    settings = load_settings()
    assert settings.state is not None
    with open_database(settings.state).read() as connection:
        found = [
            row for feed in FEEDS for row in FeedInstances(connection).find_between(feed, "primary", at("01"), at("04"))
        ]
    return {
        (row.feed, row.nominal_time): (row.status, row.manifest_digest, row.bytes, row.files, row.available_at)
        for row in found
        if row.status is not FeedInstanceStatus.MISSING
    }


def require_whole(project: Path, sweep: str, tree: Tree, told: str) -> None:
    """Each instance stands at its place or lies in the trash, never in both, with all that it had."""
    standing = tree_of(project / "data")
    trashed = tree_of(project / "data/.feed-assets/trash" / sweep / "tree/3")
    for path in EXPIRED:
        places = [place for place in (standing, trashed) if path in place]
        assert len(places) == 1, (told, path)
    for path, entry in tree.items():
        if path.count("/") >= 2:
            assert standing.get(path, trashed.get(path)) == entry, (told, path)


def require_gone(project: Path, sweep: str, told: str) -> None:
    """All that was planned is in the trash, and on record, once."""
    shown = retention("show", sweep, "--outcome", "EVICTED", "--limit", str(len(EXPIRED)))
    assert (shown["sweep"]["state"], shown["matching"]) == ("DONE", len(EXPIRED)), told
    assert sorted(item["path"] for item in shown["items"]) == sorted(EXPIRED), told
    assert not any((project / "data" / path).exists() for path in EXPIRED), told
    assert all((project / "data" / path).exists() for path in YOUNG), told
    evicted = [facts for facts in rows().values() if facts[0] is FeedInstanceStatus.EVICTED]
    assert len(evicted) == len(EXPIRED), told
