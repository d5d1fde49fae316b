"""What is particular to stores without renames: publications in steps, which break off, are overtaken and recovered."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from feed_assets.storage.errors import ForeignContentError, InstanceChangingError, StorageAwayError, StorageError
from feed_assets.storage.object.store import ObjectStore
from feed_assets.storage.records import Availability, StagingPlace
from feed_assets.storage.registry import open_store
from tests.object_servers import BUCKET
from tests.storage.harnesses import REPLACING, FencedOut, allow, client_of, forbid, publish, read_all, read_file, stage
from tests.storage.watched import CHANGES, WatchedClient

HOUR = "weather/05"
OLD = {"old-0.csv": b"old", "s/old-1.csv": b"older", "both.csv": b"before"}
NEW = {"new-0.csv": b"new", "s/new-1.csv": b"newer", "both.csv": b"behind"}
FUTURE = datetime.now(UTC) + timedelta(days=1)


class Step(Exception):
    """The machine is gone."""


class SteppedClient(WatchedClient):
    """Calls `before_change` and `after_change` around each change."""

    def __init__(self) -> None:
        super().__init__()
        self.before_change: Callable[[], None] = allow
        self.after_change: Callable[[], None] = allow
        self.before = lambda name: self.before_change() if name in CHANGES else None
        self.after = lambda name: self.after_change() if name in CHANGES else None


class Countdown:
    """Lets n changes pass and none after them."""

    def __init__(self, count: int) -> None:
        self.left = count

    def __call__(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Step


@pytest.fixture
def fs() -> SteppedClient:
    return SteppedClient()


@pytest.fixture
def store(fs: SteppedClient, tmp_path: Path) -> ObjectStore:
    return open_on(fs, tmp_path)


def open_on(fs: SteppedClient, tmp_path: Path) -> ObjectStore:
    return ObjectStore(fs, root_url="memory://shop", scratch=tmp_path / "scratch")


def whole(store: ObjectStore, flag: str | None) -> str:
    """Which version the instance is; PARTIAL while it is none."""
    (look,) = store.look([HOUR], flag)
    if look.availability is Availability.PARTIAL:
        return "PARTIAL"
    assert look.availability is Availability.AVAILABLE
    content = read_all(store, HOUR)
    assert look.bytes == sum(map(len, content.values()))
    published = store.published_manifest(HOUR)
    assert published is not None
    assert published.digest == store.manifest(HOUR, flag).digest
    return {tuple(sorted(OLD)): "old", tuple(sorted(NEW)): "new"}[tuple(sorted(content))]


@pytest.mark.parametrize("repeat", ["same", "anew", "recover"])
@pytest.mark.parametrize("flag", [None, "_SUCCESS"])
def test_a_publisher_that_dies_at_any_step_leaves_old_new_or_partial_and_a_repeat_converges(
    tmp_path: Path, flag: str | None, repeat: str
) -> None:
    seen: list[str] = []
    for count in range(100):
        fs = SteppedClient()
        store = open_on(fs, tmp_path)
        publish(store, HOUR, OLD, flag=flag)
        staging = stage(store, HOUR, NEW, "run-2")
        fs.before_change = Countdown(count)
        try:
            store.publish(staging, flag=flag, guard=allow, extra={})
            break
        except Step:
            fs.before_change = allow
        store = open_on(fs, tmp_path)
        seen.append(whole(store, flag))
        if repeat == "recover":
            assert store.recover(HOUR) is (seen[-1] == "PARTIAL")
            assert whole(store, flag) == ("old" if seen[-1] == "old" else "new")
            continue
        if repeat == "anew":
            publish(store, HOUR, NEW, flag=flag, token="run-3")
        elif fs.names(".feed-assets/staging/run-2"):
            try:
                store.publish(staging, flag=flag, guard=allow, extra={})
            except StorageError:
                assert seen[-1] == "new"
        assert whole(store, flag) == "new"
        store.sweep_staging(FUTURE)
        assert whole(store, flag) == "new"
        assert fs.names(".feed-assets") == set()
    assert [*dict.fromkeys(seen)] == ["old", "PARTIAL", "new"]


@pytest.mark.parametrize("flag", [None, "_SUCCESS"])
def test_readers_between_the_steps_see_one_version_or_partial(
    store: ObjectStore, fs: SteppedClient, flag: str | None
) -> None:
    publish(store, HOUR, OLD, flag=flag)
    seen: list[str] = []

    def read() -> None:
        seen.append(whole(store, flag))
        content = {name.removeprefix(f"{HOUR}/") for name in fs.names(HOUR) if ".feed-" not in name}
        if "_SUCCESS" in content:  # for readers who go by the flag alone
            assert content - {"_SUCCESS"} in ({*OLD}, {*NEW})
        if seen[-1] == "PARTIAL":
            with pytest.raises(InstanceChangingError, match="under way"):
                store.manifest(HOUR)

    staging = stage(store, HOUR, NEW, "run-2")
    fs.before_change = read
    store.publish(staging, flag=flag, guard=allow, extra={})
    assert [*dict.fromkeys(seen)] == ["old", "PARTIAL", "new"]


def break_off(store: ObjectStore, fs: SteppedClient) -> StagingPlace:
    """Leave a publication that has begun and has copied a little."""
    staging = stage(store, HOUR, NEW, "run-2")

    def guard() -> None:
        fs.before_change = Countdown(3)

    with pytest.raises(Step):
        store.publish(staging, flag=None, guard=guard, extra={})
    fs.before_change = allow
    assert store.look([HOUR], None)[0].availability is Availability.PARTIAL
    return staging


def test_a_broken_off_publication_is_finished_before_the_next_one(store: ObjectStore, fs: SteppedClient) -> None:
    publish(store, HOUR, OLD, flag=None)
    break_off(store, fs)
    staging = stage(store, HOUR, OLD, "run-3")
    with pytest.raises(FencedOut):
        store.publish(staging, flag=None, guard=forbid, extra={})
    assert whole(store, None) == "new"


@pytest.mark.parametrize("act", ["sweep", "discard", "stage"])
def test_sweeping_or_discarding_or_staging_again_finishes_what_had_begun(
    store: ObjectStore, fs: SteppedClient, act: str
) -> None:
    publish(store, HOUR, OLD, flag=None)
    staging = break_off(store, fs)
    match act:
        case "sweep":
            assert store.sweep_staging(FUTURE) == 1
        case "discard":
            store.discard(staging)
        case "stage":
            store.stage(HOUR, staging.token)
    assert whole(store, None) == "new"


def test_discarding_leaves_nothing_on_this_machine_when_the_storage_is_away(
    store: ObjectStore, fs: SteppedClient
) -> None:
    staging = break_off(store, fs)
    fs.before_change = Countdown(0)
    with pytest.raises(Step):
        store.discard(staging)
    assert not staging.local_path.exists()


def test_an_instance_whose_staging_is_lost_can_only_be_published_again(store: ObjectStore, fs: SteppedClient) -> None:
    publish(store, HOUR, OLD, flag=None)
    break_off(store, fs)
    fs.inner.remove(sorted(fs.names(".feed-assets/staging/run-2")))
    with pytest.raises(StorageError, match="broke off"):
        store.recover(HOUR)
    publish(store, HOUR, OLD, flag=None, token="run-3")
    assert whole(store, None) == "old"


@pytest.mark.parametrize("flag", [None, "_SUCCESS"])
def test_a_publisher_that_is_overtaken_between_any_two_steps_leaves_the_other_alone(
    tmp_path: Path, flag: str | None
) -> None:
    stopped = 0
    for count in range(1, 100):
        fs = SteppedClient()
        store = open_on(fs, tmp_path)
        publish(store, HOUR, OLD, flag=flag)
        slow = stage(store, HOUR, NEW, "slow")
        changes = Countdown(count)

        def overtake(fs: SteppedClient = fs, store: ObjectStore = store, changes: Countdown = changes) -> None:
            try:
                changes()
            except Step:
                fs.after_change = allow
                publish(store, HOUR, OLD, flag=flag, token="fast")

        def guard(fs: SteppedClient = fs, overtake: Callable[[], None] = overtake) -> None:
            fs.after_change = overtake

        try:
            store.publish(slow, flag=flag, guard=guard, extra={})
        except StorageError:
            stopped += 1
        overtaken = fs.after_change is allow
        assert whole(store, flag) == ("old" if overtaken else "new")
        if not overtaken:
            break
    assert stopped > 5


def test_a_publisher_whose_work_another_process_finished_is_content(store: ObjectStore, fs: SteppedClient) -> None:
    publish(store, HOUR, OLD, flag=None)
    changes = 0

    def recover() -> None:
        nonlocal changes
        changes += 1
        if changes == 3:
            fs.before_change = allow
            assert store.recover(HOUR)

    def guard() -> None:
        fs.before_change = recover

    manifest = store.publish(stage(store, HOUR, NEW, "run-2"), flag=None, guard=guard, extra={})
    assert store.published_manifest(HOUR) == manifest
    assert whole(store, None) == "new"


def test_what_is_written_into_the_staging_prefix_directly_is_published(store: ObjectStore, fs: SteppedClient) -> None:
    staging = stage(store, HOUR, {"uploaded.csv": b"1"})
    (header,) = fs.names(".feed-assets/staging")
    fs.put(header.replace("staging.json", "data/1/direct.csv"), b"2")
    manifest = store.publish(staging, flag=None, guard=allow, extra={})
    assert [entry.path for entry in manifest.entries] == ["direct.csv", "uploaded.csv"]
    assert read_all(store, HOUR) == {"direct.csv": b"2", "uploaded.csv": b"1"}


def test_what_is_written_directly_is_kept_under_another_name(store: ObjectStore, fs: SteppedClient) -> None:
    staging = stage(store, HOUR, {"below/uploaded.csv": b"1", "below/other.csv": b"0"})
    (header,) = fs.names(".feed-assets/staging")
    for name, content in (("below/direct.csv", b"2"), ("bad/direct.csv", b"3")):
        fs.put(header.replace("staging.json", f"data/1/{name}"), content)
    store.keep_staged(HOUR, "run-1", {"below/direct.csv": "direct.csv", "below/uploaded.csv": "uploaded.csv"})
    store.publish(staging, flag=None, guard=allow, extra={})
    assert read_all(store, HOUR) == {"direct.csv": b"2", "uploaded.csv": b"1"}


def test_writers_are_given_the_store_itself_only_where_spark_has_a_connector(tmp_path: Path) -> None:
    options: dict[str, object] = {"scratch": str(tmp_path)}
    copied = open_store("memory://shop/prefix", options)
    assert copied.spark_url(HOUR) is None
    staging = copied.stage(HOUR, "run-1")
    assert staging.url == f"file://{staging.local_path}"
    direct = open_store("memory://shop/prefix", {**options, "spark_scheme": "mem"})
    assert direct.spark_url(HOUR) == "mem://shop/prefix/weather/05"
    staging = direct.stage(HOUR, "run-1")
    assert staging.url.startswith("mem://shop/prefix/.feed-assets/staging/run-1/")
    direct.discard(staging)


def test_a_scratch_directory_of_somebody_else_is_refused(fs: SteppedClient, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "scratch").symlink_to(tmp_path / "real")
    with pytest.raises(StorageError, match="somebody else"):
        open_on(fs, tmp_path).stage(HOUR, "run-1")


@pytest.mark.server
def test_a_bucket_that_does_not_exist_is_an_error_and_not_missing_data(s3_options: dict[str, object]) -> None:
    store = open_store("s3://no-such-bucket/primary", s3_options)
    for paths in ([HOUR], [f"weather/{hour}" for hour in range(24)]):
        with pytest.raises(StorageError, match="bucket does not exist"):
            store.look(paths, None)


@pytest.mark.server
def test_a_server_that_does_not_answer_is_an_error_and_not_missing_data(s3_options: dict[str, object]) -> None:
    options = {
        **s3_options,
        "endpoint_url": "http://127.0.0.1:9",
        "config_kwargs": {"connect_timeout": 1, "retries": {"max_attempts": 0}},
    }
    store = open_store(f"s3://{BUCKET}/primary", options)
    told = r"s3://instances/primary: nothing answers at http://127\.0\.0\.1:9 \(Connection refused\)\. Correct host"
    for ask in (store.check_root, lambda: store.look([HOUR], None)):
        with pytest.raises(StorageAwayError, match=told):
            ask()


class Unavailable(BaseHTTPRequestHandler):
    """What stands before a service that is away, such as a balancer of loads."""

    def do_GET(self) -> None:
        """Answer that the service is not available."""
        self.send_response(503)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:  # type: ignore[override]
        """Print nothing."""


@pytest.mark.server
def test_a_service_that_is_unavailable_is_away() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Unavailable)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        options = {"endpoint_url": f"http://127.0.0.1:{server.server_port}", "key": "a", "secret": "b"}
        store = open_store("s3://bucket/data", {**options, "config_kwargs": {"retries": {"max_attempts": 0}}})
        for ask in (store.check_root, lambda: store.look(["a"], None)):
            with pytest.raises(StorageAwayError, match="503"):
                ask()
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.server
def test_an_instance_replaces_an_object_that_stands_at_its_path(s3_options: dict[str, object], tmp_path: Path) -> None:
    store = open_store(f"s3://{BUCKET}/objects", {**s3_options, "scratch": str(tmp_path)})
    client_of(store).put(HOUR, b"object")
    assert store.look([HOUR], None)[0].files == 1
    with pytest.raises(ForeignContentError):
        publish(store, HOUR, {"x": b"1"})
    publish(store, HOUR, {"x": b"1"}, clearing=REPLACING)
    assert read_all(store, HOUR) == {"x": b"1"}
    assert list(store.trash().contents(REPLACING.sweep)) == [HOUR]


def test_reading_a_file_to_its_end_is_one_request(fs: SteppedClient, store: ObjectStore) -> None:
    content = bytes(range(256)) * 4_096
    publish(store, HOUR, {"large.bin": content})
    requests: list[str] = []
    fs.before = requests.append
    assert read_file(store, HOUR, "large.bin") == content
    assert requests == ["chunks"]


def test_each_question_asks_as_little_as_it_needs(fs: SteppedClient, store: ObjectStore) -> None:
    manifest = publish(store, HOUR, {"x": b"1"})
    requests: list[str] = []
    fs.before = requests.append

    def asked(question: Callable[[], object]) -> list[str]:
        requests.clear()
        question()
        return requests

    hours = [f"weather/2013/{hour}" for hour in range(24)]
    assert asked(lambda: store.look([HOUR], "_SUCCESS")) == ["list"]
    assert asked(lambda: store.look(["weather/06"], None)) == ["list", "find"]
    assert asked(lambda: store.look(hours, None)) == ["children"]
    assert asked(lambda: store.mark(HOUR)) == ["find"]
    assert asked(lambda: store.measure([HOUR])) == ["list"]
    assert asked(lambda: store.published_manifest(HOUR)) == ["get"]
    assert asked(lambda: store.find_publication("weather/06", ["_SUCCESS"])) == ["get"]
    assert asked(lambda: store.find_publication(HOUR, ["_SUCCESS"])) == ["get", "find", "find"]
    assert asked(lambda: store.survey(HOUR, "_SUCCESS", 0)) == ["list", "get"]
    assert asked(lambda: store.survey("weather/06", "_SUCCESS", 0)) == ["list", "find"]
    assert asked(lambda: store.standing("weather/06")) == ["list"]
    assert asked(lambda: store.manifest(HOUR)) == ["list", "chunks", "list"]
    assert store.manifest(HOUR).digest == manifest.digest
