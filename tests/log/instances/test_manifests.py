"""What instances held."""

import pytest

from feed_assets.log.instances.manifests import Manifests, RecordedManifest
from feed_assets.sql.database import Database
from feed_assets.storage.records import ScannedFile
from tests.log.samples import hour

pytestmark = pytest.mark.both_databases


ODD = ScannedFile("x=\udcff/ä b.csv", 8, "1.2.3", "sha256:1")


def manifest(n: int, *files: ScannedFile, digest: str = "sha256:a") -> RecordedManifest:
    return RecordedManifest(
        feed="clicks", cluster="primary", nominal_time=hour(n), digest=digest, files=files, recorded_at=hour(n + 1)
    )


def test_manifests_come_back_as_they_were(database: Database) -> None:
    one, empty = manifest(0, ODD, ScannedFile("b", 0, "", "etag:2")), manifest(1)
    with database.begin() as connection:
        Manifests(connection).put([empty, one])
    with database.read() as connection:
        found = Manifests(connection).get_many([one.key, empty.key, manifest(2).key])
    assert found == {one.key: one, empty.key: empty}


def test_the_newest_manifest_of_an_instance_counts(database: Database) -> None:
    with database.begin() as connection:
        manifests = Manifests(connection)
        manifests.put([manifest(0, ODD), manifest(1)])
        manifests.put([manifest(0, digest="sha256:b")])
        digests = manifests.get_digests([manifest(0).key, manifest(1).key, manifest(2).key])
    assert digests == {manifest(0).key: "sha256:b", manifest(1).key: "sha256:a"}


def test_the_manifests_of_instances_that_are_gone_are_forgotten(database: Database) -> None:
    with database.begin() as connection:
        manifests = Manifests(connection)
        manifests.put([manifest(0), manifest(1)])
        manifests.remove([manifest(0).key, manifest(7).key])
        manifests.remove([])
        assert list(manifests.get_digests([manifest(0).key, manifest(1).key])) == [manifest(1).key]
