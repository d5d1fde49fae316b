"""(t) What rights cost: the list of a thousand entities, as somebody from whom a third is hidden and as a superuser, by
HTTP and by the command that asks a server.
"""

import getpass
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import requests
import yaml

from benchmarks.probes import ROOT, ProbeError, say
from benchmarks.report import Figure, Part, Scale, slower
from benchmarks.workload import Pair, pairs_of, write_entities

AT_MOST = 1.3
_COMMAND = (sys.executable, "-W", "ignore", "-m", "feed_assets")
_ACLS = ("{owner: ann}", "{owner: bob}", "{owner: bob, permission: '0x750'}")
"""Of Ann, public, and hidden from her."""
_ALL = 1_000_000


def measure_rights(folder: Path, scale: Scale) -> Iterator[Figure]:
    """Measure in turns against one server. What Ann is shown is counted, too."""
    pairs = pairs_of(scale.choose(333, 100, 3))
    write_entities(folder / "entities", pairs, folder / "data")
    for each in pairs:
        _give(folder / "entities", each, _ACLS[each.number % 3])
    state, access = f"sqlite:///{folder / 'state.db'}", {"superusers": [getpass.getuser(), "root"]}
    settings = {"state": state, "authorization": "acl", "access": access, "actions": "off"}
    (folder / "feed_assets.yaml").write_text(yaml.safe_dump(settings))
    tokens = {name: _make_token(folder, name) for name in ("ann", "root")}
    shown = {"ann": 1 + 3 * sum(each.number % 3 != 2 for each in pairs), "root": 1 + 3 * len(pairs)}
    what = f"`entity list` of {1 + 3 * len(pairs):,} entities"
    with _serving(folder) as url, requests.Session() as session:

        def ask(name: str) -> int:
            headers = {"Authorization": f"Bearer {tokens[name]}"}
            given = {"num_results": _ALL}
            answer = session.get(f"{url}/api/v1/entity/list", params=given, headers=headers, timeout=60).json()
            return int(answer["total"]) if len(answer["entities"]) == answer["total"] else 0

        def command(name: str) -> int:
            words = ["--server", url, "entity", "list", "--num-results", str(_ALL)]
            return len(_run(folder, words, {"FEED_ASSETS_TOKEN": tokens[name]}).splitlines()) - 1

        for way, work, rounds in (
            ("by HTTP", ask, scale.choose(51, 11, 1)),
            ("--server", command, scale.choose(11, 3, 1)),
        ):
            seconds = _measure(work, shown, rounds)
            note = f"{shown['ann']:,} of them are shown"
            ann, root = median(seconds["ann"]), median(seconds["root"])
            yield slower(Part.RIGHTS, f"{what}, {way}", ann, "as a superuser", root, at_most=AT_MOST, note=note)


def _measure(work: Callable[[str], int], shown: dict[str, int], rounds: int) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {name: [] for name in shown}
    for number in range(rounds + 1):
        for name in sorted(shown, reverse=bool(number % 2)):
            begun = time.perf_counter()
            found = work(name)
            if number:  # the first one loads what is kept then
                seconds[name].append(time.perf_counter() - begun)
            if found != shown[name]:
                raise ProbeError(f"{name} is shown {found} entities, not {shown[name]}")
    return seconds


def _give(folder: Path, pair: Pair, acl: str) -> None:
    for file in (each for each in folder.glob("*.yaml") if f"{pair.number:04d}" in each.name):
        file.write_text("---\n".join(f"{text.rstrip()}\nacl: {acl}\n" for text in file.read_text().split("---\n")))


def _run(folder: Path, words: Sequence[str], environ: dict[str, str]) -> str:
    told = {**os.environ, "PYTHONPATH": str(ROOT), **environ}
    done = subprocess.run([*_COMMAND, *words], cwd=folder, env=told, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ProbeError(f"{' '.join(words)} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return done.stdout


def _make_token(folder: Path, name: str) -> str:
    bearer: str = json.loads(_run(folder, ["token", "create", name, "--may", "reads", "--output", "json"], {}))[
        "bearer"
    ]
    return bearer


@contextmanager
def _serving(folder: Path) -> Iterator[str]:
    command = [*_COMMAND, "serve", "--port", "0"]
    told = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, cwd=folder, env=told, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().split(" ")[1]
            say(f"rights: {url}")
            yield url
        finally:
            server.terminate()
