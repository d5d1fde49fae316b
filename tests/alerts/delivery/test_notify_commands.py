"""`notify`, and messages that are followed."""

import json
from pathlib import Path

import pytest
from click.testing import Result

from tests.cli.pasting import Pasting, of, paste
from tests.cli.project import must, prepare, rows, run
from tests.receivers import Receiver, _one_receiver, receiver

__all__ = ["_one_receiver", "paste", "receiver"]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, receiver: Receiver) -> Path:
    """A project with a receiver that answers, one that is away, and one that is wrong."""
    monkeypatch.chdir(tmp_path)
    prepare(tmp_path)
    notify = {
        "ops": {"url": f"{receiver.url}?token=abc123def", "topics": ["entity"]},
        "away": {"url": "http://127.0.0.1:9/none"},
        "wrong": {"url": "http://localhost/${env:NOT_THERE}"},
    }
    with (tmp_path / "feed_assets.yaml").open("a") as file:
        file.write(json.dumps({"notify": notify})[1:-1] + "\n")
    return tmp_path


def test_a_way_is_tried(project: Path, receiver: Receiver) -> None:
    tried = run("notify", "test", "ops")
    assert (tried.exit_code, rows(tried.stdout)[0][2]) == (0, "delivered")
    (post,) = receiver.posts
    assert post.path == "/hook?token=abc123def"
    assert post.document["payload"]["test"] is True
    assert "abc123def" not in tried.output + run("notify", "list").output + run("settings").output
    away = run("notify", "test", "away")
    assert (away.exit_code, rows(away.stdout)[0][2]) == (1, "away")
    wrong = must("notify", "test", "wrong", code=1)
    assert "the environment has no NOT_THERE" in wrong.stderr
    unknown = run("notify", "test", "opps")
    assert (unknown.exit_code, "Did you mean 'ops'?" in unknown.stderr) == (1, True)


@of("alerts.delivery.notifier.ListedReceiver.state: notify send")
def test_a_receiver_that_has_not_begun_is_no_ready_one(project: Path, receiver: Receiver, paste: Pasting) -> None:
    listed = {row[0]: row[7] for row in rows(run("notify", "list").stdout)}
    assert listed["ops"].startswith("not begun: it gets what happens after the next tick")
    paste(listed["ops"], "notify send", code=1)  # another one is wrong
    assert {row[0]: row[7] for row in rows(run("notify", "list").stdout)}["ops"] == "ready"


def test_what_is_pending_is_sent_now_and_shown(project: Path, receiver: Receiver) -> None:
    assert run("notify", "send", "ops").exit_code == 0
    assert run("entity", "submit", "all.yaml", "--skip-checks").exit_code == 0
    listed = {row[0]: row for row in rows(run("notify", "list").stdout)}
    assert [listed["ops"][3], listed["ops"][4], listed["ops"][7]] == ["entity", "4", "ready"]
    assert listed["away"][3] == "everything but arrival, lineage"
    assert "the environment has no NOT_THERE" in listed["wrong"][7]
    assert rows(run("notify", "send", "ops", "--dry-run").stdout) == [["ops", "4", "0", "0", "no", ""]]
    assert receiver.posts == []
    sent = must("notify", "send", code=1)
    assert {row[0]: (row[1], row[4]) for row in rows(sent.stdout)} == {
        "away": ("0", "yes"),
        "ops": ("4", "no"),
        "wrong": ("0", "no"),
    }
    assert [each["payload"]["action"] for each in receiver.taken] == ["submit"] * 4
    state = {row[0]: row[7] for row in rows(run("notify", "list").stdout)}["away"]
    assert state.startswith("away since ")
    assert state.endswith(": 127.0.0.1:9: nothing listens there: start it, or correct host and port")
    assert rows(run("notify", "retry").stdout) == [["away", "0", "0"], ["ops", "0", "0"]]


def test_a_receiver_that_refuses_is_tried_once_and_holds_up_no_other(project: Path, receiver: Receiver) -> None:
    refusing = {"url": receiver.url.replace("/hook", "/bad")}
    settings = project / "feed_assets.yaml"
    settings.write_text(settings.read_text().replace('"notify": {', f'"notify": {{"bad": {json.dumps(refusing)}, '))
    assert run("notify", "send", "ops").exit_code == 0
    assert run("entity", "submit", "all.yaml", "--skip-checks").exit_code == 0
    assert run("entity", "schedule", "process", "counting", "--skip-checks").exit_code == 0
    receiver.answer = lambda post: 500 if post.path == "/bad" else 200
    for _ in range(2):
        receiver.posts.clear()
        must("notify", "send", code=1)
        refused = [post.document["seq"] for post in receiver.posts if post.path == "/bad"]
        assert len(refused) == len(set(refused)) == 4  # the later message of `counting` waits
    assert len(receiver.taken) == 5


def test_a_receiver_that_cannot_be_used_fails_alone(project: Path, receiver: Receiver) -> None:
    settings = project / "feed_assets.yaml"
    settings.write_text(settings.read_text().replace('"notify": {', '"notify": {"chat": {"url": "slakc://A/B"}, '))
    assert run("notify", "send", "ops").exit_code == 0
    assert run("entity", "submit", "all.yaml", "--skip-checks").exit_code == 0
    sent = run("notify", "send")
    found = {row[0]: (row[1], row[5]) for row in rows(sent.stdout)}
    assert (sent.exit_code, found["ops"]) == (1, ("4", ""))
    assert "apprise knows no such URL with the scheme 'slakc'" in found["chat"][1]


def test_messages_are_followed_as_they_come(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("entity", "submit", "all.yaml", "--skip-checks").exit_code == 0
    turns: list[Result] = []

    def wait(_: float) -> None:
        if turns:
            raise KeyboardInterrupt
        turns.append(run("entity", "schedule", "process", "counting", "--skip-checks"))
        assert turns[0].exit_code == 0, turns[0].output

    monkeypatch.setattr("feed_assets.context.commands.sleep", wait)
    said = run("admin", "messages", "--topic", "entity", "--follow", "--output", "json")
    lines = [json.loads(line) for line in said.stdout.splitlines() if line.startswith("{")]
    assert [each["payload"]["action"] for each in lines] == ["submit"] * 4 + ["schedule"]
    assert lines[-1]["payload"]["clusters"] == ["primary"]
    text = run("admin", "messages", "--topic", "entity", "--follow", "--after", "4").stdout
    assert "entity action: schedule; kind: process; entity: counting; author: " in text
