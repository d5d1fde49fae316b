"""Requests to S3 that compiled code makes do what s3fs does, and are left to it where they cannot."""

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, ClassVar

import pytest
import s3fs

from feed_assets.storage import s3_direct
from feed_assets.storage.object_requests import get_object, get_range, iter_objects, put_object
from feed_assets.storage.s3_direct import Bucket, find_bucket
from tests.storage.conftest import BUCKET

pytestmark = pytest.mark.server
NAMES = [
    "plain.csv",
    "a b+c.csv",
    "100%25&=?#.csv",
    "ü-日.csv",
    "k='v', *(1)!~@:;$.csv",
    "dt=2013-01-01/part-0",
    "[x]{y}^`|",
]


@pytest.fixture
def fs(s3_options: dict[str, Any]) -> s3fs.S3FileSystem:
    return s3fs.S3FileSystem(**s3_options, skip_instance_cache=True)


@pytest.fixture
def bucket(fs: s3fs.S3FileSystem) -> Bucket:
    s3_direct._open_bucket.cache_clear()
    found = find_bucket(fs, BUCKET)
    assert found is not None
    return found


@pytest.mark.parametrize("name", NAMES)
def test_an_object_has_the_name_and_the_tag_that_s3fs_gives_it(
    fs: s3fs.S3FileSystem, bucket: Bucket, name: str
) -> None:
    tag = bucket.put(f"direct/{name}", b"direct", is_signed=False)
    (listed,) = iter_objects(fs, f"{BUCKET}/direct/{name}")
    assert (listed["Key"], listed["ETag"]) == (f"direct/{name}", tag)
    assert fs.cat_file(f"{BUCKET}/direct/{name}") == b"direct"
    fs.pipe_file(f"{BUCKET}/direct/{name}", b"by s3fs")
    assert bucket.get(f"direct/{name}") == b"by s3fs"
    assert bucket.get_range(f"direct/{name}", 3, 5) == b"s3"
    assert bucket.get_range(f"direct/{name}", 3, 500) == b"s3fs"


@pytest.mark.parametrize("name", ["a//b", "direct/../b", "line\nbreak"])
def test_names_that_are_not_for_compiled_code_are_left_to_s3fs(
    fs: s3fs.S3FileSystem, bucket: Bucket, name: str
) -> None:
    for _ in range(s3_direct._MISFITS + 1):
        assert bucket.put(name, b"odd") is None
    assert bucket.put("direct-even", b"even") is not None
    if name != "line\nbreak":  # "which the listing of this server does not bear"
        put_object(fs, f"{BUCKET}/{name}", b"odd")
        assert get_object(fs, f"{BUCKET}/{name}") == b"odd"


def test_a_new_object_is_written_once(fs: s3fs.S3FileSystem, bucket: Bucket) -> None:
    assert bucket.put("direct-new", b"first", is_new=True)
    for write in (lambda: bucket.put("direct-new", b"2", is_new=True), lambda: put_new(fs, "direct-new")):
        with pytest.raises(FileExistsError):
            write()
    assert bucket.get("direct-new") == b"first"


def put_new(fs: s3fs.S3FileSystem, name: str) -> str:
    return put_object(fs, f"{BUCKET}/{name}", b"3", is_new=True)


def test_what_is_missing_is_said_to_be(fs: s3fs.S3FileSystem, bucket: Bucket) -> None:
    for read in (lambda: bucket.get("nothing"), lambda: bucket.get_range("nothing", 0, 1)):
        with pytest.raises(FileNotFoundError):
            read()
    bucket.put("direct-short", b"short")
    assert bucket.get_range("direct-short", 5, 9) is None
    with pytest.raises(OSError, match="range"):
        get_range(fs, f"{BUCKET}/direct-short", 5, 9)


@pytest.mark.parametrize(
    "options",
    [
        {"anon": True},
        {"version_aware": True},
        {"requester_pays": True},
        {"s3_additional_kwargs": {"ServerSideEncryption": "AES256"}},
        {"config_kwargs": {"retries": {"max_attempts": 1}}},
        {"client_kwargs": {"region_name": "us-east-1", "verify": "/etc/ssl/own.pem"}},
    ],
)
def test_an_option_that_would_be_passed_over_leaves_all_to_s3fs(
    s3_options: dict[str, Any], options: dict[str, object]
) -> None:
    fs = s3fs.S3FileSystem(**{**s3_options, **options}, skip_instance_cache=True)
    assert find_bucket(fs, BUCKET) is None


def test_certificates_of_ones_own_leave_all_to_s3fs(
    s3_options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", "/etc/ssl/own.pem")
    for scheme, is_found in {"http": True, "https": False}.items():
        options = {**s3_options, "endpoint_url": f"{scheme}://127.0.0.1:9"}
        assert (find_bucket(s3fs.S3FileSystem(**options), BUCKET) is not None) is is_found


def test_an_access_point_is_left_to_s3fs(fs: s3fs.S3FileSystem) -> None:
    assert find_bucket(fs, "arn:aws:s3:us-east-1:123456789012:accesspoint/ours") is None


def test_credentials_are_those_of_the_session(s3_options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "something")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "passing")
    own = {name: value for name, value in s3_options.items() if name not in ("key", "secret")}
    fs = s3fs.S3FileSystem(**own, skip_instance_cache=True)
    found = find_bucket(fs, BUCKET)
    assert found is not None
    assert found.put("direct-session", b"1")
    credentials = s3_direct._find_credentials(fs)
    assert (credentials["access_key_id"], credentials.get("token")) == ("somebody", "passing")
    assert s3_direct._find_credentials(s3fs.S3FileSystem(**s3_options))["access_key_id"] == "anybody"


class Refusing(BaseHTTPRequestHandler):
    """Refuses to write, and counts by whom it is asked."""

    protocol_version = "HTTP/1.1"
    asked: ClassVar[Counter[str]] = Counter()

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.asked["s3fs" if "otocore" in self.headers["User-Agent"] else "compiled"] += 1
        self.send_response(403)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


@pytest.fixture
def refusing() -> Iterator[str]:
    Refusing.asked.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_what_fails_is_told_by_s3fs_and_after_a_while_asked_of_nobody_else(
    s3_options: dict[str, Any], refusing: str
) -> None:
    fs = s3fs.S3FileSystem(**{**s3_options, "endpoint_url": refusing})
    for _ in range(s3_direct._MISFITS + 3):
        with pytest.raises(PermissionError):
            put_object(fs, f"{BUCKET}/x", b"1")
    assert Refusing.asked == {"compiled": s3_direct._MISFITS, "s3fs": s3_direct._MISFITS + 3}


FORKING = """
import os, sys, s3fs
from feed_assets.storage.object_requests import get_object, put_object
from feed_assets.storage.s3_direct import find_bucket

def find():
    options = {"client_kwargs": {"region_name": "us-east-1"}, "key": "a", "secret": "b", "endpoint_url": sys.argv[1]}
    return s3fs.S3FileSystem(**options)

assert find_bucket(find(), sys.argv[2]).put("forked", b"parent")
child = os.fork()
if not child:
    fs = find()
    assert find_bucket(fs, sys.argv[2]) is None
    put_object(fs, f"{sys.argv[2]}/forked", get_object(fs, f"{sys.argv[2]}/forked") + b" and child")
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert get_object(find(), f"{sys.argv[2]}/forked") == b"parent and child"
"""


def test_a_process_that_was_forked_off_goes_on_with_s3fs(s3_options: dict[str, Any]) -> None:
    command = [sys.executable, "-c", FORKING, str(s3_options["endpoint_url"]), BUCKET]
    subprocess.run(command, check=True, timeout=60)
