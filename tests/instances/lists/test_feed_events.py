"""The events of a feed: with what their senders say, of a range, and what was cleaned up."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from feed_assets.entities.errors import EntityNotFoundError
from feed_assets.instances.commands import events
from feed_assets.instances.lists.feed_events import FeedEvents
from feed_assets.json_form import render_document
from feed_assets.log import events as log_events
from feed_assets.log.events import EventLog
from feed_assets.log.records import MESSAGE, FeedEventKind, NewFeedEvent
from tests.context.contexts import context_of
from tests.instances.harness import LifecycleHarness, at, feed


def arrival(time: datetime, *, cluster: str = "primary", said: Mapping[str, object] = {}, **more: Any) -> NewFeedEvent:
    given = {"origin": "person:ann", "payload": {"path": "/clicks", **({MESSAGE: said} if said else {})}, **more}
    return NewFeedEvent(
        feed="clicks", cluster=cluster, nominal_time=time, kind=FeedEventKind.ARRIVED, recorded_at=at("02"), **given
    )


@pytest.fixture
def lifecycle(tmp_path: Path, state_url: str) -> LifecycleHarness:
    """Seven arrivals of clicks on two clusters, and one of weather."""
    found = LifecycleHarness.of(
        tmp_path,
        feed("clicks", clusters=("primary", "backup")),
        feed("weather"),
        clusters=("primary", "backup"),
        state=state_url,
    )
    told = {"source": "airport", "rows": 3}
    with found.database.begin() as connection:
        EventLog(connection).append(
            [
                *(arrival(at(f"01T0{hour}:00")) for hour in range(4)),
                arrival(at("01T00:00"), cluster="backup", said=told),
                arrival(at("01T04:00"), said=told, marking="DAILY_END"),
                arrival(at("01T01:00"), said={"source": "harbour"}),
            ]
        )
    return found


def seqs(lifecycle: LifecycleHarness, **given: Any) -> list[int]:
    return [each.seq for each in ask(lifecycle, **given).events]


def ask(lifecycle: LifecycleHarness, **given: Any) -> FeedEvents:
    return events(context_of(lifecycle, at("03")), feed="clicks", **given)


pytestmark = pytest.mark.both_databases


def test_events_are_listed_newest_first_on_all_clusters_or_some_and_in_a_range(
    lifecycle: LifecycleHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_events, "EVENTS_AT_ONCE", 2)
    assert seqs(lifecycle) == [7, 6, 5, 4, 3, 2, 1]
    assert seqs(lifecycle, cluster="primary") == [7, 6, 4, 3, 2, 1]
    assert seqs(lifecycle, start=at("01T01:00"), end=at("01T03:00")) == [7, 3, 2]
    assert seqs(lifecycle, end=at("01T01:00")) == [5, 1]
    found = ask(lifecycle, limit=3)
    assert ([each.seq for each in found.events], found.has_more) == ([7, 6, 5], True)
    assert found.notes[0] == "only the newest 3; --limit shows more"
    with pytest.raises(EntityNotFoundError, match="Did you mean 'clicks'"):
        events(context_of(lifecycle, at("03")), feed="klicks")


def test_events_are_found_by_their_payload(lifecycle: LifecycleHarness) -> None:
    assert seqs(lifecycle, payload={"source": "airport"}) == [6, 5]
    assert seqs(lifecycle, payload={"source": "airport", "rows": "3"}, start=at("01T01:00")) == [6]
    assert seqs(lifecycle, payload={"path": "/clicks"}, limit=1) == [7]
    assert seqs(lifecycle, payload={"source": "nobody"}) == []
    (event,) = ask(lifecycle, payload={"source": "airport"}, cluster="primary").events
    assert (event.marking, event.origin, event.said) == ("DAILY_END", "person:ann", "source=airport, rows=3")


def test_what_senders_put_under_the_name_of_a_password_is_in_no_form(lifecycle: LifecycleHarness) -> None:
    told = {"password": "open sesame", "pin": {"apiKey": 471100}, "source": "pier"}
    with lifecycle.database.begin() as connection:
        EventLog(connection).append([arrival(at("01T05:00"), said=told)])
    found = ask(lifecycle, payload={"source": "pier"})
    shown = render_document(found)["events"][0]["payload"][MESSAGE]
    assert shown == {"password": "***", "pin": {"apiKey": "***"}, "source": "pier"}
    assert found.events[0].said == 'password=***, pin={"apiKey": "***"}, source=pier'
    assert seqs(lifecycle, payload={"password": "open sesame"}) == []


def test_what_was_cleaned_up_is_said(lifecycle: LifecycleHarness) -> None:
    assert [*filter(None, ask(lifecycle).notes)] == []
    with lifecycle.database.begin() as connection:
        EventLog(connection).remove([1, 5])
    found = ask(lifecycle)
    assert (found.cleaned_up, len(found.events)) == (2, 5)
    assert found.notes[1] == "2 events of feed 'clicks' were cleaned up, long after their data were evicted"
