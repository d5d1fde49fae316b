"""`feed-assets retention …` as people give it."""

import json
from pathlib import Path

import pytest

from feed_assets.entities.locations import overlaps
from feed_assets.log.removals.records import SweepState
from feed_assets.log.removals.store import Sweeps
from feed_assets.patience import Patience
from feed_assets.sql.database import open_database
from tests.cli.project import ok, refused, rows, run, set_clock, table
from tests.projects import land
from tests.retention.harness import Tree, tree_of
from tests.retention.project import EXPIRED, NOON, daily_sweep, planned, project, retention
from tests.storage.hanging import hanging

__all__ = ["project"]

WEEK_LATER = "2013-11-11T12:00Z"


def let_a_week_pass(project: Path) -> None:
    """Let the clock go on by steps, as it does where retention is planned every few days."""
    for now in ("2013-11-06T12:00Z", "2013-11-09T12:00Z", WEEK_LATER):
        set_clock(project, now)
        ok(run("retention", "plan", "--feed", "clicks"))


def swept(feed: str = "clicks") -> str:
    """The id of a sweep that has been run."""
    sweep = planned(feed)
    ok(run("retention", "run", sweep))
    return sweep


def state(sweep: str) -> str:
    return str(retention("show", sweep)["sweep"]["state"])


def everything(project: Path) -> tuple[Tree, list[str]]:
    """All that a command could change: the trees with what is hidden, and what the record says of sweeps."""
    listed = run("retention", "list").stdout.splitlines()
    return tree_of(project / "data", hidden=True), [*listed, run("hold", "list", "--all").stdout]


def test_a_storage_that_never_answers_keeps_no_other_sweep_from_running(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEED_ASSETS_TICK_PATIENCE", "0.2")
    (project / "away").mkdir()
    file = project / "entities/all.yaml"
    file.write_text(file.read_text().replace("data: /views/", f"data: file://{project}/away/"))
    for hour in range(2):
        (project / f"away/2013-11-03/{hour:02d}").mkdir(parents=True)
    away, here = planned("views"), planned("clicks")
    monkeypatch.setattr(overlaps, "_PATIENCE", Patience(0.2))
    with hanging(project / "away"):
        told = refused(run("retention", "run"))
    assert told.startswith(f"feed-assets: file://{project}/away: it has not answered within 0.2 seconds. Check that")
    assert (state(away), state(here)) == ("RUNNING", "DONE")
    ok(run("retention", "run"))
    assert state(away) == "DONE"


def test_a_plan_has_a_row_for_each_feed_and_removes_nothing(project: Path) -> None:
    before = tree_of(project / "data", hidden=True)

    result = run("retention", "plan")

    clicks, views = table(result)
    assert clicks[1:11] == [
        "primary", "clicks", "6", "10", "6", "48 bytes", "2013-11-03T00:00Z", "2013-11-03T05:00Z", "age 6", "0",
    ]  # fmt: skip
    assert views[1:6] == ["primary", "views", "2", "2", "2"]
    assert views[-1] == "asks: All 2 instances of the feed would be removed."
    assert result.stderr == f"planned: 8 paths, 62 bytes, as of {NOON}\n"
    assert tree_of(project / "data", hidden=True) == before
    assert {(row[0], row[2], row[4]) for row in table(run("retention", "list"))} == {
        (views[0], "ASKING", "ann"),
        (clicks[0], "PLANNED", "ann"),
    }
    assert [row[0] for row in table(run("retention", "list", "--state", "asking"))] == [views[0]]


def test_a_plan_for_another_time_counts_ages_to_that_and_cannot_run_before(project: Path) -> None:
    (sweep,) = retention("plan", "--feed", "clicks", "--at", "2013-11-03T14:00Z")["sweeps"]
    other = planned("views")
    ok(run("retention", "approve", other))

    result = run("retention", "run")

    assert sweep["instances"] == 8
    assert refused(result).splitlines()[-1] == (
        f"feed-assets: sweep {sweep['sweep_id']}: the clock stands at {NOON}, but the sweep was planned for a "
        "later time: 2013-11-03T14:00Z. Correct the clock, or plan again."
    )
    assert (state(sweep["sweep_id"]), state(other)) == ("PLANNED", "DONE")


def test_a_newer_plan_takes_the_place_of_an_older_one(project: Path) -> None:
    older = planned("clicks")
    result = run("retention", "plan", "--feed", "clicks")
    assert result.stderr.splitlines()[0] == f"it supersedes {older}"
    assert state(older) == "SUPERSEDED"
    assert "it is SUPERSEDED" in refused(run("retention", "run", older))


def test_nothing_to_remove_is_no_mistake(project: Path) -> None:
    swept()
    result = run("retention", "plan", "--feed", "clicks")
    assert (result.exit_code, result.stderr) == (0, f"nothing to remove as of {NOON}\n")
    result = run("retention", "run")
    assert (result.exit_code, rows(result.stdout), result.stderr) == (0, [], "no sweep waits to run\n")


def test_a_plan_is_shown_with_its_paths_and_found_by_the_beginning_of_its_id(project: Path) -> None:
    sweep = planned("clicks")

    result = run("retention", "show", sweep[:-2], "--limit", "2")

    lines = ok(result).splitlines()
    assert lines[:3] == [f"plan: {sweep}", "cluster: primary", "state: PLANNED"]
    assert [lines[-4], *lines[-2:]] == [
        "feed clicks: 6 instances, 6 paths, 48 bytes; evicted 0, kept 0, failed 0",
        f"clicks\tdata\t2013-11-03T00:00Z\t{EXPIRED[0]}\t8 bytes\t2\tage\t\tit is older than hours(6) as of {NOON}",
        f"clicks\tdata\t2013-11-03T01:00Z\t{EXPIRED[1]}\t8 bytes\t2\tage\t\tit is older than hours(6) as of {NOON}",
    ]
    assert result.stderr == "2 of 6 paths; --limit shows more\n"


def test_a_run_moves_what_was_planned_and_shows_what_became_of_it(project: Path) -> None:
    sweep = planned("clicks")
    (project / "data" / EXPIRED[3] / "late.csv").write_text("late")

    (row,) = table(run("retention", "run", sweep))

    assert (row[0], row[2], row[9:]) == (sweep, "DONE", ["5", "1", "0"])
    left = sorted(path.name for path in (project / "data/clicks/2013-11-03").iterdir())
    assert left == ["03", "06", "07", "08", "09"]
    told = retention("show", sweep, "--outcome", "CHANGED")
    assert (told["matching"], told["items"][0]["path"]) == (1, EXPIRED[3])
    assert told["items"][0]["outcome_reason"] == "its files have changed since the sweep was planned"
    assert told["sweep"]["purge_at"] == "2013-11-10T12:00:00Z"


def test_a_run_of_a_feed_plans_it_and_tells_what_asks(project: Path) -> None:
    result = run("retention", "run", "--feed", "clicks", "--feed", "views", "--output", "json")
    assert result.exit_code == 0
    (sweep,) = json.loads(result.stdout)["sweeps"]
    assert (sweep["state"], [feed["evicted"] for feed in sweep["counts"]]) == ("DONE", [6])
    assert result.stderr.endswith(
        " asks: All 2 instances of the feed would be removed. Look at it, then `retention approve` or `cancel` it.\n"
    )
    assert (project / "data/views/2013-11-03/00").exists()


@pytest.mark.parametrize("arguments", [[], ["--feed", "clicks"]])
def test_a_run_goes_on_with_what_broke_off(project: Path, arguments: list[str]) -> None:
    sweep = planned("clicks")
    with open_database(f"sqlite:///{project}/state.db").begin() as connection:
        Sweeps(connection).transition(sweep, {SweepState.PLANNED}, state=SweepState.RUNNING)

    result = run("retention", "run", *arguments)

    assert [(row[0], row[2]) for row in table(result)] == [(sweep, "DONE")]
    left_out = f"feed 'clicks' on primary is left out: its sweep {sweep} is RUNNING\n"
    assert result.stderr == (left_out if arguments else "")


def test_a_run_of_all_takes_what_was_planned_and_not_what_asks(project: Path) -> None:
    ok(run("retention", "plan"))
    assert [row[2] for row in table(run("retention", "run"))] == ["DONE"]
    assert sorted(row[2] for row in table(run("retention", "list"))) == ["ASKING", "DONE"]


def test_what_asks_is_run_when_it_was_approved(project: Path) -> None:
    sweep = planned("views")
    assert refused(run("retention", "run", sweep)) == (
        f"feed-assets: sweep {sweep}: it waits for approval: All 2 instances of the feed would be removed. "
        f"Approve or cancel it. To see what it would remove: feed-assets retention show {sweep}\n"
    )

    (row,) = table(run("retention", "approve", sweep))

    assert row[2] == "PLANNED"
    assert retention("show", sweep)["sweep"]["approved_by"] == "ann"
    assert "needs no approval" in refused(run("retention", "approve", sweep))
    assert retention("run", sweep)["sweeps"][0]["state"] == "DONE"


def test_what_was_cancelled_never_runs(project: Path) -> None:
    sweep = planned("clicks")
    assert table(run("retention", "cancel", sweep))[0][2] == "CANCELLED"
    assert "it is CANCELLED" in refused(run("retention", "cancel", sweep))
    assert "it is CANCELLED" in refused(run("retention", "run", sweep))
    assert "it has removed nothing" not in run("retention", "list").stderr
    assert "so it has removed nothing" in refused(run("retention", "undo", sweep))


def test_an_undo_brings_all_back_and_holds_it(project: Path) -> None:
    before = tree_of(project / "data")
    sweep = swept()
    assert tree_of(project / "data") != before

    result = run("retention", "undo", sweep)

    assert (result.exit_code, result.stdout) == (0, ""), "no table without a row"
    assert result.stderr == (
        f"undo of {sweep}: restored 6 paths of clicks; held until 2013-11-10T12:00Z by 'undo-{sweep}'\n"
    )
    assert tree_of(project / "data") == before
    assert state(sweep) == "UNDONE"
    assert retention("plan", "--feed", "clicks")["feeds"][0]["kept"] == {"hold": 6}
    ok(run("hold", "release", f"undo-{sweep}"))
    assert run("retention", "undo", sweep).stderr == f"undo of {sweep}: restored 0 paths\n"
    assert retention("plan", "--feed", "clicks")["feeds"][0]["instances"] == 6


def test_an_undo_of_one_instance_leaves_the_others_away(project: Path) -> None:
    sweep = swept()
    arguments = ["undo", sweep, "--feed", "clicks", "--instance", "2013-11-03T02:00Z", "--no-hold"]
    told = retention(*arguments)
    assert (told["restored"], told["left"], told["is_complete"], told["holds"]) == (1, [], True, [])
    assert sorted(path.name for path in (project / "data/clicks/2013-11-03").iterdir())[:2] == ["02", "06"]
    assert state(sweep) == "DONE"
    assert retention("undo", sweep, "--instance", "2013-11-03-03:00", "--no-hold")["restored"] == 1
    assert "it has no instance 2013-11-03T23:00Z" in refused(
        run("retention", "undo", sweep, "--instance", "2013-11-03-23:00")
    )
    assert f"sweep {sweep}: it does not contain feed 'views'" in refused(
        run("retention", "undo", sweep, "--feed", "views")
    )


def test_an_undo_tells_how_long_it_holds_what_it_restores_itself(project: Path) -> None:
    sweep = swept()
    ok(run("retention", "undo", sweep, "--instance", "2013-11-03T02:00Z"))
    set_clock(project, "2013-11-03T13:00Z")
    assert "held until 2013-11-10T13:00Z" in run("retention", "undo", sweep).stderr


def test_a_day_is_that_of_each_feed_and_asks_which_if_these_differ(project: Path) -> None:
    sweep = daily_sweep(project)
    day = ["undo", sweep, "--instance", "2013-11-02"]
    assert refused(run("retention", *day)) == (
        f"feed-assets: sweep {sweep}: '2013-11-02' is 2013-11-02T00:00Z for feed 'clicks', 2013-11-02T04:00Z for feed "
        "'views'. Write a time in UTC, or choose one of the feeds: "
        f"feed-assets retention undo {sweep} --feed clicks --instance 2013-11-02\n"
    )
    assert retention(*day, "--feed", "views")["restored"] == 1
    assert (project / "data/daily/views/2013-11-02/part.csv").is_file()


def test_an_undo_replaces_nothing_and_says_so(project: Path) -> None:
    sweep = swept()
    folder = project / "data" / EXPIRED[0]
    land(folder, "newer")

    result = run("retention", "undo", sweep)

    assert (result.exit_code, rows(result.stdout)[0][:2]) == (1, [EXPIRED[0], "OCCUPIED"])
    assert "restored 5 paths of clicks, could not restore 1" in result.stderr
    assert (folder / "part.csv").read_text() == "newer"


def test_the_trash_is_purged_after_its_time_or_at_once(project: Path) -> None:
    sweep = swept()
    assert run("retention", "purge").stderr == "purged 0 sweeps, 0 files\n"

    let_a_week_pass(project)
    result = run("retention", "purge", sweep)

    assert table(result) == [[sweep, "primary", "13", ""]]
    assert result.stderr == "purged 1 sweep, 13 files\n"
    assert state(sweep) == "PURGED"
    assert not (project / "data/.feed-assets/trash" / sweep).exists()
    left = retention("undo", sweep, exit_code=1)["left"]
    assert {each["outcome"] for each in left} == {"LOST"}


def test_a_purge_stops_where_the_clock_has_jumped_and_goes_on_when_told(project: Path) -> None:
    sweep = swept()
    set_clock(project, "2033-11-11T12:00Z")
    assert "purge of primary" in refused(run("retention", "purge"))
    (purged,) = retention("purge", sweep, "--now")["purged"]
    assert (purged["sweep"]["sweep_id"], purged["files"], purged["obstacle"]) == (sweep, 13, None)


def test_the_trash_of_what_is_held_stays_and_that_of_what_is_back_does_not_matter(project: Path) -> None:
    sweep = swept()
    ok(run("retention", "undo", sweep, "--instance", "2013-11-03T02:00Z"))
    ok(run("hold", "add", "audit", "--feed", "clicks", "--instance", "2013-11-03T04:00Z", "--reason", "numbers"))

    result = run("retention", "purge", "--now")

    assert result.exit_code == 1
    assert rows(result.stdout) == [[sweep, "primary", "0", "hold 'audit' of ann is on feed 'clicks': numbers"]]
    assert result.stderr == "purged 0 sweeps, 0 files; 1 had to stay\n"
    ok(run("hold", "release", "audit"))
    assert retention("purge", "--now")["purged"][0]["obstacle"] is None
    assert (project / "data" / EXPIRED[2] / "part.csv").read_text() == "clicks 2"


def test_a_dry_run_changes_nothing(project: Path) -> None:
    done = swept()
    asking = planned("views")
    let_a_week_pass(project)
    for hour in range(12):
        land(project / f"data/clicks/2013-11-11/{hour:02d}", "new")
    waiting = planned("clicks")
    before = everything(project)
    for arguments in (
        ["plan"],
        ["run"],
        ["run", waiting],
        ["run", "--feed", "clicks"],
        ["approve", asking],
        ["cancel", asking],
        ["undo", done],
        ["undo", done, "--instance", "2013-11-03T02:00Z"],
        ["purge"],
        ["purge", "--now"],
    ):
        result = run("retention", *arguments, "--dry-run")
        assert result.exit_code == 0, (arguments, result.output)
        assert everything(project) == before, arguments


def test_a_dry_run_says_what_would_be_done(project: Path) -> None:
    result = run("retention", "plan", "--dry-run")
    assert [row[0] for row in table(result)] == ["", ""]
    assert result.stderr == f"would be planned: 8 paths, 62 bytes, as of {NOON}\n"
    asking = planned("views")
    assert "it waits for approval" in refused(run("retention", "run", asking, "--dry-run"))
    assert retention("run", asking, "--dry-run", exit_code=1)["refused"][0].startswith(f"sweep {asking}: ")
    assert retention("approve", asking, "--dry-run")["sweep"]["state"] == "PLANNED"
    done = swept()
    assert run("retention", "undo", done, "--dry-run").stderr == f"undo of {done}: would restore 6 paths of clicks\n"
    assert run("retention", "purge", "--now", "--dry-run").stderr.startswith("would purge 1 sweep")


def test_a_beginning_that_several_have_is_not_enough(project: Path) -> None:
    planned("clicks")
    planned("views")
    assert "several sweeps have this prefix. Write more of its id." in refused(run("retention", "show", "2013"))


def test_in_safe_mode_a_run_of_a_feed_plans_nothing(project: Path) -> None:
    ok(run("admin", "safemode", "on"))
    before = everything(project)
    assert "run of sweeps: it is not allowed during safe mode" in refused(run("retention", "run", "--feed", "clicks"))
    assert everything(project) == before
