"""The forecasts that a person asks for."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from feed_assets.alerts.forecasting import forecasts
from feed_assets.alerts.forecasting.forecasts import Forecasts, forecast_deadlines
from feed_assets.context.errors import InstanceQueryError
from feed_assets.context.operation import OperationContext
from feed_assets.entities.common import Kind
from feed_assets.entities.errors import EntityNotFoundError
from feed_assets.explain.explanations import explain
from tests.alerts.deadlines.looks import look
from tests.alerts.forecasting.past import DAY, HOUR, MINUTE, came, days, ran
from tests.context.contexts import about, context_of
from tests.instances.harness import START, LifecycleHarness, counted_statements, feed, process

SLA = {"low": "hours(2)", "high": "hours(4)"}
TODAY = START + 30 * DAY


@pytest.fixture
def lifecycle(tmp_path: Path) -> LifecycleHarness:
    """Clicks come each day and are counted. One day in three is three hours late. Views are new, and have come once."""
    made = LifecycleHarness.of(
        tmp_path,
        feed("clicks", "days(1)", sla=SLA),
        feed("views", "days(1)", sla=SLA),
        feed("plain", "days(1)"),
        feed("counts", "days(1)"),
        process(
            "count",
            "days(1)",
            inputs={"clicks": "now(0,0)"},
            outputs={"counts": "now(0,0)"},
            sla={"should_start_in": "hours(2)", "should_end_in": "hours(3)"},
        ),
    )
    late = {time: 3 * HOUR if n % 3 == 0 else 30 * MINUTE for n, time in enumerate(days(0, 30))}
    came(made, "clicks", late)
    came(made, "views", {TODAY - 10 * DAY: HOUR})
    for time, delay in late.items():
        ran(made, "count", time, delay, delay + 5 * MINUTE, delay + 25 * MINUTE)
    look(made, TODAY - HOUR)
    return made


def ask(context: OperationContext, within: timedelta = 6 * HOUR, **more: Any) -> list[str]:
    """The forecasts: `clicks low 97%`."""
    found = forecast_deadlines(context, within, **more)
    assert found.is_complete
    return [
        f"{each.name} {each.level} {'?' if each.probability is None else f'{each.probability:.0%}'}"
        for each in found.forecasts
    ]


def asked(lifecycle: LifecycleHarness, as_of: datetime, **more: Any) -> list[str]:
    return ask(context_of(lifecycle, as_of), **more)


def test_the_most_probable_miss_comes_first_and_what_is_not_known_last(lifecycle: LifecycleHarness) -> None:
    assert asked(lifecycle, TODAY + HOUR) == [
        "count low 96%",
        "count high 96%",
        "clicks low 96%",
        "clicks high 4%",
        "views low ?",
        "views high ?",
    ]


def test_the_statements_do_not_grow_with_the_deadlines(lifecycle: LifecycleHarness) -> None:
    def count(within: timedelta) -> tuple[int, int]:
        with counted_statements() as statements:
            return len(asked(lifecycle, TODAY + HOUR, name="count", within=within)), len(statements)

    (few, before), (many, after) = count(5 * DAY), count(50 * DAY)
    assert (few, many) == (10, 100)
    assert before == after


def test_what_is_there_or_due_later_is_left_out(lifecycle: LifecycleHarness) -> None:
    assert asked(lifecycle, TODAY + HOUR, within=HOUR, kind=Kind.FEED) == ["clicks low 96%", "views low ?"]
    came(lifecycle, "clicks", {TODAY: HOUR})
    assert asked(lifecycle, TODAY + HOUR, name="clicks") == []
    ran(lifecycle, "count", TODAY, HOUR, HOUR + MINUTE, HOUR + 20 * MINUTE)
    assert asked(lifecycle, TODAY + 2 * HOUR, name="count") == []


def test_one_entity_of_one_kind_can_be_asked_for(lifecycle: LifecycleHarness) -> None:
    assert asked(lifecycle, TODAY, name="views") == ["views low ?", "views high ?"]
    assert asked(lifecycle, TODAY, name="views", clusters=("primary",)) == ["views low ?", "views high ?"]
    assert len(asked(lifecycle, TODAY, kind=Kind.PROCESS)) == 2
    with pytest.raises(EntityNotFoundError):
        asked(lifecycle, TODAY, name="nothing")
    with pytest.raises(InstanceQueryError, match="it has no SLA there"):
        asked(lifecycle, TODAY, name="plain")
    with pytest.raises(InstanceQueryError, match="cluster 'primry': it is not declared"):
        asked(lifecycle, TODAY, clusters=("primry",))
    lifecycle.database.is_explicit = True
    with pytest.raises(InstanceQueryError, match="it is not scheduled, so its deadlines do not count"):
        ask(context_of(lifecycle, TODAY), name="count")


def test_more_deadlines_than_are_forecast_are_said(
    lifecycle: LifecycleHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecasts, "MOST", 3)
    found: Forecasts = forecast_deadlines(context_of(lifecycle, TODAY + HOUR), 6 * HOUR)
    assert (len(found.forecasts), found.is_complete) == (3, False)


def test_why_says_how_probable_a_miss_is(lifecycle: LifecycleHarness) -> None:
    def texts(kind: Kind, name: str, as_of: datetime) -> list[str]:
        (found,) = about(explain, context_of(lifecycle, as_of), name, TODAY, kind=kind).items
        return [reason.text for reason in found.reasons if reason.code == "deadline"]

    low, high = texts(Kind.FEED, "clicks", TODAY + HOUR)
    assert low.startswith(
        "it is late after 2013-12-01T02:00Z (LOW); it will miss this deadline with a probability of 96%: 9 of the 9 "
    )
    assert "probability of 4%" in high
    assert texts(Kind.FEED, "views", TODAY + HOUR)[0] == "it is late after 2013-12-01T02:00Z (LOW)"
    assert "usually comes in 2:00:00" in texts(Kind.PROCESS, "count", TODAY + HOUR)[0]
