"""A project in which something of everything has happened: arrivals, runs, a failure, a retry, copies, a sweep, misses.

It is made by the code that ticks and runs use, on real storage.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

from feed_assets.alerts.delivery.store import Deliveries, Delivery, ReceiverState, ReceiverStates
from feed_assets.clock import FrozenClock
from feed_assets.context.bulkheads import Bulkheads, TickStep
from feed_assets.engines.port import Work
from feed_assets.entities.bundle import AnyEntity
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process
from feed_assets.instances.gates.reconciliation import apply_clock
from feed_assets.instances.gates.requests import LaunchRequest
from feed_assets.log.messages.outbox import Outbox
from feed_assets.triggers.apply_triggers import apply_triggers
from tests.alerts.deadlines.looks import look
from tests.instances.harness import START, LifecycleHarness, process
from tests.retention.harness import RetentionHarness

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
NOW = START + 7 * HOUR
"""The moment at which the story ends."""

_ON = {"validity": {"start": START}}


def _entities() -> list[AnyEntity]:
    """Clicks are counted every hour, in two pipelines; counts are copied to `backup`; a trigger gathers counts."""
    common = {"frequency": "hours(1)", "format": "csv"}
    clicks = Feed.model_validate(
        {
            **common,
            "name": "clicks",
            "locations": {"data": "/clicks/${YEAR}-${MONTH}-${DAY}/${HOUR}"},
            "clusters": {"primary": {**_ON, "retention": {"limit": "hours(4)"}}},
            "sla": {"low": "minutes(30)", "high": "hours(1)"},
        }
    )
    counts = Feed.model_validate(
        {
            **common,
            "name": "counts",
            "locations": {"data": "/counts/${YEAR}-${MONTH}-${DAY}/${HOUR}"},
            "clusters": {"primary": {"type": "source", **_ON}, "backup": {"type": "target", **_ON}},
        }
    )
    count = process(
        "count",
        inputs={"clicks": "now(0,0)"},
        outputs={"counts": "now(0,0)"},
        pipelines=["web", "daily"],
        retry={"policy": "periodic", "delay": "minutes(5)", "attempts": 1},
        sla={"should_start_in": "minutes(30)", "should_end_in": "hours(1)"},
    )
    gather = Process.model_validate(
        {
            "name": "gather",
            "clusters": {"primary": _ON},
            "workflow": {"path": "jobs:run"},
            "trigger": {"when": ["counts"], "batch": {"min": 100}},
        }
    )
    return [clicks, counts, count, gather]


def tell_story(root: Path) -> LifecycleHarness:
    """Hours 0 to 4 arrive after 10 minutes, hours 5 and 6 do not. The first run of hour 1 fails."""
    lifecycle = LifecycleHarness.of(root, *_entities(), clusters=("primary", "backup"))
    failures = [START + HOUR]
    for n in range(7):
        _pass_hour(lifecycle, START + n * HOUR, failures, has_arrival=n < 5)
    retention = RetentionHarness(lifecycle=lifecycle)
    retention.wait(NOW)
    retention.sweep_now("clicks")
    bulkheads = Bulkheads("primary", FrozenClock(NOW))
    bulkheads.fail(TickStep.RETENTION, "counts", PermissionError("the storage is read-only"))
    bulkheads.save(lifecycle.database)
    for cluster in ("primary", "backup"):
        apply_clock(lifecycle.open_tick(NOW - 2 * MINUTE, cluster, real_clock=FrozenClock(NOW)))
    look(lifecycle, NOW)
    _deliver_some(lifecycle)
    return lifecycle


def _deliver_some(lifecycle: LifecycleHarness) -> None:
    """A receiver has got all messages but the last two, another one has one dead letter, the first."""
    with lifecycle.database.begin() as connection:
        last = Outbox(connection).last_seq()
        states = {"ops": last - 2, "mail": last}
        ReceiverStates(connection).add(ReceiverState(name=name, cursor=at, seen_at=NOW) for name, at in states.items())
        given_up = Delivery(way="mail", seq=1, kind="feed", entity="clicks", since=START, dead_at=NOW)
        Deliveries(connection).put([given_up])


def _pass_hour(lifecycle: LifecycleHarness, hour: datetime, failures: list[datetime], *, has_arrival: bool) -> None:
    def job(work: Work) -> Mapping[str, str]:
        if hour in failures:
            failures.remove(hour)
            raise ValueError("no luck")
        return {target.name: "made" for target in work.outputs}

    lifecycle.job = job
    for minute in (0, 10, 20, 30):
        moment = hour + minute * MINUTE
        if minute == 10 and has_arrival:
            lifecycle.land("clicks", hour)
        for cluster in ("primary", "backup"):
            requests = lifecycle.tick(moment, cluster)
            apply_triggers(lifecycle.open_tick(moment, cluster))
            _run(lifecycle, requests, moment + MINUTE)
            look(lifecycle, moment, cluster=cluster)


def _run(lifecycle: LifecycleHarness, requests: Sequence[LaunchRequest], moment: datetime) -> None:
    for request in requests:
        with suppress(ValueError):
            lifecycle.launch([request], moment)
