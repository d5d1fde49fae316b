"""Files may have any name that Linux allows: they are copied, displaced, restored and told of, and stop nothing."""

import io
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from feed_assets.cli.render import print_json, print_table, say
from feed_assets.log.records import FeedEventKind, ProcessInstanceStatus
from feed_assets.retention.sweeps.undoing import undo_sweep
from feed_assets.storage.errors import ForeignContentError
from tests.instances.attempts.test_displacement import NOON, counting, sweeps_of
from tests.instances.harness import START, at
from tests.replication.test_flows import FLOW, harness_of, pass_time, replicated

ODD = (b"part-\xff.csv", b"\xed\xa0\x80", b"line\nfeed", b"back\\udcff", b'"', b" ", "é".encode(), b"%ff", b"\x01\x7f")
NAMES = st.lists(
    st.one_of(st.sampled_from(ODD), st.binary(min_size=1, max_size=40)).filter(
        lambda name: not {b"/", b"\0"} & {name[n : n + 1] for n in range(len(name))} and name[:1] not in (b".", b"_")
    ),
    min_size=1,
    max_size=6,
    unique=True,
)
A_FEW = settings(max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture])


def put(folder: Path, *names: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        with open(os.fsencode(folder) + b"/" + name, "wb") as file:  # noqa: PTH123 - a path of bytes
            file.write(name)


def names_in(folder: Path) -> set[bytes]:
    return {name for name in os.listdir(os.fsencode(folder)) if name[:1] not in (b".", b"_")}  # noqa: PTH208 - a path of bytes


@A_FEW
@given(names=NAMES)
@example(names=list(ODD))
def test_files_of_any_name_are_copied_as_they_are(tmp_path_factory: pytest.TempPathFactory, names: list[bytes]) -> None:
    lifecycle = harness_of(tmp_path_factory.mktemp("names"), replicated())
    source = lifecycle.folder("clicks", START)
    put(source, *names)
    os.mkfifo(os.fsencode(source) + b"/fifo-\xff")
    pass_time(lifecycle, at("01T00:05"))
    assert lifecycle.statuses(FLOW, "backup") == {START: ProcessInstanceStatus.SUCCEEDED}
    assert names_in(lifecycle.folder("clicks", START, "backup")) == set(names)
    (event,) = [event for event in lifecycle.events("clicks") if event.kind is FeedEventKind.REPLICATED]
    assert isinstance(event.payload["copy"], Mapping)
    assert event.payload["copy"]["skipped"] == "fifo-\udcff"


def test_foreign_files_of_any_name_are_told_of_when_they_are_refused(tmp_path: Path) -> None:
    lifecycle = counting(tmp_path)
    folder = lifecycle.folder("counts", START)
    put(folder, *ODD)
    with pytest.raises(ForeignContentError):
        lifecycle.run("count", START, at("01T01"))
    assert "it is foreign content: 9 files" in str(lifecycle.instances("count")[START].cause_detail)
    assert names_in(folder) == set(ODD)


def test_foreign_files_of_any_name_are_moved_to_the_trash_and_come_back(tmp_path: Path, state_url: str) -> None:
    lifecycle = counting(tmp_path, state_url)
    folder = lifecycle.folder("counts", START)
    lifecycle.run("count", START, at("01T01"))
    put(folder, *ODD)
    lifecycle.run("count", START, at("01T02"), "run-2")
    assert not names_in(folder) & set(ODD)
    moved = {
        os.fsencode(str(event.payload["path"])).rpartition(b"/")[2]
        for event in lifecycle.events("counts")
        if event.kind is FeedEventKind.EVICTED
    }
    assert moved == set(ODD)
    (sweep,) = sweeps_of(lifecycle)
    undone = undo_sweep(lifecycle.sweep_context(NOON), sweep.sweep_id)
    assert (undone.restored, undone.left) == (len(ODD), ())
    assert names_in(folder) > set(ODD)


def test_any_name_can_be_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [os.fsdecode(name) for name in ODD]
    stdout = io.TextIOWrapper(io.BytesIO(), "utf-8")
    monkeypatch.setattr(sys, "stdout", stdout)
    say(names[0])
    print_table(("name",), [[name] for name in names])
    print_json(names=names, by_name=dict.fromkeys(names, 1))
    stdout.flush()
    text = stdout.buffer.getvalue().decode()
    assert text.startswith("part-\\udcff.csv\n")
    assert json.loads(text[text.index("{") :])["names"][0] == "part-\\udcff.csv"
