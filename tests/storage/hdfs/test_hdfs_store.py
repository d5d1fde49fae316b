"""What HDFS has of its own: two renames that may break off or be overtaken, its refusals, its rights."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest

from feed_assets.storage.errors import (
    InstanceChangingError,
    PathRefusedError,
    StorageAwayError,
    StorageError,
    StorageFullError,
    StoreUnknownError,
)
from feed_assets.storage.hdfs import client as hdfs_client
from feed_assets.storage.hdfs.client import HdfsClient
from feed_assets.storage.hdfs.store import HdfsStore
from feed_assets.storage.records import Availability, Outcome
from feed_assets.storage.registry import open_store
from tests.definitions.checks.test_reachability import _cluster
from tests.hdfs_cluster import HdfsCluster, name_service, run_hdfs, write_configuration
from tests.storage.harnesses import allow, client_of, publish, read_all, stage
from tests.storage.trees import Died

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("hdfs")]
PATH = "weather/05"
OLD = {"old-0.csv": b"old", "s/old-1.csv": b"older"}
NEW = {"new-0.csv": b"new", "s/new-1.csv": b"newer"}
FUTURE = datetime.now(UTC) + timedelta(days=1)
_numbers = count()


@pytest.fixture
def url(hdfs_cluster: HdfsCluster) -> str:
    return f"{hdfs_cluster.url}/own-{next(_numbers)}"


@pytest.fixture
def store(url: str, tmp_path: Path) -> HdfsStore:
    found = open_store(url, {"scratch": str(tmp_path)})
    assert isinstance(found, HdfsStore)
    return found


def availability(store: HdfsStore) -> Availability:
    return store.look([PATH], "_SUCCESS")[0].availability


@contextmanager
def dying(number: int) -> Iterator[Callable[[], bool]]:
    """A process that dies before its n-th request; what it yields says whether it has died."""
    ask, left = HdfsClient._ask, number

    def dies(self: HdfsClient, request: Callable[[object], object], node: str = "") -> object:
        nonlocal left
        left -= 1
        if left <= 0:
            raise Died
        return ask(self, request, node)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HdfsClient, "_ask", dies)
        yield lambda: left <= 0


def publish_until_death(store: HdfsStore) -> None:
    with suppress(Died):
        store.publish(stage(store, PATH, NEW, "run-2"), flag="_SUCCESS", guard=allow, extra={})


def require_old_or_new(store: HdfsStore) -> None:
    """What a dead publisher leaves is whole, or can be recovered; and the next one leaves nothing else."""
    seen = availability(store)
    assert seen in (Availability.AVAILABLE, Availability.PARTIAL)
    is_broken = store.recover(PATH)
    assert is_broken or seen is Availability.AVAILABLE
    assert availability(store) is Availability.AVAILABLE
    assert read_all(store, PATH) in (OLD, NEW)
    publish(store, PATH, NEW, token="run-3")
    assert read_all(store, PATH) == NEW
    store.sweep_staging(FUTURE)
    hidden = client_of(store).list(".feed-assets").files
    assert not hidden, hidden


@pytest.mark.parametrize("start", [PATH, ".feed-assets/staging/run-2"])
def test_a_publisher_that_dies_leaves_the_old_or_the_new_one(store: HdfsStore, start: str) -> None:
    def die() -> None:
        raise Died

    publish(store, PATH, OLD)
    with pytest.MonkeyPatch.context() as patch:
        at_move(patch, start, die)
        publish_until_death(store)
    require_old_or_new(store)


@pytest.mark.drill
def test_a_publisher_may_die_before_any_request(url: str, tmp_path: Path) -> None:
    for number in count(1):
        found = open_store(f"{url}/{number}", {"scratch": str(tmp_path)})
        assert isinstance(found, HdfsStore)
        publish(found, PATH, OLD)
        with dying(number) as has_died:
            publish_until_death(found)
            died = has_died()
        require_old_or_new(found)
        if not died:
            break
    assert number > 30
    print(f"{number} deaths")


def at_move(monkeypatch: pytest.MonkeyPatch, start: str, do: Callable[[], None]) -> None:
    """Do something once, right before the rename of what begins so."""
    move, is_done = HdfsClient.move, False

    def moved(self: HdfsClient, key: str, to: str, *, overwrite: bool = False) -> None:
        nonlocal is_done
        if key.startswith(start) and not is_done:
            is_done = True
            do()
        move(self, key, to, overwrite=overwrite)

    monkeypatch.setattr(HdfsClient, "move", moved)


def test_between_the_two_renames_a_publication_is_under_way(
    store: HdfsStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(store, PATH, OLD)
    seen = []

    def look() -> None:
        other = open_store(url, {})
        assert client_of(other).find(f"{PATH}/old-0.csv") is None
        seen.append(other.look([PATH, "elsewhere"], None))
        with pytest.raises(InstanceChangingError):
            other.manifest(PATH)

    staging = stage(store, PATH, NEW, "run-2")
    at_move(monkeypatch, ".feed-assets/staging/run-2", look)
    store.publish(staging, flag="_SUCCESS", guard=allow, extra={})
    assert [look.availability for look in seen[0]] == [Availability.PARTIAL, Availability.MISSING]
    assert read_all(store, PATH) == NEW


@pytest.mark.parametrize("before", [OLD, None])
@pytest.mark.parametrize("start", [PATH, ".feed-assets/staging/run-2"])
def test_a_publisher_that_stands_still_moves_nothing_that_others_have_finished(
    store: HdfsStore, url: str, monkeypatch: pytest.MonkeyPatch, before: dict[str, bytes] | None, start: str
) -> None:
    if before:
        publish(store, PATH, before)
    other = open_store(url, {})
    staging = stage(store, PATH, NEW, "run-2")
    at_move(monkeypatch, start, lambda: other.recover(PATH) and None)
    store.publish(staging, flag="_SUCCESS", guard=allow, extra={})
    assert read_all(store, PATH) == NEW
    assert availability(store) is Availability.AVAILABLE


def test_what_comes_between_the_two_renames_stays_and_is_told(
    store: HdfsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(store, PATH, OLD)
    staging = stage(store, PATH, NEW, "run-2")
    with pytest.MonkeyPatch.context() as patch:
        at_move(patch, ".feed-assets/staging/run-2", lambda: client_of(store).put(f"{PATH}/theirs", b"1"))
        with pytest.raises(InstanceChangingError, match="something else has come"):
            store.publish(staging, flag="_SUCCESS", guard=allow, extra={})
    assert client_of(store).get(f"{PATH}/theirs") == b"1"
    assert store.trash().put("aside", [PATH])[0].outcome is Outcome.MOVED
    assert store.recover(PATH)
    assert read_all(store, PATH) == NEW


def test_an_instance_keeps_its_rights_and_so_do_its_parents(store: HdfsStore) -> None:
    hdfs = store.client
    publish(store, PATH, OLD)
    for key, mode in (("weather", 0o711), (PATH, 0o750)):
        hdfs.set_permission(key, mode)
    publish(store, PATH, NEW, token="run-2")
    store.trash().put("sweep-1", [PATH])
    assert store.trash().remove_empty_parents("", [PATH]) == ["weather"]
    store.trash().restore("sweep-1", [PATH])
    found = [hdfs.status(key) for key in ("weather", PATH)]
    assert [each.permission for each in found if each] == [0o711, 0o750]


def test_a_folder_that_is_a_file_by_now_is_no_empty_parent(store: HdfsStore) -> None:
    client_of(store).put("weather", b"1")
    assert store.trash().remove_empty_parents("", [PATH]) == []
    assert client_of(store).get("weather") == b"1"


def test_a_quota_that_is_used_up_is_a_full_storage(store: HdfsStore, url: str, hdfs_cluster: HdfsCluster) -> None:
    publish(store, PATH, OLD)
    path = url.removeprefix(hdfs_cluster.url)
    hdfs_cluster.obey("quota", path, 3, -1)
    with pytest.raises(StorageFullError, match="quota"):
        stage(store, PATH, NEW, "run-2")
    hdfs_cluster.obey("quota", path, -1, 20 << 20)
    staging = stage(store, PATH, {"large": b"x" * (9 << 20)}, "run-3")
    with pytest.raises(StorageFullError, match="quota"):
        store.publish(staging, flag=None, guard=allow, extra={})
    assert read_all(store, PATH) == OLD


def test_a_quota_that_is_used_up_stops_no_purge(store: HdfsStore, url: str, hdfs_cluster: HdfsCluster) -> None:
    publish(store, PATH, OLD)
    assert store.trash().put("sweep-1", [PATH])[0].outcome is Outcome.MOVED
    hdfs_cluster.obey("quota", url.removeprefix(hdfs_cluster.url), 3, -1)
    assert store.trash().purge("sweep-1").files > 0
    assert store.trash().sweeps() == []


def test_what_cannot_be_swept_keeps_nothing_else(store: HdfsStore) -> None:
    client_of(store).put("weather", b"a file where a folder of instances was")
    with pytest.raises(StorageError, match="is not a directory"):
        publish(store, PATH, NEW, token="run-1")
    stage(store, "climate/05", NEW, "run-2")
    with pytest.raises(StorageError, match=r"staging/run-1/.*is not a directory"):
        store.sweep_staging(FUTURE)
    assert not client_of(store).list(".feed-assets/staging/run-2").files
    client_of(store).remove(["weather"])
    assert store.sweep_staging(FUTURE) == 1
    assert read_all(store, PATH) == NEW


def test_safe_mode_is_told_as_what_it_is(store: HdfsStore, hdfs_cluster: HdfsCluster) -> None:
    publish(store, PATH, OLD)
    hdfs_cluster.obey("safe-mode", "ENTER")
    try:
        with pytest.raises(StorageAwayError, match=r"its name node is in safe mode.*Wait until it has left"):
            store.stage(PATH, "run-2")
        assert read_all(store, PATH) == OLD
    finally:
        hdfs_cluster.obey("safe-mode", "LEAVE")


def test_what_a_user_may_not_do_is_refused(store: HdfsStore, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(store, PATH, OLD)
    monkeypatch.setenv("HADOOP_USER_NAME", "joe")
    other = open_store(url, {})
    with pytest.raises(StorageError, match="Permission denied: user=joe, access=WRITE"):
        other.stage(PATH, "run-2")
    assert other.trash().put("sweep-1", [PATH], flag=None)[0].outcome is Outcome.REFUSED
    assert read_all(other, PATH) == OLD


def test_row_8_staging_and_working_folders_are_checked_on_hdfs(store: HdfsStore, url: str) -> None:
    def found(*, prepare: bool = False) -> list[str]:
        return _cluster({"storage": url, "locations": {"staging": "/apps/staging"}}, prepare=prepare)

    store.client.make_folder("apps/staging")
    assert "apps/staging cannot be used: its permissions are 755, and must be 777" in found()[0]
    store.client.set_permission("apps/staging", 0o777)
    assert found() == []
    assert store.client.status("apps/staging/working") is None
    assert found(prepare=True) == []
    working = store.client.status("apps/staging/working")
    assert working is not None
    assert working.permission == 0o755


def test_what_is_no_snapshot_is_missing_beside_others(store: HdfsStore) -> None:
    publish(store, PATH, OLD)
    looks = store.look([PATH, "weather/.snapshot/s1"], "_SUCCESS")
    assert [look.availability for look in looks] == [Availability.AVAILABLE, Availability.MISSING]


def test_a_name_that_hdfs_refuses_is_a_path_that_is_refused(store: HdfsStore) -> None:
    with pytest.raises(PathRefusedError, match="HDFS refuses this name"):
        publish(store, "at/10:30", OLD)


def test_a_name_node_that_is_away_or_silent_is_told_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    began = time.monotonic()
    with pytest.raises(StorageAwayError, match=r"nothing answers at 127.0.0.1:1 \(Connection refused"):
        open_store("hdfs://127.0.0.1:1/data", {}).look([PATH], None)
    assert time.monotonic() - began < 15
    monkeypatch.setattr(hdfs_client, "ANSWER_SECONDS", 0.5)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with pytest.raises(StorageAwayError, match=r"it has not answered within 0\.5 seconds"):
            open_store(f"hdfs://127.0.0.1:{silent.getsockname()[1]}/data", {}).check_root()


def test_a_name_service_and_a_mount_are_found_in_the_configuration(
    store: HdfsStore, url: str, hdfs_cluster: HdfsCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mount = {f"fs.viewfs.mounttable.all.{name}": url for name in ("link./lake", "linkFallback")}
    write_configuration(tmp_path, **name_service(1, *hdfs_cluster.ports), **mount)  # nobody answers at port 1
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    path = url.removeprefix(hdfs_cluster.url)
    publish(open_store(f"hdfs://lake{path}", {}), PATH, OLD)
    assert read_all(store, PATH) == OLD
    mounted = open_store("viewfs://all/lake", {})
    publish(mounted, PATH, NEW, token="run-2")
    assert read_all(store, PATH) == NEW
    assert mounted.trash().put("sweep-1", [PATH])[0].outcome is Outcome.MOVED
    assert mounted.trash().restore("sweep-1", [PATH])[0].outcome is Outcome.MOVED
    assert read_all(mounted, PATH) == NEW


@pytest.mark.drill
def test_the_other_name_node_takes_over_between_the_two_renames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with run_hdfs(ha="true") as cluster:
        write_configuration(tmp_path, **name_service(*cluster.ports))
        monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
        store = open_store("hdfs://lake/data", {})
        publish(store, PATH, OLD)
        staging = stage(store, PATH, NEW, "run-2")
        at_move(monkeypatch, ".feed-assets/staging/run-2", lambda: cluster.obey("fail-over"))
        store.publish(staging, flag="_SUCCESS", guard=allow, extra={})
        assert read_all(store, PATH) == NEW
        assert not client_of(store).list(".feed-assets").files


def test_what_no_configuration_knows_says_what_to_write() -> None:
    with pytest.raises(StorageError, match=r"no name node of lake is known.*HADOOP_CONF_DIR"):
        open_store("hdfs://lake/data", {}).check_root()
    with pytest.raises(StorageError, match=r"no name node of lake is known.*HADOOP_CONF_DIR"):
        open_store("hdfs://lake/data", {}).look([PATH], None)
    with pytest.raises(StoreUnknownError, match="'speed' cannot be used: HDFS has properties of Hadoop"):
        open_store("hdfs://lake/data", {"speed": 1})
    store = open_store("hdfs://nn:8020", {"dfs.replication": "2"})
    assert (store.url("a//b"), store.spark_url("a")) == ("hdfs://nn:8020/a/b", "hdfs://nn:8020/a")
