"""A publisher of a current feed, and an undo, killed before each change: readers see old or new, nothing is lost."""

import os
import signal
import traceback
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from feed_assets.log.records import FeedInstanceStatus
from tests.drills import sized
from tests.instances.attempts.version_benches import NEW, OLD, Bench, make, polled, work_until_killed
from tests.processes import PROCESSES

STEP = sized(41, 1)
"""Every n-th change is the last of a process, the first of them in the middle of the step."""
_FEW = 20
_OF_S3, _OF_HIVE = [pytest.mark.server], [pytest.mark.server, pytest.mark.spark, pytest.mark.xdist_group("metastore")]


def _where(request: pytest.FixtureRequest, kind: str) -> dict[str, Any]:
    """Where places of a kind are."""
    if kind == "s3":
        server = request.getfixturevalue("s3_server")
        return {"url": server.url, "options": dict(server.options)}
    return {"port": request.getfixturevalue("metastore_port")} if kind == "hive" else {}


@pytest.mark.sample
@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("kind", "undoes"),
    [
        pytest.param("local", False, id="publication-local"),
        pytest.param("s3", False, id="publication-s3", marks=_OF_S3),
        pytest.param("hive", False, id="publication-hive", marks=[*_OF_HIVE, pytest.mark.drill]),
        pytest.param("local", True, id="undo-local"),
        pytest.param("s3", True, id="undo-s3", marks=[*_OF_S3, pytest.mark.drill]),
        pytest.param("hive", True, id="undo-hive", marks=[*_OF_HIVE, pytest.mark.drill]),
    ],
)
def test_readers_see_old_or_new_and_the_repeat_goes_on(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, undoes: bool
) -> None:
    where = _where(request, kind)
    seen: set[str | None] = set()
    for number in count(1 + STEP // 2, STEP):
        bench, sweep = make(kind, tmp_path / f"{kind}-{number}", **where), None
        if undoes:
            bench.publish(NEW, 2)
            sweep = bench.kept()[OLD]
        wait = begin(kind, bench.folder, where, sweep, number)
        with polled(bench) as polls:
            is_killed = wait()
        found = bench.read()
        seen |= {*polls, found}
        assert found in ({OLD, NEW, None} if kind == "s3" else {OLD, NEW}), number
        if sweep is not None:
            bench.undo(sweep, 100)
        else:
            bench.publish(NEW, 100)
        require_end(bench, undoes)
        if not is_killed:
            print(f"{kind}: {number - 1} changes")
            assert number > _FEW
            break
    assert seen - {None} == {OLD, NEW}


def require_end(bench: Bench, undoes: bool) -> None:
    """One version is there and on record, the other one is in the trash."""
    row, manifest = bench.row(), bench.store.published_manifest(bench.path)
    assert manifest is not None
    assert (row.status, row.manifest_digest) == (FeedInstanceStatus.AVAILABLE, manifest.digest)
    assert bench.read() == (OLD if undoes else NEW)
    assert bench.kept().keys() >= {NEW if undoes else OLD}


def begin(kind: str, folder: Path, where: dict[str, Any], sweep: str | None, number: int) -> Callable[[], bool]:
    """Begin to work in another process; return what waits for its end, and says whether it was killed."""
    arguments = (kind, folder, where, sweep, number)
    if kind != "s3":
        child = os.fork()
        if child == 0:
            try:
                work_until_killed(*arguments)
            finally:
                traceback.print_exc()
                os._exit(1)
        return lambda: _is_killed(-os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    spawned = PROCESSES.Process(target=work_until_killed, args=arguments)  # this one has threads
    spawned.start()

    def wait() -> bool:
        spawned.join()
        return _is_killed(-(spawned.exitcode or 0))

    return wait


def _is_killed(code: int) -> bool:
    assert code in (0, signal.SIGKILL)
    return code == signal.SIGKILL
