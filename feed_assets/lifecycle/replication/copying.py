"""Copies from their plan to their publication, here, with threads: of one instance, or of many in one go."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import islice
from threading import Lock

from feed_assets.clock import Clock, Stopwatch
from feed_assets.errors import FeedAssetsError
from feed_assets.lifecycle.errors import CopyDamagedError, SourceChangingError
from feed_assets.lifecycle.replication.finishing import Copied, CopyStatus, Finishing, RepeatError
from feed_assets.lifecycle.replication.plans import CopyPlan, Side, plan_copy
from feed_assets.lifecycle.replication.running import TaskResult, run_task
from feed_assets.lifecycle.replication.tasks import CopyTask, OpenCopy, open_copy, part_tasks
from feed_assets.lifecycle.replication.threads import CopyThreads, copy_threads
from feed_assets.lifecycle.replication.throttle import Throttle
from feed_assets.lifecycle.stores import StorePool
from feed_assets.plan.copy_options import CopyOptions
from feed_assets.storage.records import Guard

BATCH = 128
"""How many instances are copied together: their tasks are mixed, and the disk is waited for once."""
_LANES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far copies have come: what is done of what is known to be done."""

    bytes: int
    files: int
    all_bytes: int
    all_files: int


OnProgress = Callable[[Progress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRequest:
    """One copy that is asked for.

    `check` sees each plan before anything is written, and raises to forbid it; `guard` has the last word before it
    becomes visible; `extra` goes into its manifest. What a repair has found to be lost, rotten or too much at the
    target is `distrusted`: there every file is compared anew.
    """

    source: Side
    target: Side
    guard: Guard
    extra: Mapping[str, str] = field(default_factory=dict)
    distrusted: frozenset[str] = frozenset()
    check: Callable[[CopyPlan], None] = lambda _: None


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
    on_progress: OnProgress | None = None,
) -> "list[Copied | Exception]":
    """Copy many instances; for each, in order, what became of it or the exception that ended it (see `copy_instance`).

    The failure of one does not touch the others. `run_tasks` runs the tasks elsewhere (what it raises goes on, and a
    repeat goes on with what was copied); without it they run in `max_tasks` threads.
    """
    sides = (side for request in requests for side in (request.source, request.target))
    with copy_threads(options.max_tasks, stores, sides) as threads:
        work = _Work(
            stores=stores,
            options=options,
            clock=clock,
            threads=threads,
            run_tasks=run_tasks,
            throttle=Throttle(options.bandwidth) if options.bandwidth and run_tasks is None else None,
            meter=_Meter(on_progress),
        )
        batches = list(_batches(requests))
        if len(batches) == 1 or run_tasks is not None:
            return [outcome for batch in batches for outcome in work.copy(batch)]
        with ThreadPoolExecutor(_LANES, "batch") as lanes:  # one waits for the disk while the other copies
            return [outcome for outcomes in lanes.map(work.copy, batches) for outcome in outcomes]


def _batches(requests: Sequence[CopyRequest]) -> Iterator[list[CopyRequest]]:
    left = iter(requests)
    while batch := list(islice(left, BATCH)):
        yield batch


class _Meter:
    """Adds up the progress of threads."""

    def __init__(self, tell: OnProgress | None) -> None:
        self._tell = tell
        self._done = Progress(bytes=0, files=0, all_bytes=0, all_files=0)
        self._mutex = Lock()

    def expect(self, copies: Iterable[OpenCopy]) -> None:
        for copy in copies:
            self._add(0, 0, copy.missing_bytes, len(copy.missing))

    def add(self, size: int, files: int) -> None:
        self._add(size, files, 0, 0)

    def _add(self, size: int, files: int, all_bytes: int, all_files: int) -> None:
        if self._tell is None:
            return
        with self._mutex:
            done = self._done
            self._done = Progress(
                bytes=done.bytes + size,
                files=done.files + files,
                all_bytes=done.all_bytes + all_bytes,
                all_files=done.all_files + all_files,
            )
            self._tell(self._done)


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
    run_tasks: RunTasks | None
    throttle: Throttle | None
    meter: _Meter
    mutex: Lock = field(default_factory=Lock)

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
            if not plan.is_unchanged and self.stores.get(plan.target.store).copying().recover(plan.target.path):
                plan = plan_copy(self.stores, *sides, self.options, self.clock, copy.distrusted)
            request.check(plan)
        except FeedAssetsError as exc:
            copy.outcome = exc
            return
        copy.plan = plan
        if plan.is_unchanged:
            copy.outcome = Copied(
                status=CopyStatus.UNCHANGED,
                source_url=plan.source_url,
                target_url=self.stores.get(plan.target.store).url(plan.target.path),
                source_digest=plan.digest,
                verification=self.options.verification,
                tries=copy.tries,
                seconds=copy.watch.seconds,
            )

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
        results = self._run_tasks(part_tasks(opened, self.options.max_tasks, shares_bandwidth=is_elsewhere))
        finishing = Finishing(stores=self.stores, clock=self.clock, threads=self.threads, mutex=self.mutex)
        outcomes = finishing.finish(opened, results, [(each.request.guard, each.request.extra) for each in copies])
        for each, outcome in zip(copies, outcomes, strict=True):
            self._judge(each, outcome)

    def _run_tasks(self, tasks: Sequence[CopyTask]) -> list[TaskResult]:
        if self.run_tasks is not None:
            return list(self.run_tasks(tasks))
        ended: set[int] = set()

        def run(task: CopyTask) -> TaskResult:
            return run_task(task, self.stores, throttle=self.throttle, on_bytes=self.meter.add, ended=ended)

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
