"""The contract of `Documents`, by the traces of holds, on every implementation."""

from pathlib import Path

import pytest

from feed_assets.storage.errors import PathRefusedError, StorageError
from feed_assets.storage.local.store import LocalStore
from tests.storage.harnesses import StoreHarness


def test_a_trace_is_kept_replaced_and_dropped_and_nobody_sees_it(harness: StoreHarness) -> None:
    harness.land("weather/2013/11/01/00", {"part.csv": b"1"})
    seen, traces = harness.names(), harness.store.traces()
    assert (traces.names(), traces.find("one")) == ([], None)
    traces.drop("one")
    traces.keep("one", b"{}")
    traces.keep("two", b"[]")
    traces.keep("one", b'{"version": 1}')
    again = harness.store.traces()
    assert again.names() == ["one", "two"]
    assert (again.find("one"), again.find("three")) == (b'{"version": 1}', None)
    assert harness.names() == seen
    assert list(harness.store.walk("", 1, lambda _, names: [name for name in names if name.startswith(".")])) == []
    again.drop("one")
    assert traces.names() == ["two"]


def test_a_trace_has_one_plain_name(harness: StoreHarness) -> None:
    for name in ("../one", "a/b", ""):
        with pytest.raises(PathRefusedError):
            harness.store.traces().keep(name, b"{}")


def test_a_storage_that_is_not_mounted_gets_no_trace_and_no_root(tmp_path: Path) -> None:
    traces = LocalStore(tmp_path / "away").traces()
    with pytest.raises(StorageError, match="No such file or directory"):
        traces.keep("one", b"{}")
    assert (traces.names(), list(tmp_path.iterdir())) == ([], [])


def test_an_unfinished_trace_is_none(tmp_path: Path) -> None:
    traces = LocalStore(tmp_path).traces()
    traces.keep("one", b"{}")
    (folder,) = tmp_path.glob(".feed-assets/holds")
    (folder / ".5f0c").write_text("{")
    assert traces.names() == ["one"]
