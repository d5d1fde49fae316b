"""Commands with `--server`: what they print and how they end, without a difference to where the project is."""

import json
import logging
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.request import Request, urlopen

import pytest
from click.testing import CliRunner, Result
from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from feed_assets.cli import remote
from feed_assets.cli.door import CONSOLE, PROBLEM
from feed_assets.cli.main import main
from feed_assets.engines.errors import ServiceAwayError
from feed_assets.operation_list import find_operation, list_operations
from feed_assets.server.application import build_application
from feed_assets.server.bodies import LARGEST
from feed_assets.server.guard import Guard
from feed_assets.server.identity.callers import Keeper
from feed_assets.server.problems import problem
from feed_assets.server.records import Address
from feed_assets.settings import load_settings
from tests.cli.project import must, run
from tests.cli.test_golden import COMMANDS, GOLDEN, prepare, run_commands, stable
from tests.cli.test_terminal import in_terminal
from tests.databases import create_schema, open_migrated
from tests.drills import drill
from tests.projects import be
from tests.receivers import make_certificate
from tests.server.project import listen, open_project

BY_HAND = {"simulate", "state rebuild"}
"""Commands without an operation."""
PLACES = {"validate"}
"""What names a place on this machine in the story."""


@dataclass(frozen=True, slots=True)
class _Told:
    from_afar: dict[str, str] = field(default_factory=dict)
    by_http: dict[str, str] = field(default_factory=dict)
    """What a request for JSON is answered, that was asked beside a command that only reads."""
    refused: dict[str, str] = field(default_factory=dict)
    """What those say that a server does not offer, which are then given where the project is."""


def _tell(folder: Path, patch: pytest.MonkeyPatch, state: str, *, is_plain: bool) -> _Told:
    """Tell the story of the golden files from afar; `is_plain` is by requests for JSON alone."""
    prepare(folder, patch)
    written, file = Path("feed_assets.yaml"), f"sqlite:///{folder}/state.db"
    written.write_text(written.read_text().replace(file, state))
    be("ann", patch)
    told, plain, refused = _Told(), list[str](), list[str]()
    send = remote.send

    def note(server: str, question: remote.Question, headers: Mapping[str, str]) -> Mapping[str, Any]:
        if is_plain or question.method == "GET":
            request = Request(server + question.target, question.body, dict(question.headers), method=question.method)
            with urlopen(request) as answer:
                plain.append(answer.read().decode())
        return {"out": plain[-1], "err": "", "exit_code": 0} if is_plain else send(server, question, headers)

    patch.setattr(remote, "send", note)
    with (
        closing(open_migrated(state)) as database,
        listen(build_application(load_settings(), database)) as server,
    ):

        def give(*words: str) -> Result:
            found = run("--server", server, *words)
            if not any(said in found.stderr for said in ("where the project is", "Leave ")):
                return found
            refused.append(found.stderr)
            return run(*words)

        for name, result in run_commands(folder, "--output", "json", give=give):
            told.from_afar[name], *texts = (
                stable(text.replace(state, file), folder) for text in (result.stdout, *plain)
            )
            told.by_http.update((name, text) for text in texts)
            told.refused.update((name, text) for text in refused)
            plain.clear()
            refused.clear()
    return told


FORMS = ("as on a terminal", "as JSON")


@pytest.fixture(
    scope="module",
    params=[
        (FORMS[0], "sqlite"),
        drill((FORMS[1], "sqlite")),
        *(pytest.param((each, "postgresql"), marks=[pytest.mark.server, pytest.mark.drill]) for each in FORMS),
    ],
    ids="-".join,
)
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> _Told:
    (form, kind), folder = request.param, tmp_path_factory.mktemp("afar")
    is_file = kind == "sqlite"
    state = f"sqlite:///{folder}/state.db" if is_file else create_schema(request.getfixturevalue("postgres_url"))
    with pytest.MonkeyPatch.context() as patch:
        return _tell(folder, patch, state, is_plain=form == FORMS[1])


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_prints_from_afar_what_it_prints_where_the_project_is(name: str, told: _Told) -> None:
    golden = (GOLDEN / f"{name.replace(' ', '-')}.json").read_text()
    assert told.from_afar[name] == golden
    assert told.by_http.get(name, golden) == golden


def test_what_a_server_does_not_offer_says_why(told: _Told) -> None:
    reasons = {each.name: each.no_route for each in list_operations().items if each.no_route}
    assert told.refused.keys() == {*BY_HAND, *PLACES, *reasons} & COMMANDS.keys()
    assert {name for name, text in told.refused.items() if reasons.get(name, "") not in text} == set()


@pytest.fixture(scope="module")
def afar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server of the project in the working directory."""
    folder = tmp_path_factory.mktemp("equal")
    with pytest.MonkeyPatch.context() as patch, closing(open_project(folder, patch)) as database:
        be("ann", patch)
        (folder / "empty.json").touch()
        (folder / "lost").mkdir()
        (folder / "lost/x.yaml").symlink_to("nowhere")
        (folder / "wrong.properties").write_text("colour")
        with listen(build_application(load_settings(), database)) as server:
            yield server


@pytest.mark.parametrize(
    "words",
    [
        "entity list",
        "entity list --output csv",
        "entity list --kin feed",
        "entity list more words",
        "entity list --order",
        "entity status clicks",
        "entity history nobody",
        "entity submit",
        "entity submit nowhere.yaml",
        "entity submit all.yaml",
        "entity validate wrong.yaml all.yaml",
        "entity validate all.yaml all.yaml",
        "entity validate lost",
        "entity validate -",
        "entity suspend process",
        "entity update updated.yaml --dry-run",
        "export-falcon feed clicks",
        "feed notify clicks --again",
        "feed notify clicks 2013-11-03T05:00Z --payload [1]",
        "instance list process counting --num-results 0",
        "instance rerun counting --start 2013-11-03T05:00Z --end 2013-11-03T06:00Z --file wrong.properties",
        "instance rerun counting --start 2013-11-03T05:00Z --file absent.properties",
        "metadata get dashboard/none",
        "metadata import absent.json",
        "metadata import empty.json",
        "entity lookup /clicks/\udcff",
        "metadata import said.json --dry-run",
        "mirror plan models",
        "settings --help",
        "why",
        "why counting yesterday",
        "why counting 2013-11-03-05:00",
        "why nobody 2013-11-03",
    ],
)
def test_a_text_and_an_exit_code_are_the_same_from_afar(words: str, afar: str) -> None:
    here = run(*words.split(), stdin="kind: feed\nname: x\n")
    there = run("--server", afar, *words.split(), stdin="kind: feed\nname: x\n")
    assert (there.exit_code, there.stdout, there.stderr) == (here.exit_code, here.stdout, here.stderr)


def test_a_person_confirms_from_afar_what_is_then_applied(afar: str) -> None:
    for answer, code in (("n", 1), ("y", 0)):
        result = run("--server", afar, "apply", "more.yaml", stdin=f"{answer}\n")
        assert (result.exit_code, "+ feed 'hits'" in result.stderr) == (code, True), result.output
        assert "Apply this? [y/N]" in result.stderr
        assert ("hits" in must("entity", "list").stdout) is (code == 0)
    again = run("--server", afar, "apply", "more.yaml", stdin="")
    assert (again.exit_code, again.stderr) == (0, "Nothing would change.\n")


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_terminal_shows_the_same_from_afar(afar: str) -> None:
    words = ("entity", "list", "--fields", "STATUS", "--kind", "process")
    there = in_terminal("--server", afar, *words)
    assert "\x1b[36m" in there
    assert there == in_terminal(*words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("entity suspend process counting --author eve", "the author of a change is the name of the token"),
        ("validate entities", "'[PATH]' is only for where the project is. Leave it out, or run it there."),
        ("admin messages --follow", "'--follow' is only for where the project is"),
        (
            "simulate",
            "feed-assets: server http://127.0.0.1:1: it does not offer this. Give the command where the project is, "
            "without --server and FEED_ASSETS_SERVER.\n",
        ),
        ("retention purge x", "it does not offer this. It may take minutes. Give the command where the project is, w"),
    ],
)
def test_what_is_only_for_where_the_project_is_is_refused(words: str, said: str) -> None:
    result = run("--server", "http://127.0.0.1:1", *words.split())
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


def test_help_and_completion_ask_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEED_ASSETS_SERVER", "http://127.0.0.1:1")
    for words in ("completion bash", "why --help", "-h", "--version"):
        must(*words.split())
    result = run("why", "counting")
    refused = "feed-assets: server http://127.0.0.1:1: it has not answered: Connection refused."
    assert (result.exit_code, result.stderr) == (
        2,
        f"{refused} Nothing was sent. Check its address, and that it runs.\n",
    )


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Response(b"<html>", 200), "it is no server of feed-assets: it answers 200 OK. Check its address."),
        (Response(b"{}", 200), "it is no server of feed-assets"),
        (Response(status_code=404), "it is no server of feed-assets: it answers 404"),
        (
            Response(status_code=302, headers={"location": "http://other/"}),
            "it sends on to http://other/, where nothing was sent.",
        ),
        (
            problem(401, "It is not known who asks."),
            "It is not known who asks. A token that holds is needed in FEED_ASSETS",
        ),
        (problem(403, "This token reads only.", "Ask for another."), "This token reads only. Ask for another."),
        (
            problem(404, "There is nothing."),
            "it has no /api/v1/why. It is of another version of feed-assets: use the same one.",
        ),
        (problem(503, "The database is away."), "server {}: The database is away."),
    ],
)
def test_a_server_that_does_not_answer_as_one_is_told_in_one_sentence(answer: ASGIApp, said: str) -> None:
    with listen(answer) as server:
        result = run("--server", f"{server}/", "why", "counting")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("feed-assets: server http://127.0.0.1:")
    assert said.format(f"{server}/") in result.stderr


def test_an_address_with_a_wrong_path_is_told() -> None:
    with listen(problem(404, "There is nothing.")) as server:
        result = run("--server", f"{server}/foo", "why", "counting")
    assert "it has no /foo/api/v1/why. Check /foo in its address.\n" in result.stderr


def test_an_option_of_all_commands_goes_before_them() -> None:
    for option in ("--server", "--debug", "--token-file"):
        result = run("entity", "status", "orders", option, "x")
        assert f"No such option '{option}'. It goes before the name of the command." in result.stderr
    assert "before the name" not in run("entity", "status", "orders", "--nothing").stderr


@pytest.mark.parametrize(
    "url",
    [
        "localhost:3030",
        "ftp://a",
        "http://[a",
        "http://a:b",
        "http://eve:x@a",
        "http://@a",
        "http://a/?b",
        "http://a/#",
        "http://a/b c",
        "http://a/\r\nX: y",
        "http://a\n",
        "http://a/\u00e4",
        "",
    ],
)
def test_what_is_no_address_is_wrong_usage(url: str) -> None:
    result = run("--server", url, "why", "counting")
    assert (result.exit_code, "is no address of a server" in result.stderr) == (2, True)


def _console(**members: Any) -> Response:
    return Response(json.dumps({"out": "a", "err": "", "exit_code": 0, **members}), media_type=CONSOLE)


def test_an_answer_that_no_server_of_ours_gives_is_refused() -> None:
    answers = [
        *(_console(exit_code=code) for code in ("0", None, True, 1.5, -1, 5, 256, 10**30)),
        *(_console(out=out) for out in (1, None, ["a"], "a\ud800")),
        *(Response(content, media_type=CONSOLE) for content in (b"[" * 100_000, b"NaN", b"{}", b'{"out": "\xe9"}')),
        Response(_console().body, 500, media_type=CONSOLE),
        _console(more=[[], []]),
        JSONResponse({"detail": "No." * 400_000}, 403, media_type=PROBLEM),
        JSONResponse({"out": "a", "err": "", "exit_code": 0}),
        JSONResponse({"detail": "No."}, 403),
        *(JSONResponse({"detail": detail}, 401, media_type=PROBLEM) for detail in (["x"], None)),
        JSONResponse({"detail": "No.", "next_step": {"a": 1}}, 404, media_type=PROBLEM),
        Response(_console().body, 200, {"Location": "http://other/"}, "text/html"),
    ]
    left = iter(answers)

    async def give(scope: Scope, receive: Receive, send: Send) -> None:
        await next(left)(scope, receive, send)

    with listen(give) as server:
        for answer in answers:
            result = run("--server", server, "why", "counting")
            told = (result.exit_code, result.stdout, "it is no server of feed-assets: it answers " in result.stderr)
            assert told == (2, "", True) or answer is answers[-1], (bytes(answer.body)[:80], result.output)


_EVIL = "\x1b]0;title\x07\x1b]52;c;ZXZpbA==\x07\x9b2J\u202e"
_TOLD = r"\x1b]0;title\x07\x1b]52;c;ZXZpbA==\x07\x9b2J\u202e"


def test_a_terminal_obeys_no_server_but_shows_its_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    painted = "\x1b[31mFAILED\x1b[0m\x1b[8m\n"
    with listen(_console(out=painted + _EVIL, err=_EVIL)) as server:
        piped = run("--server", server, "why", "counting")
        monkeypatch.setattr(remote, "has_colours", lambda: True)
        shown = CliRunner().invoke(main, ["--server", server, "why", "counting"], color=True)
    assert piped.stdout == r"\x1b[31mFAILED\x1b[0m\x1b[8m" + "\n" + _TOLD
    assert shown.stdout == "\x1b[31mFAILED\x1b[0m" + r"\x1b[8m" + "\n" + _TOLD
    assert piped.stderr == shown.stderr == _TOLD


@contextmanager
def _answering(*parts: bytes, then: str = "end") -> Iterator[str]:
    """Answer one request with parts, and then end, wait until the client goes, or drip with the last one."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            taken, _ = listener.accept()
            with taken, suppress(OSError):
                taken.settimeout(10)
                request = b""
                while b"\r\n\r\n" not in request:
                    request += taken.recv(1 << 16)
                for part in parts:
                    taken.sendall(part)
                while then == "drip" and not ended.wait(0.01):
                    taken.sendall(parts[-1])
                if then == "wait":
                    taken.recv(1)

        ended = Event()
        thread = Thread(target=answer)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            ended.set()
            thread.join()


@pytest.mark.parametrize(
    "answer",
    [
        b"500 \x1b]0;title\x07\r\nContent-Length: 0\r\n\r\n",
        b"302 Found\r\nLocation: http://other/\x1b]0;title\x07\r\nContent-Length: 0\r\n\r\n",
        b"403 No\r\nContent-Type: application/problem+json\r\n\r\n"
        rb'{"detail":"\u001b]0;title\u0007","next_step":"\u001b"}',
    ],
)
def test_a_terminal_obeys_no_reason_of_a_server(answer: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with _answering(b"HTTP/1.1 " + answer) as server, caplog.at_level(logging.DEBUG, "feed_assets"):
        result = run("--server", server, "why", "counting")
    assert r"\x1b]0;title\x07" in result.stderr
    assert "\x1b" not in result.output + caplog.text


_HEAD = f"HTTP/1.1 200 OK\r\nContent-Type: {CONSOLE}\r\n".encode()


@pytest.mark.parametrize(
    ("limit", "parts", "then", "said"),
    [
        ("_ANSWERING", (_HEAD, b"X: y\r\n"), "drip", "to the end in 0.5 seconds"),
        ("_ANSWERING", (_HEAD, b"\r\n", b"a"), "drip", "to the end in 0.5 seconds"),
        ("_ANSWERING", (_HEAD, b"Transfer-Encoding: chunked\r\n\r\n", b"0"), "drip", "to the end in 0.5 seconds"),
        ("_ANSWERING", (_HEAD,), "wait", "to the end in 0.5 seconds"),
        ("_SILENT", (_HEAD, b"\r\n{"), "wait", ": timed out"),
        ("_LARGEST", (_HEAD, b"\r\n", b"a" * 1000), "drip", ": its answer has more than 0.5 bytes"),
        ("", (_HEAD, b"Content-Length: 3\r\n\r\n", b"ab"), "end", ": its answer breaks off"),
        ("", (_HEAD, b"Transfer-Encoding: chunked\r\n\r\n5\r\n", b"ab"), "end", ": its answer breaks off"),
    ],
)
def test_an_answer_without_end_is_cut_off(
    limit: str, parts: tuple[bytes, ...], then: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if limit:
        monkeypatch.setattr(remote, limit, 0.5)
    with _answering(*parts, then=then) as server:
        result = run("--server", server, "why", "counting")
    expected = f"feed-assets: server {server}: it has not answered{' ' * (said[0] != ':')}{said}."
    assert (result.exit_code, result.stderr) == (2, f"{expected} Nothing was changed: ask again, or for less.\n")


def test_who_has_less_time_cuts_off_a_server_that_drips() -> None:
    question = remote.ask_for(find_operation("settings"), {})
    with _answering(_HEAD, b"X: y\r\n", then="drip") as server, pytest.raises(ServiceAwayError) as caught:
        remote.send(server, question, {}, seconds=0.5)
    assert "it has not answered" in str(caught.value)


@pytest.mark.parametrize(
    ("words", "next_step"),
    [
        ("entity suspend process counting", "It may have been done. Look first, and give the command again if it was"),
        ("entity suspend process counting --dry-run", "Nothing was changed: ask again"),
        ("feed notify clicks 2013-11-03T05:00Z", "It may have been done. Look first"),
        ("feed notify clicks 2013-11-03T05:00Z --key a", "It may have been done. Give the command again: what has its"),
    ],
)
@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 504 Gateway Time-out\r\nContent-Length: 0\r\n\r\n"])
def test_what_may_be_done_after_a_broken_connection_is_told(words: str, next_step: str, answer: bytes) -> None:
    with _answering(answer) as server:
        result = run("--server", server, *words.split())
    assert (result.exit_code, next_step in result.stderr) == (2, True), result.stderr


def test_a_token_is_of_the_environment_or_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str | None] = []

    async def keep(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(Headers(scope=scope).get("authorization"))
        await problem(401, "It is not known who asks.")(scope, receive, send)

    (tmp_path / "token").write_text("of-a-file\n")
    (tmp_path / "broken").write_text("two words")
    (tmp_path / "empty").write_text("\n")
    with listen(keep) as server:
        monkeypatch.setenv("FEED_ASSETS_TOKEN", "of-the-environment")
        first = run("--server", server, "why", "counting")
        monkeypatch.setenv("FEED_ASSETS_TOKEN_FILE", str(tmp_path / "token"))
        run("--server", server, "why", "counting")
        broken = run("--server", server, "--token-file", str(tmp_path / "broken"), "why", "counting")
        empty = run("--server", server, "--token-file", str(tmp_path / "empty"), "why", "counting")
        absent = run("--server", server, "--token-file", str(tmp_path / "absent"), "why", "counting")
    assert seen == ["Bearer of-the-environment", "Bearer of-a-file"]
    assert "It is not known who asks. A token that holds is needed" in first.stderr
    assert "has is no token" in broken.stderr
    assert f"{tmp_path}/empty is empty. Write the token into it" in empty.stderr
    assert (broken.exit_code, empty.exit_code, absent.exit_code) == (2, 2, 2)
    assert absent.stderr == f"feed-assets: {tmp_path}/absent: No such file or directory.\n"


def test_a_certificate_is_trusted_by_the_file_of_its_authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key = make_certificate(tmp_path)
    with listen(problem(403, "No."), ssl_certfile=certificate, ssl_keyfile=key) as address:
        server = address.replace("127.0.0.1", "localhost")
        first = run("--server", server, "why", "counting")
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        second = run("--server", server, "why", "counting")
        plain = run("--server", server.replace("https", "http"), "why", "counting")
    with listen(problem(403, "No.")) as address:
        safe = run("--server", address.replace("http", "https"), "why", "counting")
    assert "If it is one of HTTPS, write https:// in its address." in plain.stderr
    assert "If it is one of plain HTTP, write http:// in its address." in safe.stderr
    assert (
        "it is not trusted: self-signed certificate. Name the file of its authority by SSL_CERT_FILE." in first.stderr
    )
    assert second.stderr == f"feed-assets: server {server}: No. Ask who runs it.\n"
    assert (first.exit_code, second.exit_code) == (2, 2)


def test_a_file_that_is_too_large_is_told(tmp_path: Path) -> None:
    (tmp_path / "large.json").write_bytes(b" " * (LARGEST + 1))
    database = open_migrated(f"sqlite:///{tmp_path}/state.db")
    keeper = Keeper(load_settings(), database, Address(host="127.0.0.1", port=0), author="ann")
    with closing(database), listen(Guard(build_application(load_settings(), database), keeper)) as server:
        result = run("--server", server, "metadata", "import", str(tmp_path / "large.json"))
    assert (result.exit_code, "The body has more than 8 MiB." in result.stderr) == (2, True), result.stderr
