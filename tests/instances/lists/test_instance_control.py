"""What people do to instances, on several clusters."""

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from feed_assets.clock import FrozenClock
from feed_assets.context.errors import InstanceQueryError
from feed_assets.context.heartbeat import note_tick
from feed_assets.context.operation import OperationContext, resolve_subject
from feed_assets.entities.errors import EntityNotFoundError
from feed_assets.instances.gates.actions import InstanceAction
from feed_assets.instances.lists.control import Controlled, control_instances
from feed_assets.log.records import ProcessInstanceStatus
from tests.instances.harness import START, LifecycleHarness, process

BOTH = ("east", "west")
DAY = timedelta(days=1)


@pytest.fixture
def context(tmp_path: Path) -> OperationContext:
    lifecycle = LifecycleHarness.of(
        tmp_path, process("report", "days(1)", clusters=BOTH, timeout="days(9)"), clusters=BOTH
    )
    for cluster in BOTH:
        lifecycle.ready(START + 2 * DAY, cluster)
    return OperationContext(
        timeline=lifecycle.timeline,
        database=lifecycle.database,
        stores=lifecycle.stores,
        as_of=START + 2 * DAY,
        clock=FrozenClock(START + 2 * DAY),
        real_clock=FrozenClock(START + 2 * DAY),
    )


def kill(context: OperationContext, clusters: tuple[str, ...] = ()) -> Controlled:
    return control_instances(
        context.by("ann"),
        InstanceAction.KILL,
        resolve_subject(context, "report", clusters=clusters),
        START,
        START + 2 * DAY,
    )


def test_row_111_only_the_clusters_that_are_named_are_acted_on(context: OperationContext) -> None:
    done = kill(context, ("west",))
    assert {(each.cluster, each.after) for each in done.instances} == {("west", ProcessInstanceStatus.KILLED)}
    assert [each.before for each in kill(context).instances if each.cluster == "east"] == [
        ProcessInstanceStatus.READY
    ] * 2


def test_a_cluster_or_process_that_is_not_there_is_refused(context: OperationContext) -> None:
    with pytest.raises(InstanceQueryError, match=r"cluster north: process 'report' is not on it"):
        kill(context, ("north",))
    with pytest.raises(EntityNotFoundError, match="report"):
        control_instances(
            context.by("ann"), InstanceAction.KILL, resolve_subject(context, "reports"), START, START + DAY
        )


@pytest.mark.parametrize("action", InstanceAction)
def test_what_is_not_there_is_told_and_refused_if_nothing_is(context: OperationContext, action: InstanceAction) -> None:
    def act(first: datetime, last: datetime, as_of: datetime = context.as_of) -> Controlled:
        subject = resolve_subject(context, "report", clusters=("west",))
        now = replace(context, as_of=as_of)
        return control_instances(now.by("ann", dry_run=True), action, subject, first, last)

    assert act(START, START + 2 * DAY).absent == ""
    with pytest.raises(InstanceQueryError, match=r"yet\. No tick of cluster west has ever come: .* Start Dagster"):
        act(START + 3 * DAY, START + 4 * DAY)
    note_tick(context.database, "west", context.real_now)
    done = act(START, START + 5 * DAY)
    assert done.summary.endswith(
        " of 3 instances of report; not created yet: 2013-11-04T00:00Z to 2013-11-05T00:00Z on west"
    )
    for as_of, when in (
        (context.as_of, "It is not due yet: ticks create what is due "),
        (START + 3 * DAY, "It is due: ticks create what is due and scheduled, a long past last."),
    ):
        told = rf"'report' from .*: no tick has created 2013-11-04T00:00Z on west yet\. {when}"
        with pytest.raises(InstanceQueryError, match=told):
            act(START + 3 * DAY, START + 4 * DAY, as_of)
    with pytest.raises(InstanceQueryError, match=r"'report' from .*: it has no instance there\. Ask for other times\."):
        act(START - 2 * DAY, START)
