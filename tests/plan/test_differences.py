import json
from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feed_assets.entities.bundle import AnyEntity, Bundle
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.common import Kind
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process
from feed_assets.instances.gates.readiness import ON_TIME
from feed_assets.json_form import render_document
from feed_assets.log.records import ProcessInstanceStatus
from feed_assets.plan.differences import decide_impact, decide_processes, diff_bundles, find_affected_processes
from feed_assets.plan.edges import Key
from feed_assets.plan.release_fingerprint import Step
from feed_assets.plan.rendering import (
    Effect,
    EntityChange,
    PlanDifference,
    ProcessDifference,
    ProcessState,
    Span,
    count_ranges,
    render_difference,
)
from feed_assets.timing.dates import parse_timezone
from feed_assets.timing.sequence import InstanceSequence, is_same_grid, parse_frequency
from tests.instances.gates.test_imports import SHOP
from tests.instances.harness import START, LifecycleHarness, at, feed, process

NOW = at("03")
CLUSTERS = tuple(Cluster(name=name, storage=f"file:///data/{name}") for name in ("primary", "backup"))
CLICKS = feed("clicks")
COUNTS = feed("counts")
COUNT = process("count", inputs={"clicks": "now(0,0)"}, outputs={"counts": "now(0,0)"})
BEGUN = {
    ("count", "primary"): ProcessState(release=1, governed_from=START, newest_from=START, has_begun=True, unended=2)
}


def bundle(*entities: AnyEntity) -> Bundle:
    return Bundle(entities=(*CLUSTERS, *entities))


def difference(
    before: tuple[AnyEntity, ...],
    after: tuple[AnyEntity, ...],
    states: Mapping[Key, ProcessState] = BEGUN,
    as_of: datetime = NOW,
) -> PlanDifference:
    old, new = bundle(*before), bundle(*after)
    entities = diff_bundles(old, new)
    processes = decide_processes(find_affected_processes(old, new, entities), states, as_of)
    return decide_impact(old, new, entities, processes, as_of, ON_TIME, timedelta(days=1))


def with_fields(entity: Any, **fields: Any) -> Any:
    """The entity with other values, checked as if it were written so."""
    written = {name: getattr(entity, name) for name in entity.model_fields_set}
    return type(entity)(**{**written, **fields})


def only_process(found: PlanDifference) -> ProcessDifference:
    (one,) = found.processes
    return one


def counts(found: PlanDifference) -> dict[tuple[str, str, str], int]:
    return {(each.effect.value, each.name, each.cluster): each.count for each in found.instances}


def test_the_same_definitions_have_no_difference() -> None:
    found = difference((CLICKS, COUNTS, COUNT), (CLICKS, COUNTS, with_fields(COUNT)))
    assert found.is_empty
    assert render_difference(found) == "Nothing would change."


def test_a_new_process_begins_with_its_validity_and_what_is_due_is_counted() -> None:
    found = difference((CLICKS, COUNTS), (CLICKS, COUNTS, COUNT), states={})
    begun = only_process(found)
    assert (begun.step, begun.effective_from, begun.release) == (Step.BEGINS, START, 1)
    assert counts(found) == {("due", "count", "primary"): 49}


def test_a_process_that_nothing_has_scheduled_is_only_stored() -> None:
    found = difference(
        (CLICKS, COUNTS), (CLICKS, COUNTS, COUNT), states={("count", "primary"): ProcessState(is_active=False)}
    )
    assert counts(found) == {}
    assert "process 'count' on primary: is only stored until it is scheduled" in render_difference(found)


def test_soft_fields_make_no_new_release() -> None:
    soft = with_fields(COUNT, tags={"owner": "ops"}, retry={"policy": "final", "delay": "minutes(5)", "attempts": 1})
    assert only_process(difference((CLICKS, COUNTS, COUNT), (CLICKS, COUNTS, soft))).step is Step.IN_PLACE


def test_a_changed_delay_says_that_scheduled_late_checks_stay() -> None:
    late = [
        with_fields(COUNT, late_process={"policy": "final", "delay": f"hours({hours})", "inputs": ["clicks"]})
        for hours in (1, 2)
    ]
    found = difference((CLICKS, COUNTS, late[0]), (CLICKS, COUNTS, late[1]))
    assert "process 'count': late checks that are scheduled stay, those after them follow" in render_difference(found)
    other = difference((CLICKS, COUNTS, late[0]), (CLICKS, COUNTS, with_fields(late[0], description="of clicks")))
    assert "late checks" not in render_difference(other)


def test_another_window_makes_a_new_release_from_the_first_instance_ahead() -> None:
    wider = process("count", inputs={"clicks": "now(-1,0) now(0,0)"}, outputs={"counts": "now(0,0)"})
    found = difference((CLICKS, COUNTS, COUNT), (CLICKS, COUNTS, wider), as_of=at("03T04:30"))
    changed = only_process(found)
    assert (changed.step, changed.effective_from, changed.release) == (Step.SUCCEEDED, at("03T05:00"), 2)
    assert counts(found) == {}
    text = render_difference(found)
    assert "~ inputs.clicks.start: now(0,0) -> now(-1,0)  (new release)" in text
    assert "release 2 starts at 2013-11-03T05:00Z; the old definition applies to 2 instances before it" in text


def test_the_instance_three_minutes_ahead_is_the_first_of_a_new_release() -> None:
    wider = process("count", inputs={"clicks": "now(-1,0) now(0,0)"}, outputs={"counts": "now(0,0)"})
    for minute, first in ((57, "03T05:00"), (58, "03T06:00")):
        found = difference((CLICKS, COUNTS, COUNT), (CLICKS, COUNTS, wider), as_of=at(f"03T04:{minute}"))
        assert only_process(found).effective_from == at(first)


def test_a_definition_that_has_begun_nothing_is_corrected_from_its_start() -> None:
    faster = process("count", "minutes(30)", inputs={"clicks": "now(0,0)"}, outputs={"counts": "now(0,0)"})
    free = {("count", "primary"): ProcessState(release=1, governed_from=START, newest_from=START)}
    found = difference((CLICKS, COUNTS, COUNT), (CLICKS, COUNTS, faster), states=free)
    assert (only_process(found).step, only_process(found).effective_from) == (Step.CORRECTED, START)
    assert counts(found)["due", "count", "primary"] == 97


@pytest.mark.parametrize(
    ("fields", "is_touched"),
    [
        ({"availability_flag": "_SUCCESS"}, True),
        ({"frequency": "hours(2)"}, True),
        ({"locations": {"data": "/other/${YEAR}-${MONTH}-${DAY}-${HOUR}"}}, True),
        ({"path_timezone": "Asia/Kolkata"}, True),
        ({"clusters": {"primary": {"validity": {"start": at("02")}}}}, True),
        ({"clusters": {"primary": {"validity": {"start": START, "end": at("09")}}}}, False),
        ({"late_arrival": {"cut_off": "hours(6)"}}, False),
        ({"groups": ["logs"]}, False),
        ({"ddl": "id string"}, False),
        ({"tags": {"owner": "ops"}}, False),
    ],
)
def test_a_process_is_touched_by_a_feed_only_for_what_it_sees(fields: dict[str, Any], is_touched: bool) -> None:
    found = difference((CLICKS, COUNTS, COUNT), (with_fields(CLICKS, **fields), COUNTS, COUNT))
    assert [each.step for each in found.processes] == ([Step.SUCCEEDED] if is_touched else [])
    if is_touched:
        (cause,) = found.processes[0].causes
        assert cause.key == ("feed", "clicks")
        assert "touched by feed 'clicks'" in render_difference(found)


def test_a_change_of_a_cluster_touches_its_processes() -> None:
    old = Bundle(entities=(*CLUSTERS, CLICKS, COUNTS, COUNT))
    moved = Cluster(name="primary", storage="file:///elsewhere")
    new = Bundle(entities=(moved, CLUSTERS[1], CLICKS, COUNTS, COUNT))
    entities = diff_bundles(old, new)
    (touched,) = decide_processes(find_affected_processes(old, new, entities), BEGUN, NOW)
    assert [cause.fields for cause in touched.causes] == [("storage",)]


def test_a_change_past_its_new_end_is_refused() -> None:
    ended = process("count", inputs={"clicks": "now(0,0)"}, outputs={"counts": "now(0,0)"}, end=at("02"))
    found = difference((CLICKS, COUNTS, COUNT), (CLICKS, COUNTS, ended))
    assert only_process(found).is_refused
    assert "refused: its new end 2013-11-02T00:00Z is in the past" in render_difference(found)
    assert only_process(found).step is Step.IN_PLACE
    described = with_fields(ended, description="gone")
    assert not only_process(difference((CLICKS, COUNTS, ended), (CLICKS, COUNTS, described))).is_refused


@pytest.mark.parametrize("catch_up", ["all", "latest", "none"])
@pytest.mark.parametrize("order", ["FIFO", "LAST_ONLY"])
@pytest.mark.parametrize("as_of", [NOW + timedelta(minutes=3), NOW + timedelta(minutes=30), at("09")])
def test_what_is_counted_as_due_and_as_skipped_is_what_the_next_tick_makes_of_it(
    tmp_path: Path, catch_up: str, order: str, as_of: datetime
) -> None:
    ping = process("ping", end=at("05"), catch_up=catch_up, order=order)
    found = difference((), (ping,), {}, as_of)
    lifecycle = LifecycleHarness.of(tmp_path, ping)
    lifecycle.ready(as_of)
    made = Counter(status is ProcessInstanceStatus.SKIPPED for status in lifecycle.statuses("ping").values())
    assert (found.count(Effect.DUE), found.count(Effect.SKIPPED)) == (made[False], made[True])
    assert made.total() == min(as_of - START, at("05") - timedelta(hours=1) - START) // timedelta(hours=1) + 1


def test_a_longer_validity_is_in_place_and_its_instances_are_newly_due() -> None:
    short = process("count", inputs={"clicks": "now(0,0)"}, outputs={"counts": "now(0,0)"}, end=at("02"))
    found = difference((CLICKS, COUNTS, short), (CLICKS, COUNTS, COUNT))
    assert only_process(found).step is Step.IN_PLACE
    (due,) = found.instances
    assert [(run.first, run.last, run.count) for run in due.ranges] == [(at("02"), at("03"), 25)]


def test_an_earlier_start_extends_the_release() -> None:
    late = process("count", inputs={"clicks": "now(0,0)"}, outputs={"counts": "now(0,0)"}, start=at("02"))
    found = difference((CLICKS, COUNTS, late), (CLICKS, COUNTS, COUNT))
    assert (only_process(found).step, only_process(found).effective_from) == (Step.EXTENDED, START)
    assert counts(found) == {("due", "count", "primary"): 24}


def test_clusters_that_are_left_and_joined_end_and_begin() -> None:
    feeds = (feed("clicks", clusters=("primary", "backup")), feed("counts", clusters=("primary", "backup")))
    moved = process("count", inputs={"clicks": "now(0,0)"}, outputs={"counts": "now(0,0)"}, clusters=("backup",))
    found = difference((*feeds, COUNT), (*feeds, moved))
    assert [(each.cluster, each.step) for each in found.processes] == [("backup", Step.BEGINS), ("primary", Step.ENDS)]
    text = render_difference(found)
    assert "    + cluster backup\n    - cluster primary\n" in text
    assert "process 'count' on primary: stops; 2 instances that have not ended are killed" in text


def test_a_removed_process_stops() -> None:
    found = difference((CLICKS, COUNTS, COUNT), (CLICKS, COUNTS))
    assert [entity.change for entity in found.entities] == [EntityChange.REMOVED]
    assert only_process(found).step is Step.ENDS


def test_a_shorter_retention_expires_what_lies_between_the_limits() -> None:
    def kept(limit: str) -> Feed:
        entry = {"validity": {"start": START}, "retention": {"limit": limit}}
        kept: Feed = with_fields(CLICKS, clusters={"primary": entry})
        return kept

    found = difference((kept("hours(40)"),), (kept("hours(10)"),))
    (expired,) = found.instances
    assert [(run.first, run.last, run.count) for run in expired.ranges] == [(at("01T08:00"), at("02T13:00"), 30)]
    (stricter,) = found.retention
    assert (stricter.fields, stricter.acts_from) == (("limit",), NOW + timedelta(days=1))
    line = "retention becomes stricter (limit); the schedule acts on it from 2013-11-04T00:00Z, commands at once"
    assert f"  feed 'clicks' on primary: {line}\n" in render_difference(found)
    longer = difference((kept("hours(10)"),), (kept("hours(40)"),))
    assert (counts(longer), longer.retention) == ({}, ())


@pytest.mark.parametrize(
    ("before", "after", "expired"),
    [
        ({}, {"max_instances": 40}, 9),
        ({"limit": "hours(40)"}, {"limit": "hours(40)", "max_instances": 10}, 31),
        ({"limit": "hours(10)", "keep_newest": 30}, {"limit": "hours(10)"}, 19),
        ({"limit": "hours(10)", "keep_newest": 50}, {"limit": "hours(10)"}, 38),
        ({"limit": "hours(40)"}, {"limit": "hours(40)", "max_bytes": "1GiB"}, 0),
    ],
)
def test_limits_of_number_expire_what_they_would_remove_if_everything_exists(
    before: dict[str, Any], after: dict[str, Any], expired: int
) -> None:
    old, new = (
        with_fields(CLICKS, clusters={"primary": {"validity": {"start": START}, "retention": retention}})
        for retention in (before, after)
    )
    found = difference((old,), (new,))
    assert found.count(Effect.EXPIRED) == expired
    assert [each.feed for each in found.retention] == ["clicks"]


def test_the_limit_of_a_retention_stage_stands_in_the_place_of_the_retention() -> None:
    stage = {"retention_stage": {"properties": {"retention.policy.agebaseddelete.limit": "days(3)"}}}
    entry = {"validity": {"start": START}, "retention": {"limit": "days(9)"}}
    staged = with_fields(CLICKS, clusters={"primary": entry}, lifecycle=stage)
    entity = with_fields(CLICKS, clusters={"primary": entry})
    assert counts(difference((entity,), (staged,), as_of=at("13"))) == {("expired", "clicks", "primary"): 144}


def test_a_new_target_copies_the_overlap_of_the_validities() -> None:
    source = {"type": "source", "validity": {"start": START}}
    target = {"type": "target", "validity": {"start": at("02"), "end": at("02T12:00")}}
    alone = with_fields(CLICKS, clusters={"primary": source})
    copied = with_fields(CLICKS, clusters={"primary": source, "backup": target})
    found = difference((alone,), (copied,))
    copies = [each for each in found.instances if each.effect is Effect.COPIED]
    assert [(each.of, each.cluster, each.count) for each in copies] == [("primary", "backup", 12)]
    assert "12 instances to copy from primary" in render_difference(found)


def test_a_feed_that_a_process_writes_waits_for_no_arrivals() -> None:
    found = difference((CLICKS,), (CLICKS, COUNTS, COUNT), states={})
    assert counts(found) == {("due", "count", "primary"): 49}
    assert counts(difference((), (CLICKS,))) == {("due", "clicks", "primary"): 49}


def test_a_process_that_cannot_run_here_has_no_releases() -> None:
    pig = with_fields(COUNT, workflow={"engine": "pig", "path": "/jobs/count.pig"})
    found = difference((CLICKS, COUNTS), (CLICKS, COUNTS, pig), states={})
    assert found.processes == ()


def test_what_decides_about_the_rows_of_an_export_makes_a_new_release_of_it() -> None:
    def exported(table: str, key: str, connections: str) -> Feed:
        target = {"name": "shop", "table": table, "load": {"type": "allowinsert"}}
        export = {"target": target, "arguments": {"--Update-Key": key, "--num-mappers": connections}}
        entry = CLICKS.clusters["primary"].model_dump(mode="json", exclude_defaults=True)
        return Feed.model_validate(
            {
                **CLICKS.model_dump(mode="json", exclude_defaults=True),
                "clusters": {"primary": {**entry, "export": export}},
            }
        )

    def told(after: Feed) -> str:
        return render_difference(difference((SHOP, exported("clicks", "id", "1")), (SHOP, after)))

    place = "~ clusters.primary.export"
    assert f"{place}.target.table: clicks -> users  (new release)" in told(exported("users", "id", "1"))
    assert f"{place}.arguments[--Update-Key]: id -> day  (new release)" in told(exported("clicks", "day", "1"))
    assert f"{place}.arguments[--num-mappers]: 1 -> 2\n" in told(exported("clicks", "id", "2"))


def test_the_json_form_says_all_and_is_json() -> None:
    wider = process("count", inputs={"clicks": "now(-1,0) now(0,0)"}, outputs={"counts": "now(0,0)"})
    document = json.loads(json.dumps(render_document(difference((CLICKS, COUNTS, COUNT), (CLICKS, COUNTS, wider)))))
    assert document["entities"][0]["fields"][0]["weight"] == "new release"
    assert document["processes"][0]["effective_from"] == "2013-11-03T01:00Z"
    assert document["counts"]["changed"] == 1


def test_no_control_character_of_a_definition_reaches_the_terminal() -> None:
    odd = with_fields(CLICKS, description="a\x1b[31mred\nline")
    assert "a\\x1b[31mred\\nline" in render_difference(difference((CLICKS,), (odd,)))


MOMENTS = st.integers(0, 400).map(lambda hour: START + timedelta(hours=hour))
SPANS = st.tuples(MOMENTS, MOMENTS).map(lambda ends: Span(start=min(ends), stop=max(ends)))
GRIDS = st.builds(
    InstanceSequence,
    start=MOMENTS,
    frequency=st.sampled_from(["minutes(45)", "hours(1)", "hours(5)", "days(1)", "months(1)"]).map(parse_frequency),
    timezone=st.sampled_from(["UTC", "America/New_York"]).map(parse_timezone),
    end=st.one_of(st.none(), st.just(START + timedelta(hours=500))),
)


@settings(max_examples=150, deadline=None)
@given(sequence=GRIDS, span=SPANS, taken=SPANS)
def test_counting_agrees_with_enumerating(sequence: InstanceSequence, span: Span, taken: Span) -> None:
    runs = count_ranges(sequence, span.without(taken))
    times = [time for time in sequence.between(span.start, span.stop) if not (taken.start <= time < taken.stop)]
    assert sum(run.count for run in runs) == len(times)
    if times:
        assert (runs[0].first, runs[-1].last) == (times[0], times[-1])


def test_grids_are_alike_if_they_meet() -> None:
    def hourly(start: datetime, zone: str = "UTC") -> InstanceSequence:
        return InstanceSequence(start=start, frequency=parse_frequency("hours(1)"), timezone=parse_timezone(zone))

    assert is_same_grid(hourly(START), hourly(at("03T05:00")))
    assert not is_same_grid(hourly(START), hourly(at("03T05:30")))
    assert not is_same_grid(hourly(START), hourly(START, "Asia/Tokyo"))


def test_kinds_are_ordered_as_they_depend_on_each_other() -> None:
    entities = diff_bundles(Bundle(entities=()), bundle(CLICKS, COUNTS, COUNT))
    assert [Kind(entity.key[0]) for entity in entities] == sorted(Kind(entity.key[0]) for entity in entities)


def test_a_process_is_compared_only_where_it_differs() -> None:
    other = process("other", inputs={"clicks": "now(0,0)"}, outputs={})
    assert isinstance(other, Process)
    found = difference((CLICKS, COUNTS, COUNT, other), (CLICKS, COUNTS, with_fields(COUNT, parallel=2), other))
    assert [each.process for each in found.processes] == ["count"]
