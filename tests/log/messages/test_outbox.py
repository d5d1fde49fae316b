"""Messages on their receiverside."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from sqlalchemy import insert

from feed_assets.entities.common import Kind
from feed_assets.entities.metadata import Origin
from feed_assets.log.messages.outbox import MessageHead, Outbox
from feed_assets.log.messages.outbox import outbox as outbox_table
from feed_assets.log.messages.payloads import (
    EntityAction,
    EntityPayload,
    InstanceEnd,
    InstanceOperation,
    InstancePayload,
    MessagePayload,
    MetadataPayload,
    RetryPayload,
    SweepPayload,
)
from feed_assets.log.messages.records import parse_payload, render_payload
from feed_assets.receivers import MessageLevel, Topic
from feed_assets.sql.database import Database
from feed_assets.sql.errors import StateError
from tests.log.samples import eviction, hour, message
from tests.log.workers import Team, tell_all

pytestmark = pytest.mark.both_databases


INSTANCE = InstancePayload(
    cluster="backup,primary",
    entity_name="clicks",
    entity_type=Kind.FEED,
    nominal_time=datetime(2013, 11, 3, 5, tzinfo=UTC),
    operation=InstanceOperation.REPLICATE,
    feed_names="clicks",
    feed_instance_paths="file:///backup/clicks/2013-11-03/05",
    workflow_id="r1",
    workflow_user="ann",
    run_id="2",
    status=InstanceEnd.FAILED,
    time_stamp=datetime(2013, 11, 3, 6, 7, tzinfo=UTC),
    final=False,
    error="no space",
)
RETRY = RetryPayload(kind=Kind.PROCESS, entity="daily", cluster="primary", nominal_time=hour(0), attempts=4)
PAYLOADS: tuple[MessagePayload, ...] = (
    eviction("b\udcff"),
    MetadataPayload(
        entity="feed/clicks/column/user",
        author="ann",
        origin=Origin.PERSON,
        previous={},
        additions={"USER": {"properties": {"a": "1"}, "tags": []}},
        deletions={},
    ),
    INSTANCE,
    RETRY,
    SweepPayload(sweep="s1", feed="clicks", cluster="primary", instances=9, bytes=100, reason="half of all"),
    EntityPayload(
        action=EntityAction.SUSPEND, kind=Kind.PROCESS, entity="daily", author="ann", clusters=("primary", "backup")
    ),
)


def test_messages_are_numbered_in_order_and_come_back_as_they_were(database: Database) -> None:
    with database.begin() as connection:
        outbox = Outbox(connection)
        assert outbox.last_seq() == 0
        sent = [message(n, payload=payload) for n, payload in enumerate(PAYLOADS)]
        assert outbox.append_many(sent) == len(PAYLOADS)
        assert outbox.append_many([]) == 0
        assert outbox.read(0, 9) == [replace(each, seq=n) for n, each in enumerate(sent, 1)]
        assert [each.seq for each in outbox.read(1, 1)] == [2]
        assert outbox.last_seq() == len(PAYLOADS)


def test_an_instance_keeps_its_seconds_and_the_time_of_the_message_has_none() -> None:
    payload = replace(
        INSTANCE,
        nominal_time=datetime(2013, 11, 3, 5, 0, 7, tzinfo=UTC),
        time_stamp=datetime(2013, 11, 3, 6, 0, 9, tzinfo=UTC),
    )
    rendered = render_payload(payload)
    assert (rendered["nominalTime"], rendered["timeStamp"]) == ("2013-11-03-05-00-07", "2013-11-03-06-00")
    assert parse_payload(Topic.INSTANCE, rendered) == replace(payload, time_stamp=payload.time_stamp.replace(second=0))


def test_an_instance_is_told_in_the_keys_of_falcon() -> None:
    assert render_payload(INSTANCE) == {
        "cluster": "backup,primary",
        "entityName": "clicks",
        "entityType": "feed",
        "nominalTime": "2013-11-03-05-00",
        "operation": "REPLICATE",
        "feedNames": "clicks",
        "feedInstancePaths": "file:///backup/clicks/2013-11-03/05",
        "workflowId": "r1",
        "workflowUser": "ann",
        "runId": "2",
        "status": "FAILED",
        "timeStamp": "2013-11-03-06-07",
        "logDir": "NONE",
        "final": False,
        "error": "no space",
    }


@pytest.mark.parametrize(
    ("payload", "subject", "level"),
    [
        (PAYLOADS[0], ("feed", "clicks"), MessageLevel.INFO),
        (PAYLOADS[1], ("feed", "clicks"), MessageLevel.INFO),
        (INSTANCE, ("feed", "clicks"), MessageLevel.WARNING),
        (replace(INSTANCE, final=True), ("feed", "clicks"), MessageLevel.ERROR),
        (replace(INSTANCE, status=InstanceEnd.SUCCEEDED), ("feed", "clicks"), MessageLevel.INFO),
        (RETRY, ("process", "daily"), MessageLevel.ERROR),
        (PAYLOADS[4], ("feed", "clicks"), MessageLevel.WARNING),
        (PAYLOADS[5], ("process", "daily"), MessageLevel.INFO),
    ],
)
def test_a_message_says_what_it_is_about_and_how_urgent_it_is(
    payload: MessagePayload, subject: tuple[str, str], level: MessageLevel
) -> None:
    assert (payload.subject, payload.level) == (subject, level)


def test_keys_of_another_release_survive() -> None:
    written = {**render_payload(RETRY), "of_a_later_release": [1]}
    assert render_payload(parse_payload(Topic.RETRY, written)) == written


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"nominal_time": "soon"}, "a message of the topic 'retry' cannot be read: Invalid isoformat string: 'soon'"),
        ({"kind": "cart"}, "'cart' is not a valid Kind"),
        ({"attempts": ...}, "missing 1 required keyword-only argument: 'attempts'"),
    ],
)
def test_a_damaged_message_is_named(database: Database, change: dict[str, object], reason: str) -> None:
    values = {name: value for name, value in (render_payload(RETRY) | change).items() if value is not ...}
    row = {"seq": 1, "topic": "retry", "recorded_at": hour(0), "payload": values, "idempotency_key": "1"}
    with database.begin() as connection:
        connection.execute(insert(outbox_table), row)
    with database.read() as connection, pytest.raises(StateError) as caught:
        Outbox(connection).read(0, 9)
    assert reason in str(caught.value)


def test_a_repeat_of_a_message_is_not_added_again(database: Database) -> None:
    with database.begin() as connection:
        outbox = Outbox(connection)
        assert outbox.append_many([message(0), message(1), message(0, payload=RETRY)]) == 2
        assert outbox.append_many([message(1), message(2), message(0)]) == 1
        assert [(each.seq, each.topic, each.idempotency_key) for each in outbox.read(0, 9)] == [
            (1, Topic.EVICTION, message(0).idempotency_key),
            (2, Topic.EVICTION, message(1).idempotency_key),
            (3, Topic.EVICTION, message(2).idempotency_key),
        ]


def test_messages_of_a_topic_and_what_ways_choose_them_by(database: Database) -> None:
    with database.begin() as connection:
        outbox = Outbox(connection)
        outbox.append_many([message(n, payload=(eviction(), RETRY)[n % 2]) for n in range(5)])
        assert [each.seq for each in outbox.read(0, 9, Topic.RETRY)] == [2, 4]
        assert outbox.count(0, 1, Topic.RETRY) == 2
        assert outbox.heads(0, 2) == [
            MessageHead(1, Topic.EVICTION, MessageLevel.INFO, ("feed", "clicks"), hour(0)),
            MessageHead(2, Topic.RETRY, MessageLevel.ERROR, ("process", "daily"), hour(1)),
        ]
        assert outbox.get_many([2, 99]) == {2: replace(message(1, payload=RETRY), seq=2)}


def test_numbers_are_in_the_order_of_the_commits_whoever_writes(database: Database, database_url: str) -> None:
    counts = Team(tell_all, database_url, 3).results()
    with database.read() as connection:
        found = Outbox(connection).read(0, 999)
    assert [each.seq for each in found] == list(range(1, 61))
    assert sum(counts) == len({each.idempotency_key for each in found}) == 60


def test_old_messages_that_were_told_are_removed_and_their_numbers_never_come_again(database: Database) -> None:
    with database.begin() as connection:
        outbox = Outbox(connection)
        outbox.append_many([message(n) for n in range(6)])
        assert outbox.count_old(hour(2), None) == 2
        assert outbox.remove_old(hour(2), None, 1) == 1
        assert outbox.remove_old(hour(9), 3, 9) == 2
        assert [each.seq for each in outbox.read(0, 9)] == [4, 5, 6]
        assert outbox.remove_old(hour(99), None, 9) == 2
        assert outbox.remove_old(hour(99), None, 9) == 0
        outbox.append_many([message(7)])
        assert [each.seq for each in outbox.read(0, 9)] == [6, 7]
