"""What is looked at again later, and what `why` says of it."""

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from feed_assets.alerts.forecasting.forecasts import WATCHED
from feed_assets.explain.explanations import explain
from feed_assets.explain.records import ReasonCode
from feed_assets.instances.late.lateness import plan_rerun
from feed_assets.instances.late.store import Asked, LateCheck, LateChecks
from feed_assets.log.agenda import Agenda, AgendaKey, AgendaKind, Entry
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import ProcessInstanceStatus, ProcessKey
from tests.context.contexts import about, context_of
from tests.instances.harness import START, LifecycleHarness, at, feed, process
from tests.retention.harness import kept_feed

DUE, NOW = at("09T09:30"), at("09")
TOLD = {
    AgendaKind.LATE_FEED: ("clicks", ReasonCode.LATE_CHECK),
    AgendaKind.LATE_INPUTS: ("count", ReasonCode.LATE_CHECK),
    AgendaKind.UPDATE: ("count", ReasonCode.UPDATE),
    AgendaKind.RERUN: ("count", ReasonCode.RERUN),
    AgendaKind.RETENTION: ("clicks", ReasonCode.NEXT_SWEEP),
}
UNTOLD = frozenset({*WATCHED, AgendaKind.QUALITY, AgendaKind.REGISTRATION, AgendaKind.STAGED_TABLES})
"""Deadlines that may be missed are told by `sla forecast`, what holds an instance back with its status, registrations
with the table that a feed has; and staging tables that a dead attempt has left concern no instance."""


@pytest.fixture
def lifecycle(tmp_path: Path) -> LifecycleHarness:
    """The first hour of clicks was counted; they are kept for two days."""
    made = LifecycleHarness.of(
        tmp_path,
        kept_feed(),
        feed("counts"),
        process("count", inputs={"clicks": "now(0,0)"}, outputs={"counts": "now(0,0)"}),
    )
    made.land("clicks", START)
    made.launch(made.tick(at("01T00:30")), at("01T00:30"))
    return made


def told(lifecycle: LifecycleHarness, name: str, code: ReasonCode, time: datetime = START) -> list[object]:
    (found,) = about(explain, context_of(lifecycle, NOW), name, time).items
    return [reason.facts["at"] for reason in found.reasons if reason.code is code]


@pytest.mark.parametrize("kind", AgendaKind)
def test_why_tells_the_time_at_which_something_is_looked_at_again(
    lifecycle: LifecycleHarness, kind: AgendaKind
) -> None:
    name, code = TOLD.get(kind, ("count", None))
    key = AgendaKey(kind, name, "primary", START)
    if kind is AgendaKind.RETENTION:
        key = AgendaKey.of_entity(kind, name, "primary")
    with lifecycle.database.begin() as connection:
        if kind is AgendaKind.RERUN:
            asked = Asked("4f0c91d2", "ann", 0, goes_on=False, is_woken=True)
            rerun = plan_rerun(ProcessKey("count", "primary", START), asked, NOW)
            LateChecks(connection).put([replace(rerun, due_at=DUE)])
        elif kind in (AgendaKind.LATE_FEED, AgendaKind.LATE_INPUTS, AgendaKind.UPDATE):
            check = LateCheck(**key._asdict(), planned_at=NOW, due_at=DUE, cut_off_at=DUE + timedelta(days=1))
            LateChecks(connection).put([check])
        else:
            Agenda[Entry](connection).put([Entry(*key, due_at=DUE, planned_at=NOW)])
    if code is None:
        assert kind in UNTOLD
    else:
        assert told(lifecycle, name, code) == [f"{DUE:%Y-%m-%dT%H:%M:%SZ}"]


def test_why_tells_when_an_instance_times_out(lifecycle: LifecycleHarness) -> None:
    lifecycle.tick(at("01T01:30"))
    waiting = at("01T01")
    with lifecycle.database.begin() as connection:
        row = ProcessInstances(connection).get("count", "primary", waiting)
        assert row is not None
        ProcessInstances(connection).transition(row.key, {ProcessInstanceStatus.WAITING}, deadline_at=DUE)
    assert told(lifecycle, "count", ReasonCode.TIMES_OUT, waiting) == [f"{DUE:%Y-%m-%dT%H:%M:%SZ}"]
