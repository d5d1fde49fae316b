"""A shell for the commands of the documents: ours run in this process, those of the system by themselves."""

import re
import shlex
import subprocess
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import click
import pytest

from tests.cli.project import run
from tests.commands import require_command
from tests.documents.markdown import FENCE, ROOT, codes, fences

_TODAY = "$(date +%F)"


def commands_of(page: str) -> list[str]:
    """The command lines of a page, without the prompt and the remark."""
    return [line for body in fences(ROOT / page, "console") for line in lines_of(body)]


def lines_of(body: str) -> list[str]:
    """The command lines of a block."""
    return [re.sub(r"\s+# .*$", "", line.removeprefix("$ ")) for line in body.splitlines()]


def whole_commands_of(page: str) -> list[str]:
    """The commands in the text of a page that can be run as they stand there; others are named without arguments."""
    text = " ".join(FENCE.sub("", (ROOT / page).read_text("utf-8")).split())
    return list(dict.fromkeys(code for code in codes(text) if code.startswith("feed-assets ") and _is_whole(code)))


def _is_whole(line: str) -> bool:
    words = shlex.split(line)[1:]
    if any(word.isupper() or "…" in word for word in words):
        return False
    try:
        require_command(words)
    except click.UsageError:
        return False
    return True


def programs_of(line: str) -> list[str]:
    """The programs that a command line runs."""
    return [shlex.split(part)[0] for part in line.split("&&")]


@dataclass(slots=True, kw_only=True)
class Shell:
    """Runs command lines in the working directory; `answers` has what each of ours printed.

    `words` replaces placeholders. Lines in `elsewhere`, or that run one of these programs, are left out.
    """

    monkeypatch: pytest.MonkeyPatch
    words: Mapping[str, str] = field(default_factory=dict)
    elsewhere: Collection[str] = ()
    answers: dict[str, str] = field(default_factory=dict)

    def run_page(self, page: str, *, only: str = "") -> None:
        """Run the command lines of a page in their order; only those that begin with `only`."""
        for line in commands_of(page):
            if line.startswith(only):
                self.run(line)

    def run(self, line: str) -> None:
        """Run a command line; each of its commands must succeed."""
        if line in self.elsewhere:
            return
        today = subprocess.run(["date", "+%F"], capture_output=True, text=True, check=True).stdout.strip()
        for part in line.replace(_TODAY, today).split("&&"):
            for placeholder, word in self.words.items():
                part = part.replace(placeholder, word)
            self._run_one(line, part)

    def _run_one(self, line: str, part: str) -> None:
        program, *words = _expanded(shlex.split(part))
        if program in self.elsewhere:
            return
        if program == "cd":
            self.monkeypatch.chdir(words[0])
            self.monkeypatch.syspath_prepend(str(Path.cwd()))
        elif program == "export":
            self.monkeypatch.setenv(*words[0].split("=", 1))
        elif program == "feed-assets":
            *words, target = words if ">" in words else (*words, "")
            ran = run(*(word for word in words if word != ">"), stdin="y\n")
            assert ran.exit_code == 0, f"$ {part}\n{ran.output}"
            self.answers[line] = ran.output
            if target:
                Path(target).write_text(ran.stdout)
        else:
            subprocess.run([program, *words], check=True)


def _expanded(words: list[str]) -> Iterator[str]:
    for word in words:
        yield from sorted(map(str, Path().glob(word))) if "*" in word else [word]
