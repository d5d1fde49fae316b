from pathlib import Path

import pytest

from feed_assets.entities.cluster import Cluster
from feed_assets.entities.places import canonical_place


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("file:///data/a/${YEAR}", "/data/a/${YEAR}"),
        ("file://localhost/data/a", "file:///data/a"),
        ("file:///data/./a/", "file:///data//a"),
        ("file:///data/x/../a/${YEAR}", "file:///data/a/${YEAR}"),
        ("s3://Bucket/a/./b", "s3://bucket/a/b/"),
        ("S3://bucket/a", "s3://bucket/a"),
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


@pytest.mark.parametrize("storage", ["s3://", "s3:///", "gs:///data"])
def test_a_storage_without_a_bucket_is_refused(storage: str) -> None:
    with pytest.raises(ValueError, match="names no bucket or host") as caught:
        Cluster(name="primary", storage=storage)
    assert "Write" in str(caught.value)
