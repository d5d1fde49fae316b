"""Instances from outside that are held back until their rows are judged: what is asked for, and when again."""

import shutil
from collections.abc import Collection
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from feed_assets.context.errors import ArrivalRefusedError, InstanceQueryError
from feed_assets.context.operation import resolve_subject
from feed_assets.entities.common import Kind
from feed_assets.instances.arrival.arrival_notices import Notice, NoticeOutcome, record_notice
from feed_assets.instances.attempts.judging import conclude_unread, note_fault
from feed_assets.instances.late.quality_checks import (
    CheckRequest,
    QualityCheck,
    QualityChecks,
    apply_quality_requests,
)
from feed_assets.instances.lists.quality import show_quality
from feed_assets.log.records import FeedEventKind, FeedInstanceStatus, FeedKey, ProcessInstanceStatus
from tests.databases import create_schema
from tests.instances.harness import START, LifecycleHarness, at, feed, process

AVAILABLE, PARTIAL = FeedInstanceStatus.AVAILABLE, FeedInstanceStatus.PARTIAL
NOON, KEY = at("01T00:10"), FeedKey("clicks", "primary", START)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.server)])
def lifecycle(request: pytest.FixtureRequest, tmp_path: Path) -> LifecycleHarness:
    """Clicks come from outside, and one hour of them has come; they are counted."""
    is_server = request.param == "postgresql"
    state = {"state": create_schema(request.getfixturevalue("postgres_url"))} if is_server else {}
    made = LifecycleHarness.of(
        tmp_path,
        feed("clicks", quality={"rules": {"named": "page IS NOT NULL"}, "min_rows": 1}),
        feed("counts"),
        process("count", inputs={"clicks": "now(0,0)"}, outputs={"counts": "now(0,0)"}),
        **state,
    )
    made.land("clicks", START)
    made.tick(NOON)
    return made


def ask(lifecycle: LifecycleHarness, minutes: float = 0, *alive: str) -> list[CheckRequest]:
    def find_alive(requests: Collection[str]) -> set[str]:
        return set(alive) & set(requests)

    return [*apply_quality_requests(lifecycle.open_tick(NOON + timedelta(minutes=minutes)), find_alive)]


def judge(lifecycle: LifecycleHarness, minutes: float = 0) -> None:
    context = lifecycle.runner(NOON + timedelta(minutes=minutes)).context
    conclude_unread(context, lifecycle.feed("clicks"), START)


def check(lifecycle: LifecycleHarness) -> QualityCheck:
    with lifecycle.database.read() as connection:
        return QualityChecks(connection).of_instances([KEY])[KEY]


def test_no_gate_opens_before_the_rows_are_judged(lifecycle: LifecycleHarness) -> None:
    row = lifecycle.feed_instances("clicks")[START]
    assert (row.status, row.available_at, lifecycle.events("clicks")) == (PARTIAL, None, [])
    assert lifecycle.statuses("count")[START] is ProcessInstanceStatus.WAITING
    (request,) = ask(lifecycle)
    assert request.nominal_times == (START,)
    judge(lifecycle)
    (event,) = lifecycle.events("clicks")
    assert (event.kind, event.payload["quality"]) == (FeedEventKind.ARRIVED, dict(check(lifecycle).facts))
    assert lifecycle.feed_statuses("clicks")[START] is AVAILABLE
    assert [launched.process.process for launched in lifecycle.tick(NOON)] == ["count"]
    assert lifecycle.next_poll("clicks", START) is None


def test_while_a_run_is_under_way_no_other_is_asked_for_and_a_dead_one_is_replaced(lifecycle: LifecycleHarness) -> None:
    (request,) = ask(lifecycle)
    assert ask(lifecycle) == [], "the next tick"
    assert ask(lifecycle, 2, request.key) == [], "it still runs"
    assert len(ask(lifecycle, 4)) == 1
    assert ask(lifecycle, 5) == [], "each try waits longer"
    assert len(ask(lifecycle, 7)) == 1


def test_what_could_not_be_judged_says_why_and_is_tried_again(lifecycle: LifecycleHarness) -> None:
    ask(lifecycle)
    note_fault(lifecycle.runner(NOON).context, lifecycle.feed("clicks"), START, "no such file")
    said = "its quality could not be checked: no such file; a run tries it again at 2013-11-01T00:11Z"
    assert check(lifecycle).sentence == said
    assert len(ask(lifecycle, 2)) == 1


def test_other_content_is_judged_anew_and_the_same_is_not(lifecycle: LifecycleHarness) -> None:
    before = check(lifecycle)
    lifecycle.arrive(NOON + timedelta(minutes=1))
    assert check(lifecycle) == before
    lifecycle.land("clicks", START, text="other content")
    lifecycle.arrive(NOON + timedelta(minutes=30))
    assert check(lifecycle).content != before.content
    judge(lifecycle, 30)
    assert lifecycle.feed_statuses("clicks")[START] is AVAILABLE


def test_content_that_a_notice_brings_again_is_judged_too(lifecycle: LifecycleHarness) -> None:
    judge(lifecycle)
    lifecycle.land("clicks", START, text="other content")
    notice = Notice(feed="clicks", nominal_time=START, is_again=True)
    told = record_notice(lifecycle.context(NOON + timedelta(minutes=30)).by("ann"), notice)
    row = lifecycle.feed_instances("clicks")[START]
    assert (told.outcome, row.status, row.available_at) == (NoticeOutcome.HELD, PARTIAL, NOON)
    lifecycle.tick(NOON + timedelta(minutes=30))
    assert lifecycle.statuses("count")[START] is ProcessInstanceStatus.WAITING
    judge(lifecycle, 31)
    assert [each.process.process for each in lifecycle.tick(NOON + timedelta(minutes=32))] == ["count"]
    assert [event.kind for event in lifecycle.events("clicks")] == [FeedEventKind.ARRIVED, FeedEventKind.CHANGED]
    assert lifecycle.feed_instances("clicks")[START].available_at == NOON


@pytest.mark.parametrize("has_passed", [True, False])
def test_content_that_was_let_in_before_is_not_held_back(
    lifecycle: LifecycleHarness, tmp_path: Path, has_passed: bool
) -> None:
    warned = {} if has_passed else {"on_fail": "warn"}
    lifecycle.declare(feed("clicks", quality={"unique": ["page"], **warned}))
    lifecycle.arrive(NOON + timedelta(minutes=1))
    judge(lifecycle, 1)
    with lifecycle.database.begin() as connection:
        QualityChecks(connection).put([replace(check(lifecycle), has_passed=has_passed)])
    away, context = tmp_path / "away", lifecycle.context(NOON + timedelta(minutes=2))
    notice = Notice(feed="clicks", nominal_time=START)
    lifecycle.folder("clicks", START).rename(away)
    with pytest.raises(ArrivalRefusedError):
        record_notice(context.by("ann"), notice)
    assert lifecycle.feed_statuses("clicks")[START] is FeedInstanceStatus.MISSING
    away.rename(lifecycle.folder("clicks", START))
    assert record_notice(context.by("ann"), notice).outcome is NoticeOutcome.RECORDED
    assert lifecycle.feed_statuses("clicks")[START] is AVAILABLE


def test_no_run_is_asked_for_while_the_instance_is_gone_or_evicted(lifecycle: LifecycleHarness) -> None:
    assert len(ask(lifecycle)) == 1
    shutil.rmtree(lifecycle.folder("clicks", START))
    lifecycle.arrive(NOON + timedelta(minutes=10))
    assert [*ask(lifecycle, 10), *ask(lifecycle, 90), *ask(lifecycle, 180)] == []
    lifecycle.land("clicks", START)
    lifecycle.arrive(NOON + timedelta(hours=3))
    assert len(ask(lifecycle, 180)) == 1
    lifecycle.evict("clicks", START)
    assert [*ask(lifecycle, 250), *ask(lifecycle, 400)] == []


def test_what_was_held_back_arrives_once_there_are_no_rules_any_more(lifecycle: LifecycleHarness) -> None:
    lifecycle.declare(feed("clicks"))
    lifecycle.arrive(NOON + timedelta(minutes=30))
    assert lifecycle.feed_statuses("clicks")[START] is AVAILABLE
    assert ask(lifecycle, 30) == []


def test_late_data_are_judged_before_who_runs_again_reads_them(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(
        tmp_path,
        feed("clicks", quality={"rules": {"named": "page IS NOT NULL"}}, late_arrival={"cut_off": "hours(12)"}),
        feed("counts"),
        process(
            "count",
            inputs={"clicks": "now(0,0)"},
            outputs={"counts": "now(0,0)"},
            late_process={"policy": "periodic", "delay": "hours(2)", "inputs": ["clicks"]},
        ),
    )
    lifecycle.land("clicks", START)
    lifecycle.tick(NOON)
    judge(lifecycle)
    lifecycle.launch(lifecycle.tick(NOON), NOON)
    assert lifecycle.statuses("count")[START] is ProcessInstanceStatus.SUCCEEDED
    lifecycle.land("clicks", START, text="other content")
    later = NOON + timedelta(hours=4)
    lifecycle.look_for_late(later)
    assert lifecycle.feed_statuses("clicks")[START] is PARTIAL
    assert not lifecycle.tick(later)
    assert lifecycle.statuses("count")[START] is ProcessInstanceStatus.WAITING
    with lifecycle.database.begin() as connection:
        QualityChecks(connection).put([replace(check(lifecycle), due_at=None, summary="no row is good")])
    lifecycle.land("clicks", START, text="good again")
    assert not lifecycle.tick(later + timedelta(minutes=10))
    assert check(lifecycle).content.startswith("look:"), "it is compared before and after it is judged"
    judge(lifecycle, 250)
    kinds = [event.kind for event in lifecycle.events("clicks")]
    assert kinds == [FeedEventKind.ARRIVED, FeedEventKind.CHANGED]
    assert lifecycle.feed_instances("clicks")[START].available_at == NOON
    assert lifecycle.feed_statuses("clicks")[START] is AVAILABLE
    after = later + timedelta(minutes=20)
    lifecycle.launch(lifecycle.tick(after), after)
    assert lifecycle.statuses("count")[START] is ProcessInstanceStatus.SUCCEEDED
    assert lifecycle.instances("count")[START].attempt == 2


def test_content_that_was_not_judged_is_accepted_for_a_reason(lifecycle: LifecycleHarness) -> None:
    context = lifecycle.context(NOON)
    with pytest.raises(ArrivalRefusedError, match="nothing says why its rows are accepted"):
        record_notice(context.by("ann"), Notice(feed="clicks", nominal_time=START, accept=" "))
    record_notice(context.by("ann"), Notice(feed="clicks", nominal_time=START, accept="a sale"))
    assert lifecycle.feed_statuses("clicks")[START] is AVAILABLE
    subject = resolve_subject(context, "clicks", START, kind=Kind.FEED)
    with pytest.raises(InstanceQueryError, match="its rows were not judged; accepted by ann: a sale"):
        show_quality(context, subject)
