"""What the tests let other processes do, and how they let several do it at the same moment."""

import random
import time
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection as Pipe
from multiprocessing.synchronize import Barrier, Semaphore
from typing import Any

from feed_assets.errors import FeedAssetsError
from feed_assets.log.events import EventLog
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.leases import Leases
from feed_assets.log.messages.outbox import Outbox
from feed_assets.log.records import FeedEventKind, ProcessInstanceStatus
from feed_assets.log.removals.chunks import SweepChunks
from feed_assets.log.removals.records import ChunkState, ItemOutcome, ItemResult, SweepState
from feed_assets.log.removals.store import Sweeps
from feed_assets.sql.database import open_database
from feed_assets.sql.errors import LeaseHeldError
from feed_assets.sql.totals import Total, TotalKind, Totals
from tests.log.samples import HOUR, START, event, feed_instance, hour, message, process_instance
from tests.processes import PROCESSES

PATIENCE_SECONDS = 60
SWEEP_CHUNKS = 30
LEASES = 200
TOTALS = 300
INCREASES = 10


class Team:
    """Several processes that all do `work(url, number)`, beginning at the same moment."""

    def __init__(self, work: Callable[[str, int], Any], url: str, size: int) -> None:
        self._barrier = PROCESSES.Barrier(size)
        self._results = PROCESSES.Queue()
        self._begun = PROCESSES.Semaphore(0)
        self._members = [
            PROCESSES.Process(
                target=_run, args=(work, url, number, self._barrier, self._begun, self._results), daemon=True
            )
            for number in range(size)
        ]
        for member in self._members:
            member.start()

    @property
    def is_working(self) -> bool:
        return any(member.is_alive() for member in self._members)

    def wait_until_begun(self) -> None:
        """Wait until the first has its work before it, and long enough for it to get to the database."""
        self._begun.acquire(timeout=PATIENCE_SECONDS)
        time.sleep(0.2)

    def results(self) -> list[Any]:
        """What each has returned, or the text of its error; waits for all."""
        found = dict(self._results.get(timeout=PATIENCE_SECONDS) for _ in self._members)
        for member in self._members:
            member.join()
        return [found[number] for number in range(len(self._members))]


def _run(
    work: Callable[[str, int], Any], url: str, number: int, barrier: Barrier, begun: Semaphore, results: Any
) -> None:
    barrier.wait(PATIENCE_SECONDS)
    begun.release()
    try:
        result = work(url, number)
    except FeedAssetsError as exc:
        result = str(exc)
    results.put((number, result))


def migrate(url: str, _number: int) -> str:
    database = open_database(url)
    database.migrate()
    with database.read() as connection:
        EventLog(connection).last_seq()
    database.close()
    return "migrated"


def append_slowly(url: str, number: int) -> list[int]:
    """Twenty transactions of three events each, held open for a while after the append."""
    database = open_database(url)
    moments = random.Random(number)
    seqs = []
    for turn in range(20):
        with database.begin() as connection:
            seqs += EventLog(connection).append([event(turn, origin=f"worker {number}")] * 3)
            time.sleep(moments.random() / 100)
    database.close()
    return seqs


def acquire(url: str, number: int) -> int | str:
    database = open_database(url)
    try:
        return (
            Leases(database).acquire("clicks", "primary", START, f"worker {number}", START, timedelta(seconds=60)).token
        )
    except LeaseHeldError as exc:
        return exc.holder
    finally:
        database.close()


def run_waiting(url: str, number: int) -> list[bool]:
    """Try to take each of fifty waiting instances; which of them it got."""
    database = open_database(url)
    won = []
    for n in range(50):
        with database.begin() as connection:
            won.append(
                ProcessInstances(connection).transition(
                    process_instance(n).key,
                    {ProcessInstanceStatus.WAITING},
                    status=ProcessInstanceStatus.RUNNING,
                    run_id=f"worker {number}",
                    updated_at=hour(n),
                )
            )
    database.close()
    return won


def request_one(url: str, number: int) -> list[str]:
    """Take unrequested instances one by one until there is none; their nominal times."""
    database = open_database(url)
    taken = []
    while True:
        with database.begin() as connection:
            instances = ProcessInstances(connection)
            found = instances.unrequested("primary", 1)
            if not found:
                break
            time.sleep(0.002)
            instances.transition(
                found[0],
                {ProcessInstanceStatus.READY},
                request_key=f"worker {number}",
                requested_at=START,
                updated_at=START,
            )
            taken.append(found[0].nominal_time.isoformat())
    database.close()
    return taken


def write_until_killed(url: str, pipe: Pipe) -> None:
    """Write a lot, say so, and keep the transaction open for ever."""
    database = open_database(url)
    with database.begin() as connection:
        EventLog(connection).append([event(n) for n in range(1000)])
        FeedInstances(connection).put(feed_instance(n) for n in range(1000))
        pipe.send("written")
        time.sleep(PATIENCE_SECONDS)


def begin_sweep(url: str, _number: int) -> bool:
    database = open_database(url)
    with database.begin() as connection:
        has_begun = Sweeps(connection).transition("s1", {SweepState.PLANNED}, state=SweepState.RUNNING)
    database.close()
    return has_begun


def sweep_all(url: str, number: int) -> list[int]:
    """Work on chunks of a sweep until there is none to be had; which it has ended."""
    database = open_database(url)
    moments = random.Random(number)
    holder = f"worker {number}"
    ended = []
    while True:
        with database.begin() as connection:
            claimed = SweepChunks(connection, "s1").claim(holder, START, HOUR, 2)
        if not claimed:
            break
        for chunk in claimed:
            time.sleep(moments.random() / 100)
            with database.begin() as connection:
                evicted = [event(nominal_time=item.nominal_time, kind=FeedEventKind.EVICTED) for item in chunk.items]
                EventLog(connection).append(evicted)
                results = dict.fromkeys(chunk.items, ItemResult(ItemOutcome.EVICTED))
                SweepChunks(connection, "s1").finish(chunk, holder, ChunkState.DONE, results)
            ended.append(chunk.number)
    database.close()
    return ended


def sweep_until_killed(url: str) -> None:
    """Let a process claim a chunk and write that it is done, and kill it before it commits."""
    pipe, theirs = PROCESSES.Pipe()
    worker = PROCESSES.Process(target=_end_a_chunk_for_ever, args=(url, theirs), daemon=True)
    worker.start()
    assert pipe.poll(PATIENCE_SECONDS)
    pipe.recv()
    worker.kill()
    worker.join()


def _end_a_chunk_for_ever(url: str, pipe: Pipe) -> None:
    database = open_database(url)
    with database.begin() as connection:
        (chunk,) = SweepChunks(connection, "s1").claim("killed", START, HOUR)
    with database.begin() as connection:
        EventLog(connection).append([event()])
        results = dict.fromkeys(chunk.items, ItemResult(ItemOutcome.EVICTED))
        SweepChunks(connection, "s1").finish(chunk, "killed", ChunkState.DONE, results)
        pipe.send("written")
        time.sleep(PATIENCE_SECONDS)


def tell_all(url: str, number: int) -> int:
    """Add messages of which the other workers add half, too; how many were new."""
    database = open_database(url)
    moments = random.Random(number)
    new = 0
    for turn in range(10):
        with database.begin() as connection:
            shared = [message(turn * 3 + n) for n in range(3)]
            own = message(turn, idempotency_key=f"worker {number}, turn {turn}")
            new += Outbox(connection).append_many([*shared, own])
            time.sleep(moments.random() / 100)
    database.close()
    return new


def acquire_some(url: str, number: int) -> list[int]:
    """Ask for all leases, in an order of its own; the numbers of those it got."""
    database = open_database(url)
    numbers = list(range(LEASES))
    random.Random(number).shuffle(numbers)
    keys = [("clicks", "primary", hour(n)) for n in numbers]
    got = []
    for begin in range(0, LEASES, 20):
        found = Leases(database).acquire_many(keys[begin : begin + 20], f"worker {number}", START, HOUR)
        got += [round((lease.nominal_time - START) / HOUR) for lease in found]
    database.close()
    return got


def add_totals(url: str, number: int) -> str:
    """Count something of every entity, again and again, in an order that differs from worker to worker."""
    database = open_database(url)
    ended = [Total(TotalKind.ENDS, f"p{n}", "primary", amount=2) for n in range(TOTALS)]
    for _ in range(INCREASES):
        with database.begin() as connection:
            Totals(connection).add(ended if number % 2 else reversed(ended))
    database.close()
    return "added"


def append_until_killed(url: str, begun: Semaphore) -> None:
    """Append events one after the other for ever, each in a transaction; tells of the first ones."""
    database = open_database(url)
    while True:
        with database.begin() as connection:
            log = EventLog(connection)
            log.append([event(log.last_seq(), bytes=7)])
        begun.release()
