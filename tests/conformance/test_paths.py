"""Path templates against Falcon's tests and code."""

from collections.abc import Callable
from typing import Any
from zoneinfo import ZoneInfo

from feed_assets.timing.dates import parse_datetime, parse_timezone, render_datetime
from feed_assets.timing.templates import parse_path_template

Case = dict[str, Any]
TABLE = "paths.json"


def run_path_date(case: Case) -> None:
    found = parse_path_template(case["template"]).parse(case["path"], parse_timezone(case["timezone"]))
    assert (None if found is None else render_datetime(found)) == case["expected"]


def run_value(case: Case) -> None:
    assert parse_path_template(f"${{{case['variable']}}}").matches(case["value"]) is case["expected"]


def run_match(case: Case) -> None:
    assert parse_path_template(case["template"]).matches(case["path"]) is case["expected"]


def run_lookup(case: Case) -> None:
    for path, expected in case["lookups"].items():
        found = [
            feed
            for template, feeds in case["templates"].items()
            if parse_path_template(template).matches(path)
            for feed in feeds
        ]
        assert sorted(found) == expected


def run_evaluation(case: Case) -> None:
    template = parse_path_template(case["template"], allow_unknown=True)
    assert template.render(parse_datetime(case["instance_time"]), ZoneInfo("UTC")) == case["expected"]


def run_pattern(case: Case) -> None:
    assert str(list(parse_path_template(case["path"]).variables)) == case["expected"]


RUNNERS = {
    "path_date": run_path_date,
    "variable_value": run_value,
    "template_match": run_match,
    "path_lookup": run_lookup,
    "evaluate_template": run_evaluation,
    "date_pattern": run_pattern,
}


def test_each_case_of_the_table_holds_or_is_listed_with_a_reason(case: Case, judge: Callable[[Case], None]) -> None:
    judge(case)


def test_the_list_of_differences_names_only_what_is_in_the_table(unknown_differences: set[str]) -> None:
    assert unknown_differences == set()
