"""Whatever a file holds: no traceback, every refusal is an issue with a place, and nothing takes long or much room."""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from feed_assets.errors import MOST_CHARACTERS
from feed_assets.loading.bundles import MAX_MISTAKES, LoadedBundle, load_files, usable_bundle
from feed_assets.loading.entity_files import MAX_FILE_BYTES, EntityFile, Values
from feed_assets.plan.compile import compile_plan
from feed_assets.validation.rules import validate_bundle
from tests.drills import sized
from tests.entities.samples import documents
from tests.loading.bundles import load_bundle
from tests.validation.cases import LIMIT, PRIMARY, SHARED, tables

NO_VALUES = Values(variables={}, environ={})
AS_OF = datetime(2015, 6, 1, tzinfo=UTC)
SECONDS = 5.0
"""Of CPU. What grows as the square of a file of this size takes minutes."""
MEGABYTES = 100
RICH = {
    f"{PRIMARY}/import": SHARED["import"],
    "feed clicks/clusters/backup/export": SHARED["export"],
    "feed clicks/lifecycle": {"retention_stage": {"frequency": "hours(2)", "properties": {LIMIT: "days(20)"}}},
    "feed clicks/sla": {"low": "hours(1)", "high": "hours(2)"},
    "process daily/properties": {"day": "${formatTime(instanceTime(), 'yyyy-MM-dd')}"},
    "process daily/late_process": {"policy": "final", "delay": "hours(1)", "inputs": ["clicks"]},
    "process daily/retry": {"policy": "periodic", "delay": "hours(1)", "attempts": 3},
}


def _yaml(changes: dict[str, object]) -> str:
    found = [{"kind": label.split()[0], **document} for label, document in documents(changes).items()]
    plain = json.loads(json.dumps(found, default=lambda _: None))
    return yaml.safe_dump_all(plain, sort_keys=False)


TEXTS = (_yaml(RICH), _yaml(tables()))
TOKENS = (
    *(
        "&a",
        "*a",
        "!!python/object:os.system",
        "- ",
        "? ",
        ": ",
        "{",
        "}",
        "[",
        "]",
        "<<: ",
        "|",
        ">",
        "---\n",
        "...\n",
    ),
    *(
        "%YAML 9.9\n",
        "\t",
        "\0",
        "\x85",
        "\u2028",
        "\ufeff",
        "'",
        '"',
        "#",
        "${env:X}",
        "${YEAR}",
        "${cluster.x}",
        "${",
    ),
    *("now(0,0)", "latest(-1)", "future(0,9)", "hours(1)", "days(99999999999)", "months(12)", "minutes(1)", "hours(0)"),
    *("9999-12-31T23:59Z", "0001-01-01T00:00Z", "now(99999999999,0)", "currentMonth(-9999,0,0)", "lastYear(0,0,0,0)"),
    *(
        "catalog:a:b#c=${YEAR}",
        "catalog:",
        "source",
        "target",
        "-1",
        "1e999",
        "999999999999999999999",
        "nan",
        "\U0001f600",
    ),
    *(f"{'9' * 5_000}", f"days({'9' * 5_000})", f"now({'9' * 5_000},0)", f"{'9' * 5_000}GB", "0x" + "f" * 5_000),
    *("Asia/Kolkata", "America/New_York", "Pacific/Apia", "oozie", "pig", "sql", "spark-submit", "thrift://", "null"),
)


def _load(content: bytes) -> LoadedBundle:
    return load_files([EntityFile(name="a.yaml", content=content)], NO_VALUES)


def _check(content: bytes) -> None:
    """Everything that is done with a file before something is made of it."""
    loaded = _load(content)
    issues = [*loaded.issues, *validate_bundle(loaded.bundle, loaded.sources)]
    for issue in issues:
        assert issue.message
        assert issue.source is not None
        assert issue.source.line or issue.code == "file-too-big"
        assert issue.code != "internal-error", issue.render()
        assert len(issue.message) <= MOST_CHARACTERS
    usable, _ = usable_bundle(loaded, issues)
    compile_plan(usable)


@pytest.mark.sample
@settings(max_examples=sized(75, 150), deadline=None)
@given(st.binary(max_size=400))
@example(b"\xff\xfek\x00i\x00")
@example("kind: feed".encode("utf-16"))
@example("kind: feed\nname: é".encode("latin-1"))
def test_random_bytes_are_refused_or_empty(content: bytes) -> None:
    _check(content)


@pytest.mark.sample
@settings(max_examples=sized(75, 150), deadline=None)
@given(st.lists(st.sampled_from(TOKENS) | st.text(max_size=6), max_size=40))
def test_random_pieces_of_yaml_are_refused_or_empty(pieces: list[str]) -> None:
    _check("".join(pieces).encode("utf-8", "surrogatepass"))


@st.composite
def _mutated(draw: st.DrawFn) -> str:
    text = draw(st.sampled_from(TEXTS))
    chance = random.Random(draw(st.integers(0, 2**32)))
    for _ in range(draw(st.integers(1, 6))):
        start = chance.randrange(len(text))
        end = min(len(text), start + chance.choice((0, 0, 1, 3, 20)))
        lines = text.splitlines(keepends=True)
        match chance.randrange(5):
            case 0:
                text = text[:start] + chance.choice(TOKENS) + text[end:]
            case 1:
                text = text[:start] + text[end:]
            case 2:
                number = chance.randrange(len(lines))
                text = "".join([*lines[:number], *lines[number : number + 2], *lines[number:]])
            case 3:
                number = chance.randrange(len(lines))
                key, found, _ = lines[number].partition(": ")
                lines[number] = f"{key}: {chance.choice(TOKENS)}\n" if found else lines[number]
                text = "".join(lines)
            case _:
                one, other = chance.randrange(len(lines)), chance.randrange(len(lines))
                lines[one], lines[other] = lines[other], lines[one]
                text = "".join(lines)
    return text


@pytest.mark.sample
@settings(max_examples=sized(200, 400), deadline=None)
@given(_mutated())
def test_no_change_of_a_file_makes_a_traceback(text: str) -> None:
    _check(text.encode("utf-8", "surrogatepass"))


def _bomb() -> str:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    lines += [
        f"{name}: &{name} [{', '.join(['*' + before] * 10)}]"
        for before, name in zip("abcdefgh", "bcdefghi", strict=True)
    ]
    return "\n".join(lines)


SIZE = MAX_FILE_BYTES - 1000
HOSTILE: dict[str, tuple[str, Callable[[], str]]] = {
    "aliases": ("yaml-too-big", _bomb),
    "a long list": ("yaml-too-big", lambda: "a: [" + "1," * (SIZE // 2) + "]"),
    "many documents": ("more-mistakes", lambda: "--- x\n" * (SIZE // 6)),
    "many entities": ("more-mistakes", lambda: "---\nkind: feed\nname: f\n" * (SIZE // 23)),
    "empty documents": ("yaml-too-big", lambda: "---\n" * (SIZE // 4)),
    "directives": ("yaml-too-big", lambda: "".join(f"%TAG !a{n}! b\n" for n in range(SIZE // 20))),
    "anchors": ("yaml-too-big", lambda: "".join(f"k{n}: &a{n} 1\n" for n in range(SIZE // 20))),
    "unknown keys": ("more-mistakes", lambda: "kind: feed\nname: x\n" + "".join(f"k{n}: 1\n" for n in range(20_000))),
    "equal keys": ("yaml-too-big", lambda: "kind: feed\nname: x\n" + "a: 1\n" * (SIZE // 5)),
    "tags": ("yaml-too-big", lambda: "a: [" + "!x 1," * (SIZE // 5) + "]"),
    "a long text": ("yaml-too-big", lambda: "kind: feed\nname: " + "x" * SIZE),
    "a long key": ("yaml-too-big", lambda: "kind: feed\n? " + "x" * SIZE + "\n: 1"),
    "a long name": ("name", lambda: "kind: feed\nname: " + "x" * 60_000),
    "references": ("yaml-too-big", lambda: "a: " + "${env:X}" * (SIZE // 8)),
    "missing values": ("env-missing", lambda: "kind: cluster\nname: " + "${env:X}" * 8_000),
    "brackets": ("yaml-too-deep", lambda: "[" * SIZE),
    "dashes": ("yaml-too-deep", lambda: "- " * (SIZE // 2)),
    "zeros": ("yaml-syntax", lambda: "\0" * SIZE),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_at_once(name: str) -> None:
    code, write = HOSTILE[name]
    content = write().encode()
    begun = time.process_time()
    loaded = _load(content)
    assert time.process_time() - begun < SECONDS
    assert code in {issue.code for issue in loaded.issues}
    assert len(loaded.issues) <= 2 * MAX_MISTAKES
    assert all(len(issue.render()) < 3_000 for issue in loaded.issues)


def test_a_file_of_100_megabytes_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "a.yaml").open("wb") as file:
        file.write(b"kind: feed\n")
        file.truncate(100_000_000)
    code = (
        "import resource, sys, time\n"
        "from tests.loading.bundles import load_bundle\n"
        "before, begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()\n"
        "loaded = load_bundle(sys.argv[1], variables={})\n"
        "after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "print([issue.code for issue in loaded.issues], time.process_time() - begun, (after - before) // 1024)\n"
    )
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    codes, seconds, megabytes = done.stdout.rsplit(" ", 2)
    assert codes == "['file-too-big']"
    assert float(seconds) < SECONDS
    assert int(megabytes) < MEGABYTES


def test_what_is_no_file_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "folder.yaml").mkdir()
    os.mkfifo(tmp_path / "pipe.yaml")
    assert load_bundle(tmp_path, variables={}).issues == ()
