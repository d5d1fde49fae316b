"""`feed-assets hold …` as people give it, and what it does to retention."""

import json
from pathlib import Path
from typing import Any

import yaml

from tests.cli.project import ok, refused, run, set_clock, shown, table
from tests.definitions.verbs.harness import CLICKS
from tests.retention.project import planned, project, retention

__all__ = ["project"]

DAYS = {
    **CLICKS,
    "name": "days",
    "frequency": "days(1)",
    "timezone": "America/New_York",
    "locations": {"data": "/days/${YEAR}-${MONTH}-${DAY}"},
    "clusters": {"primary": {"validity": {"start": "2013-11-01T04:00Z"}}},
}
SPAN = ["--start", "2013-11-03T01:00Z", "--end", "2013-11-03T03:00Z"]


def document(*arguments: str) -> list[dict[str, Any]]:
    told = shown("hold", *arguments)
    assert told["version"] == 2
    found: list[dict[str, Any]] = told["holds"]
    return found


def add(name: str, *arguments: str) -> list[dict[str, Any]]:
    return document("add", name, *arguments, "--reason", "numbers")


def kept() -> dict[str, int]:
    """What a plan of clicks says that it keeps."""
    found: dict[str, int] = retention("plan", "--feed", "clicks", "--dry-run")["feeds"][0]["kept"]
    return found


def test_a_hold_is_on_a_range_and_its_end_is_not_in_it(project: Path) -> None:
    result = run("hold", "add", "audit", "--feed", "clicks", *SPAN, "--reason", "numbers")
    assert table(result) == [
        ["audit", "clicks", "every", "2013-11-03T01:00Z", "2013-11-03T03:00Z", "", "ann", "numbers", ""]
    ]
    assert result.stderr == "held by 'audit'\n"
    assert kept() == {"hold": 2}
    sweep = planned("clicks")
    ok(run("retention", "run", sweep))
    left = sorted(path.name for path in (project / "data/clicks/2013-11-03").iterdir())
    assert left == ["01", "02", "06", "07", "08", "09"]


def test_a_hold_without_a_range_is_on_all_that_is_to_come(project: Path) -> None:
    (hold,) = add("all", "--every-feed", "--clusters", "primary")
    assert (hold["feed"], hold["cluster"], hold["first"], hold["last"]) == (None, "primary", None, None)
    assert table(run("hold", "list"))[0][:8] == ["all", "every", "primary", "", "", "", "ann", "numbers"]
    assert kept() == {"hold": 6}


def test_a_hold_expires_by_itself(project: Path) -> None:
    add("audit", "--feed", "clicks", "--until", "2013-11-03T13:00Z")
    assert kept() == {"hold": 6}
    set_clock(project, "2013-11-03T13:00Z")
    assert kept() == {}
    assert document("list") == []
    assert [hold["expires_at"] for hold in document("list", "--all")] == ["2013-11-03T13:00:00Z"]


def test_several_holds_protect_until_the_last_is_released(project: Path) -> None:
    add("audit", "--feed", "clicks", "--feed", "views")
    add("trial", "--feed", "clicks")
    assert [(hold["name"], hold["feed"]) for hold in document("list")] == [
        ("trial", "clicks"),
        ("audit", "views"),
        ("audit", "clicks"),
    ]

    result = run("hold", "release", "audit", "--author", "bob")

    assert [row[-1] for row in table(result)] == ["2013-11-03T12:00Z"] * 2
    assert result.stderr == "released 'audit'\n"
    assert kept() == {"hold": 6}
    ok(run("hold", "release", "trial"))
    assert kept() == {}
    assert table(run("hold", "list")) == []
    assert [hold["released_by"] for hold in document("list", "--all")] == ["ann", "bob", "bob"]


def test_a_list_can_be_of_one_feed_and_short(project: Path) -> None:
    add("mine", "--feed", "views")
    add("others", "--feed", "clicks")
    add("every", "--every-feed")
    for options in ([], ["--all"]):
        assert [hold["name"] for hold in document("list", "--feed", "views", *options)] == ["every", "mine"]
    result = run("hold", "list", "--limit", "2")
    assert ([row[0] for row in table(result)], result.stderr) == (
        ["every", "others"],
        "2 of 3 holds; --limit shows more\n",
    )


def test_a_dry_run_holds_and_releases_nothing(project: Path) -> None:
    result = run("hold", "add", "audit", "--feed", "clicks", "--reason", "numbers", "--dry-run")
    assert (result.exit_code, result.stderr) == (0, "would be held by 'audit'\n")
    assert document("list", "--all") == []
    add("audit", "--feed", "clicks")
    result = run("hold", "release", "audit", "--dry-run")
    assert (result.exit_code, result.stderr) == (0, "would release 'audit'\n")
    assert [hold["released_at"] for hold in document("list")] == [None]


def test_what_was_released_is_not_released_again(project: Path) -> None:
    add("audit", "--feed", "clicks")
    ok(run("hold", "release", "audit"))
    assert "hold 'audit': it was already released" in refused(run("hold", "release", "audit"))
    add("audit", "--feed", "clicks")
    assert kept() == {"hold": 6}


def test_a_hold_understands_a_day_and_a_partition_key_in_the_zone_of_the_feed(project: Path) -> None:
    (hold,) = add("key", "--feed", "clicks", "--instance", "2013-11-03-05:00")
    assert (hold["first"], hold["last"]) == ("2013-11-03T05:00Z", "2013-11-03T05:00Z")
    path = project / "entities/all.yaml"
    path.write_text(path.read_text() + "---\n" + yaml.safe_dump(DAYS))
    (hold,) = add("day", "--feed", "days", "--instance", "2013-11-02")
    assert (hold["first"], hold["last"]) == ("2013-11-02T04:00Z", "2013-11-02T04:00Z")
    said = refused(run("hold", "add", "x", "--feed", "days", "--instance", "2013-11-02T00:00Z", "--reason", "r"))
    assert "The nearest instance is 2013-11-02T04:00Z" in said


def trace_names(project: Path) -> list[str]:
    return sorted(json.loads(file.read_text())["name"] for file in project.glob("data/.feed-assets/holds/*.json"))


def test_a_storage_that_is_away_does_not_prevent_a_hold_and_gets_its_trace_later(project: Path) -> None:
    add("first", "--feed", "clicks")
    assert trace_names(project) == ["first"]
    (project / "data").rename(project / "away")
    result = run("hold", "add", "second", "--feed", "clicks", "--feed", "views", "--reason", "numbers")
    assert ok(result).count("second") == 2
    place = f"file://{project}/data"
    assert f"held by 'second'\nthe traces of holds in {place} are not up to date: " in result.stderr
    told = shown("hold", "add", "third", "--every-feed", "--reason", "numbers")
    assert [each["store"] for each in told["unsettled"]] == [place]
    assert "released 'first'" in run("hold", "release", "first").stderr
    assert not (project / "data").exists()
    (project / "away").rename(project / "data")
    assert trace_names(project) == ["first"]
    retention("plan", "--feed", "clicks", "--dry-run")
    assert trace_names(project) == ["first"]
    retention("plan", "--feed", "clicks")
    assert trace_names(project) == ["second", "second", "third"]


def test_what_an_undo_holds_leaves_a_trace(project: Path) -> None:
    sweep = planned("clicks")
    ok(run("retention", "run", sweep))
    ok(run("retention", "undo", sweep))
    assert trace_names(project) == [f"undo-{sweep}"]
    ok(run("hold", "release", f"undo-{sweep}"))
    assert trace_names(project) == []


def test_a_terminal_obeys_no_words_of_people(project: Path) -> None:
    reason = "\x1b]0;mine\x07 \u202etxt\r\x9b1m"
    run("hold", "add", "audit", "--feed", "clicks", "--reason", reason)
    (row,) = table(run("hold", "list"))
    assert row[-2] == "\\x1b]0;mine\\x07 \\u202etxt\\r\\x9b1m"
    wrong = run("hold", "list", reason)
    assert (wrong.exit_code, row[-2] in wrong.stderr) == (2, True)
    listed = run("hold", "list", "--output", "json").stdout
    assert json.loads(listed)["holds"][0]["reason"] == reason
    assert listed.replace("\n", "").isprintable()


def test_a_held_feed_that_is_deleted_is_told_to_be_held(project: Path) -> None:
    add("audit", "--feed", "clicks")
    add("all", "--every-feed")
    told = run("entity", "delete", "feed", "clicks")
    assert (told.exit_code, "hold 'audit' of ann stays" in told.stdout, "numbers" in told.stdout) == (0, True, True)
    assert "'all'" not in told.stdout
