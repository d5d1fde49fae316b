"""The command line as a person sees it: tables, colours, what is waited for, help and suggestions."""

import csv
import io
import os
import pty
import re
import struct
import sys
import termios
import time
from fcntl import ioctl
from pathlib import Path

import click
import pytest

from feed_assets.cli import progress, render
from feed_assets.cli.progress import StatusLine
from feed_assets.cli.render import lay_out
from tests.cli.project import run
from tests.commands import iter_commands, require_command, words_of

HEADER = ("name", "state", "run", "reason")
ROWS = [["clicks", "FAILED", "e4f1", "the column carrier of flights is missing"], ["views", "DONE", "", ""]]


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def in_terminal(*arguments: str) -> str:
    """What a command prints in a terminal, without the line of what is waited for; it ends with the process."""
    pid, terminal = pty.fork()
    if pid == 0:  # pragma: no cover - another program
        ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "TERM")}
        os.execve(sys.executable, [sys.executable, "-m", "feed_assets", *arguments], {**kept, "TERM": "xterm"})
    printed = bytearray()
    while True:
        try:
            part = os.read(terminal, 65_536)
        except OSError:  # Linux says so at the end
            part = b""
        if not part:
            break
        printed += part
    os.close(terminal)
    os.waitpid(pid, 0)
    return re.sub(r"(\r\x1b\[2K[^\r\n]*)*\r\x1b\[2K", "", printed.decode())


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_states_have_colours_in_a_terminal(declared: Path) -> None:
    printed = in_terminal("entity", "list", "--fields", "STATUS", "--kind", "process")
    assert "kind     name      status" in printed
    assert "\x1b[36m" in printed


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_states_have_no_colours_in_a_terminal_that_wants_none(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    screen = _Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    render.say_state("RUNNING")
    monkeypatch.setenv(name, value)
    render.say_state("RUNNING")
    assert screen.getvalue() == "\x1b[36mRUNNING\x1b[0m\nRUNNING\n"


def test_what_does_not_fit_stands_below_its_row_and_no_word_is_cut() -> None:
    assert lay_out(HEADER, ROWS, width=80).lines == (
        "name    state   run   reason",
        "clicks  FAILED  e4f1  the column carrier of flights is missing",
        "views   DONE",
    )
    folded = lay_out(HEADER, ROWS, width=46)
    assert folded.lines == (
        "name    state   run   reason",
        "clicks  FAILED  e4f1  the column carrier of",
        "                      flights is missing",
        "views   DONE",
    )
    narrow = lay_out(HEADER, ROWS, width=19)
    assert narrow.lines[:4] == ("name    state", "clicks  FAILED", "    run: e4f1", "    reason: the")
    for layout in (folded, narrow, lay_out(HEADER, ROWS, width=3)):
        assert {word for row in ROWS for cell in row for word in cell.split()} <= set(" ".join(layout.lines).split())


def test_spare_columns_are_left_out_first_and_named() -> None:
    assert lay_out(HEADER, ROWS, width=80, spare=["run"]).left_out == ()
    layout = lay_out(HEADER, ROWS, width=46, spare=["run"])
    assert (layout.lines[0], layout.left_out) == ("name    state   reason", ("run",))
    layout = lay_out(HEADER, ROWS, width=30, spare=["run"])
    assert (layout.lines[0], layout.left_out) == ("name    state   run", ())


def test_columns_without_any_value_are_not_shown_and_numbers_stand_at_the_right() -> None:
    layout = lay_out(["feed", "until", "files"], [["a", "", "1"], ["b", "", "100"]], width=80, numbers=[2])
    assert layout.lines == ("feed  files", "a         1", "b       100")


def test_csv_is_strict_and_a_pipe_has_tabs(declared: Path) -> None:
    listed = run("entity", "list", "--fields", "CLUSTERS", "--kind", "feed", "--output", "csv").stdout
    assert next(csv.reader(io.StringIO(listed))) == ["kind", "name", "clusters"]
    piped = run("entity", "list", "--fields", "CLUSTERS", "--kind", "feed").stdout
    assert [line.split("\t") for line in piped.splitlines()] == list(csv.reader(io.StringIO(listed)))


def test_after_silence_a_line_says_what_is_waited_for_and_it_is_erased(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = _Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(progress, "SILENCE", 0.02)
    monkeypatch.setattr(progress, "_EVERY", 0.01)
    line = StatusLine()
    with line.running("at work"):
        with line.waiting_for("the state database"):
            _wait_for(screen, "waiting for the state database (0 s)")
        line.show("verify", 3, 1_000)
        _wait_for(screen, "verify: 3 of 1,000 (0 s)")
        with line.paused():
            before = screen.getvalue()
            time.sleep(0.05)
            assert screen.getvalue() == before
    assert screen.getvalue().endswith("\r\x1b[2K")


def test_without_a_terminal_no_line_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.StringIO()
    monkeypatch.setattr(sys, "stderr", pipe)
    monkeypatch.setattr(progress, "SILENCE", 0)
    monkeypatch.setattr(progress, "_EVERY", 0.001)
    with StatusLine().running("at work"):
        time.sleep(0.01)
    assert pipe.getvalue() == ""


def _wait_for(screen: io.StringIO, text: str) -> None:
    for _ in range(500):
        if text in screen.getvalue():
            return
        time.sleep(0.01)
    raise AssertionError(screen.getvalue())


def test_a_kind_and_a_cluster_are_not_needed_where_there_is_only_one(declared: Path) -> None:
    for with_kind, without in (
        (["entity", "status", "process", "counting"], ["entity", "status", "counting"]),
        (["instance", "list", "feed", "clicks"], ["instance", "list", "clicks"]),
        (
            ["instance", "triage", "process", "counting", "2013-11-03T05:00Z"],
            ["instance", "triage", "counting", "2013-11-03T05:00Z"],
        ),
        (["entity", "summary", "feed", "--cluster", "primary"], ["entity", "summary", "feed"]),
        (["entity", "blame", "process", "counting", "inputs"], ["entity", "blame", "counting", "inputs"]),
        (["entity", "delete", "process", "counting", "--dry-run"], ["entity", "delete", "counting", "--dry-run"]),
        (["entity", "schedule", "feed", "clicks", "counts"], ["entity", "schedule", "clicks", "counts"]),
        (
            ["entity", "clone", "feed", "clicks", "taps", "--dry-run"],
            ["entity", "clone", "clicks", "taps", "--dry-run"],
        ),
        (["entity", "touch", "feed", "clicks"], ["entity", "touch", "clicks"]),
        (["export-falcon", "feed", "clicks"], ["export-falcon", "clicks"]),
        (["metadata", "get", "feed/clicks"], ["metadata", "get", "clicks"]),
    ):
        result = run(*without)
        assert (result.exit_code, result.stdout) == (0, run(*with_kind).stdout), result.stderr
    (declared / "entities/other.yaml").write_text("kind: cluster\nname: counting\nstorage: file:///data\n")
    for arguments in (["entity", "status", "counting"], ["entity", "suspend", "clicks", "counting"]):
        ambiguous = run(*arguments)
        assert (ambiguous.exit_code, ambiguous.stdout) == (2, "")
        assert "a cluster and a process have the name 'counting': give its kind, too" in ambiguous.stderr
    assert "Write cluster/counting or process/counting" in run("metadata", "get", "counting").stderr
    assert "a cluster and a process have the name 'counting'" in run("export-falcon", "counting").stderr
    assert "Name one of the clusters" in run("entity", "summary", "feed").stderr


def test_every_example_of_the_help_is_a_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flights.zip").touch()
    examples = [command.epilog for _, command in iter_commands() if command.epilog]
    assert len(examples) >= 10
    for example in examples:
        require_command(words_of(example.removeprefix("Example: ")))


def test_the_list_of_commands_cuts_no_sentence() -> None:
    for arguments in ((), *((name,) for name, command in iter_commands() if isinstance(command, click.Group))):
        assert "..." not in run(*arguments, "-h").stdout.partition("Commands:")[2]
