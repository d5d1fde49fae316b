"""Senders against real receivers: a web server, a mail server with STARTTLS, apprise, a command."""

import hashlib
import hmac
import json
import os
import shlex
import signal
import socket
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from threading import Event, Semaphore, Thread
from typing import Any

import pytest

from feed_assets.alerts.delivery import senders
from feed_assets.alerts.delivery.errors import ReceiverError
from feed_assets.alerts.delivery.port import Letter, Outcome, Sender, Verdict
from feed_assets.alerts.delivery.receivers import read_receivers
from feed_assets.alerts.delivery.senders import ChatSender, CommandSender, MailSender, WebhookSender
from feed_assets.entities.common import Kind
from feed_assets.entities.metadata import Origin
from feed_assets.log.messages.levels import SlaLevel
from feed_assets.log.messages.payloads import (
    ArrivalPayload,
    EntityAction,
    EntityPayload,
    EvictionOperation,
    EvictionPayload,
    HealthPayload,
    InstanceEnd,
    InstanceOperation,
    MessagePayload,
    MetadataPayload,
    RetryPayload,
    SlaEvent,
    SlaPayload,
    SweepPayload,
)
from feed_assets.log.messages.records import OutboxMessage
from feed_assets.masking import remember_unnamed
from feed_assets.plan.records import Plan
from feed_assets.receivers import MailSecurity, MailSettings
from feed_assets.settings import load_settings
from feed_assets.sql.database import Database
from tests.alerts.delivery.samples import NOW, SetClock, begin, deliver_on, instance, message, tell
from tests.commands import require_command
from tests.receivers import MAIL_PASSWORD, MAIL_USER, MailServer, Receiver
from tests.servers import free_port

pytestmark = pytest.mark.both_databases


LETTER = Letter(message=message("daily", 5, status=InstanceEnd.FAILED, error="no space", final=False))


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port on which somebody accepts connections and never says a word."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        accepted: list[socket.socket] = []

        def accept() -> None:
            try:
                while True:
                    accepted.append(server.accept()[0])
            except OSError:
                return

        Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1]
        for each in accepted:
            each.close()


def test_a_post_is_signed_and_carries_the_key(receiver: Receiver) -> None:
    sender = WebhookSender(receiver.url.replace("://", "://ann:pw@") + "?a=1", "s3cret")
    assert sender.send(LETTER).verdict is Verdict.DELIVERED
    (post,) = receiver.posts
    assert post.path == "/hook?a=1"
    assert post.headers["Idempotency-Key"] == LETTER.key == "instance/daily/5"
    assert post.headers["X-Feed-Assets-Topic"] == "instance"
    assert post.headers["Authorization"] == "Basic YW5uOnB3"
    signature = hmac.new(b"s3cret", post.body, hashlib.sha256).hexdigest()
    assert post.headers["X-Feed-Assets-Signature"] == f"sha256={signature}"
    assert post.document["payload"]["nominalTime"] == "2026-01-01-05-00"
    assert post.document["level"] == "warning"
    sender.close()


def test_a_connection_is_kept_and_opened_again_when_the_receiver_has_ended_it(receiver: Receiver) -> None:
    sender = WebhookSender(receiver.url, None)
    assert sender.send(LETTER).verdict is Verdict.DELIVERED
    receiver.die()
    receiver.live()
    assert sender.send(LETTER).verdict is Verdict.DELIVERED
    receiver.die()
    assert sender.send(LETTER).verdict is Verdict.AWAY
    sender.close()


def test_who_does_not_answer_in_time_is_away(silent_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(senders, "SECONDS", 0.2)
    silent = WebhookSender(f"http://127.0.0.1:{silent_port}/x", None)
    assert silent.send(LETTER).verdict is Verdict.AWAY
    mails = MailSender("ann@example.org", MailSettings(host="127.0.0.1", port=silent_port))
    assert mails.send(LETTER).verdict is Verdict.AWAY


OK = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNK = b"1000\r\n" + b"x" * 4096 + b"\r\n"


def hostile_port(stack: ExitStack, first: bytes, again: bytes, pause: float) -> int:
    """A port on which somebody says `first`, and then `again` for ever, to each that connects."""
    server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    ended = Event()
    stack.callback(ended.set)

    def talk(line: socket.socket) -> None:
        with line, suppress(OSError):
            line.sendall(first)
            while not ended.wait(pause):
                line.sendall(again)

    def accept() -> None:
        with suppress(OSError):
            while True:
                Thread(target=talk, args=(server.accept()[0],), daemon=True).start()

    Thread(target=accept, daemon=True).start()
    return int(server.getsockname()[1])


@pytest.mark.parametrize(
    ("channel", "first", "again", "pause", "verdict", "error"),
    [
        ("http", OK, CHUNK, 0, Verdict.DELIVERED, None),
        ("http", OK, b"1\r\nx\r\n", 0.05, Verdict.DELIVERED, None),
        ("http", OK.replace(b"200 OK", b"500 No"), CHUNK, 0, Verdict.FAILED, "it answers 500 No xxx"),
        ("http", b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0, Verdict.AWAY, "it says more than 32,768 bytes"),
        ("http", b"HTTP/1.1 200 OK\r\n", b"a", 0.05, Verdict.AWAY, "TimeoutError"),
        ("http", b"HTTP/1.1 200 OK\r\n", b"a", 0, Verdict.AWAY, "it says more than 32,768 bytes"),
        ("http", b"HTTP/1.1 103 Early Hints\r\n\r\n" + OK, b"-5\r\n", 0.05, Verdict.DELIVERED, None),
        ("http", b"", b"HTTP/1.1 102 Processing\r\n\r\n", 0, Verdict.AWAY, "it says more than 32,768 bytes"),
        ("chat", OK, CHUNK, 0.01, Verdict.FAILED, "it did not end within"),
        ("mail", b"220 hello\r\n250-more\r\n250 AUTH CRAM-MD5\r\n", b"334 abc\r\n", 0.05, Verdict.AWAY, "padding"),
        ("mail", b"", b"220-welcome\r\n", 0, Verdict.AWAY, "it says more than 32,768 bytes"),
        ("mail", b"", b"2", 0.05, Verdict.AWAY, "the mail server 127.0.0.1"),
        ("mail", b"220 hello\r\n", b"250-more\r\n", 0, Verdict.AWAY, "it says more than 32,768 bytes"),
    ],
)
def test_a_receiver_that_does_not_stop_answering_is_left(
    channel: str,
    first: bytes,
    again: bytes,
    pause: float,
    verdict: Verdict,
    error: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if pause:  # else the bytes end it, and the deadline would only be a second reason
        monkeypatch.setattr(senders, "SECONDS", 0.3)
    with ExitStack() as stack:
        port = hostile_port(stack, first, again, pause)
        settings = MailSettings(host="127.0.0.1", port=port, user="ann", password="pw")
        openings: dict[str, Callable[[], Sender]] = {
            "http": lambda: WebhookSender(f"http://127.0.0.1:{port}/x", None),
            "mail": lambda: MailSender("ann@example.org", settings),
            "chat": lambda: ChatSender("team", f"json://127.0.0.1:{port}/x"),
        }
        outcome = stack.enter_context(closing(openings[channel]())).send(LETTER)
    assert outcome.verdict is verdict
    assert (error or "") in (outcome.error or "")


def test_what_a_receiver_says_behind_its_answer_answers_no_other_letter() -> None:
    server = socket.create_server(("127.0.0.1", 0))
    letters, said = Semaphore(0), Semaphore(0)

    def talk() -> None:
        for _ in range(2):
            with server.accept()[0] as line, suppress(ConnectionResetError):
                given = b""
                while not given.endswith(b"}"):
                    given += line.recv(1 << 16)
                line.sendall(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n")
                letters.acquire()
                line.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                said.release()
                while line.recv(1 << 16):
                    pass

    with closing(server), closing(WebhookSender(f"http://127.0.0.1:{server.getsockname()[1]}/x", None)) as sender:
        Thread(target=talk, daemon=True).start()
        for _ in range(2):
            assert sender.send(LETTER).verdict is Verdict.FAILED
            letters.release()
            said.acquire(timeout=10)


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("yes no end", "it did not end within 0.3 s"),
        ("yes no end >&2", "it did not end within 0.3 s: "),
        ("sleep 60 & wait", "it did not end within 0.3 s"),
    ],
)
def test_a_command_that_does_not_end_is_ended_with_all_that_it_began(
    script: str, error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(senders, "SECONDS", 0.3)
    os.mkfifo(tmp_path / "alive")
    with os.fdopen(os.open(tmp_path / "alive", os.O_RDONLY | os.O_NONBLOCK), "rb") as alive:
        os.set_blocking(alive.fileno(), True)
        script = f"exec 9>{tmp_path / 'alive'}; {script}"
        tracemalloc.start()
        try:
            outcome = CommandSender(f"command:sh -c {shlex.quote(script)}").send(LETTER)
            assert tracemalloc.get_traced_memory()[1] < 1 << 20
        finally:
            tracemalloc.stop()
        assert (outcome.verdict, (outcome.error or "")[: len(error)]) == (Verdict.FAILED, error)
        assert alive.read() == b""  # returns when nobody has the other end any more


def test_a_command_has_ended_when_it_has_ended_itself(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    script = f"sleep 60 & echo $! > {pid}; echo no way >&2; exit 3"
    outcome = CommandSender(f"command:sh -c {shlex.quote(script)}").send(LETTER)
    os.kill(int(pid.read_text()), signal.SIGKILL)  # it was left alone
    assert (outcome.verdict, outcome.error) == (Verdict.FAILED, "it ended with 3: no way")


def mail_settings(server: MailServer, **fields: object) -> MailSettings:
    given = {
        "host": "localhost",
        "port": server.port,
        "security": MailSecurity.STARTTLS,
        "user": MAIL_USER,
        "password": MAIL_PASSWORD,
        "sender": "falcon@localhost",
        "ca_file": server.ca_file,
    }
    return MailSettings.model_validate(given | fields)


def test_row_148_a_mail_says_what_happened_to_which_instance_and_what_to_type(mail_server: MailServer) -> None:
    run = "4a1c9bd2-7f5e-4d0c-8a27-d1c0c5a0e1f2"
    failed = message("daily", 5, status=InstanceEnd.FAILED, error="no space\nin line 2", workflow_id=run)
    letter = Letter(message=failed, webserver="http://dagster.example.org/")
    sender = MailSender("ann@example.org", mail_settings(mail_server))
    assert sender.send(letter).verdict is Verdict.DELIVERED
    assert sender.send(letter).verdict is Verdict.DELIVERED
    sender.close()
    (recipients, one), (_, repeat) = mail_server.box.mails
    assert recipients == ["ann@example.org"]
    assert one["From"] == "falcon@localhost"
    assert one["Subject"] == "process daily: instance 2026-01-01T05:00Z on primary: failed"
    assert one["Message-ID"] == repeat["Message-ID"]
    assert one["X-Feed-Assets-Key"] == "instance/daily/5"
    plain = one.get_body(("plain",))
    html = one.get_body(("html",))
    assert plain is not None
    assert html is not None
    assert plain.get_content().splitlines() == [
        "process daily: instance 2026-01-01T05:00Z on primary: failed",
        "",
        "when: 2026-01-01T00:00Z",
        "why: no space",
        "path: file:///data/counts/5",
        f"run: http://dagster.example.org/runs/{run}",
        "to see more: feed-assets why daily 2026-01-01T05:00Z --kind process",
    ]
    assert "<td>path</td><td>file:///data/counts/5</td>" in html.get_content()
    assert letter.document["payload"]["feedInstancePaths"] == "file:///data/counts/5"


def answer_to(to: str, settings: MailSettings) -> Outcome:
    with closing(MailSender(to, settings)) as sender:
        return sender.send(LETTER)


def test_what_a_mail_server_says_decides(mail_server: MailServer) -> None:
    settings = mail_settings(mail_server)
    mail_server.box.refusals |= {"gone@x.org": "550 no such mailbox", "full@x.org": "452 mailbox full"}
    refused = answer_to("gone@x.org", settings)
    assert (refused.verdict, refused.error) == (Verdict.REFUSED, "the mail server answers 550 no such mailbox")
    assert answer_to("full@x.org", settings).verdict is Verdict.FAILED
    assert answer_to("ann@x.org", mail_settings(mail_server, password="wrong")).verdict is Verdict.AWAY
    untrusted = answer_to("ann@x.org", mail_settings(mail_server, ca_file=None))
    assert untrusted.verdict is Verdict.AWAY
    assert "let its certificate be trusted: SSLCertVerificationError: self-signed" in (untrusted.error or "")
    assert answer_to("ann@x.org", MailSettings(port=free_port())).verdict is Verdict.AWAY


def test_each_recipient_has_its_own_fate(mail_server: MailServer, database: Database) -> None:
    given = {
        "notify": {"oncall": {"url": "mailto:ann@x.org,full@x.org, gone@x.org"}},
        "mail": mail_settings(mail_server).model_dump(mode="json"),
    }
    ways = read_receivers(
        load_settings(given, environ={}, start=None), Plan(digest="", clusters={}, feeds={}, processes={}), {}
    ).usable.values()
    begin(database, *ways, clock=SetClock())
    tell(database, message("daily", 1), message("daily", 2))
    mail_server.box.refusals |= {"gone@x.org": "550 no such mailbox", "full@x.org": "450 mailbox full"}

    def counts() -> dict[str, tuple[int, int, int]]:
        done = [deliver_on(database, way, SetClock(), now_or_never=True) for way in ways]
        return {each.way: (each.delivered, each.failed, each.dead) for each in done}

    assert counts() == {"oncall:ann@x.org": (2, 0, 0), "oncall:full@x.org": (0, 1, 0), "oncall:gone@x.org": (0, 0, 2)}
    mail_server.box.refusals.clear()
    assert counts() == {"oncall:ann@x.org": (0, 0, 0), "oncall:full@x.org": (2, 0, 0), "oncall:gone@x.org": (0, 0, 0)}
    assert sorted(to for to, _ in mail_server.box.mails) == [["ann@x.org"]] * 2 + [["full@x.org"]] * 2


def test_a_redirect_is_not_followed_and_told_as_a_fault_of_the_settings(receiver: Receiver) -> None:
    receiver.answer = lambda _: 301
    with closing(WebhookSender(receiver.url, None)) as sender:
        outcome = sender.send(LETTER)
    assert outcome.verdict is Verdict.AWAY
    assert outcome.error == (
        "it answers 301 Moved Permanently: it has moved, and no redirect is followed; correct its URL"
    )


def test_a_chat_is_posted_to_by_apprise(receiver: Receiver) -> None:
    sender = ChatSender("team", f"json://127.0.0.1:{receiver.port}/chat")
    assert sender.send(LETTER).verdict is Verdict.DELIVERED
    (post,) = receiver.posts
    assert post.document["title"] == "process daily: instance 2026-01-01T05:00Z on primary: failed, and is tried again"
    assert "why: no space" in post.document["message"]
    assert post.document["message"].rstrip().endswith("key: instance/daily/5")
    assert post.document["type"] == "warning"
    receiver.answer = lambda _: 500
    failed = sender.send(LETTER)
    assert failed.verdict is Verdict.FAILED
    assert "error=500" in (failed.error or "")


def test_a_chat_that_apprise_does_not_know_is_named() -> None:
    with pytest.raises(ReceiverError, match="receiver 'team': apprise knows no such URL with the scheme 'slakc'"):
        ChatSender("team", "slakc://T0/B0/XX")
    assert ChatSender.__doc__


def test_a_command_gets_the_document_on_its_standard_input(tmp_path: Path) -> None:
    script = tmp_path / "tell.py"
    script.write_text(
        "import json, os, sys\n"
        "said = json.load(sys.stdin)\n"
        f"open({str(tmp_path / 'said')!r}, 'a').write(os.environ['FEED_ASSETS_KEY'] + ' ' + said['topic'] + '\\n')\n"
        "sys.exit(sys.argv[1:] == ['fail'] and 'no way' or 0)\n"
    )
    assert CommandSender(f"command:{sys.executable} {script}").send(LETTER).verdict is Verdict.DELIVERED
    assert (tmp_path / "said").read_text() == "instance/daily/5 instance\n"
    failed = CommandSender(f"command:{sys.executable} {script} fail").send(LETTER)
    assert (failed.verdict, failed.error) == (Verdict.FAILED, "it ended with 1: no way")
    assert CommandSender("command:/there/is/none").send(LETTER).verdict is Verdict.AWAY


def test_a_letter_has_no_secrets() -> None:
    remember_unnamed("hunter2-hunter2")
    letter: Letter = Letter(message=message(status=InstanceEnd.FAILED, error="cannot open s3://a?key=hunter2-hunter2"))
    assert "hunter2" not in json.dumps(letter.document) + letter.text + letter.html
    assert "key=***" in letter.text


def test_a_key_may_have_any_character(receiver: Receiver, mail_server: MailServer) -> None:
    odd = Letter(message=replace(message(), idempotency_key="sweep/s1/clicks/\u65e5 a\nb\\udcff"))
    with closing(WebhookSender(receiver.url, None)) as hook:
        assert hook.send(odd).verdict is Verdict.DELIVERED
    assert receiver.posts[0].headers["Idempotency-Key"] == "sweep/s1/clicks/%E6%97%A5%20a%0Ab%5Cudcff"
    with closing(MailSender("ann@example.org", mail_settings(mail_server))) as mails:
        assert mails.send(odd).verdict is Verdict.DELIVERED


SLA: dict[str, Any] = {
    "sla": SlaLevel.HIGH,
    "kind": Kind.FEED,
    "entity": "clicks",
    "cluster": "primary",
    "oldest": NOW,
    "instances": (),
}
SWEEP: dict[str, Any] = {"feed": "clicks", "cluster": "primary", "sweep": "s1"}


@pytest.mark.parametrize(
    ("payload", "subject", "command"),
    [
        (
            instance("clicks", entity_type=Kind.FEED, cluster="backup,primary", operation=InstanceOperation.REPLICATE),
            "feed clicks: instance 2026-01-01T00:00Z on backup from primary: replication succeeded",
            "why clicks 2026-01-01T00:00Z --kind feed",
        ),
        (
            instance(
                status=InstanceEnd.FAILED, count=289, oldest=NOW, newest=NOW + timedelta(days=1), error="too late"
            ),
            "process daily: 289 instances, 2026-01-01T00:00Z to 2026-01-02T00:00Z, on primary: failed",
            "why daily 2026-01-01T00:00Z --kind process",
        ),
        (
            RetryPayload(kind=Kind.PROCESS, entity="daily", cluster="primary", nominal_time=NOW, attempts=3),
            "process daily: instance 2026-01-01T00:00Z on primary: failed, all retries are used up",
            "why daily 2026-01-01T00:00Z --kind process",
        ),
        (
            SlaPayload(event=SlaEvent.MISSED, count=1, newest=NOW, **SLA),
            "feed clicks: instance 2026-01-01T00:00Z on primary: high deadline missed",
            "why clicks 2026-01-01T00:00Z --kind feed",
        ),
        (
            SweepPayload(instances=24, reason="it would remove much", **SWEEP),
            "feed clicks: a sweep on primary of 24 instances asks",
            "retention show s1",
        ),
        (
            EvictionPayload(
                operation=EvictionOperation.RESTORE,
                nominal_time=NOW,
                kind="data",
                store="file:///data",
                path="clicks/1",
                rule="age",
                **SWEEP,
            ),
            "feed clicks: clicks/1 on primary restored",
            "retention show s1",
        ),
        (
            EntityPayload(action=EntityAction.DELETE, kind=Kind.FEED, entity="clicks", author="ann"),
            "feed clicks: delete by ann",
            "entity history feed clicks",
        ),
        (
            MetadataPayload(
                entity="feed/clicks/column/user",
                author="ann",
                origin=next(iter(Origin)),
                previous={},
                additions={},
                deletions={},
            ),
            "feed/clicks/column/user: metadata changed by ann",
            "metadata history feed/clicks/column/user",
        ),
        (
            ArrivalPayload(
                kind=Kind.FEED, entity="clicks", cluster="primary", count=3, oldest=NOW, newest=NOW + timedelta(hours=2)
            ),
            "feed clicks: 3 instances, 2026-01-01T00:00Z to 2026-01-01T02:00Z, on primary: arrived",
            "why clicks 2026-01-01T00:00Z --kind feed",
        ),
        (HealthPayload(count=2, failing=("a fails", "b fails")), "ticks: 2 things failing", None),
        (instance(others={"test": True}), "a test of this receiver: nothing has happened", None),
    ],
)
def test_a_letter_says_in_its_subject_what_happened_and_offers_a_command(
    payload: MessagePayload, subject: str, command: str | None
) -> None:
    letter = Letter(message=OutboxMessage(recorded_at=NOW, payload=payload, idempotency_key="1"))
    assert letter.subject == subject
    offered = [line for line in letter.text.splitlines() if line.startswith("to see more: ")]
    assert offered == ([f"to see more: feed-assets {command}"] if command else [])
    if command:
        require_command(shlex.split(command))
