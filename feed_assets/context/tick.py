"""A tick of a cluster as one object, its steps as plain calls, and one loop for each kind of what is looked at again
later. Stores are asked at all endpoints at once and with a time limit; what fails concerns its own question alone.
"""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial, wraps
from itertools import chain
from math import inf
from typing import ClassVar, Concatenate, Generic, ParamSpec, TypeVar

from sqlalchemy import Connection

from feed_assets.clock import Stopwatch, TimeBudget
from feed_assets.context.bulkheads import AWAY, SLOW_SECONDS, Bulkheads, TickStep, Unconfined
from feed_assets.context.errors import NotAskedError
from feed_assets.context.operation import OperationContext
from feed_assets.errors import NoAnswerError
from feed_assets.plan.copy_records import StoreAddress, endpoint_of
from feed_assets.storage.pool import StorePool

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
_Otherwise = TypeVar("_Otherwise")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick(OperationContext):
    """What the steps of a tick of a cluster have at hand: made by `open_tick`.

    `real_now` is the real time at its beginning. While it `is_held`, because of safe mode or since the state was
    restored, nothing is taken or cut.
    """

    cluster: str
    bulkheads: Bulkheads
    budget: TimeBudget
    real_now: datetime = field()
    is_held: bool = False


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
        **context.shared(),
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


_Entry = TypeVar("_Entry")


class Handler(ABC, Generic[_Entry, _Result]):
    """A kind of what is looked at again later: which entries are due, and what is done with them.

    `at_once` entries are handled together, a step, and a tick makes `most_steps`. Those of one unit fail together: of
    one entity, as a rule.
    """

    step: ClassVar[TickStep]
    at_once: ClassVar[int]
    most_steps: ClassVar[float] = inf

    @abstractmethod
    def find_due(self, connection: Connection, tick: Tick, limit: int) -> Sequence[_Entry]:
        """Return the due entries of the tick's cluster."""

    @abstractmethod
    def unit_of(self, entry: _Entry) -> str:
        """Return the unit of an entry."""

    @abstractmethod
    def handle(self, tick: Tick, entries: Sequence[_Entry]) -> list[_Result]:
        """Do what is due, so that it is due no longer. If it raises, it is called again for each unit, and does nothing
        twice.
        """

    def put_off(self, tick: Tick, entries: Sequence[_Entry], pause: timedelta) -> list[_Result]:  # noqa: ARG002
        """Let the entries of a unit that has failed be due after a pause; else they stay due, and wait for its next
        try.
        """
        return []


def work_off(tick: Tick, handler: Handler[_Entry, _Result]) -> tuple[list[_Result], bool]:
    """Handle what is due until nothing is, or the tick's time is over; return the results, and whether it was all.

    Without anything due this is one read. A tick that breaks off loses nothing: what is not handled stays due. What is
    due again at once, because something else has changed it, is left to the next tick. A unit that fails is not asked
    again in the same tick, and keeps no other waiting.
    """
    results: list[_Result] = []
    before: Mapping[str, Sequence[_Entry]] = {}
    failed: set[str] = set()
    steps = passed = 0

    def handle(units: Sequence[Sequence[_Entry]]) -> list[_Result]:
        return handler.handle(tick, list(chain.from_iterable(units)))

    while True:
        with tick.database.read() as connection:
            found = handler.find_due(connection, tick, handler.at_once + passed)
        units: dict[str, list[_Entry]] = defaultdict(list)
        for entry in found:
            units[handler.unit_of(entry)].append(entry)
        due = {unit: entries for unit, entries in units.items() if unit not in failed}
        now = {unit: entries for unit, entries in due.items() if not tick.bulkheads.is_put_off(handler.step, unit)}
        if now and now == before:
            return results, False
        results += tick.bulkheads.run_apart(handler.step, now, handle)
        for unit, entries in due.items():
            if tick.bulkheads.has_failed(handler.step, unit):
                results += handler.put_off(tick, entries, tick.bulkheads.pause(handler.step, unit))
                failed.add(unit)
        steps += bool(now)
        if not due and len(found) < handler.at_once + passed:
            return results, not found
        if tick.budget.is_spent or steps == handler.most_steps:
            return results, False
        before, passed = now, 2 * sum(len(entries) for unit, entries in units.items() if unit in failed)
