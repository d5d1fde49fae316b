"""Who is told: what a project declares, and what a tick does with it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from feed_assets.alerts.delivery.notifier import Notifier, ReceiverDesk
from feed_assets.alerts.delivery.store import ReceiverStates
from feed_assets.context.operation import resolve_subject
from feed_assets.explain.explanations import explain
from feed_assets.explain.records import ReasonCode
from feed_assets.log.audit import Audit
from feed_assets.log.messages.payloads import InstanceOperation
from feed_assets.patience import Patience
from feed_assets.plan.location import load_location
from feed_assets.settings import Settings, load_settings
from feed_assets.sql.database import Database
from tests.alerts.deadlines.looks import look
from tests.alerts.delivery.samples import NOW, SetClock, message, tell
from tests.context.contexts import context_of, counting_harness
from tests.databases import database, database_url
from tests.definitions.verbs.harness import ALL, COUNTING
from tests.instances.harness import START, LifecycleHarness, at, feed
from tests.receivers import Receiver, _one_receiver, receiver

pytestmark = pytest.mark.both_databases


__all__ = ["_one_receiver", "database", "database_url", "receiver"]


def project(folder: Path, notify: dict[str, Any], **notification: Any) -> Settings:
    """A project in which `counting` has a notification."""
    (folder / "entities").mkdir()
    (folder / "counting.sql").write_text("select count(*) as n from clicks")
    counting = {**COUNTING, **({"notification": notification} if notification else {})}
    documents = [*(each for each in ALL if each is not COUNTING), counting]
    (folder / "entities/all.yaml").write_text(yaml.safe_dump_all(documents, sort_keys=False))
    (folder / "feed_assets.yaml").write_text(yaml.safe_dump({"notify": notify}))
    return load_settings(environ={}, start=folder)


@pytest.mark.parametrize(
    ("notification", "reason"),
    [
        (
            {"type": "webhook", "to": ["opps"]},
            "notification.to 'opps': the settings declare no receiver of this name in notify. Write 'ops', or declare",
        ),
        ({"type": "email", "to": ["ops"]}, "notification.to 'ops': it is no address of electronic mail"),
        ({"type": "command", "to": ["ops"]}, "only the settings can name a command"),
        ({"type": "openlineage", "to": ["ops"]}, "only the settings can name a receiver of OpenLineage"),
    ],
)
def test_a_listener_that_nobody_declares_is_refused_with_file_and_line(
    tmp_path: Path, notification: dict[str, Any], reason: str
) -> None:
    settings = project(tmp_path, {"ops": {"url": "http://localhost:1/hook"}}, **notification)
    (issue,) = [each for each in load_location(settings).errors if reason in each.render()]
    assert issue.source is not None
    assert (issue.source.line or 0) > 1
    fine = replace_line(tmp_path, "opps", "ops")
    assert notification["to"] != ["opps"] or not load_location(fine).errors


def replace_line(folder: Path, old: str, new: str) -> Settings:
    file = folder / "entities/all.yaml"
    file.write_text(file.read_text().replace(old, new))
    return load_settings(environ={}, start=folder)


def test_a_tick_tells_each_way_and_says_so(tmp_path: Path, database: Database, receiver: Receiver) -> None:
    notify = {
        "ops": {"url": receiver.url},
        "late": {"url": receiver.url, "topics": ["sla"]},
        "away": {"url": "http://127.0.0.1:9/none"},
        "broken": {"url": "https://example.org/${env:NOT_THERE}"},
        "chat": {"url": "slakc://A/B"},
    }
    settings = project(tmp_path, notify, type="webhook", to=[receiver.url], on=["success"])
    plan, clock = load_location(settings).plan, SetClock()
    notifier = Notifier(settings, Patience(30))  # the first chat of a process imports apprise
    assert "broken cannot be used" in notifier.run(database, plan, clock).render()
    tell(database, message("counting", 1), message("other", 2))
    said = notifier.run(database, plan, clock).render()
    assert "ops: 2 delivered" in said
    assert "away: the receiver is away (127.0.0.1:9: nothing listens there" in said
    assert "chat cannot be used: " in said
    assert "apprise knows no such URL" in said
    assert "late" not in said
    paths = sorted(each["payload"]["entityName"] for each in receiver.taken)
    assert paths == ["counting", "counting", "other"]
    with database.read() as connection:
        states = ReceiverStates(connection).all()
    assert {name: state.cursor for name, state in states.items() if name not in ("away", "chat")} == {
        "ops": 2,
        "late": 2,
        next(name for name in states if name.startswith("webhook:127.0.0.1")): 2,
    }
    desk = ReceiverDesk(settings=settings, database=database, plan=plan, clock=clock, author="ann")
    listed = {each.name: each for each in desk.receivers()}
    assert (listed["away"].pending, listed["away"].away_since) == (2, NOW)
    assert listed["broken"].fault is not None


def test_what_is_listed_and_planned_is_what_is_sent(tmp_path: Path, database: Database, receiver: Receiver) -> None:
    settings = project(tmp_path, {}, type="webhook", to=[receiver.url], on=["success"])
    desk = ReceiverDesk(settings=settings, database=database, plan=load_location(settings).plan, clock=SetClock())
    assert [each.delivered for each in desk.send(())] == [0]
    evicted = message("counting", 2, operation=InstanceOperation.DELETE)  # an entity tells nobody of it
    tell(database, message("counting", 1), evicted)
    (listed,), (planned,), (sent,) = desk.receivers(), replace(desk, dry_run=True).send(()), desk.send(())
    assert (listed.pending, planned.delivered, sent.delivered) == (1, 1, 1)


def test_without_news_a_tick_writes_nothing(tmp_path: Path, database: Database, receiver: Receiver) -> None:
    settings = project(tmp_path, {"ops": {"url": receiver.url}})
    plan, clock = load_location(settings).plan, SetClock()
    notifier = Notifier(settings)
    notifier.run(database, plan, clock)
    tell(database, message("counting", 1))
    notifier.run(database, plan, clock)

    class ReadOnly(Database):
        def begin(self) -> Any:
            raise AssertionError("written")

    database.__class__ = ReadOnly  # the same database, of which only reading is allowed
    clock.advance(minutes=5)
    assert notifier.run(database, plan, clock).render() == "nothing to deliver"
    database.__class__ = Database
    assert (
        Notifier(project_without_receivers(tmp_path)).run(database, plan, clock).render() == "no receiver is declared"
    )


def project_without_receivers(folder: Path) -> Settings:
    (folder / "feed_assets.yaml").write_text("{}")
    return load_settings(environ={}, start=folder)


def test_dead_letters_are_tried_again_by_a_command(tmp_path: Path, database: Database, receiver: Receiver) -> None:
    settings = project(tmp_path, {"ops": {"url": receiver.url}})
    plan, clock = load_location(settings).plan, SetClock()
    desk = ReceiverDesk(settings=settings, database=database, plan=plan, clock=clock, author="ann")
    desk.send([])
    receiver.answer = lambda _: 404
    tell(database, *(message("counting", n) for n in range(3)))
    assert [(each.delivered, each.dead) for each in desk.send(["ops"])] == [(0, 3)]
    receiver.answer = lambda _: 200
    assert [each.letters for each in replace(desk, dry_run=True).retry([])] == [3]
    assert [each.letters for each in desk.retry(["ops"])] == [3]
    assert [each.letters for each in desk.retry(["ops"])] == [0]
    assert [each.delivered for each in desk.send([])] == [3]
    with database.read() as connection:
        assert [(each.author, each.action) for each in Audit(connection).newest(9)] == [("ann", "notify retry")]


def test_why_says_who_was_told_and_who_was_not(tmp_path: Path, receiver: Receiver) -> None:
    lifecycle = counting_harness(tmp_path)
    notify = {
        "ops": {"url": receiver.url, "topics": ["instance"]},
        "dead": {"url": f"{receiver.url}/dead"},
        "away": {"url": "http://127.0.0.1:9/none"},
        "other": {"url": receiver.url, "topics": ["sla"]},
    }
    settings = load_settings({"notify": notify}, environ={}, start=tmp_path)
    receiver.answer = lambda post: 404 if post.path.endswith("dead") else 200
    desk = ReceiverDesk(
        settings=settings, database=lifecycle.database, plan=lifecycle.plan, clock=SetClock(), author="ann"
    )
    desk.send([])
    lifecycle.land("clicks", START)
    lifecycle.flag("clicks", START)
    lifecycle.tick(START)
    lifecycle.run("count", START, START)
    context = replace(context_of(lifecycle, START), settings=settings)

    def told() -> list[str]:
        (found,) = explain(context, resolve_subject(context, "count", START)).items
        return [each.text for each in found.reasons if each.code in (ReasonCode.TOLD, ReasonCode.NOT_TOLD)]

    assert told() == [f"{name} is not told of its end yet" for name in ("away", "dead", "ops")]
    desk.send([])
    assert told() == [
        "away is not told of its end yet, next at 2026-01-01T00:01Z: 127.0.0.1:9: nothing listens there: start it, or "
        "correct host and port",
        "dead was not told of its end, a dead letter: it answers 404 Not Found",
        "told of its end: ops",
    ]


def test_row_85_a_listener_is_told_once_of_each_level_and_of_the_end(tmp_path: Path, receiver: Receiver) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks", sla={"low": "hours(1)", "high": "hours(3)"}))
    settings = load_settings(
        {"notify": {"pager": {"url": receiver.url, "topics": ["sla"]}}}, environ={}, start=tmp_path
    )
    desk = ReceiverDesk(
        settings=settings, database=lifecycle.database, plan=lifecycle.plan, clock=SetClock(), author="ann"
    )
    desk.send([])
    for moment in (START, "01T01:30", "01T01:40", "01T03:30"):
        look(lifecycle, moment)
        desk.send([])
    lifecycle.land("clicks", START)
    lifecycle.tick(at("01T03:40"))
    look(lifecycle, "01T03:50")
    desk.send([])
    told = [(each["payload"]["event"], each["payload"]["sla"]) for each in receiver.taken]
    assert told == [("missed", "low"), ("missed", "low"), ("missed", "high"), ("recovered", "high")]
