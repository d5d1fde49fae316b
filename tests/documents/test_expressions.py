"""Every example of docs/expressions.md gives the result that is written there."""

from collections.abc import Callable, Iterable, Mapping

import pytest

from feed_assets.timing import text
from feed_assets.timing.dates import parse_datetime, parse_timezone, render_datetime
from feed_assets.timing.errors import TimingError
from feed_assets.timing.expressions import TIME_FUNCTIONS, parse_time_expression
from feed_assets.timing.sequence import InstanceSequence, parse_frequency
from feed_assets.timing.templates import parse_path_template
from feed_assets.timing.text import TextContext, render_text
from feed_assets.timing.windows import parse_window
from tests.documents.markdown import ROOT, plain, tables_of

DAY = "2015-01-01T00:00Z"
FEED_HEADER = ("feed", "frequency", "start", "time zone")


def sequence(frequency: str, start: str, zone: str) -> InstanceSequence:
    return InstanceSequence(
        start=parse_datetime(start, seconds=True), frequency=parse_frequency(frequency), timezone=parse_timezone(zone)
    )


def instance_of(frequency: str, start: str, zone: str, n: str) -> str:
    return render_datetime(sequence(frequency, start, zone).at(int(n)))


def time_of(expression: str, moment: str, zone: str) -> str:
    return render_datetime(parse_time_expression(expression).evaluate(parse_datetime(moment), parse_timezone(zone)))


def window_of(start: str, end: str, moment: str, zone: str, feed: str) -> str:
    (table,) = [table for table in EXPRESSION_TABLES if table.header == FEED_HEADER]
    (frequency, first, feed_zone) = next(tuple(map(plain, row[1:])) for row in table.rows if row[0] == feed)
    window = parse_window(start, end, parse_timezone(zone))
    instances = sequence(frequency, first, feed_zone)
    times = [instances.at(n) for n in window.indices(parse_datetime(moment, seconds=True), instances)]
    if not times:
        return "none"
    ends = [times[0]] if len(times) == 1 else [times[0], times[-1]]
    return f"{len(times)}: {' … '.join(f'`{render_datetime(time)}`' for time in ends)}"


class Hours:
    """The available hours of a day, as a window asks for them."""

    def __init__(self, hours: Iterable[int]) -> None:
        self._hours = sorted(hours)

    def latest_available(self, not_after_index: int, count: int) -> list[int]:
        return [hour for hour in reversed(self._hours) if hour <= not_after_index][:count]

    def available_between(self, first: int, last: int) -> list[int]:
        return [hour for hour in self._hours if first <= hour <= last]


def data_driven_of(start: str, end: str, moment: str, now: str, hours: str) -> str:
    feed = sequence("hours(1)", DAY, "UTC")
    record = Hours(map(int, hours.split()))
    found = parse_window(start, end).resolve_data_driven(parse_datetime(moment), feed, record, parse_datetime(now))
    return "waits" if found is None else " ".join(map(str, found)) or "nothing"


def path_of(template: str, zone: str, moment: str) -> str:
    return parse_path_template(template).in_zone(parse_timezone(zone)).render(parse_datetime(moment, seconds=True))


def time_of_path(template: str, zone: str, path: str) -> str:
    found = parse_path_template(template).in_zone(parse_timezone(zone)).parse(path)
    return "none" if found is None else render_datetime(found)


def rendered(written: str) -> str:
    context = TextContext(
        nominal_time=parse_datetime("2009-09-02T10:30Z"),
        timezone=parse_timezone("America/New_York"),
        user="ann",
        cluster={"name": "primary", "colo": "nyc", "tier": "gold"},
        properties={"region": "us"},
        inputs={"clicks": ("/c/1", "/c/0")},
    )
    return render_text(written, context)


def refusal_of(what: str, written: str) -> str:
    parsers: Mapping[str, Callable[[str], object]] = {
        "frequency": parse_frequency,
        "date": parse_datetime,
        "zone": parse_timezone,
        "expression": parse_time_expression,
        "window": lambda pair: parse_window(*pair.split(" to ")),
        "template": parse_path_template,
        "text": rendered,
    }
    with pytest.raises(TimingError) as refused:
        parsers[what](written)
    return str(refused.value)


EVALUATORS: Mapping[tuple[str, ...], Callable[..., str]] = {
    ("frequency", "start", "time zone", "n", "instance"): instance_of,
    ("expression", "T", "time zone", "result"): time_of,
    ("from", "to", "T", "process zone", "feed", "instances"): window_of,
    ("from", "to", "T", "now", "available hours", "reads"): data_driven_of,
    ("template", "time zone", "instance", "path"): path_of,
    ("template", "time zone", "path", "time"): time_of_path,
    ("text", "result"): rendered,
    ("what", "text", "because"): refusal_of,
}
EXPRESSION_TABLES = tables_of("docs/expressions.md")
EXAMPLES = [
    pytest.param(table.header, tuple(map(plain, row)), id=" ".join(map(plain, row[:3])))
    for table in EXPRESSION_TABLES
    if table.header in EVALUATORS
    for row in table.rows
]


@pytest.mark.parametrize(("header", "row"), EXAMPLES)
def test_an_example_of_the_expressions_gives_the_result_that_is_written(
    header: tuple[str, ...], row: tuple[str, ...]
) -> None:
    *given, expected = row
    result = EVALUATORS[header](*given)
    if header[-1] == "because":
        assert expected in result
    else:
        assert result == expected


def test_every_table_of_the_expressions_with_results_is_evaluated() -> None:
    assert {table.header for table in EXPRESSION_TABLES} - EVALUATORS.keys() == {FEED_HEADER, ("here", "Falcon")}


def test_every_function_and_date_letter_has_an_example_or_a_mention() -> None:
    written = " ".join(cell for table in EXPRESSION_TABLES for row in table.rows for cell in row)
    functions = {*TIME_FUNCTIONS, *text._FUNCTIONS}
    assert {name for name in functions if f"{name}(" not in written} == set()
    variables = {f"${{{name}}}" for name in text._TIME_VARIABLES}
    assert {name for name in variables if name not in written} == set()
    assert f"`{' '.join(text._LETTERS)}`" in (ROOT / "docs/expressions.md").read_text("utf-8")
