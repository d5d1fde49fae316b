"""Copy instances, from the plan to the publication, with the threads of this process."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from itertools import chain

from feed_assets.clock import Clock, Stopwatch
from feed_assets.entities.copies.options import Existing
from feed_assets.errors import FeedAssetsError
from feed_assets.plan.copy_records import CopyOptions, StoreAddress
from feed_assets.storage.checksums import checksum_of
from feed_assets.storage.clearing import find_foreign, refuse_foreign
from feed_assets.storage.copy_port import SourceFile, Survey
from feed_assets.storage.errors import PlaceOccupiedError, StorageError, StorageFullError
from feed_assets.storage.listing import nanoseconds
from feed_assets.storage.pool import StorePool
from feed_assets.storage.records import Availability
from feed_assets.transfer.errors import CopyDamagedError, SourceChangingError
from feed_assets.transfer.finishing import RepeatError, finish_copies
from feed_assets.transfer.plans import CopyPlan, Side, plan_copy, survey_source
from feed_assets.transfer.requests import Copied, CopyRequest, CopyStatus, Meter, OnProgress
from feed_assets.transfer.running import CopyResult, TaskResult, Throttle, run_task
from feed_assets.transfer.tasks import LARGE, CopyTask, OpenCopy, open_copy, part_tasks

BATCH = 128
"""The number of instances that are copied together: they share tasks, and one flush to disk."""
_LANES = 2
"""The number of concurrent batches: one flushes to disk while the other copies."""
_THREADS = 4
"""The number of files that are compared at once."""

RunTasks = Callable[[Sequence[CopyTask]], Iterable[TaskResult] | None]
"""Runs tasks outside this process and returns all results; returns None if the work is too small for that."""


def copy_many(
    stores: StorePool,
    requests: Sequence[CopyRequest],
    options: CopyOptions,
    clock: Clock,
    *,
    run_tasks: RunTasks | None = None,
    on_progress: OnProgress | None = None,
) -> "list[Copied | Exception]":
    """Copy instances and publish each; return for each, in order, its result or its exception.

    A failed copy leaves its target unchanged and does not affect the others; the next copy of the same source
    continues with its staging. The guard of a request is called after verification and before anything becomes
    visible; it raises to forbid the publication. A copy is repeated while its source changes, at most `options.tries`
    times. `clock` is the real clock.

    `run_tasks` runs the tasks outside this process. Its exceptions propagate, and a repeat continues with the files
    already copied. Without it, tasks run in `max_tasks` threads, which also call the guards.

    The exceptions of an instance:
        SourceNotAvailableError: the source has no complete instance.
        SourceEmptiedError: an empty source would empty the target, and nothing proves that this is intended.
        SourceChangingError: the source changed during every try.
        SourceDamagedError: a file of the source differs from its manifest.
        CopyDamagedError: in every try, the bytes read back differed from the bytes read at the source.
        StorageError: a storage refused: it is full, read-only or not reachable.
    """
    sides = {side.store: side for request in requests for side in (request.source, request.target)}.values()
    pairs = {(request.source.store, request.target.store) for request in requests}
    with ThreadPoolExecutor(max(options.max_tasks, 1), "copy") as many, ThreadPoolExecutor(1, "copy-small") as one:
        work = _Work(
            stores=stores,
            options=options,
            clock=clock,
            many=many,
            small=many if _are_remote(stores, sides) else one,
            run_tasks=run_tasks,
            refusals={pair: refused for pair in pairs if (refused := _find_refusal(stores, *pair)) is not None},
            throttle=Throttle(options.bandwidth) if options.bandwidth else None,
            meter=Meter(on_progress),
        )
        batches = [requests[start : start + BATCH] for start in range(0, len(requests), BATCH)]
        if len(batches) == 1 or run_tasks is not None:
            return [outcome for batch in batches for outcome in work.copy(batch)]
        with ThreadPoolExecutor(_LANES, "batch") as lanes:
            return [outcome for outcomes in lanes.map(work.copy, batches) for outcome in outcomes]


def _find_refusal(stores: StorePool, source: StoreAddress, target: StoreAddress) -> FeedAssetsError | None:
    """Return why nothing of a store can be copied to another one; make what the copies need there."""
    try:
        stores.get(target).receive_from(stores.get(source))
    except FeedAssetsError as exc:
        return exc
    return None


def _are_remote(stores: StorePool, sides: Iterable[Side]) -> bool:
    """Return whether any side is not a filesystem of this machine.

    A store that cannot be opened counts as remote; each of its copies then fails with its own error.
    """
    try:
        return any(stores.get(side.store).is_remote for side in sides)
    except FeedAssetsError:
        return True


def _unchanged(stores: StorePool, plan: CopyPlan, tries: int, watch: Stopwatch) -> Copied:
    return Copied(
        status=CopyStatus.UNCHANGED,
        source_url=plan.source_url,
        target_url=stores.get(plan.target.store).url(plan.target.path),
        source_digest=plan.digest,
        publication=plan.publication,
        skipped=plan.survey.others,
        verification=plan.options.verification,
        tries=tries,
        seconds=watch.seconds,
    )


@dataclass(slots=True)
class _Try:
    """The state of one copy across its tries."""

    request: CopyRequest
    watch: Stopwatch = field(default_factory=Stopwatch)
    tries: int = 0
    distrusted: frozenset[str] = frozenset()
    plan: CopyPlan | None = None
    open: OpenCopy | None = None
    outcome: Copied | Exception | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """Copies batches. The threads of `many` move bytes; `small` has one thread if no storage is remote.

    A small file takes a few short system calls with a little Python between them; several threads would be slower.
    """

    stores: StorePool
    options: CopyOptions
    clock: Clock
    many: Executor
    small: Executor
    meter: Meter
    refusals: Mapping[tuple[StoreAddress, StoreAddress], FeedAssetsError]
    run_tasks: RunTasks | None = None
    throttle: Throttle | None = None

    def copy(self, requests: Sequence[CopyRequest]) -> "list[Copied | Exception]":
        """Copy a batch, including repeats."""
        copies = [_Try(request, distrusted=request.distrusted) for request in requests]
        while left := [each for each in copies if each.outcome is None]:
            for each in left:
                each.tries += 1
            self._each(self._plan, left)
            self._each(self._open, [each for each in left if each.outcome is None])
            self.meter.expect(each.open for each in left if each.open is not None and each.outcome is None)
            self._run([each for each in left if each.outcome is None])
        for each in copies:
            is_full = isinstance(each.outcome, StorageFullError)
            if each.plan is not None and (is_full or self.options.exact):  # an archive keeps nothing but archives
                self._free_space(each.plan)
        return [each.outcome for each in copies if each.outcome is not None]

    def _free_space(self, plan: CopyPlan) -> None:
        """Remove what a copy has staged, because other copies and publications need the space."""
        store, path = self.stores.get(plan.target.store), plan.target.path
        with suppress(StorageError), closing(store.staging(path, plan.token)) as staging:
            store.recover(path)  # a publication that has begun needs its staging
            staging.remove()

    def _each(self, work: Callable[[_Try], None], copies: Sequence[_Try]) -> None:
        """Call `work` for each copy, all in one call of the pool if it has one thread."""
        if self.small is self.many:
            list(self.many.map(work, copies))
            return

        def work_all() -> None:
            for copy in copies:
                work(copy)

        self.small.submit(work_all).result()

    def _plan(self, copy: _Try) -> None:
        request = copy.request
        try:
            if (refusal := self.refusals.get((request.source.store, request.target.store))) is not None:
                raise refusal
            plan = self._compare(copy)
            if plan.is_unfinished:
                with suppress(StorageError):  # only another publication can complete it, and this copy is one
                    self.stores.get(plan.target.store).recover(plan.target.path)
                plan = self._compare(copy)
            if request.check is not None:
                request.check(plan)
            if request.clearing is not None and plan.is_foreign:
                store, path = self.stores.get(plan.target.store), plan.target.path
                refuse_foreign(store, path, find_foreign(store, path), request.clearing)
        except FeedAssetsError as exc:
            copy.outcome = exc
            return
        copy.plan = plan
        if plan.is_unchanged:
            if request.is_repeated:
                self._free_space(plan)  # an interrupted copy may have published all, and left its staging
            copy.outcome = _unchanged(self.stores, plan, copy.tries, copy.watch)

    def _compare(self, copy: _Try) -> CopyPlan:
        request = copy.request
        sides = request.source, request.target
        if self.options.exact:
            return _plan_exactly(self.stores, *sides, self.options, self.clock)
        adopts = request.clearing is not None and request.clearing.existing is Existing.ADOPT
        return plan_copy(self.stores, *sides, self.options, self.clock, copy.distrusted, adopts=adopts)

    def _open(self, copy: _Try) -> None:
        assert copy.plan is not None
        try:
            copy.open = open_copy(self.stores, copy.plan)
        except FeedAssetsError as exc:
            copy.outcome = exc

    def _run(self, copies: Sequence[_Try]) -> None:
        """Run the tasks of the open copies, then finish these copies."""
        opened = [each.open for each in copies if each.open is not None]
        tasks = part_tasks(opened, self.options.max_tasks, shares_bandwidth=self.run_tasks is not None)
        results = self._run_tasks(tasks)
        has_large = any(file.size >= LARGE for copy in opened for file in copy.plan.transfers)
        pool, requests = self.many if has_large else self.small, [each.request for each in copies]
        outcomes = finish_copies(self.stores, self.clock, pool, opened, results, requests)
        for each, outcome in zip(copies, outcomes, strict=True):
            self._judge(each, outcome)

    def _run_tasks(self, tasks: Sequence[CopyTask]) -> list[CopyResult]:
        if self.run_tasks is not None and (results := self.run_tasks(tasks)) is not None:
            return [*chain.from_iterable(results)]
        tasks = [replace(task, rate=self.options.task_bandwidth) for task in tasks]  # one throttle limits them together
        ended: set[int] = set()

        def run(task: CopyTask) -> TaskResult:
            return run_task(task, self.stores, throttle=self.throttle, on_bytes=self.meter.add, ended=ended)

        large = self.many.map(run, [task for task in tasks if task.has_large_files])
        small = self.small.map(run, [task for task in tasks if not task.has_large_files])
        return [*chain.from_iterable((*large, *small))]

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


def _plan_exactly(stores: StorePool, source: Side, target: Side, options: CopyOptions, clock: Clock) -> CopyPlan:
    """Plan an exact copy, that of an archive: of everything, in any state, to a place where nothing is. Nothing is to
    be done if an equal copy is there.

    Raises:
        PlaceOccupiedError: something else is there.
        SourceChangingError: the source changed while it was compared with an equal copy.
    """
    url, survey = stores.get(source.store).url(source.path), survey_source(stores, source, options, clock)
    standing = stores.get(target.store).survey_all(target.path, nanoseconds(clock.now()))
    is_there = standing.availability is not Availability.MISSING
    if is_there:
        if not _is_equal(stores, source, survey, target, standing):
            raise PlaceOccupiedError(store=stores.get(target.store).root_url, path=target.path)
        if not survey_source(stores, source, options, clock).is_like(survey):
            raise SourceChangingError(url=url, tries=1, reason="it changed while it was compared")
    return CopyPlan(
        source=source,
        target=target,
        options=options,
        source_url=url,
        is_unchanged=is_there,
        survey=survey,
        transfers=survey.files,
        flags=(target.flag,) if target.flag else (),
    )


def _is_equal(stores: StorePool, source: Side, survey: Survey, target: Side, standing: Survey) -> bool:
    """Return whether two instances have the same files with the same bytes; read both."""
    if [file[:2] for file in survey.files] != [file[:2] for file in standing.files]:
        return False
    with ExitStack() as stack:
        sides = [stack.enter_context(stores.get(side.store).reading(side.path)) for side in (source, target)]

        def is_equal(file: SourceFile) -> bool:
            one, other = (checksum_of(reading.chunks(file.path)) for reading in sides)
            return one == other

        with ThreadPoolExecutor(_THREADS) as pool:
            return all(pool.map(is_equal, survey.files))
