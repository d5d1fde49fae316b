"""Work off what is due: one loop for each kind of what is looked at again later."""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import chain
from math import inf
from typing import ClassVar, Generic, TypeVar

from sqlalchemy import Connection

from feed_assets.context.bulkheads import TickStep
from feed_assets.context.tick import Tick

_Entry = TypeVar("_Entry")
_Result = TypeVar("_Result")


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
