"""Storages that refuse: a full disk, a read-only one, an S3 server that answers with 500 and 503."""

import logging
import os
import socket
import stat
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from feed_assets.entities.copies.options import Existing, RemovedFiles, Verification
from feed_assets.errors import FeedAssetsError
from feed_assets.storage.errors import ForeignContentError, StorageError
from feed_assets.storage.records import Availability, Clearing
from feed_assets.transfer.errors import NothingSelectedError
from feed_assets.transfer.requests import CopyStatus
from tests.drills import drill, sized
from tests.object_servers import BUCKET, s3_client
from tests.transfer.sides import FLAG, PATH, SMALL, Pair, Place, local_place, pattern, s3_place

MiB = 1 << 20
LARGE = {**SMALL, "large.bin": pattern(12 * MiB), "other.bin": pattern(3 * MiB, 2)}
OLD = {"old.csv": b"old"}


@contextmanager
def mounted(folder: Path, size: str) -> Iterator[Callable[[str], None]]:
    """A small filesystem in memory at a folder, and what mounts it again with other options."""
    folder.mkdir(parents=True, exist_ok=True)

    def mount(options: str) -> None:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        subprocess.run(command, check=True, capture_output=True)

    try:
        mount(f"size={size}")
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this user may not mount a filesystem")
    try:
        yield lambda options: mount(f"remount,{options}")
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True, capture_output=True)


@pytest.mark.parametrize("is_published", [True, False])
def test_a_full_target_is_a_clean_failure_that_leaves_its_space_to_others(tmp_path: Path, is_published: bool) -> None:
    source = local_place(tmp_path / "source")
    (source.publish if is_published else source.land)(
        {**SMALL, "a.bin": pattern(6 * MiB), "b.bin": pattern(5 * MiB, 2)}
    )
    with mounted(tmp_path / "target", "9m") as remount:
        target = local_place(tmp_path / "target")
        target.publish(OLD)
        with pytest.raises(StorageError, match="No space left"):
            Pair(source, target).copy(max_tasks=1)
        assert target.read() == OLD
        assert target.availability() is Availability.AVAILABLE
        small = local_place(tmp_path / "small")
        small.land({"c.bin": pattern(6 * MiB, 3)})
        Pair(small, target).copy(removed_files=RemovedFiles.REMOVE)
        Pair(small, target).require_equal()
        remount("size=40m")
        copied = Pair(source, target).copy(removed_files=RemovedFiles.REMOVE)
        assert copied.status is CopyStatus.COPIED
        Pair(source, target).require_equal()


def test_a_target_without_a_single_free_file_is_a_clean_failure(tmp_path: Path) -> None:
    source = local_place(tmp_path / "source")
    source.land({f"part-{number}": b"x" for number in range(100)})
    with mounted(tmp_path / "target", "9m,nr_inodes=60") as remount:
        target = local_place(tmp_path / "target")
        with pytest.raises(StorageError, match="No space left"):
            Pair(source, target).copy()
        assert target.availability() is Availability.MISSING
        remount("nr_inodes=1000")
        Pair(source, target).copy()
        Pair(source, target).require_equal()


def test_a_read_only_target_is_a_clean_failure(tmp_path: Path) -> None:
    source = local_place(tmp_path / "source")
    source.land(LARGE)
    with mounted(tmp_path / "target", "40m") as remount:
        target = local_place(tmp_path / "target")
        target.publish(OLD)
        remount("ro,size=40m")
        with pytest.raises(StorageError, match="Read-only"):
            Pair(source, target).copy()
        assert target.read() == OLD
        remount("rw,size=40m")
        Pair(source, target).copy(removed_files=RemovedFiles.REMOVE)
        Pair(source, target).require_equal()


def test_a_read_only_source_is_copied_as_any_other(tmp_path: Path) -> None:
    with mounted(tmp_path / "source", "40m") as remount:
        source, target = local_place(tmp_path / "source"), local_place(tmp_path / "target")
        source.publish(LARGE)
        remount("ro,size=40m")
        Pair(source, target).copy()
        Pair(source, target).require_equal()
        assert Pair(source, target).copy().status is CopyStatus.UNCHANGED


def test_a_target_on_another_filesystem_adopts_what_stands_there(tmp_path: Path) -> None:
    with mounted(tmp_path / "target", "60m"):
        source, target = local_place(tmp_path / "source"), local_place(tmp_path / "target")
        source.publish(LARGE)
        Pair(source, target).copy()
        source.publish({**LARGE, "x.csv": b"y"}, token="run-2")
        copied = Pair(source, target).copy()
        assert (copied.files, copied.kept) == (1, len(LARGE) - 1)
        Pair(source, target).require_equal()


class Trouble:
    """A server that answers as it should, but for some requests; `seen` counts all of them."""

    def __init__(self, app: Any) -> None:
        self.seen = 0
        self.fails: Callable[[int], bool] = lambda _: False
        self.answer = (500, "InternalError")
        self._app = app
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        with self._lock:
            self.seen += 1
            fails = self.fails(self.seen)
        if not fails:
            found: Iterable[bytes] = self._app(environ, start_response)
            return found
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        status, code = self.answer
        text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code}: for this test</Message></Error>"
        start_response(f"{status} {code}", [("Content-Type", "application/xml"), ("Content-Length", str(len(text)))])
        return [text.encode()]

    @contextmanager
    def flipping(self, name: str, times: int) -> Iterator[None]:
        """Flip a bit in what is put under keys that end with a name, in the first `times` requests.

        The server is one of those that know nothing of the checksums that newer clients send along.
        """
        app, left = self._app, times

        def flip(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
            nonlocal left
            if left and environ["REQUEST_METHOD"] == "PUT" and environ["PATH_INFO"].endswith(name):
                left -= 1
                body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
                environ["wsgi.input"] = BytesIO(bytes([body[0] ^ 1]) + body[1:])
                for header in [name for name in environ if name.startswith("HTTP_X_AMZ_") and "CHECKSUM" in name]:
                    del environ[header]
            found: Iterable[bytes] = app(environ, start_response)
            return found

        self._app = flip
        try:
            yield
            assert left == 0
        finally:
            self._app = app

    @contextmanager
    def troubled(self, fails: Callable[[int], bool], answer: tuple[int, str]) -> Iterator[None]:
        self.seen, self.fails, self.answer = 0, fails, answer
        try:
            yield
        finally:
            self.fails = lambda _: False


@pytest.fixture(scope="module")
def troubled_s3() -> Iterator[tuple[Trouble, str]]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    trouble = Trouble(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, trouble, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        s3_client(s3_options(url, 1)).create_bucket(Bucket=BUCKET)
        yield trouble, url
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def s3_options(url: str, attempts: int) -> dict[str, object]:
    return {
        "key": "anybody",
        "secret": "anything",
        "endpoint_url": url,
        "client_kwargs": {"region_name": "us-east-1"},
        "config_kwargs": {"retries": {"total_max_attempts": attempts, "mode": "standard"}},
    }


def from_request(number: int) -> Callable[[int], bool]:
    return lambda seen: seen >= number


def content(place: Place) -> str:
    """What a reader finds."""
    availability = place.availability()
    if availability is not Availability.AVAILABLE:
        return str(availability)
    found = place.read()
    return {tuple(OLD): "old", tuple(sorted(LARGE)): "new"}.get(tuple(sorted(found)), f"mix of {sorted(found)}")


@pytest.mark.sample
@pytest.mark.server
@pytest.mark.parametrize(
    ("before", "answer", "step"),
    [
        ("old", (500, "InternalError"), sized(37, 1)),
        drill("old", (503, "ServiceUnavailable"), 1),
        ("MISSING", (503, "ServiceUnavailable"), sized(37, 1)),
    ],
)
def test_a_server_that_fails_from_any_request_on_leaves_old_or_new_or_partial_and_the_repeat_converges(
    tmp_path: Path, troubled_s3: tuple[Trouble, str], before: str, answer: tuple[int, str], step: int
) -> None:
    trouble, url = troubled_s3
    source = local_place(tmp_path / "source")
    source.publish(LARGE)
    ends = set()
    for number in count(1, step):
        target = s3_place(s3_options(url, 1), f"trouble-{before}-{answer[0]}-{number}")
        if before == "old":
            target.publish(OLD)
        pair = Pair(source, target)
        with trouble.troubled(from_request(number), answer):
            with suppress(FeedAssetsError):
                pair.copy()
            is_over = trouble.seen < number
        found = content(target)
        assert found in (before, "new", "PARTIAL"), number
        ends.add(found)
        pair.copy()
        assert content(target) == "new", number
        pair.require_equal()
        if is_over:
            break
    assert {before, "new"} <= ends


@pytest.mark.server
@pytest.mark.parametrize("verification", [Verification.TRANSFERRED, Verification.WHOLE])
@pytest.mark.parametrize("before", ["MISSING", "old"])
def test_what_flips_on_its_way_to_the_server_is_copied_again(
    tmp_path: Path, troubled_s3: tuple[Trouble, str], before: str, verification: Verification
) -> None:
    trouble, url = troubled_s3
    source = local_place(tmp_path / "source")
    source.publish(LARGE)
    target = s3_place(s3_options(url, 1), f"flipped-{before}-{verification}")
    if before == "old":
        target.publish(OLD)
    with trouble.flipping("data/1/x.csv", times=1):
        copied = Pair(source, target).copy(verification=verification)
    assert copied.tries == 2
    Pair(source, target).require_equal()


@pytest.mark.server
@pytest.mark.parametrize("direction", ["to", "from"])
def test_a_server_that_throttles_now_and_then_only_takes_longer(
    tmp_path: Path, troubled_s3: tuple[Trouble, str], direction: str
) -> None:
    trouble, url = troubled_s3
    here, there = local_place(tmp_path / "here"), s3_place(s3_options(url, 4), f"throttled-{direction}")
    pair = Pair(here, there) if direction == "to" else Pair(there, here)
    pair.source.publish(LARGE)
    with trouble.troubled(lambda seen: seen % 11 == 0, (503, "SlowDown")):
        pair.copy()
    assert pair.target.names() == {*LARGE, FLAG}
    pair.require_equal()


@pytest.mark.server
def test_a_source_on_a_server_that_fails_is_a_clean_failure(tmp_path: Path, troubled_s3: tuple[Trouble, str]) -> None:
    trouble, url = troubled_s3
    pair = Pair(s3_place(s3_options(url, 1), "failing-source"), local_place(tmp_path / "target"))
    pair.source.publish(LARGE)
    for number in count(1):
        with trouble.troubled(from_request(number), (500, "InternalError")):
            (outcome,) = pair.copy_many([pair.request()])
        if not isinstance(outcome, StorageError):
            break
        assert "InternalError" in str(outcome)
        assert pair.target.availability() is Availability.MISSING
    assert number > 4
    pair.require_equal()
    with trouble.troubled(lambda _: True, (500, "InternalError")), pytest.raises(StorageError):
        pair.copy()
    assert pair.target.store.look([PATH], FLAG)[0].availability is Availability.AVAILABLE


def test_a_copy_over_foreign_content_is_refused_before_a_byte_is_copied(any_pair: Pair) -> None:
    any_pair.source.publish(SMALL)
    any_pair.target.harness.land(PATH, {"theirs.csv": b"theirs"})
    (outcome,) = any_pair.copy_many([any_pair.request(clearing=Clearing(sweep="displaced-1"))])
    assert isinstance(outcome, ForeignContentError)
    assert any_pair.target.names() == {"theirs.csv"}
    assert any_pair.target.store.trash().sweeps() == []


def test_a_copy_that_replaces_foreign_content_by_decision_moves_it_to_the_trash(any_pair: Pair) -> None:
    any_pair.source.publish(SMALL)
    any_pair.target.harness.land(PATH, {"theirs.csv": b"theirs"})
    clearing = Clearing(sweep="displaced-1", existing=Existing.REPLACE)
    any_pair.copy_many([any_pair.request(clearing=clearing)])
    any_pair.require_equal()
    assert list(any_pair.target.store.trash().contents("displaced-1")) == [PATH]


def test_a_copy_that_adopts_keeps_equal_files_and_moves_the_others_to_the_trash(pair: Pair) -> None:
    pair.source.publish(SMALL)
    pair.target.harness.land(PATH, {"x.csv": SMALL["x.csv"], "part-0.csv": b"other", "theirs.csv": b"theirs"})
    clearing = Clearing(sweep="displaced-1", existing=Existing.ADOPT)
    (copied,) = pair.copy_many([pair.request(clearing=clearing)])
    assert copied.files == len(SMALL) - 1
    pair.require_equal()
    found = set(pair.target.store.trash().contents("displaced-1"))
    assert found == {f"{PATH}/part-0.csv", f"{PATH}/theirs.csv"}


def test_a_copy_over_our_own_moves_only_what_no_copy_has_brought_to_the_trash(any_pair: Pair) -> None:
    any_pair.source.publish(SMALL)
    any_pair.copy()
    any_pair.target.harness.land(PATH, {"mine.csv": b"mine"})
    any_pair.source.publish({"x.csv": b"new", "y.csv": b"y"}, token="run-2")
    any_pair.copy_many([any_pair.request(clearing=Clearing(sweep="displaced-1"))])
    any_pair.require_equal()
    assert list(any_pair.target.store.trash().contents("displaced-1")) == [f"{PATH}/mine.csv"]


def test_filters_that_match_nothing_of_a_source_with_files_publish_nothing(any_pair: Pair) -> None:
    any_pair.source.publish(SMALL)
    with pytest.raises(NothingSelectedError, match=r"it has 4 files, but the filters .* match none"):
        any_pair.copy(include=("**.parquet",))
    assert any_pair.target.names() == set()
    copied = any_pair.copy(include=("**.parquet",), allow_empty=True)
    assert (copied.files, any_pair.target.names()) == (0, {FLAG})


def test_filters_of_a_source_without_files_ask_nothing(any_pair: Pair) -> None:
    any_pair.source.publish({})
    assert any_pair.copy(include=("**.csv",)).files == 0


def test_pipes_sockets_and_devices_of_a_source_are_reported(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.source.land(SMALL)
    assert pair.source.root is not None
    monkeypatch.chdir(pair.source.root / PATH)  # the path of a socket is short
    os.mkfifo("pipe")
    os.mkfifo("region=eu/other")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
    others = ["pipe", "region=eu/other", "socket"]
    with suppress(PermissionError):  # only root may make a device
        os.mknod("device", stat.S_IFCHR | 0o600, os.makedev(1, 3))
        others.insert(0, "device")
    assert pair.copy().skipped == tuple(others)
    assert pair.copy(quick=False).skipped == tuple(others)
    pair.require_equal()
