from datetime import UTC, datetime
from pathlib import Path

import pytest

from feed_assets.issues import FieldPath, FieldSources, Severity, SourceMap
from feed_assets.validation.rules import RULES, validate_bundle
from tests.entities.samples import bundle
from tests.validation.cases import CASES, FOLDER, Case, another, mirror

AS_OF = datetime(2015, 6, 1, 14, tzinfo=UTC)
LARGE = Case(
    code="metadata-size",
    bad={"feed clicks/metadata": {"properties": {f"note{number}": "x" * 4096 for number in range(16)}}},
    text="feed 'clicks': what is said of it has 65,622 bytes, more than 65,536. Remove what nobody needs.",
)
ALL = (*CASES, LARGE)
NO_EFFECT = "no-effect"
"""Warns of what several cases need to declare."""
OTHERS = {
    "window-range-after-feed": ["window-outlives-feed"],
    "data-location-cluster": ["path-shared"],
    "archive-place-data": ["retention-place"],
    "archive-place-another": ["path-written"],
    "retention-place-inside": ["path-written"],
    "cluster-root": ["path-written", "retention-place"],
}
"""Other rules that refuse the bad bundle of a case, too."""


LINK = {
    "frequency": "hours(1)",
    "clusters": {"primary": {"validity": {"start": "2015-01-02T00:00Z", "end": "2015-12-31T00:00Z"}}},
}
"""A feed or process of a ring."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "jobs").mkdir()
    for name in ("there.sql", "a.jar", "jobs/daily.py"):
        (tmp_path / name).touch()
    return tmp_path


def test_the_samples_are_in_order(root: Path) -> None:
    assert validate_bundle(bundle(), SourceMap(), root) == []


@pytest.mark.parametrize("case", ALL, ids=str)
def test_a_rule_accepts_what_is_right(case: Case, root: Path) -> None:
    issues = validate_bundle(bundle(case.good), SourceMap(), root)
    assert [issue.render() for issue in issues if issue.code != NO_EFFECT or case.code == NO_EFFECT] == []


@pytest.mark.parametrize("case", ALL, ids=str)
def test_a_rule_refuses_what_is_wrong_with_one_sentence(case: Case, root: Path) -> None:
    issues = validate_bundle(bundle(case.bad), SourceMap(), root)
    texts = [issue.render().replace(str(root), "<root>") for issue in issues if issue.code == case.code]
    assert texts == [case.text]
    assert {issue.code for issue in issues} <= {case.code, NO_EFFECT, *OTHERS.get(str(case), ())}


def test_every_rule_has_a_case() -> None:
    assert {case.code for case in ALL} == {rule.code for rule in RULES}
    assert len(CASES) == sum(path.read_text().count("    text: ") for path in FOLDER.glob("*.yaml"))


def test_a_name_that_was_declared_with_errors_is_known() -> None:
    declared = SourceMap({("feed", "cliks"): FieldSources(file="a.yaml", positions={})})
    changed = bundle({"process daily/inputs/clicks/feed": "cliks"})
    assert validate_bundle(changed, declared) == []


def test_issues_stand_at_the_key_that_is_wrong() -> None:
    positions: dict[FieldPath, tuple[int, int]] = {(): (1, 1), ("clusters", "primary", "retention", "limit"): (14, 7)}
    sources = SourceMap({("feed", "clicks"): FieldSources(file="entities/clicks.yaml", positions=positions)})
    changes = {"feed clicks/late_arrival/cut_off": "days(40)"}
    (issue,) = validate_bundle(bundle(changes), sources)
    assert issue.render() == (
        "entities/clicks.yaml:14: feed 'clicks': retention days(30) is shorter than late arrival days(40): late data "
        "would be deleted before it is processed. Raise retention.limit to at least days(40)."
    )


def test_warnings_are_marked() -> None:
    changes = {"feed clicks/clusters/backup/delay": "hours(1)"}
    assert [issue.severity for issue in validate_bundle(bundle(changes), SourceMap())] == [Severity.WARNING]


def test_a_circle_through_two_processes_is_found_and_explained() -> None:
    back = {
        "name": "back",
        "frequency": "hours(1)",
        "clusters": {"primary": {"validity": {"start": "2015-01-02T00:00Z", "end": "2015-12-31T00:00Z"}}},
        "inputs": {"summary": {"feed": "summary", "start": "today(0,0)", "end": "today(0,0)"}},
        "outputs": {"clicks": {"feed": "clicks", "instance": "now(0,0)"}},
        "workflow": {"path": "jobs:run"},
    }
    yesterday = {**back, "inputs": {"summary": {"feed": "summary", "start": "yesterday(0,0)", "end": "yesterday(0,0)"}}}
    assert len(_circles({"process back": back})) == 2
    assert _circles({"process back": yesterday}) == []
    assert _circles({"process back": yesterday, "process daily/outputs/summary/instance": "today(0,0)"}) == []
    same_day = {
        "process back": back,
        "process daily/inputs/clicks": {"feed": "clicks", "start": "now(0,0)", "end": "now(0,0)"},
        "process daily/outputs/summary/instance": "today(0,0)",
    }
    texts = _circles(same_day)
    assert len(texts) == 2
    assert texts[1].startswith(
        "process 'daily': on primary an instance waits for itself: daily 2015-01-02T00:00Z reads feed 'clicks' of "
        "back 2015-01-02T00:00Z, and back 2015-01-02T00:00Z reads feed 'summary' of daily 2015-01-02T00:00Z. "
    )


@pytest.mark.parametrize("length", [13, 400])
def test_a_ring_of_any_length_is_found(length: int) -> None:
    ring: dict[str, object] = {}
    for number in range(length):
        path = f"/links/{number}/${{YEAR}}/${{MONTH}}/${{DAY}}/${{HOUR}}"
        ring[f"feed link-{number}"] = {**LINK, "name": f"link-{number}", "locations": {"data": path}}
        window = "now(0,0)" if number or length % 2 else "now(-1,0)"
        ring[f"process turn-{number}"] = {
            **LINK,
            "name": f"turn-{number}",
            "inputs": {"before": {"feed": f"link-{(number or length) - 1}", "start": window, "end": window}},
            "outputs": {"after": {"feed": f"link-{number}", "instance": "now(0,0)"}},
            "workflow": {"path": "jobs:run"},
        }
    texts = _circles(ring)
    assert len(texts) == (length if length % 2 else 0)
    assert all("so on through " in text for text in texts)
    assert all(len(text) < 2_000 for text in texts)


def _circles(changes: dict[str, object]) -> list[str]:
    issues = validate_bundle(bundle(changes), SourceMap())
    return [issue.render() for issue in issues if issue.code == "waits-for-itself"]


@pytest.mark.parametrize(("locations", "is_refused"), [({"data": "/s/${YEAR}/${MONTH}/${DAY}"}, False), ({}, True)])
def test_row_11_a_feed_without_a_data_location_is_refused(locations: dict[str, str], is_refused: bool) -> None:
    issues = validate_bundle(bundle({"feed summary/locations": locations}), SourceMap())
    assert [issue.code for issue in issues] == ["data-location"] * is_refused


def test_row_13_a_cluster_with_own_locations_uses_only_those() -> None:
    own = {"data": "/copies/${YEAR}/${MONTH}/${DAY}/${HOUR}"}
    changed = bundle({"feed clicks/locations/stats": "/stats", "feed clicks/clusters/backup/locations": own})
    clicks = changed.get_feed("clicks")
    assert (clicks.locations_on("backup").data, clicks.locations_on("backup").stats) == (own["data"], None)
    assert clicks.locations_on("primary").stats == "/stats"
    assert validate_bundle(changed, SourceMap()) == []


@pytest.mark.parametrize(("depth", "is_refused"), [("us/nyc", False), ("us/nyc/x", True)])
def test_row_15_a_partition_deeper_than_declared_is_refused(depth: str, is_refused: bool) -> None:
    issues = validate_bundle(bundle({"process daily/inputs/clicks/partition": depth}), SourceMap())
    assert [issue.code for issue in issues] == ["input-partition"] * is_refused


@pytest.mark.parametrize(("limit", "is_refused"), [("days(1)", True), ("days(2)", False)])
def test_row_18_retention_is_at_least_the_late_cut_off(limit: str, is_refused: bool) -> None:
    changes = {"feed clicks/late_arrival/cut_off": "days(2)", "feed clicks/clusters/backup/retention/limit": limit}
    issues = validate_bundle(bundle(changes), SourceMap())
    assert [issue.code for issue in issues] == ["retention-late-arrival"] * is_refused


def test_two_mirrors_that_write_one_directory_are_both_told() -> None:
    changes = {**mirror("/models", "/models"), **mirror("/other", "/models/inner", name="others")}
    issues = validate_bundle(bundle(changes), SourceMap())
    assert [(issue.entity, issue.code) for issue in issues] == [
        ("process 'models'", "mirror-overlap"),
        ("process 'others'", "mirror-overlap"),
    ]
    assert "inside the target of mirror 'models'" in issues[1].message


def test_feeds_that_follow_one_another_in_time_may_be_written_to_one_place(root: Path) -> None:
    def codes(end: str) -> set[str | None]:
        changes = {
            "feed other": another("feed summary", name="other"),
            "feed other/clusters": {"primary": {"validity": {"start": "2000-01-01T00:00Z", "end": end}}},
        }
        return {issue.code for issue in validate_bundle(bundle(changes), SourceMap(), root)}

    assert codes("2015-01-01T00:00Z") == {"path-shared"}
    assert codes("2015-01-01T00:01Z") == {"path-written"}


def test_places_are_compared_by_identity_and_not_by_text(tmp_path: Path, root: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    for storage in (f"file://{tmp_path}/link", f"file://localhost{tmp_path}/data/.", f"file://{tmp_path}/x/../data"):
        changes = {"cluster primary/storage": f"file://{tmp_path}/data", "cluster backup/storage": storage}
        issues = validate_bundle(bundle(changes), SourceMap(), root)
        assert "path-written" in {issue.code for issue in issues}, storage


@pytest.mark.parametrize(
    ("start", "limit", "frequency", "is_kept"),
    [
        ("currentMonth(0,0,0)", "days(10)", "days(1)", False),
        ("currentMonth(0,0,0)", "days(31)", "hours(1)", True),
        ("currentMonth(0,0,0)", "days(30)", "hours(1)", False),
        ("currentMonth(0,0,0)", "days(30)", "days(1)", True),
        ("today(0,0)", "hours(23)", "hours(1)", True),
        ("today(0,0)", "hours(22)", "hours(1)", False),
        ("currentWeek('SUN',0,0)", "days(6)", "days(1)", True),
        ("currentWeek('SUN',0,0)", "days(5)", "days(1)", False),
        ("lastYear(0,0,0,0)", "days(730)", "days(1)", True),
        ("lastYear(0,0,0,0)", "days(729)", "days(1)", False),
        ("now(-24,0)", "hours(24)", "hours(1)", True),
        ("now(-24,0)", "hours(23)", "hours(1)", False),
    ],
)
def test_a_window_is_compared_with_retention_at_its_worst_whatever_the_day(
    start: str, limit: str, frequency: str, is_kept: bool
) -> None:
    forever = {"start": "2013-01-01T00:00Z", "end": "2030-01-01T00:00Z"}
    changes = {
        "process daily/inputs/clicks": {"feed": "clicks", "start": start, "end": "now(0,0)"},
        "process daily/frequency": frequency,
        "process daily/clusters/primary/validity": forever,
        "feed clicks/clusters/primary": {
            "validity": {**forever, "start": "2010-01-01T00:00Z"},
            "retention": {"limit": limit},
        },
    }
    codes = {issue.code for issue in validate_bundle(bundle(changes), SourceMap())}
    assert ("window-retention" in codes) is not is_kept


@pytest.mark.parametrize(("back", "is_refused"), [("/a/x", True), ("/c", False)])
def test_two_mirrors_do_not_copy_onto_each_other(back: str, is_refused: bool) -> None:
    there = mirror("/a", "/b")
    again = mirror({"cluster": "backup", "directory": "/b/deep"}, {"cluster": "primary", "directory": back}, "again")
    issues = validate_bundle(bundle({**there, **again}), SourceMap())
    refused = [
        "process 'again': what it copies from file:///backup/b/deep to file:///data/a/x comes back there through "
        "process 'models'. Remove one of these copies, or let it write elsewhere.",
        "process 'models': what it copies from file:///data/a to file:///backup/b comes back there through "
        "process 'again'. Remove one of these copies, or let it write elsewhere.",
    ]
    assert [issue.render() for issue in issues] == (refused if is_refused else [])
