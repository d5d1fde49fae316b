"""Copies from their plan to their publication, here, with threads: of one instance, or of many in one go."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from threading import Lock

from feed_assets.clock import Clock, Stopwatch
from feed_assets.entities.copying import Verification
from feed_assets.errors import FeedAssetsError
from feed_assets.lifecycle.errors import CopyDamagedError, SourceChangingError
from feed_assets.lifecycle.replication.collector import SELDOM_COLLECTED
from feed_assets.lifecycle.replication.finishing import Finishing, RepeatError
from feed_assets.lifecycle.replication.outcomes import Copied, CopyStatus
from feed_assets.lifecycle.replication.plans import CopyPlan, Side, find_unchanged, plan_copy
from feed_assets.lifecycle.replication.requests import CopyRequest, Meter, OnProgress
from feed_assets.lifecycle.replication.running import Held, TaskResult, run_task
from feed_assets.lifecycle.replication.tasks import CopyTask, OpenCopy, open_copy, part_tasks
from feed_assets.lifecycle.replication.threads import CopyThreads, are_near, copy_threads
from feed_assets.lifecycle.replication.throttle import Throttle
from feed_assets.lifecycle.replication.workers import CopyWorkers
from feed_assets.lifecycle.stores import StorePool
from feed_assets.plan.copy_options import CopyOptions
from feed_assets.storage.records import Guard

BATCH = 128
"""How many instances are copied together: their tasks are mixed, and the disk is waited for once."""
_LEAST_BATCH = 16
_LANES = 2
_HELD = 64 << 20
"""How many bytes of small files a batch holds in memory until they were read back."""
WORTH_WORKERS = 4 * BATCH
"""How many copies are worth the start of workers, which takes half a second."""


RunTasks = Callable[[Sequence[CopyTask]], Iterable[TaskResult]]
"""Runs tasks wherever, and gives back the results of all of them."""


def copy_instance(
    stores: StorePool,
    source: Side,
    target: Side,
    options: CopyOptions,
    guard: Guard,
    clock: Clock,
    *,
    extra: Mapping[str, str] | None = None,
    run_tasks: RunTasks | None = None,
    on_progress: OnProgress | None = None,
) -> Copied:
    """Copy one instance and publish it.

    `guard` is called when everything is verified and nothing is visible yet, and raises to forbid it. `clock` is the
    wall clock. The copy is repeated while the source changes, as often as the options say. Whatever goes wrong, what
    stood at the target still stands there, and the next copy of the same source goes on with what is in its staging.

    Raises:
        SourceNotAvailableError: there is no whole instance at the source.
        SourceEmptiedError: an empty source would empty the target, and nothing proves that it is meant.
        SourceChangingError: the source changed during every try.
        SourceDamagedError: a file of the source is not what its own manifest says.
        CopyDamagedError: what was read back is not what was read, in every try.
        StorageError: a storage refused: it is full, read-only, not reachable.
    """
    request = CopyRequest(source=source, target=target, guard=guard, extra=extra or {})
    (outcome,) = copy_many(stores, [request], options, clock, run_tasks=run_tasks, on_progress=on_progress)
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def copy_many(
    stores: StorePool,
    requests: Sequence[CopyRequest],
    options: CopyOptions,
    clock: Clock,
    *,
    run_tasks: RunTasks | None = None,
    processes: int = 1,
    on_progress: OnProgress | None = None,
) -> "list[Copied | Exception]":
    """Copy many instances; for each, in order, what became of it or the exception that ended it (see `copy_instance`).

    The failure of one does not touch the others. `run_tasks` runs the tasks elsewhere (what it raises goes on, and a
    repeat goes on with what was copied); without it they run in `max_tasks` threads. With more than one of `processes`
    many copies between filesystems of this machine are shared among so many, of which this is one; workers open the
    storages by their addresses, and know no more of `clock` than what is sent to them.
    """
    sides = {side.store: side for request in requests for side in (request.source, request.target)}.values()
    meter = Meter(on_progress)
    if processes > 1 and len(requests) >= WORTH_WORKERS and options.bandwidth is None and are_near(stores, sides):
        found = [_find_unchanged(stores, request, options) for request in requests]
        left = [request for request, outcome in zip(requests, found, strict=True) if outcome is None]
        if len(left) >= WORTH_WORKERS:
            copied = iter(_copy_by_workers(stores, left, options, clock, meter, processes))
        else:
            copied = iter(copy_many(stores, left, options, clock, run_tasks=run_tasks, on_progress=on_progress))
        return [next(copied) if outcome is None else outcome for outcome in found]
    batches = list(_batches(requests))
    is_alone = len(batches) == 1 or run_tasks is not None
    with copy_threads(options.max_tasks, stores, sides, is_alone=is_alone) as threads:
        work = _Work(
            stores=stores,
            options=options,
            clock=clock,
            threads=threads,
            run_tasks=run_tasks,
            throttle=Throttle(options.bandwidth) if options.bandwidth and run_tasks is None else None,
            meter=meter,
        )
        if is_alone:
            return [outcome for batch in batches for outcome in work.copy(batch)]
        with ThreadPoolExecutor(_LANES, "batch") as lanes:  # one waits for the disk while the other copies
            return [outcome for outcomes in lanes.map(work.copy, batches) for outcome in outcomes]


def _find_unchanged(stores: StorePool, request: CopyRequest, options: CopyOptions) -> Copied | None:
    """The outcome of a copy whose marks tell at once that it has nothing to do."""
    watch = Stopwatch()
    try:
        plan = find_unchanged(stores, request.source, request.target, options, request.distrusted)
        if plan is None:
            return None
        if request.check is not None:
            request.check(plan)
    except FeedAssetsError:  # it is met with again where it belongs
        return None
    return _unchanged(stores, plan, 1, watch)


def _copy_by_workers(
    stores: StorePool,
    requests: Sequence[CopyRequest],
    options: CopyOptions,
    clock: Clock,
    meter: Meter,
    processes: int,
) -> "list[Copied | Exception]":
    """Copy with so many processes, of which this is one: it begins while the others start."""
    asking = Lock()
    idle: SimpleQueue[Callable[[Sequence[CopyRequest]], list[Copied | Exception]]] = SimpleQueue()

    def copy(batch: Sequence[CopyRequest]) -> "list[Copied | Exception]":
        by = idle.get()
        try:
            return by(batch)
        finally:
            idle.put(by)

    with (
        SELDOM_COLLECTED,
        copy_threads(options.max_tasks, stores, (), is_alone=True) as threads,
        ThreadPoolExecutor(processes, "worker") as lanes,
        CopyWorkers(processes - 1, options, clock, meter, asking) as workers,
    ):
        here = _Work(stores=stores, options=options, clock=clock, threads=threads, meter=meter, asking=asking)
        for by in (here.copy, *[workers.copy] * (processes - 1)):
            idle.put(by)
        return [outcome for outcomes in lanes.map(copy, _batches(requests, processes)) for outcome in outcomes]


def _unchanged(stores: StorePool, plan: CopyPlan, tries: int, watch: Stopwatch) -> Copied:
    return Copied(
        status=CopyStatus.UNCHANGED,
        source_url=plan.source_url,
        target_url=stores.get(plan.target.store).url(plan.target.path),
        source_digest=plan.digest,
        publication=plan.publication,
        verification=plan.options.verification,
        tries=tries,
        seconds=watch.seconds,
    )


def _batches(requests: Sequence[CopyRequest], lanes: int = 1) -> Iterator[Sequence[CopyRequest]]:
    """Batches for so many lanes, which become smaller towards the end, so that the lanes end together.

    >>> [len(batch) for batch in _batches([None] * 300)], [len(batch) for batch in _batches([None] * 600, 2)]
    ([128, 128, 44], [128, 118, 88, 66, 50, 37, 28, 21, 16, 16, 16, 16])
    """
    start = 0
    while start < len(requests):
        share = (len(requests) - start) // (lanes * _LANES)
        size = BATCH if lanes == 1 else min(BATCH, max(share, _LEAST_BATCH))
        yield requests[start : start + size]
        start += size


@dataclass(slots=True)
class _Try:
    """One copy through its tries."""

    request: CopyRequest
    watch: Stopwatch = field(default_factory=Stopwatch)
    tries: int = 0
    distrusted: frozenset[str] = frozenset()
    plan: CopyPlan | None = None
    open: OpenCopy | None = None
    outcome: Copied | Exception | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    stores: StorePool
    options: CopyOptions
    clock: Clock
    threads: CopyThreads
    meter: Meter
    run_tasks: RunTasks | None = None
    throttle: Throttle | None = None
    asking: Lock = field(default_factory=Lock)
    """Held while a check or a guard is called."""

    def copy(self, requests: Sequence[CopyRequest]) -> "list[Copied | Exception]":
        """Copy a batch, those that have to be repeated included."""
        copies = [_Try(request, distrusted=request.distrusted) for request in requests]
        while left := [each for each in copies if each.outcome is None]:
            for each in left:
                each.tries += 1
            list(self.threads.small.map(self._plan, left))
            list(self.threads.small.map(self._open, left))
            self.meter.expect(each.open for each in left if each.open is not None and each.outcome is None)
            self._run([each for each in left if each.outcome is None])
        return [each.outcome for each in copies if each.outcome is not None]

    def _plan(self, copy: _Try) -> None:
        request = copy.request
        sides = request.source, request.target
        try:
            plan = plan_copy(self.stores, *sides, self.options, self.clock, copy.distrusted)
            if plan.is_unfinished and self.stores.get(plan.target.store).copying().recover(plan.target.path):
                plan = plan_copy(self.stores, *sides, self.options, self.clock, copy.distrusted)
            if request.check is not None:
                with self.asking:
                    request.check(plan)
        except FeedAssetsError as exc:
            copy.outcome = exc
            return
        copy.plan = plan
        if plan.is_unchanged:
            copy.outcome = _unchanged(self.stores, plan, copy.tries, copy.watch)

    def _open(self, copy: _Try) -> None:
        if copy.outcome is not None or copy.plan is None:
            return
        try:
            copy.open = open_copy(self.stores, copy.plan)
        except FeedAssetsError as exc:
            copy.outcome = exc

    def _run(self, copies: Sequence[_Try]) -> None:
        """Run the tasks of what is open, and end it."""
        opened = [each.open for each in copies if each.open is not None]
        is_elsewhere = self.run_tasks is not None
        held = Held(_HELD if self.options.verification is not Verification.NONE else 0)
        results = self._run_tasks(part_tasks(opened, self.options.max_tasks, shares_bandwidth=is_elsewhere), held)
        finishing = Finishing(stores=self.stores, clock=self.clock, threads=self.threads, asking=self.asking)
        wishes = [(each.request.guard, each.request.extra) for each in copies]
        outcomes = finishing.finish(opened, results, wishes, held)
        for each, outcome in zip(copies, outcomes, strict=True):
            self._judge(each, outcome)

    def _run_tasks(self, tasks: Sequence[CopyTask], held: Held) -> list[TaskResult]:
        if self.run_tasks is not None:
            return list(self.run_tasks(tasks))
        ended: set[int] = set()

        def run(task: CopyTask) -> TaskResult:
            return run_task(task, self.stores, throttle=self.throttle, on_bytes=self.meter.add, ended=ended, held=held)

        return self.threads.run(run, tasks)

    def _judge(self, copy: _Try, outcome: Copied | Exception) -> None:
        if isinstance(outcome, Copied):
            copy.outcome = replace(outcome, tries=copy.tries, seconds=copy.watch.seconds)
        elif not isinstance(outcome, RepeatError):
            copy.outcome = outcome
        elif copy.tries < self.options.tries:
            copy.distrusted |= frozenset(outcome.files)
        else:
            assert copy.plan is not None
            if outcome.is_damage:
                url = self.stores.get(copy.request.target.store).url(copy.request.target.path)
                copy.outcome = CopyDamagedError(url=url, files=outcome.files, tries=copy.tries)
            else:
                url = copy.plan.source_url
                copy.outcome = SourceChangingError(url=url, tries=copy.tries, reason=outcome.reason)
