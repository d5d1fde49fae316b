"""Stores of one endpoint are asked in turn; one that hangs is found out, and then asked by itself."""

from datetime import timedelta
from threading import Event

from feed_assets.clock import FrozenClock
from feed_assets.context.bulkheads import LONGEST_PAUSE, Bulkheads, TickFailure
from feed_assets.context.tick import ask_by_store
from feed_assets.patience import Patience
from feed_assets.plan.copy_records import StoreAddress
from tests.instances.harness import START

A, B, C = (StoreAddress(url=f"thrift://metastore:9083/web/{name}") for name in "abc")
ENDPOINT = "thrift://metastore:9083"


class Ticks:
    """Ticks of one process, each after the longest pause: they ask A, B and C, of which some hang."""

    def __init__(self) -> None:
        self.hanging: set[StoreAddress] = set()
        self.is_over = Event()
        self.asked: list[StoreAddress] = []
        self._patience = Patience(0.1)
        self._known: list[TickFailure] = []
        self._now = START

    def ask(self) -> dict[str, bool]:
        """Ask once; return which stores have answered."""
        self.asked = []
        bulkheads = Bulkheads("here", FrozenClock(self._now), self._known, self._patience)
        answers = ask_by_store({each: lambda each=each: self._answer(each) for each in (A, B, C)}, bulkheads)
        self._known = bulkheads.failures
        self._now += LONGEST_PAUSE + timedelta(seconds=1)
        return {each.url[-1]: answer == each.url for each, answer in answers.items()}

    @property
    def failing(self) -> list[str]:
        return [each.subject for each in self._known]

    def _answer(self, address: StoreAddress) -> str:
        self.asked.append(address)
        if address in self.hanging:
            self.is_over.wait(30)
        return address.url


def test_a_store_that_hangs_fails_alone_when_the_others_answer_without_it() -> None:
    ticks = Ticks()
    ticks.hanging = {B}
    try:
        assert ticks.ask() == {"a": True, "b": False, "c": False}
        assert ticks.failing == [ENDPOINT]
        assert ticks.ask() == {"a": True, "b": False, "c": True}
        assert ticks.failing == [B.url]
        assert ticks.asked == [A, C]  # the call of the first time still hangs
    finally:
        ticks.is_over.set()
    ticks.hanging = set()
    while not all(ticks.ask().values()):
        pass
    assert ticks.failing == []
    ticks.ask()
    assert ticks.asked == [A, B, C]


def test_an_endpoint_that_is_silent_is_one_failure_however_often_it_is_asked() -> None:
    ticks = Ticks()
    ticks.hanging = {A, B, C}
    try:
        for _ in range(5):
            assert ticks.ask() == {"a": False, "b": False, "c": False}
            assert ticks.failing == [ENDPOINT]
    finally:
        ticks.is_over.set()
