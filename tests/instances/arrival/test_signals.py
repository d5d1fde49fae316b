from datetime import datetime, timedelta

from feed_assets.instances.arrival.recording import Signal, record_signals
from feed_assets.log.events import EventLog
from tests.conformance.what_comes import Flow, flow, signal, taking
from tests.instances.harness import counted_statements

COUNT = 600


def record(found: Flow, at: datetime, count: int) -> list[str]:
    """Record signals; return the statements."""
    signals = [Signal(record=found.lifecycle.feed("d"), at=at, origin="a test")] * count
    with counted_statements() as statements, found.lifecycle.database.begin() as connection:
        record_signals(connection, signals, at)
    return statements


def test_all_signals_of_a_second_are_events_of_it_that_count_in_their_order_at_the_same_cost() -> None:
    with flow(signal("d"), taking("p", "d")) as found:
        first = record(found, found.now, 1)
        record(found, found.now + timedelta(milliseconds=400), COUNT)
        assert len(record(found, found.now, 1)) == len(first)
        with found.lifecycle.database.read() as connection:
            events = EventLog(connection).read(0, 1_000)
        assert {event.nominal_time for event in events} == {found.now}
        (batch,) = found.tick()
        assert [event.event for event in found.taken(batch)] == [event.seq for event in events]
        assert len(events) == COUNT + 2
