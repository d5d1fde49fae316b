"""Deadlines against the tests and the code of Falcon: what is late and how much, what clears it, what can be asked."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from feed_assets.alerts.deadlines.alerts import find_alerts
from feed_assets.alerts.deadlines.queries import SlaQuery
from feed_assets.entities.bundle import AnyEntity
from feed_assets.entities.common import Kind
from feed_assets.entities.errors import EntityNotFoundError
from feed_assets.issues import SourceMap
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.messages.levels import SlaLevel
from feed_assets.log.records import FeedInstance, FeedInstanceStatus, ProcessInstance, ProcessInstanceStatus
from feed_assets.timing.dates import parse_datetime, render_datetime
from feed_assets.timing.sequence import parse_frequency
from feed_assets.validation.rules import validate_bundle
from tests.alerts.deadlines.looks import late, look
from tests.conformance.test_retention import codes_of, feed_of
from tests.context.contexts import context_of
from tests.entities.samples import bundle
from tests.instances.harness import LifecycleHarness, feed, process
from tests.validation.cases import DAILY

Case = dict[str, Any]
TABLE = "sla.json"
TAGS = {SlaLevel.LOW: "Missed-SLA-Low", SlaLevel.HIGH: "Missed-SLA-High"}
BEGIN = datetime(2016, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
SLA = {"low": "hours(1)", "high": "hours(2)", "since": BEGIN}
ENDS = {"should_end_in": "hours(2)", "since": BEGIN}


def moment(text: str) -> datetime:
    return parse_datetime(text, seconds=True)


@contextmanager
def world(*entities: AnyEntity) -> Iterator[LifecycleHarness]:
    with tempfile.TemporaryDirectory() as folder:
        yield LifecycleHarness.of(Path(folder), *entities)


def entity_of(case: Case, sla: Mapping[str, Any]) -> AnyEntity:
    """A feed or process named `it` whose only instances are the pending ones."""
    times = sorted(map(moment, case["pending"]))
    validity = {"start": times[0], "end": times[-1] + MINUTE}
    if case["entity"] == "process":
        return process("it", sla={"should_end_in": sla["shouldEndIn"], "since": BEGIN}, **validity)
    return feed("it", sla={**sla, "since": BEGIN}, **validity)


def alerts_of(lifecycle: LifecycleHarness, query: SlaQuery, now: datetime) -> dict[str, dict[str, str]]:
    """What is late, by entity: its instances with Falcon's tags."""
    found: dict[str, dict[str, str]] = {}
    for row in find_alerts(context_of(lifecycle, now), query).rows:
        found.setdefault(row.name, {})[render_datetime(row.nominal_time)] = TAGS[row.level]
    return found


def check_status(case: Case) -> None:
    now, span = moment(case["now"]), case["range"]
    with world(entity_of(case, case["sla"])) as lifecycle:
        look(lifecycle, now)
        query = SlaQuery(start=moment(span["start"]), end=moment(span["end"]))
        assert alerts_of(lifecycle, query, now).get("it", {}) == case["expected"]


def check_effective(case: Case) -> None:
    """Its instance is late at the deadlines of the entity: each is met a minute before, and missed a minute after."""
    low, high = case["entity_sla"]
    expected = [parse_frequency(each).as_duration() for each in case["expected"]]
    declared = feed("it", start=BEGIN, end=BEGIN + MINUTE, sla={"low": low, "high": high, "since": BEGIN})
    with world(declared) as lifecycle:
        found = []
        for deadline in expected:
            for moment_of_look in (BEGIN + deadline - MINUTE, BEGIN + deadline + MINUTE):
                look(lifecycle, moment_of_look)
                found.append(late(lifecycle))
    assert found == [[], ["01T00 low"], ["01T00 low"], ["01T00 high", "01T00 low"]]


def check_query(case: Case) -> None:
    """Without an end the query goes on until now; what it finds are the instances of its range, of what it names."""
    now, start = moment("2015-05-07T12:00Z"), moment(case["start"])
    name = case.get("name") or None
    kind = Kind(case["entity_type"])
    query = SlaQuery(kind=kind, name=name, start=start, end=moment(case["end"]) if case["end"] else now)
    daily = {"start": start - timedelta(days=1), "end": start + timedelta(days=5)}
    since = start - timedelta(days=1)
    with world(
        feed(
            "clicks",
            "days(1)",
            **daily,
            sla={"low": "hours(1)", "high": "days(9)", "since": since},
        ),
        process("count", "days(1)", **daily, sla={"should_end_in": "hours(1)", "since": since}),
    ) as lifecycle:
        look(lifecycle, now)
        try:
            answer = find_alerts(context_of(lifecycle, now), query).rows
        except EntityNotFoundError:
            assert case["expected"] == "entity_not_found"
            return
    assert case["expected"] == "ok"
    days = 1 if case["end"] else 3
    entity = "clicks" if kind is Kind.FEED else "count"
    times = [start + timedelta(days=n) for n in range(days)]
    assert sorted((row.name, row.nominal_time) for row in answer) == [(entity, time) for time in times]


def check_cleared(case: Case) -> None:
    now = BEGIN + timedelta(days=case.get("age_days", 1))
    is_feed = case["entity"] == "feed"
    entity = (
        feed("it", sla=SLA, end=BEGIN + MINUTE, start=BEGIN)
        if is_feed
        else process("it", sla=ENDS, start=BEGIN, end=BEGIN + MINUTE)
    )
    with world(entity) as lifecycle:
        look(lifecycle, now)
        assert late(lifecycle)
        at = {"cluster": "primary", "nominal_time": BEGIN, "updated_at": now}
        with lifecycle.database.begin() as connection:
            if is_feed:
                status = FeedInstanceStatus(case["availability"])
                FeedInstances(connection).put([FeedInstance(feed="it", status=status, **at)])
            elif "instance_status" in case:
                state = ProcessInstanceStatus(case["instance_status"])
                ProcessInstances(connection).add_waiting([ProcessInstance(process="it", status=state, **at)])
        look(lifecycle, now + MINUTE)
        assert (late(lifecycle) == []) is case["expected"]


def check_update(case: Case) -> None:
    def declared(has_sla: bool) -> AnyEntity:
        return feed("it", start=BEGIN, sla=SLA if has_sla else None)

    with world(declared(case["old_has_sla"])) as lifecycle:
        look(lifecycle, BEGIN)
        lifecycle.declare(declared(case["new_has_sla"]))
        look(lifecycle, BEGIN + timedelta(hours=1, minutes=1))
        is_watched = late(lifecycle) == ["01T00 low"]
    assert case["expected"] == ("start_monitoring" if is_watched else "stop_monitoring_and_drop_pending")


def check_scenario(case: Case) -> None:
    feeds = [
        feed(
            each["name"],
            each["frequency"],
            flag=each["availability_flag"],
            start=moment(each["validity"]["start"]),
            end=moment(each["validity"]["end"]),
            sla={**each["sla"], "since": BEGIN},
        )
        for each in case["feeds"]
    ]
    now, span = moment(case["now"]), case["range"]
    with world(*feeds) as lifecycle:
        look(lifecycle, now)
        query = SlaQuery(start=moment(span["start"]), end=moment(span["end"]), kind=Kind.FEED)
        found = {name: list(tags) for name, tags in alerts_of(lifecycle, query, now).items()}
    assert found == case["expected"]


def check_validation(case: Case) -> None:
    if case["entity"] == "feed":
        own = {"late_arrival": {"cut_off": case["late_cutoff"]}, "sla": {"low": case["low"], "high": case["high"]}}
        assert ("feed-sla" not in codes_of(feed_of(limit=case["retention"], **own))) is case["valid"]
        return
    changes: dict[str, Any] = {
        f"{DAILY}/sla": {"should_start_in": case["shouldStartIn"], "should_end_in": case["shouldEndIn"]}
    }
    if "timeout" in case:
        changes[f"{DAILY}/timeout"] = case["timeout"]
    issues = validate_bundle(bundle(changes), SourceMap())
    assert ("process-sla" not in {issue.code for issue in issues}) is case["valid"]


RUNNERS: Mapping[str, Callable[[Case], None]] = {
    "sla_status": check_status,
    "sla_effective": check_effective,
    "sla_query": check_query,
    "pending_cleared": check_cleared,
    "sla_on_update": check_update,
    "sla_scenario": check_scenario,
    "sla_validation": check_validation,
}


def test_each_case_of_the_table_holds_or_is_listed_with_a_reason(case: Case, judge: Callable[[Case], None]) -> None:
    judge(case)


def test_the_list_of_differences_names_only_what_is_in_the_table(unknown_differences: set[str]) -> None:
    assert unknown_differences == set()
