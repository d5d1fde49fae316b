"""Copies whose process is killed at any moment, while readers poll: never part of an instance, and the next goes on."""

import json
import os
import random
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from feed_assets.storage.port import InstanceStore
from feed_assets.storage.records import Availability
from feed_assets.transfer.requests import CopyStatus
from tests.drills import drill_seed, sized
from tests.processes import PROCESSES
from tests.storage.trees import memory_folder
from tests.transfer.sides import FLAG, PATH, Pair, Place, local_place, pattern, s3_place
from tests.transfer.watching import Watch, watched_stores

pytestmark = [pytest.mark.long, pytest.mark.sample, pytest.mark.timeout(sized(900, 3600))]
KILLS = sized(2, 40)


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as folder:
        yield folder


def version(number: int) -> dict[str, bytes]:
    """An instance of which every file says of which version it is."""
    files = {f"s={part % 3}/part-{part:03}.csv": f"{number} {part} ".encode() * 2000 for part in range(300)}
    return {**files, "large.bin": bytes([number % 251]) * (24 << 20), "version": str(number).encode()}


class Reader(threading.Thread):
    """Polls an instance as consumers do: looks whether it is available, opens its directory and reads in it."""

    def __init__(self, place: Path) -> None:
        super().__init__(daemon=True)
        self.place = place
        self.looks = 0
        self.wrong: list[str] = []
        self._is_over = threading.Event()

    def run(self) -> None:
        while not self._is_over.wait(0.0005):
            try:
                folder = os.open(self.place, os.O_RDONLY | os.O_DIRECTORY)
            except FileNotFoundError:
                continue
            try:
                self._look(folder)
            except FileNotFoundError as exc:
                if os.fstat(folder).st_nlink and self._stands(folder):
                    self.wrong.append(f"{exc.filename} is missing")
            finally:
                os.close(folder)

    def _look(self, folder: int) -> None:
        self.looks += 1
        number = int(self._read(folder, "version"))
        expected = version_names(number)
        names = {entry.name for entry in os.scandir(folder)}
        wanted = {"s=0", "s=1", "s=2", "large.bin", "version", FLAG, ".feed-assets.manifest.json"}
        if names != wanted and self._stands(folder):
            self.wrong.append(f"{sorted(names)}")
        part = f"s={self.looks % 3}/part-{self.looks * 3 % 300 + self.looks % 3:03}.csv"
        found = self._read(folder, part)
        if not found.startswith(expected) and self._stands(folder):
            self.wrong.append(f"{part} is {found[:20]!r} in version {number}")
        manifest = json.loads(self._read(folder, ".feed-assets.manifest.json"))
        if manifest["files"] != 302 and self._stands(folder):
            self.wrong.append(f"a manifest of {manifest['files']} files")

    def _stands(self, folder: int) -> bool:
        """Whether the directory still is the instance; another process removes what was replaced."""
        try:
            return os.path.samestat(os.fstat(folder), self.place.stat())
        except FileNotFoundError:
            return False

    def _read(self, folder: int, name: str) -> bytes:
        descriptor = os.open(name, os.O_RDONLY, dir_fd=folder)
        try:
            return os.read(descriptor, 1 << 20)
        finally:
            os.close(descriptor)

    def stop(self) -> None:
        self._is_over.set()
        self.join()


def version_names(number: int) -> bytes:
    return f"{number} ".encode()


@contextmanager
def reading(place: Path) -> Iterator[Reader]:
    reader = Reader(place)
    reader.start()
    try:
        yield reader
    finally:
        reader.stop()


def copy_until_killed(
    source: Path, target: Path | str, seconds: float, bandwidth: int, options: Mapping[str, object] | None = None
) -> bool:
    """Whether the copier was killed before it had ended. With `options` the target is a name on S3."""
    ours, theirs = PROCESSES.Pipe(duplex=False)
    copier = PROCESSES.Process(target=_copy, args=(source, target, bandwidth, options, theirs))
    copier.start()
    theirs.close()
    assert ours.recv() == "ready"
    time.sleep(seconds)
    copier.kill()
    copier.join()
    return copier.exitcode != 0


def _copy(
    source: Path, target: Path | str, bandwidth: int, options: Mapping[str, object] | None, pipe: Connection
) -> None:
    pair = Pair(local_place(source), s3_place(options, str(target)) if options else local_place(Path(target)))
    pair.target.availability()  # whoever connects to a storage needs a while for that
    pipe.send("ready")
    pair.copy(bandwidth=bandwidth or None, task_bandwidth=None)


def test_a_copier_that_is_killed_leaves_the_old_or_the_new_instance_and_the_next_one_goes_on(folder: Path) -> None:
    rng = random.Random(drill_seed())
    source, target = local_place(folder / "source"), local_place(folder / "target")
    killed = 0
    source.publish(version(0))
    Pair(source, target).copy()
    with reading(folder / "target" / PATH) as reader:
        for number in count(1):
            source.publish(version(number), token=f"run-{number}")
            killed += copy_until_killed(folder / "source", folder / "target", rng.uniform(0, 0.25), 0)
            assert (folder / "target" / PATH / "version").read_bytes() in (
                str(number - 1).encode(),
                str(number).encode(),
            )
            pair = Pair(source, target)
            pair.copy()
            pair.require_equal()
            if killed >= KILLS:
                break
    assert reader.wrong == []
    assert reader.looks > 10 * KILLS


def test_after_a_kill_only_what_was_not_recorded_yet_is_copied_again(folder: Path) -> None:
    """The copier is slowed down so that it is killed in the middle; what it had done is what is not read again."""
    rng = random.Random(drill_seed())
    source = local_place(folder / "source")
    source.land({f"part-{part:03}.csv": pattern(32 << 10, part) for part in range(1024)})
    again = []
    for number in range(KILLS):
        target = local_place(folder / f"target-{number}")
        assert copy_until_killed(folder / "source", folder / f"target-{number}", rng.uniform(0.1, 0.5), 40 << 20)
        staged = sum(item.stat().st_size for item in (folder / f"target-{number}").rglob("data/*.csv"))
        watch = Watch()
        pair = Pair(source, target, watched_stores(watch))
        copied = pair.copy()
        assert copied.status is CopyStatus.COPIED
        assert copied.resumed + watch.read == copied.bytes
        pair.require_equal()
        again.append(staged - copied.resumed)
    assert max(again) <= 1 << 20, again


def small_version(number: int) -> dict[str, bytes]:
    """An instance of which every file says of which version it is, and none has as many files as the next."""
    files = {f"part-{part:03}.csv": f"{number} {part} ".encode() * 9000 for part in range(40 + number % 3)}
    return {**files, "large.bin": bytes([number % 251]) * (9 << 20)}


class Poller(threading.Thread):
    """Looks at an instance of an object storage all the time; what stands there unchanged has to be whole."""

    def __init__(self, place: Place) -> None:
        super().__init__(daemon=True)
        self.place = place
        self.seen: set[Availability] = set()
        self.wrong: list[str] = []
        self._is_over = threading.Event()

    def __enter__(self) -> "Poller":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self.join()

    def run(self) -> None:
        """Looks once more after its end, so that it has seen what the last copy left."""
        store, is_over = self.place.store, False
        while not is_over:
            is_over = self._is_over.wait(0.005)
            self._look(store)

    def _look(self, store: InstanceStore) -> None:
        before = store.mark(PATH)
        self.seen.add(availability := self.place.availability())
        if availability is not Availability.AVAILABLE:
            return
        names, manifest = self.place.names(), self.place.store.published_manifest(PATH)
        if self.place.availability() is not Availability.AVAILABLE or store.mark(PATH) != before:
            return
        if manifest is None or names != {FLAG, *(entry.path for entry in manifest.entries)}:
            self.wrong.append(f"{sorted(names)} with the manifest {manifest}")


@pytest.mark.server
@pytest.mark.parametrize("is_fresh", [True, False], ids=["fresh", "standing"])
def test_a_copy_to_s3_that_is_killed_is_hidden_until_it_is_whole(
    folder: Path, s3_options: dict[str, object], is_fresh: bool
) -> None:
    """It is killed twice; in between the source is another one now and then, with more files or less."""
    rng = random.Random(drill_seed())
    source, seen = local_place(folder / "source"), set[Availability]()
    for number in range((KILLS + 1) // 2):
        name = f"killed-{os.getpid()}-{is_fresh}-{number}"
        target = s3_place(s3_options, name)
        if not is_fresh:
            target.publish({"former.csv": b"former"})
        with Poller(target) as poller:
            for turn in range(2):
                if turn == 0 or rng.random() < 0.5:
                    source.publish(small_version(2 * number + turn), token=f"run-{2 * number + turn}")
                copy_until_killed(folder / "source", name, rng.uniform(0.1, 1.5), 12 << 20, s3_options)
            Pair(source, target).copy()
        Pair(source, target).require_equal()
        assert poller.wrong == []
        seen |= poller.seen
    assert {Availability.PARTIAL, Availability.AVAILABLE} <= seen
