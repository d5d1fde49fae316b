"""What only follows from an error is named there, and is no error of its own."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from feed_assets.definitions.checks.declared_definitions import ValidationReport, validate_location
from feed_assets.settings import load_settings
from tests.validation.test_beginner import write_project

AS_OF = datetime(2026, 6, 1, tzinfo=UTC)
ORIGINS = ("feed 'flights'", "feed 'origins'", "process 'daily-delays'", "process 'daily-origins'")


def _validate(folder: Path, old: str, new: str) -> ValidationReport:
    write_project(folder)
    file = folder / "entities/all.yaml"
    demand = "quality: {min_rows: 1, threshold: 95}"
    text = file.read_text("utf-8").replace('schema: "carrier string, delay double"', demand)
    assert old in text
    file.write_text(text.replace(old, new, 1), "utf-8")
    return validate_location(load_settings(start=folder))


@pytest.mark.parametrize(
    ("old", "new", "followers"),
    [
        ("storage: file", "storge: file", ("feed 'delays'", *ORIGINS)),
        ("kind: process\nname: daily-delays", "kind: proces\nname: daily-delays", ("feed 'delays'",)),
        ("outputs:\n  delays: {feed: delays", "outputs:\n  delays: {feed: dlays", ("feed 'delays'",)),
        ('start: "today(0,0)", end', 'start: "tody(0,0)", end', ()),
        ("name: daily-delays", "nam: daily-delays", ("feed 'delays'",)),
        ("name: delays", "nme: delays", ("process 'daily-delays'",)),
        ("clusters:\n  primary:\n    validity", None, ("process 'daily-delays'", "process 'daily-origins'")),
        ("clusters:\n  primary: {validity: {start: 2025-02-28T23:00Z, end", None, ("feed 'delays'",)),
    ],
)
def test_one_mistake_is_one_error(old: str, new: str | None, followers: tuple[str, ...], tmp_path: Path) -> None:
    report = _validate(tmp_path, old, new if new is not None else old.replace("primary", "primry"))
    (issue,) = report.issues
    assert (report.errors, issue.followers) == (1, followers)
    assert ("more follow" in issue.line) is bool(followers)


def test_the_names_of_followers_are_shortened_in_the_text(tmp_path: Path) -> None:
    report = _validate(tmp_path, "storage: file", "storge: file")
    assert report.issues[0].line.endswith(
        " 5 more follow from it: feed 'delays', feed 'flights', feed 'origins' and 2 more."
    )
