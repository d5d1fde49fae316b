"""How many threads a purge takes: several where the filesystem is slow, none where they would only wait in turn."""

import threading
import time

import pytest

from feed_assets.storage.local import purge as local_purge
from feed_assets.storage.local.purge import LocalPurge
from tests.storage.trees import WatchedCalls, land, memory_folder

COUNT = 60


@pytest.mark.parametrize(("slow", "threads"), [(0.0005, 2), (60.0, 0)], ids=["slow", "quick"])
def test_only_a_slow_filesystem_is_emptied_by_threads(
    slow: float, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_purge, "_SLOW", slow)
    seen: set[int] = set()

    def watch(call: str, *_: object) -> None:
        if call == "remove_file":
            seen.add(threading.get_ident())
            time.sleep(0.001)

    with memory_folder() as folder:
        for number in range(COUNT):
            land(folder, f"{number:02}", **{f"part-{part}": b"" for part in range(3)})
        calls = WatchedCalls(watch)
        opened = calls.open_root(str(folder))
        try:
            purge = LocalPurge(calls, opened)
            assert purge.run()
        finally:
            calls.close(opened)
        assert (purge.files, list(folder.iterdir())) == (COUNT * 3, [])
    assert len(seen - {threading.get_ident()}) == threads
