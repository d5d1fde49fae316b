import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from feed_assets.clock import Stopwatch
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.locations import overlaps as places_module
from feed_assets.entities.locations.overlaps import Mount, MountTable, Places
from feed_assets.patience import Patience
from tests.storage.hanging import LONGEST, hanging


def canonical_place(text: str) -> str:
    return Places().canonical(text)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("file:///data/a/${YEAR}", "/data/a/${YEAR}"),
        ("file://localhost/data/a", "file:///data/a"),
        ("file:///data/./a/", "file:///data//a"),
        ("file:///data/x/../a/${YEAR}", "file:///data/a/${YEAR}"),
        ("s3://Bucket/a/./b", "s3://bucket/a/b/"),
        ("S3://bucket/a", "s3://bucket/a"),
        ("s3a://bucket/a", "s3://bucket/a"),
        ("thrift://Host:9083/web/clicks", "thrift://host:9083/web/clicks"),
    ],
)
def test_one_place_has_one_identity(one: str, other: str) -> None:
    assert canonical_place(one) == canonical_place(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("file:///data/a", "file:///data/b"),
        ("file:///data/A", "file:///data/a"),
        ("s3://one/a", "s3://two/a"),
        ("s3://bucket/a", "gs://bucket/a"),
        ("file://host/data/a", "file:///data/a"),
        ("file:///localhost/a", "file://localhost/a"),
    ],
)
def test_other_places_have_others(one: str, other: str) -> None:
    assert canonical_place(one) != canonical_place(other)


def test_a_link_before_the_first_variable_is_resolved(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    (tmp_path / "data" / "${YEAR}").symlink_to(tmp_path)
    assert canonical_place(f"file://{tmp_path}/link/clicks/${{YEAR}}") == f"file://{tmp_path}/data/clicks/${{YEAR}}"
    assert canonical_place(f"{tmp_path}/data/${{YEAR}}/a") == f"file://{tmp_path}/data/${{YEAR}}/a"


def test_what_is_above_a_link_is_above_its_target(tmp_path: Path) -> None:
    (tmp_path / "data/deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "data/deep")
    assert canonical_place(f"{tmp_path}/link/../clicks") == f"file://{tmp_path}/data/clicks"


@pytest.fixture
def bound(tmp_path: Path) -> Iterator[Path]:
    """A folder that is mounted a second time."""
    (tmp_path / "data/clicks").mkdir(parents=True)
    place = tmp_path / "bo und"
    place.mkdir()
    mounted = subprocess.run(["mount", "--bind", tmp_path / "data/clicks", place], check=False, capture_output=True)
    if mounted.returncode:
        pytest.skip("this user may not mount")
    yield place
    subprocess.run(["umount", place], check=True)


def test_a_folder_that_is_mounted_twice_is_one_place(tmp_path: Path, bound: Path) -> None:
    places = Places()
    assert places.canonical(f"{bound}/${{YEAR}}") == f"file://{tmp_path}/data/clicks/${{YEAR}}"
    assert places.canonical(f"{tmp_path}/data/clicks/a") == f"file://{tmp_path}/data/clicks/a"
    assert places.confirm(Places().identities)
    assert places.confirm(places.identities)
    assert not places.confirm({str(bound): str(bound)})


def mounted(*mounts: tuple[str, str, str]) -> MountTable:
    """Each on the one before: a device, its folder, and where that is mounted."""
    return MountTable(
        [
            Mount(number=str(number), parent=str(number - 1), device=device, root=root, point=point)
            for number, (device, root, point) in enumerate(mounts, start=1)
        ]
    )


def test_a_mount_that_another_one_covers_is_not_taken_for_it() -> None:
    table = mounted(("1", "", ""), ("2", "", "/data"), ("1", "/srv", "/data"))
    assert table.canonical("/data/a") == "/srv/a"
    assert table.canonical("/database") == "/database"


def test_the_same_folder_of_another_device_is_another_place() -> None:
    table = mounted(("1", "", ""), ("2", "/srv", "/data"), ("2", "/srv/inner", "/data/more"))
    assert table.canonical("/data/more/a") == "/data/inner/a"
    assert table.canonical("/srv/a") == "/srv/a"


@pytest.mark.parametrize("storage", ["s3://", "s3:///", "gs:///data"])
def test_a_storage_without_a_bucket_is_refused(storage: str) -> None:
    with pytest.raises(ValueError, match="names no bucket or host") as caught:
        Cluster(name="primary", storage=storage)
    assert "Write" in str(caught.value)


@pytest.mark.parametrize(
    "storage", ["hdfs:///lake", "viewfs:///lake", "hdfs://lake/a", "hdfs://host:8020", "hdfs://[::1]:1/a"]
)
def test_a_storage_on_hdfs_may_be_on_the_default_file_system_a_name_service_or_a_name_node(storage: str) -> None:
    assert Cluster(name="primary", storage=storage).storage == storage


@pytest.mark.parametrize("storage", ["hdfs://host:port/lake", "hdfs://host:", "hdfs://a:8020,b:8020/lake"])
def test_the_port_of_a_name_node_is_a_number(storage: str) -> None:
    with pytest.raises(ValueError, match=r"is no number\. Write such as hdfs://namenode:8020/lake"):
        Cluster(name="primary", storage=storage)


def test_a_folder_on_a_filesystem_that_does_not_answer_is_taken_as_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places_module, "_PATIENCE", Patience(0.1))
    away = f"{tmp_path}/away"
    monkeypatch.setattr(MountTable, "of_this_process", lambda: mounted(("1", "", ""), ("2", "", away)))
    (tmp_path / "away").mkdir()
    (tmp_path / "away/link").symlink_to(tmp_path)
    (tmp_path / "near").symlink_to(tmp_path)
    before = Places()
    for name in ("away/link/a", "near/b"):
        before.canonical(f"{tmp_path}/{name}")
    watch = Stopwatch()
    with hanging(tmp_path / "away"):
        places = Places()
        assert places.canonical(f"{tmp_path}/away/link/a") == f"file://{tmp_path}/away/link/a"
        assert places.canonical(f"{tmp_path}/away/link/b") == f"file://{tmp_path}/away/link/b"
        assert places.canonical(f"{tmp_path}/near/c") == f"file://{tmp_path}/c"
        assert Places().confirm(before.identities), "a cached plan is used while its folders do not answer"
    assert watch.seconds < LONGEST
