"""Falcon's lifecycles: the work of a process, the copies of a feed, and what retention did to it. Rows are Falcon's."""

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from feed_assets.context.consolidation import Lifecycle, Result
from feed_assets.context.errors import InstanceQueryError
from feed_assets.context.operation import OperationContext, resolve_subject
from feed_assets.entities.common import Kind
from feed_assets.entities.errors import EntityNotFoundError
from feed_assets.explain.explanations import explain
from feed_assets.instances.gates.actions import InstanceAction
from feed_assets.instances.lists.control import Controlled, control_instances
from feed_assets.instances.lists.queries import find_running, list_instances, summarize_instances
from feed_assets.instances.lists.ranges import parse_filter
from feed_assets.instances.lists.rows import InstanceRow
from feed_assets.instances.lists.runs import find_logs, find_params
from feed_assets.json_form import render_document
from feed_assets.lineage.instance_views import find_dependencies, find_triage
from feed_assets.log.definitions.records import ScheduleState
from feed_assets.log.events import EventLog
from feed_assets.log.records import FeedEventKind, NewFeedEvent, ProcessInstanceStatus
from tests.context.contexts import context_of, query_of
from tests.instances.harness import START, LifecycleHarness, at, feed, hours, process
from tests.replication.test_flows import (
    FLOW,
    HOUR,
    harness_of,
    land_slice,
    pass_time,
    replicated,
    schedule,
    slices,
)

AS_OF = at("01T02:30")
REPLICATION = frozenset({Lifecycle.REPLICATION})
EVICTION = frozenset({Lifecycle.EVICTION})


@pytest.fixture
def lifecycle(tmp_path: Path) -> LifecycleHarness:
    """Three hours of clicks, two of which are copied; and a process that counts them where they are."""
    count = process("count", inputs={"clicks": "now(0,0)"}, outputs={"counts": "now(0,0)"}, clusters=["backup"])
    lifecycle = harness_of(tmp_path, replicated(flag="_DONE"), feed("counts", clusters=["backup"]), count)
    lifecycle.land("clicks", *hours(3))
    lifecycle.flag("clicks", *hours(2))
    pass_time(lifecycle, at("01T02:05"), "primary", "backup")
    return lifecycle


@pytest.fixture
def context(lifecycle: LifecycleHarness) -> OperationContext:
    return context_of(lifecycle, AS_OF)


def listed(context: OperationContext, name: str, kind: Kind = Kind.FEED, **more: Any) -> tuple[InstanceRow, ...]:
    return list_instances(context, query_of(context, name, kind, start=START, **more)).instances


def test_row_112_a_feed_that_is_copied_has_its_replication_without_being_asked(context: OperationContext) -> None:
    rows = listed(context, "clicks")
    assert [(row.name, row.cluster, row.source_cluster, row.status) for row in rows] == [
        (FLOW, "backup", "primary", "SUCCEEDED"),
        (FLOW, "backup", "primary", "SUCCEEDED"),
        (FLOW, "backup", "primary", "WAITING"),
    ]
    assert rows == listed(context, "clicks", lifecycles=REPLICATION)
    assert rows[2].details[0].endswith("/primary/clicks/2013-11-01/02-00")
    assert render_document(rows[0])["lifecycle"] == "replication"


def test_row_112_on_a_cluster_that_nothing_is_copied_to_a_feed_has_its_data(context: OperationContext) -> None:
    rows = listed(context, "clicks", clusters=frozenset({"primary"}))
    assert [(row.kind, row.status) for row in rows] == [
        (Kind.FEED, "AVAILABLE"),
        (Kind.FEED, "AVAILABLE"),
        (Kind.FEED, "PARTIAL"),
    ]
    assert {row.kind for row in listed(context, "counts")} == {Kind.FEED}


def test_row_112_what_retention_did_is_listed_apart(lifecycle: LifecycleHarness, context: OperationContext) -> None:
    evict(lifecycle, START)
    evict(lifecycle, START + HOUR)
    evict(lifecycle, START + HOUR, FeedEventKind.RESTORED)
    rows = listed(context, "clicks", lifecycles=EVICTION)
    assert [(row.cluster, row.nominal_time, row.status) for row in rows] == [
        ("backup", START, "EVICTED"),
        ("backup", START + HOUR, "RESTORED"),
    ]
    assert rows[0].reason == "sweep s-1; it was older than days(1)"
    both = listed(context, "clicks", lifecycles=EVICTION | REPLICATION)
    assert [row.lifecycle for row in both].count(Lifecycle.EVICTION) == 2
    assert len(both) == 5
    query = query_of(context, "clicks", start=START, lifecycles=EVICTION)
    (summary,) = [each for each in summarize_instances(context, query).clusters if each.cluster == "backup"]
    assert summary.counts == {"EVICTED": 1, "RESTORED": 1}


def evict(lifecycle: LifecycleHarness, time: datetime, kind: FeedEventKind = FeedEventKind.EVICTED) -> None:
    with lifecycle.database.begin() as connection:
        EventLog(connection).append(
            [
                NewFeedEvent(
                    feed="clicks",
                    cluster="backup",
                    nominal_time=time,
                    kind=kind,
                    origin="retention:ann",
                    payload={"sweep": "s-1", "reason": "it was older than days(1)", "kind": "data"},
                    recorded_at=AS_OF,
                )
            ]
        )


def test_row_112_a_process_has_its_execution_only(context: OperationContext) -> None:
    execution = frozenset({Lifecycle.EXECUTION})
    assert listed(context, "count", Kind.PROCESS, lifecycles=execution) == listed(context, "count", Kind.PROCESS)
    for wrong in (REPLICATION, EVICTION):
        with pytest.raises(
            InstanceQueryError, match=r"Incorrect lifecycle .*: process 'count' has execution\. Ask for"
        ):
            listed(context, "count", Kind.PROCESS, lifecycles=wrong)
    known = "feed 'clicks' has replication, import, export and eviction"
    with pytest.raises(InstanceQueryError, match=f"Incorrect lifecycle execution: {known}"):
        listed(context, "clicks", lifecycles=execution)
    with pytest.raises(InstanceQueryError, match="Incorrect lifecycle replication: feed 'counts' is not copied"):
        listed(context, "counts", lifecycles=REPLICATION)
    with pytest.raises(InstanceQueryError, match="Incorrect lifecycle export: feed 'clicks' is not exported"):
        listed(context, "clicks", lifecycles=frozenset({Lifecycle.EXPORT, Lifecycle.REPLICATION}))


def test_row_112_a_flow_may_be_named_wherever_a_process_or_feed_is(context: OperationContext) -> None:
    assert listed(context, FLOW, Kind.PROCESS) == listed(context, FLOW) == listed(context, "clicks")
    with pytest.raises(InstanceQueryError, match="Incorrect lifecycle eviction: clicks@primary has replication"):
        listed(context, FLOW, lifecycles=EVICTION)
    with pytest.raises(EntityNotFoundError, match="clicks@primary"):
        listed(context, "clicks@primery")


def test_row_112_filters_know_the_statuses_of_the_lifecycle(context: OperationContext) -> None:
    def of(*filters: str) -> Any:
        return parse_filter(Kind.FEED, filters, is_of_data=False)

    assert len(listed(context, "clicks", filter=of("STATUS:WAITING"))) == 1
    assert listed(context, "clicks", filter=of("SOURCECLUSTER:mars")) == ()
    assert len(listed(context, "clicks", filter=of("SOURCECLUSTER:primary"))) == 3
    with pytest.raises(InstanceQueryError, match="status AVAILABLE: an instance of feed 'clicks' never has it"):
        listed(context, "clicks", filter=of("STATUS:AVAILABLE"))
    with pytest.raises(InstanceQueryError, match="status RUNNING"):
        listed(context, "counts", filter=of("STATUS:RUNNING"))


def test_row_112_counts_are_those_of_all_copies_to_a_cluster(tmp_path: Path) -> None:
    lifecycle = harness_of(tmp_path, slices())
    land_slice(lifecycle, "east", START)
    pass_time(lifecycle, at("01T00:05"))
    context = context_of(lifecycle, at("01T00:10"))
    (summary,) = summarize_instances(context, query_of(context, "clicks")).clusters
    assert (summary.cluster, summary.counts) == ("backup", {"SUCCEEDED": 1, "WAITING": 1})
    rows = list_instances(context, query_of(context, "clicks")).instances
    assert {row.source_cluster for row in rows} == {"east", "west"}
    assert find_running(context, query_of(context, "clicks")).instances == ()


def test_row_112_a_cluster_that_is_none_of_the_feeds_fails_without_the_others(context: OperationContext) -> None:
    query = query_of(context, "clicks", start=START, clusters=frozenset({"backup", "mars"}))
    page = list_instances(context, query)
    assert (page.result, len(page.instances)) == (Result.PARTIAL, 3)
    assert "the replication of feed 'clicks' from primary: it is not on cluster 'mars'" in page.message


def test_row_112_copies_are_killed_and_run_again_by_the_name_of_their_feed(
    lifecycle: LifecycleHarness, context: OperationContext
) -> None:
    def control(action: InstanceAction, name: str = "clicks", **more: Any) -> Controlled:
        subject = resolve_subject(context, name, **more)
        done = control_instances(context.by("ann"), action, subject, START, AS_OF)
        assert done.process == name
        return done

    assert control(InstanceAction.KILL).changed == 1
    assert lifecycle.times(FLOW, ProcessInstanceStatus.KILLED, "backup") == [START + 2 * HOUR]
    assert lifecycle.times("count", ProcessInstanceStatus.KILLED, "backup") == []
    done = control(InstanceAction.RERUN, FLOW, lifecycles=REPLICATION)
    assert done.changed == 3
    assert done.instances[0].source_cluster == "primary"
    assert set(lifecycle.statuses(FLOW, "backup").values()) == {ProcessInstanceStatus.WAITING}
    with pytest.raises(InstanceQueryError, match="Incorrect lifecycle eviction: retention works in sweeps"):
        control(InstanceAction.KILL, lifecycles=EVICTION)
    with pytest.raises(InstanceQueryError, match="feed 'counts': it has no copies"):
        control(InstanceAction.KILL, "counts")
    with pytest.raises(InstanceQueryError, match="Incorrect lifecycle replication: process 'count' has execution"):
        list_instances(context, query_of(context, "count", lifecycles=REPLICATION))


def test_row_112_logs_and_params_are_those_of_the_copies(context: OperationContext) -> None:
    (waiting, *_, oldest) = find_logs(context, query_of(context, "clicks")).instances
    assert (waiting.actions, oldest.name) == ((), FLOW)
    assert [(action.name, action.status) for action in oldest.actions] == [
        (FLOW, "SUCCEEDED"),
        (f"{FLOW}/target", "REPLICATED"),
    ]
    (params,) = find_params(context, resolve_subject(context, "clicks", START)).items
    assert params.properties["source"].endswith("/primary/clicks/2013-11-01/00-00")
    assert params.properties["target"].endswith("/backup/clicks/2013-11-01/00-00")


def test_row_112_neighbours_and_triage_lead_from_the_target_to_the_source(context: OperationContext) -> None:
    time = START + 2 * HOUR
    found = find_dependencies(context, resolve_subject(context, "clicks", time, lifecycles=REPLICATION)).items
    assert [(each.tag, each.kind, each.cluster) for each in found] == [
        ("Input", Kind.FEED, "primary"),
        ("Output", Kind.FEED, "backup"),
    ]
    of_data = find_dependencies(context, resolve_subject(context, "clicks", time)).items
    assert {each.name for each in of_data} == {FLOW, "count"}
    data, copy = (
        find_triage(
            context, resolve_subject(context, "clicks", time, clusters=["backup"], lifecycles=lifecycles)
        ).items[0]
        for lifecycles in (frozenset(), REPLICATION)
    )
    assert data.text.splitlines() == [
        "FEED:clicks:backup:2013-11-01T02:00Z [MISSING]",
        "  PROCESS:clicks@primary:backup:2013-11-01T02:00Z [WAITING]",
        "    FEED:clicks:primary:2013-11-01T02:00Z [PARTIAL]",
    ]
    assert len(copy.vertices) == len(data.vertices) - 1


def test_why_a_replica_is_missing_leads_to_what_is_missing_at_the_source(context: OperationContext) -> None:
    time = START + 2 * HOUR
    (explanation,) = explain(context, resolve_subject(context, "clicks", time, clusters=["backup"])).items
    lines = explanation.render().splitlines()
    assert lines[:4] == [
        "feed clicks on backup at 2013-11-01T02:00Z is MISSING",
        "  - it has not been copied:",
        "    - the replication of feed 'clicks' from primary to backup at 2013-11-01T02:00Z is WAITING",
        "      - its source instance does not exist on primary:",
    ]
    assert "clicks/2013-11-01/02-00 lacked its flag _DONE" in lines[5]
    assert [root.cluster for root in explanation.root_causes()] == ["primary"]
    (flow,) = explain(context, resolve_subject(context, FLOW, START)).items
    assert "it wrote feed clicks 2013-11-01T00:00Z as output target" in flow.render()
    assert "version 1 of the feed" in flow.render()


def test_why_of_a_copy_whose_feed_is_suspended_says_how_it_goes_on(lifecycle: LifecycleHarness) -> None:
    schedule(lifecycle, ScheduleState.SUSPENDED, AS_OF)
    context = context_of(lifecycle, AS_OF)
    (flow,) = explain(context, resolve_subject(context, FLOW, START + 2 * HOUR)).items
    assert "  - its feed is suspended\n    $ feed-assets entity resume feed clicks --clusters backup" in flow.render()
