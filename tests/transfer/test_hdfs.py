"""Copies from, to and within HDFS: verified as all are, with what only HDFS keeps of a file."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Timer

import pytest
from hdfs_native import AclEntry, Client, WriteOptions

from feed_assets.entities.copies.options import Preserve
from feed_assets.plan.copy_records import StoreAddress
from feed_assets.storage.errors import StorageAwayError
from feed_assets.storage.hdfs.client import HdfsClient
from feed_assets.storage.registry import open_store
from tests.hdfs_cluster import HdfsCluster, run_hdfs
from tests.storage.harnesses import object_harness
from tests.transfer.conftest import _name
from tests.transfer.sides import FLAG, PATH, SMALL, Pair, Place, local_place, pattern, s3_place

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("hdfs")]
MiB = 1 << 20
DATA = {**SMALL, "large.bin": pattern(5 * MiB)}


def hdfs_place(cluster: HdfsCluster) -> Place:
    url = f"{cluster.url}/{_name()}"
    return Place(address=StoreAddress(url=url), harness=object_harness(open_store(url, {})))


DRILLED = ("hdfs→hdfs", "s3→hdfs", "local→hdfs", "hdfs→local")


@pytest.fixture(params=["hdfs→s3", *(pytest.param(name, marks=pytest.mark.drill) for name in DRILLED)])
def hdfs_pair(
    request: pytest.FixtureRequest, hdfs_cluster: HdfsCluster, s3_options: dict[str, object], tmp_path: Path
) -> Pair:
    def place(kind: str) -> Place:
        match kind:
            case "hdfs":
                return hdfs_place(hdfs_cluster)
            case "s3":
                return s3_place(s3_options, _name())
            case _:
                return local_place(tmp_path / kind)

    source, target = request.param.split("→")
    return Pair(place(source), place(target))


def test_a_copy_follows_its_source_and_a_flipped_byte_is_found(hdfs_pair: Pair) -> None:
    hdfs_pair.source.publish(DATA)
    hdfs_pair.copy(preserve=frozenset(Preserve))
    hdfs_pair.require_equal()
    hdfs_pair.source.publish({**DATA, "late.csv": b"late"}, token="run-2")
    plan = hdfs_pair.plan()
    assert {file.path for file in plan.transfers} == {"late.csv"}
    hdfs_pair.copy()
    hdfs_pair.require_equal()
    data = bytearray(DATA["large.bin"])
    data[MiB] ^= 1
    hdfs_pair.target.harness.put(f"{PATH}/large.bin", bytes(data))
    hdfs_pair.copy(quick=False, overwrite=True)
    hdfs_pair.require_equal()
    assert hdfs_pair.target.read() == {**DATA, "late.csv": b"late"}


def test_row_65_owner_group_list_blocks_and_replicas_are_kept_where_asked(hdfs_cluster: HdfsCluster) -> None:
    source, target = hdfs_place(hdfs_cluster), hdfs_place(hdfs_cluster)
    client = Client(hdfs_cluster.url)
    path = f"{source.address.url.removeprefix(hdfs_cluster.url)}/{PATH}"
    with client.create(f"{path}/x.bin", WriteOptions(block_size=2 * MiB, replication=1)) as stream:
        stream.write(pattern(3 * MiB))
    client.set_owner(f"{path}/x.bin", "ann", "people")
    client.set_permission(f"{path}/x.bin", 0o640)
    client.modify_acl_entries(f"{path}/x.bin", [AclEntry("user", "access", "r--", "joe")])
    source.harness.put(f"{PATH}/{FLAG}", b"")

    def seen(place: Place) -> tuple[object, ...]:
        hdfs = place.store.client  # type: ignore[attr-defined]
        assert isinstance(hdfs, HdfsClient)
        found = hdfs.status(f"{PATH}/x.bin")
        assert found is not None
        kept = (found.owner, found.group, found.permission & 0o7777, found.replication, found.blocksize)
        return (*kept, hdfs.acl(f"{PATH}/x.bin"), found.modification_time)

    Pair(source, target).copy(preserve=frozenset(Preserve))
    assert seen(target) == seen(source)
    assert seen(source)[:2] == ("ann", "people")
    assert seen(source)[3:5] == (1, 2 * MiB)
    plain = hdfs_place(hdfs_cluster)
    Pair(source, plain).copy()
    assert not set(seen(plain)[:2]) & {"ann", "people"}
    assert seen(plain)[3:6] == (2, 4 * MiB, ())


@pytest.fixture
def own_cluster() -> Iterator[HdfsCluster]:
    """A cluster of which parts are stopped."""
    with run_hdfs() as cluster:
        yield cluster


def copy_until_done(pair: Pair, interfere: Callable[[], None]) -> None:
    """Copy slowly, while something happens to the cluster; begin again when it is away, as retries do."""
    pair.source.publish({f"part-{number}": pattern(8 * MiB) for number in range(6)})
    timer, failed = Timer(1.5, interfere), 0
    timer.start()
    while True:
        try:
            pair.copy(bandwidth=10_000_000)
            break
        except StorageAwayError as exc:
            failed += 1
            print(exc)
            assert failed < 30
            time.sleep(2)
    timer.join()
    pair.require_equal()
    print(f"failed {failed} times")


@pytest.mark.drill
@pytest.mark.parametrize("direction", ["to", "from"])
def test_a_data_node_dies_while_a_copy_is_on(own_cluster: HdfsCluster, direction: str, tmp_path: Path) -> None:
    sides = [local_place(tmp_path / "local"), hdfs_place(own_cluster)]
    copy_until_done(Pair(*(sides if direction == "to" else sides[::-1])), lambda: own_cluster.obey("stop-data-node"))


@pytest.mark.drill
def test_a_name_node_is_restarted_while_a_copy_is_on(own_cluster: HdfsCluster, tmp_path: Path) -> None:
    def restart() -> None:
        own_cluster.obey("stop-name-node")
        own_cluster.obey("start-name-node")

    copy_until_done(Pair(local_place(tmp_path / "local"), hdfs_place(own_cluster)), restart)
