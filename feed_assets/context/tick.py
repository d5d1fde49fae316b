"""A tick of a cluster as one object, and its steps as plain calls. Stores are asked at all endpoints at once and with a
time limit; what fails concerns its own question alone.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial, wraps
from typing import Concatenate, ParamSpec, TypeVar

from feed_assets.clock import Stopwatch, TimeBudget
from feed_assets.context.bulkheads import AWAY, SLOW_SECONDS, Bulkheads, TickStep, Unconfined
from feed_assets.context.errors import NotAskedError
from feed_assets.context.operation import OperationContext
from feed_assets.errors import NoAnswerError
from feed_assets.log.definitions.records import ScheduleState
from feed_assets.plan.addresses import StoreAddress, endpoint_of
from feed_assets.plan.records import Plan
from feed_assets.releases.timeline import ReleaseTimeline
from feed_assets.sql.database import Database
from feed_assets.storage.pool import StorePool

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
_Otherwise = TypeVar("_Otherwise")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """What the steps of a tick of a cluster have at hand: made by `open_tick`.

    `real_now` is the real time at its beginning. While it `is_held`, because of safe mode or since the state was
    restored, nothing is taken or cut.
    """

    context: OperationContext
    cluster: str
    bulkheads: Bulkheads
    budget: TimeBudget
    real_now: datetime
    is_held: bool = False

    @property
    def database(self) -> Database:
        """The state."""
        return self.context.database

    @property
    def stores(self) -> StorePool:
        """The stores."""
        return self.context.stores

    @property
    def timeline(self) -> ReleaseTimeline:
        """The releases; they are current."""
        return self.context.timeline

    @property
    def plan(self) -> Plan:
        """The plan of the current definitions."""
        return self.context.timeline.plan

    @property
    def as_of(self) -> datetime:
        """The time of the data."""
        return self.context.as_of

    @property
    def without_row(self) -> ScheduleState:
        """The state of processes that have no schedule."""
        return self.context.without_row


def open_tick(
    context: OperationContext,
    cluster: str,
    bulkheads: Bulkheads | None = None,
    *,
    budget: TimeBudget | None = None,
    is_held: bool = False,
) -> Tick:
    """Return a tick of a cluster. Without bulkheads what fails is raised; without a budget the time is ample."""
    return Tick(
        context=context,
        cluster=cluster,
        bulkheads=bulkheads or Unconfined(cluster, context.real_clock),
        budget=budget or TimeBudget.ample(),
        real_now=context.real_now,
        is_held=is_held,
    )


def tick_step(
    step: TickStep, otherwise: _Otherwise, unit: str = ""
) -> Callable[
    [Callable[Concatenate[Tick, _Arguments], _Result]], Callable[Concatenate[Tick, _Arguments], _Result | _Otherwise]
]:
    """Let a function be a step of ticks: called as it is written, it runs under the bulkheads of its tick, and its
    result is `otherwise` if it fails or is put off. With a `unit` it is but that unit of the step.
    """

    def decorate(
        work: Callable[Concatenate[Tick, _Arguments], _Result],
    ) -> Callable[Concatenate[Tick, _Arguments], _Result | _Otherwise]:
        @wraps(work)
        def run(tick: Tick, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result | _Otherwise:
            if unit:
                return tick.bulkheads.run_unit(step, unit, otherwise, work, tick, *args, **kwargs)
            return tick.bulkheads.run(step, otherwise, work, tick, *args, **kwargs)

        return run

    return decorate


_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")


def ask_by_store(
    calls: Mapping[StoreAddress, Callable[[], _Answer]], bulkheads: Bulkheads
) -> dict[StoreAddress, _Answer | Exception]:
    """Call stores, all endpoints at once and the stores of each in turn; return what each returned, or why it did not.

    A call that fails slowly, such as by a time-out, raises, and keeps the stores behind it from being called; then the
    endpoint is put off. The next time it is called without the store that was at work. If it answers, that store fails
    alone: a table, for instance, whose data are elsewhere. Such a store is called by itself until it answers.
    """
    by_endpoint: dict[str, list[StoreAddress]] = defaultdict(list)
    for address in calls:
        by_endpoint[endpoint_of(address)].append(address)
    together, apart = dict[str, list[StoreAddress]](), dict[str, list[StoreAddress]]()
    for endpoint, addresses in by_endpoint.items():
        known = bulkheads.patience.find_apart(endpoint)
        others = [each for each in addresses if each.url not in known]
        if others or bulkheads.has_failed(TickStep.STORAGE, endpoint):
            together[endpoint] = others or addresses
        apart[endpoint] = [each for each in addresses if each not in together.get(endpoint, ())]
    found, failed = _ask_units(together, calls, bulkheads)
    for endpoint, addresses in apart.items():
        if endpoint in failed:
            found |= dict.fromkeys(addresses, failed[endpoint])
    alone: dict[str, list[StoreAddress]] = defaultdict(list)
    for each in (each for endpoint, addresses in apart.items() if endpoint not in failed for each in addresses):
        alone[each.url].append(each)
    answered, failing = _ask_units(alone, calls, bulkheads)
    for url, addresses in alone.items():
        if url not in failing:
            bulkheads.patience.put_back(endpoint_of(addresses[0]), url)
    return found | answered


def _ask_units(
    units: Mapping[str, Sequence[StoreAddress]],
    calls: Mapping[StoreAddress, Callable[[], _Answer]],
    bulkheads: Bulkheads,
) -> tuple[dict[StoreAddress, _Answer | Exception], dict[str, Exception]]:
    """Call the stores of units, and return the answers by store, and the units that failed."""
    done: dict[str, dict[StoreAddress, _Answer]] = {unit: {} for unit in units}
    at_work: dict[str, StoreAddress] = {}

    def ask(unit: str) -> None:
        for address in units[unit]:
            at_work[unit] = address
            done[unit][address] = calls[address]()

    found: dict[StoreAddress, _Answer | Exception] = {}
    failed: dict[str, Exception] = {}
    for unit, answer in bulkheads.ask(TickStep.STORAGE, {unit: partial(ask, unit) for unit in units}).items():
        if isinstance(answer, Exception):
            failed[unit] = answer
            found |= dict.fromkeys(units[unit], answer)
            if unit in at_work and len(units[unit]) > 1:
                bulkheads.patience.set_apart(unit, at_work[unit].url)
        found |= done[unit].copy()  # a call that hangs may go on writing
    return found, failed


def ask_stores(
    items: Sequence[_Item],
    address_of: Callable[[_Item], StoreAddress],
    ask: Callable[[_Item], _Answer],
    bulkheads: Bulkheads,
) -> list[_Answer | Exception]:
    """Ask the stores of some items; return the answer for each, or why there is none.

    What fails concerns its own item alone, unless it fails slowly: see `ask_by_store`.
    """
    by_store: dict[StoreAddress, list[int]] = defaultdict(list)
    for position, item in enumerate(items):
        by_store[address_of(item)].append(position)

    def ask_all(positions: Sequence[int]) -> dict[int, _Answer | Exception]:
        return {position: _ask(ask, items[position]) for position in positions}

    calls = {address: partial(ask_all, positions) for address, positions in by_store.items()}
    found: dict[int, _Answer | Exception] = {}
    for address, answer in ask_by_store(calls, bulkheads).items():
        found |= dict.fromkeys(by_store[address], answer) if isinstance(answer, Exception) else answer
    return [found[position] for position in range(len(items))]


def find_silent(
    stores: StorePool, addresses: Collection[StoreAddress], bulkheads: Bulkheads
) -> Mapping[StoreAddress, Exception]:
    """Return the stores whose storage does not answer now, and what is known of it; one small call for each store.

    For work that has no time limit: it may read and write much. A storage that answers, whatever it answers, is none
    of them.
    """
    chosen = list(dict.fromkeys(addresses))
    answers = ask_stores(chosen, lambda address: address, lambda address: stores.get(address).check_root(), bulkheads)
    silent = zip(chosen, answers, strict=True)
    return {address: answer for address, answer in silent if isinstance(answer, NoAnswerError | NotAskedError)}


def _ask(ask: Callable[[_Item], _Answer], item: _Item) -> _Answer | Exception:
    """Return the answer for an item, or why there is none. Raises what fails slowly, and that the storage is away."""
    watch = Stopwatch()
    try:
        return ask(item)
    except Exception as exc:
        if watch.seconds > SLOW_SECONDS or isinstance(exc, AWAY):
            raise
        return exc
