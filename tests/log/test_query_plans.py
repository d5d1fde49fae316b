"""No question the ticks ask may walk through a whole table, however the rest of the code changes."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from feed_assets.alerts.deadlines.records import Recovered, Recovery, SlaMiss
from feed_assets.alerts.deadlines.store import SlaMisses
from feed_assets.alerts.delivery.store import Deliveries, ReceiverState, ReceiverStates
from feed_assets.alerts.forecasting.chains import InstanceDurations
from feed_assets.catalog.run_metadata import Facts
from feed_assets.instances.late.store import LateChecks
from feed_assets.instances.steps.store import Steps
from feed_assets.log.agenda import Agenda, AgendaKind
from feed_assets.log.events import EventLog
from feed_assets.log.instances.arrival_polls import ArrivalPolls
from feed_assets.log.instances.attempts import Attempts, EndedAttempt
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.instance_pages import InstancePages
from feed_assets.log.instances.manifests import Manifests
from feed_assets.log.instances.overdue_notices import OverdueNotice, OverdueNotices
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.leases import Leases, find_held
from feed_assets.log.messages.levels import SlaLevel
from feed_assets.log.messages.outbox import Outbox
from feed_assets.log.records import (
    Attempt,
    FeedEventKind,
    FeedKey,
    Lease,
    ProcessInstanceStatus,
    ProcessKey,
    WatermarkKind,
)
from feed_assets.log.removals.chunks import SweepChunks, find_old_chunks, remove_chunks
from feed_assets.log.removals.holds import Holds
from feed_assets.log.removals.records import ChunkState, ItemOutcome, ItemResult, SweepState
from feed_assets.log.removals.store import Sweeps
from feed_assets.log.watermarks import Watermarks
from feed_assets.metrics.collecting import OpenWork
from feed_assets.receivers import Topic
from feed_assets.sql.database import Database, open_database
from feed_assets.sql.totals import Totals
from tests.databases import open_migrated
from tests.log.samples import (
    HOUR,
    arrival_poll,
    entry,
    event,
    feed_instance,
    finished,
    hour,
    late_check,
    message,
    process_instance,
    sweep_draft,
)

pytestmark = pytest.mark.both_databases


READY, WAITING = ProcessInstanceStatus.READY, ProcessInstanceStatus.WAITING
KEY = ("daily", "primary", hour(0))
SPAN = ("clicks", "primary", hour(0), hour(1))

ATTEMPT = Attempt(
    process="daily",
    cluster="primary",
    nominal_time=hour(0),
    attempt=1,
    run_id="r",
    status=ProcessInstanceStatus.RUNNING,
    started_at=hour(0),
)

MISS = SlaMiss(
    kind="feed",
    name="clicks",
    cluster="primary",
    nominal_time=hour(0),
    level=SlaLevel.LOW,
    due_at=hour(1),
    missed_at=hour(1),
)
ENDED = EndedAttempt(hour(1), "daily", hour(0), 1, None)

NOWHERE = open_database("sqlite://")
QUESTIONS: dict[str, Callable[[Connection], Any]] = {
    "append": lambda c: EventLog(c).append([event(idempotency_key="a"), event(1)]),
    "read": lambda c: EventLog(c).read(0, 9),
    "read of a cluster": lambda c: EventLog(c).read(0, 9, clusters=["primary"]),
    "read of feeds": lambda c: EventLog(c).read(0, 9, ["clicks"]),
    "newest event": lambda c: EventLog(c).newest("clicks", "primary", [FeedEventKind.ARRIVED], besides=[hour(0)]),
    "newest events": lambda c: next(EventLog(c).iter_newest("clicks", "primary", None, None), None),
    "newest events of a range": lambda c: next(EventLog(c).iter_newest("clicks", "primary", hour(0), hour(1)), None),
    "events removed": lambda c: EventLog(c).count_removed("clicks", "primary"),
    "of_numbers": lambda c: EventLog(c).of_numbers([1, 2]),
    "find_key": lambda c: EventLog(c).find_key("a"),
    "for_feed": lambda c: EventLog(c).for_feed("clicks", "primary", FeedEventKind.ARRIVED),
    "get": lambda c: FeedInstances(c).get("clicks", "primary", hour(0)),
    "get_many": lambda c: FeedInstances(c).get_many([("clicks", "primary", hour(0))]),
    "find_between": lambda c: FeedInstances(c).find_between(*SPAN),
    "available_times": lambda c: FeedInstances(c).available_times(*SPAN),
    "available_times_many": lambda c: FeedInstances(c).available_times_many([SPAN]),
    "latest_available": lambda c: FeedInstances(c).latest_available("clicks", "primary", hour(0), 3),
    "due polls": lambda c: ArrivalPolls(c).due("primary", hour(0), 9),
    "find polls": lambda c: ArrivalPolls(c).find_many([arrival_poll().key]),
    "move polls": lambda c: ArrivalPolls(c).move([arrival_poll()]),
    "remove polls": lambda c: ArrivalPolls(c).remove([arrival_poll().key]),
    "find_settled": lambda c: FeedInstances(c).find_settled([feed_instance().key]),
    "add_waiting": lambda c: ProcessInstances(c).add_waiting([process_instance()]),
    "process get": lambda c: ProcessInstances(c).get(*KEY),
    "process find_between": lambda c: ProcessInstances(c).find_between("daily", "primary", hour(0), hour(1)),
    "with_status": lambda c: ProcessInstances(c).with_status(WAITING, limit=9),
    "with_status of a process": lambda c: ProcessInstances(c).with_status(WAITING, "daily", "primary", limit=9),
    "times_in": lambda c: ProcessInstances(c).times_in({("daily", "primary"): [(hour(0), None)]}, {WAITING, READY}),
    "in_spans": lambda c: Attempts(c).in_spans([("daily", "primary", hour(0), hour(1))]),
    "transition_many": lambda c: ProcessInstances(c).transition_many(
        [KEY], {WAITING}, status=READY, updated_at=hour(0)
    ),
    "deadlines_passed": lambda c: ProcessInstances(c).deadlines_passed("primary", hour(0), 9),
    "undecided": lambda c: ProcessInstances(c).undecided("primary", 9),
    "due_retries": lambda c: ProcessInstances(c).due_retries("primary", hour(0), 9),
    "watermarks of scheduled": lambda c: Watermarks(c).due(
        WatermarkKind.PROCESS, hour(0), 9, cluster="primary", only_scheduled=True
    ),
    "postpone_deadlines": lambda c: ProcessInstances(c).postpone_deadlines("daily", "primary", HOUR, hour(0)),
    "unended": lambda c: ProcessInstances(c).unended("daily", "primary"),
    "newest": lambda c: ProcessInstances(c).newest("daily", "primary", hour(0), hour(1), 9),
    "has_unrequested": lambda c: ProcessInstances(c).has_unrequested("primary"),
    "unrequested": lambda c: ProcessInstances(c).unrequested("primary", 9),
    "ran_before": lambda c: ProcessInstances(c).ran_before("primary"),
    "first_unrequested": lambda c: ProcessInstances(c).first_unrequested("daily", "primary", newest_first=False),
    "newest spans": lambda c: Attempts(c).newest_spans("daily", "primary", 9),
    "requested_before": lambda c: ProcessInstances(c).requested_before("primary", hour(0)),
    "in_flight": lambda c: ProcessInstances(c).in_flight([("daily", "primary")]),
    "active_with_run": lambda c: ProcessInstances(c).active_with_run("primary"),
    "begin an attempt": lambda c: Attempts(c).begin(ATTEMPT),
    "attempts": lambda c: Attempts(c).of_many([ATTEMPT.key]),
    "ended attempts": lambda c: Attempts(c).ended("primary", ENDED, hour(9), 9),
    "attempts of a window": lambda c: Attempts(c).active(["primary"], hour(0), hour(9)),
    "attempts of runs": lambda c: Attempts(c).of_runs(["r"]),
    "steps": lambda c: Steps(c).of(ATTEMPT.key),
    "begin a step": lambda c: Steps(c).begin(ATTEMPT.key, 1, "load", hour(0)),
    "begin steps anew": lambda c: Steps(c).begin_anew([ATTEMPT.key]),
    "page": lambda c: InstancePages(c).of_process("daily", "primary", hour(0), hour(1), 9),
    "page by status": lambda c: InstancePages(c).of_process("daily", "primary", hour(0), hour(1), 9, statuses=[READY]),
    "process_counts": lambda c: InstancePages(c).process_counts([("daily", "primary", hour(0), hour(1))]),
    "times_retried": lambda c: InstancePages(c).times_retried("daily", "primary", hour(0), hour(1)),
    "times_made_again": lambda c: EventLog(c).times_made_again(*SPAN),
    "feed_counts": lambda c: InstancePages(c).feed_counts([("clicks", "primary", hour(0), hour(1))]),
    "find_many polls": lambda c: ArrivalPolls(c).find_many([arrival_poll().key]),
    "for_instances": lambda c: EventLog(c).for_instances([("clicks", "primary", hour(0))]),
    "find_held": lambda c: find_held(c, [("feed/clicks", "primary", hour(0))], hour(0)),
    "release_all": lambda c: Leases(NOWHERE).release_all(c, "a", "b"),
    "manifests": lambda c: Manifests(c).get_many([FeedKey("clicks", "primary", hour(0))]),
    "digests": lambda c: Manifests(c).get_digests([FeedKey("clicks", "primary", hour(0))]),
    "late checks": lambda c: LateChecks(c).get_many([late_check().key]),
    "lock late checks": lambda c: LateChecks(c).lock_many([late_check().key]),
    "remove late checks": lambda c: LateChecks(c).remove([late_check().key]),
    "to tell": lambda c: OverdueNotices(c).due("primary", hour(0), 9),
    "oldest waiting": lambda c: OverdueNotices(c).oldest_waiting("primary"),
    "mark notices": lambda c: OverdueNotices(c).mark(
        [OverdueNotice(instance=process_instance(notice_at=hour(0)), digest=None, next_at=None)]
    ),
    "due": lambda c: Watermarks(c).due(WatermarkKind.FEED, hour(0), 9, cluster="primary"),
    "sweep": lambda c: Sweeps(c).find("s1"),
    "sweeps": lambda c: Sweeps(c).find_many(["s1"]),
    "sweeps by prefix": lambda c: Sweeps(c).find_prefix("s"),
    "newest sweeps of a cluster": lambda c: Sweeps(c).newest(9, ["primary"]),
    "open sweeps": lambda c: Sweeps(c).with_state("primary"),
    "sweeps to purge": lambda c: Sweeps(c).to_purge("primary", hour(0), 9),
    "begin a sweep": lambda c: Sweeps(c).transition("s1", {SweepState.PLANNED}, state=SweepState.RUNNING),
    "heads of chunks": lambda c: SweepChunks(c, "s1").heads(),
    "open chunks": lambda c: SweepChunks(c, "s1").heads(state=ChunkState.OPEN),
    "chunks of a feed": lambda c: list(SweepChunks(c, "s1").iter_all(feed="clicks")),
    "outcomes of a sweep": lambda c: SweepChunks(c, "s1").count_outcomes(["clicks"], [hour(0)]),
    "nearest times of a sweep": lambda c: SweepChunks(c, "s1").find_nearest(hour(0)),
    "samples of a sweep": lambda c: SweepChunks(c, "s1").find_samples(ItemOutcome.EVICTED),
    "renew a claim": lambda c: SweepChunks(c, "s1").renew(sweep_draft().chunks[0], "a", hour(0)),
    "claim a chunk": lambda c: SweepChunks(c, "s1").claim("a", hour(0), HOUR),
    "finish a chunk": lambda c: finish_a_chunk(c),
    "release chunks": lambda c: SweepChunks(c, "s1").release("a"),
    "active holds": lambda c: Holds(c).active(hour(0)),
    "holds of a name": lambda c: Holds(c).of_name("audit"),
    "release a hold": lambda c: Holds(c).release("audit", hour(0), "ann"),
    "tell": lambda c: Outbox(c).append_many([message()]),
    "read a topic": lambda c: Outbox(c).read(0, 9, Topic.EVICTION),
    "heads of messages": lambda c: Outbox(c).heads(0, 9),
    "messages by number": lambda c: Outbox(c).get_many([1]),
    "open deliveries": lambda c: Deliveries(c).open_of("ops", 9),
    "read the outbox": lambda c: Outbox(c).read(0, 9),
    "entries of a cluster": lambda c: Agenda(c).of_cluster(AgendaKind.RETENTION, "primary"),
    "remove manifests": lambda c: Manifests(c).remove([FeedKey("clicks", "primary", hour(0))]),
    "first event of a feed": lambda c: InstanceDurations(c).first_events([("clicks", "primary")]),
    "arrivals": lambda c: InstanceDurations(c).arrivals([FeedKey("clicks", "primary", hour(0))]),
    "instance durations": lambda c: InstanceDurations(c).of_processes([ProcessKey("daily", "primary", hour(0))]),
    "due entries": lambda c: Agenda(c).due([AgendaKind.RETENTION], "primary", hour(0), 9),
    "plan": lambda c: Agenda(c).put([ENTRY]),
    "plan no longer": lambda c: Agenda(c).remove([ENTRY.key]),
    "due deadlines": lambda c: Watermarks(c).due(WatermarkKind.FEED_LOW, hour(0), 9, cluster="primary"),
    "late instances": lambda c: SlaMisses(c).open("primary", "feed", "clicks"),
    "times of late instances": lambda c: SlaMisses(c).late_times("feed", "clicks", "primary", hour(0), hour(1)),
    "times of bad rows": lambda c: Facts(c).times_bad("daily", "primary", "quality/x", hour(0), hour(1)),
    "late instances that have come": lambda c: SlaMisses(c).recovered("primary", 9),
    "what was late of some instances": lambda c: SlaMisses(c).of([MISS.instance]),
    "starts of instances": lambda c: SlaMisses(c).starts([KEY]),
    "close misses": lambda c: SlaMisses(c).close([Recovered(MISS, Recovery.ARRIVED, hour(2))]),
    "misses that are not shown": lambda c: SlaMisses(c).unshown("primary", 9),
    "counts of late instances": lambda c: SlaMisses(c).open_counts(hour(2), ["primary"]),
    "unfinished instances": lambda c: OpenWork(c).instances(),
    "instances to arrive": lambda c: OpenWork(c).missing(["primary"], hour(0)),
    "pending inputs": lambda c: OpenWork(c).pending(["primary"]),
    "counts of open sweeps": lambda c: OpenWork(c).sweeps(),
    "totals": lambda c: Totals(c).all(),
    "heads": lambda c: EventLog(c).heads(7, 9, hour(0)),
    "count of a kind": lambda c: EventLog(c).count_kind(FeedEventKind.EVICTED, 7, hour(0), hour(0)),
    "remove events": lambda c: EventLog(c).remove([7]),
    "remove chunks": lambda c: remove_chunks(c, [("s1", 0)]),
    "find old chunks": lambda c: find_old_chunks(c, hour(0), 9),
    "counts of messages": lambda c: count_messages(c),
    "missing": lambda c: Watermarks(c).missing(WatermarkKind.FEED, [("clicks", "primary")]),
}

ENTRY = entry(1)
LEASE = Lease(entity="clicks", cluster="primary", nominal_time=hour(0), token=1, holder="a", expires_at=hour(1))
LEASING: dict[str, Callable[[Leases], Any]] = {
    "acquire": lambda leases: leases.acquire_many([("clicks", "primary", hour(0))], "a", hour(0), HOUR),
    "renew": lambda leases: leases.renew_many([LEASE], hour(0), HOUR),
    "release": lambda leases: leases.release_many([LEASE]),
}


SMALL = "SCAN fa_ways_out"
"""A table with a row for each receiver that people have declared."""


def count_messages(connection: Connection) -> None:
    ReceiverStates(connection).add([ReceiverState(name="ops", cursor=0, seen_at=hour(0))])
    OpenWork(connection).messages()


def finish_a_chunk(connection: Connection) -> None:
    draft = sweep_draft()
    Sweeps(connection).add(finished(draft), draft.chunks)
    chunks = SweepChunks(connection, "s1")
    (chunk,) = chunks.claim("a", hour(0), HOUR)
    chunks.finish(chunk, "a", ChunkState.DONE, dict.fromkeys(chunk.items, ItemResult(ItemOutcome.EVICTED)))


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = open_migrated(f"sqlite:///{tmp_path}/state.db")
    yield database
    database.close()


def plans_of(database: Database, question: str) -> dict[str, list[str]]:
    statements: list[str] = []
    with database.begin() as connection:
        raw = connection.connection.driver_connection
        assert raw is not None
        raw.set_trace_callback(statements.append)
        QUESTIONS[question](connection)
        raw.set_trace_callback(None)
        return {
            statement: [row[3] for row in raw.execute(f"EXPLAIN QUERY PLAN {statement}")]
            for statement in statements
            if statement.startswith(("SELECT", "UPDATE", "DELETE", "INSERT"))
        }


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_finds_its_rows_by_an_index(database: Database, question: str) -> None:
    plans = plans_of(database, question)
    assert plans
    for statement, plan in plans.items():
        assert not [line for line in plan if line.startswith("SCAN fa_") and line != SMALL], statement
        assert keys_come_first(plan), (statement, plan)


def keys_come_first(plan: list[str]) -> bool:
    """Whether no table of ours is entered before the keys that were handed over, where there are any. A list of them is
    made before all else.
    """
    if any(line.startswith("LIST SUBQUERY") for line in plan):
        return True
    steps = [line.split()[1] for line in plan if line.startswith(("SCAN", "SEARCH"))]
    return "entry" not in steps or steps[0] == "entry"


@pytest.mark.parametrize(
    ("question", "way"),
    [
        ("read", "PRIMARY KEY (rowid>?)"),
        ("read of a cluster", "PRIMARY KEY (rowid>?)"),
        ("read of feeds", "PRIMARY KEY (rowid>?)"),
        ("newest events", "fa_feed_events_by_feed (feed=? AND seq<?)"),
        ("newest events of a range", "fa_feed_events_by_instance (feed=? AND nominal_time>? AND nominal_time<?)"),
        ("events removed", "fa_totals USING PRIMARY KEY (kind=? AND entity=? AND cluster=?)"),
        ("newest event", "fa_feed_events_by_feed (feed=?)"),
        ("of_numbers", "PRIMARY KEY (rowid=?)"),
        ("for_feed", "(feed=?)"),
        ("available_times_many", "(feed=? AND cluster=? AND nominal_time>? AND nominal_time<?)"),
        ("latest_available", "(feed=? AND cluster=? AND nominal_time<?)"),
        ("due polls", "(cluster=? AND next_poll_at<?)"),
        ("move polls", "(feed=? AND cluster=? AND nominal_time=?)"),
        ("remove polls", "(feed=? AND cluster=? AND nominal_time=?)"),
        ("manifests", "(feed=? AND cluster=? AND nominal_time=?)"),
        ("digests", "(feed=? AND cluster=? AND nominal_time=?)"),
        ("late checks", "(kind=? AND name=? AND cluster=? AND nominal_time=?)"),
        ("open sweeps", "fa_sweeps_by_state (state=? AND cluster=?)"),
        ("sweeps to purge", "fa_sweeps_to_purge (cluster=? AND purge_at>? AND purge_at<?)"),
        ("newest sweeps of a cluster", "fa_sweeps_by_cluster (cluster=?)"),
        ("claim a chunk", "fa_sweep_chunks_by_state (sweep_id=? AND state=?"),
        ("outcomes of a sweep", "fa_sweep_chunks USING INDEX sqlite_autoindex_fa_sweep_chunks_1 (sweep_id=?)"),
        ("samples of a sweep", "fa_sweep_chunks USING INDEX sqlite_autoindex_fa_sweep_chunks_1 (sweep_id=?)"),
        ("active holds", "fa_holds_by_release (released_at=?)"),
        ("read a topic", "fa_outbox_by_topic (topic=? AND seq>?)"),
        ("heads of messages", "PRIMARY KEY (rowid>?)"),
        ("messages by number", "PRIMARY KEY (rowid=?)"),
        ("open deliveries", "fa_deliveries_open (way=?)"),
        ("tell", "fa_outbox_by_key (idempotency_key=?)"),
        ("due entries", "fa_agenda_due (cluster=? AND kind=? AND due_at>? AND due_at<?)"),
        ("remove manifests", "(feed=? AND cluster=? AND nominal_time=?)"),
        ("with_status of a process", "fa_process_instances_by_process (process=? AND cluster=? AND status=?)"),
        ("times_in", "fa_process_instances_by_process (process=? AND cluster=? AND status=? AND nominal_time>?"),
        ("transition_many", "(process=? AND cluster=? AND nominal_time=?)"),
        ("late instances", "fa_sla_open (cluster=? AND name=?)"),
        ("late instances that have come", "fa_sla_open (cluster=?)"),
        ("misses that are not shown", "fa_sla_unshown (cluster=?)"),
        ("counts of late instances", "fa_sla_open (cluster=?)"),
        ("deadlines_passed", "(cluster=? AND deadline_at>? AND deadline_at<?)"),
        ("undecided", "fa_process_instances_failed (cluster=? AND retry_at=?)"),
        ("due_retries", "fa_process_instances_failed (cluster=? AND retry_at<?)"),
        ("to tell", "fa_process_instances_notices (cluster=? AND notice_at>? AND notice_at<?)"),
        ("oldest waiting", "fa_process_instances_by_status (status=?"),
        ("mark notices", "(process=? AND cluster=? AND nominal_time=?)"),
        ("attempts", "(process=? AND cluster=? AND nominal_time=?)"),
        ("ended attempts", "fa_attempts_by_end (ended_at>? AND ended_at<?)"),
        ("attempts of a window", "fa_attempts_by_end (ended_at>? AND ended_at<?)"),
        ("attempts of a window", "fa_attempts_by_end (ended_at=?)"),
        ("attempts of a window", "fa_attempts_long (cluster=? AND ended_at>?)"),
        ("attempts of a window", "fa_process_instances_by_status (status=?)"),
        ("attempts of runs", "fa_attempts_by_run (run_id=?)"),
        ("page", "(process=? AND cluster=? AND nominal_time>? AND nominal_time<?)"),
        ("for_instances", "fa_feed_events_by_instance (feed=? AND nominal_time=?)"),
        ("find_many polls", "(feed=? AND cluster=? AND nominal_time=?)"),
        ("unrequested", "fa_process_instances_unrequested (cluster=?)"),
        ("requested_before", "fa_process_instances_requested (cluster=?)"),
        ("in_flight", "fa_process_instances_requested (cluster=?)"),
        ("release_all", "fa_leases_by_holder (holder=?)"),
        ("first event of a feed", "fa_feed_events_by_feed (feed=?)"),
        ("arrivals", "fa_feed_events_by_instance (feed=? AND nominal_time=?)"),
        ("instance durations", "(process=? AND cluster=? AND nominal_time=?)"),
        ("unfinished instances", "COVERING INDEX fa_process_instances_by_status (status=?)"),
        ("instances to arrive", "fa_arrival_polls_due (cluster=?)"),
        ("pending inputs", "fa_trigger_inputs_pending (cluster=?)"),
        ("counts of open sweeps", "fa_sweeps_by_state (state=?)"),
        ("totals", "fa_totals USING PRIMARY KEY (kind=?)"),
    ],
)
def test_a_question_goes_straight_to_its_rows(database: Database, question: str, way: str) -> None:
    plans = plans_of(database, question)
    assert any(way in line for plan in plans.values() for line in plan), plans


@pytest.mark.parametrize("question", LEASING)
def test_leases_are_found_by_their_keys(database: Database, question: str) -> None:
    statements: list[str] = []
    with database.begin() as connection:
        raw = connection.connection.driver_connection
    assert raw is not None
    raw.set_trace_callback(statements.append)
    LEASING[question](Leases(database))
    raw.set_trace_callback(None)
    found = [each for each in statements if each.startswith(("UPDATE", "INSERT", "DELETE"))]
    assert found
    for statement in found:
        plan = [row[3] for row in raw.execute(f"EXPLAIN QUERY PLAN {statement}")]
        assert not [line for line in plan if line.startswith("SCAN fa_")], plan
        assert keys_come_first(plan), plan
