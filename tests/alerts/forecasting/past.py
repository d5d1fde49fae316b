"""A past of feeds and processes, as ticks and runs have recorded it."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from feed_assets.instances.arrival.recording import record_arrival
from feed_assets.log.instances.attempts import Attempts
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import Attempt, FeedEventKind, NewFeedEvent, ProcessInstance, ProcessInstanceStatus
from tests.instances.harness import START, LifecycleHarness

DAY, HOUR, MINUTE = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1)
SUCCEEDED = ProcessInstanceStatus.SUCCEEDED


def days(first: int, count: int) -> list[datetime]:
    return [START + n * DAY for n in range(first, first + count)]


def came(lifecycle: LifecycleHarness, name: str, late: Mapping[datetime, timedelta]) -> None:
    """Instances of a feed that came so late; the others did not."""
    with lifecycle.database.begin() as connection:
        for time, delay in late.items():
            event = NewFeedEvent(
                feed=name,
                cluster="primary",
                nominal_time=time,
                kind=FeedEventKind.ARRIVED,
                origin="a test",
                recorded_at=time + delay,
            )
            record_arrival(connection, event)


def ran(
    lifecycle: LifecycleHarness,
    name: str,
    time: datetime,
    ready: timedelta | None = None,
    begun: timedelta | None = None,
    ended: timedelta | None = None,
    status: ProcessInstanceStatus = SUCCEEDED,
) -> None:
    """An instance of a process: so long after its nominal time it was ready, began and ended."""

    def after(span: timedelta | None) -> datetime | None:
        return None if span is None else time + span

    row = ProcessInstance(
        process=name,
        cluster="primary",
        nominal_time=time,
        status=status,
        updated_at=time,
        attempt=0 if begun is None else 1,
        materialized_at=time,
        ready_at=after(ready),
        started_at=after(begun),
        ended_at=after(ended),
    )
    with lifecycle.database.begin() as connection:
        ProcessInstances(connection).add_waiting([row])
        if begun is not None:
            attempt = Attempt(
                process=name,
                cluster="primary",
                nominal_time=time,
                attempt=1,
                run_id="run-1",
                status=ProcessInstanceStatus.RUNNING,
                started_at=time + begun,
            )
            Attempts(connection).begin(attempt)
            if ended is not None:
                Attempts(connection).end(row.key, status, time + ended, None)
