"""Work off what is due: one loop for each kind of what is looked at again later."""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from itertools import chain
from math import inf
from typing import ClassVar, Generic, TypeVar

from sqlalchemy import Connection

from feed_assets.context.tick import Tick
from feed_assets.context.tick_failures import TickStep

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
        """Do what is due, so that it is due no longer. It has no effect if it raises."""

    def put_off(self, tick: Tick, entries: Sequence[_Entry], pause: timedelta) -> list[_Result]:  # noqa: ARG002
        """Let the entries of a unit that has failed be due after a pause; else they stay due, and wait for its next
        try.
        """
        return []


def work_off(tick: Tick, handler: Handler[_Entry, _Result]) -> tuple[list[_Result], bool]:
    """Handle what is due until nothing is, or the tick's time is over; return the results, and whether it was all.

    Without anything due this is one read. A tick that breaks off loses nothing: what is not handled stays due. What is
    due again at once, because something else has changed it, is left to the next tick.
    """
    results: list[_Result] = []
    before: Sequence[_Entry] = ()

    def handle(units: Sequence[Sequence[_Entry]]) -> list[_Result]:
        return handler.handle(tick, list(chain.from_iterable(units)))

    steps = 0
    while True:
        with tick.database.read() as connection:
            due = handler.find_due(connection, tick, handler.at_once)
        if not due or due == before:
            return results, not due
        before, units = due, defaultdict[str, list[_Entry]](list)
        for entry in due:
            units[handler.unit_of(entry)].append(entry)
        results += tick.bulkheads.run_apart(handler.step, units, handle)
        for unit, entries in units.items():
            if tick.bulkheads.has_failed(handler.step, unit):
                results += handler.put_off(tick, entries, tick.bulkheads.pause(handler.step, unit))
        steps += 1
        if tick.budget.is_spent or steps == handler.most_steps:
            return results, False
