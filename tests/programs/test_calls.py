"""Programs outside of runs read, write and search metadata by one door."""

from pathlib import Path

import pytest

from feed_assets import MetadataRefusedError, open_metadata
from feed_assets.errors import SettingsError
from feed_assets.settings import load_settings
from tests.definitions.verbs.harness import ALL, EntityHarness, file_of


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    harness = EntityHarness.at(tmp_path)
    (tmp_path / "entities" / "all.yaml").write_bytes(file_of(*ALL).content)
    harness.tick()
    monkeypatch.setenv("FEED_ASSETS_NOW", "2013-11-03T12:00Z")
    return tmp_path


def test_what_a_program_writes_is_found_and_names_it(project: Path) -> None:
    with open_metadata(author="nightly-check", folder=project) as metadata:
        change = metadata.put("feed/clicks", {"checked": "yes", "rows": 12}, tags=["reviewed"])
        assert change.additions == {"USER": {"properties": {"checked": "yes", "rows": "12"}, "tags": ["reviewed"]}}
        metadata.tag("dashboard/otd", "live")
    with open_metadata(author="other", folder=project) as metadata:
        found = metadata.get("feed/clicks")
        assert found["USER"] == {"properties": {"checked": "yes", "rows": "12"}, "tags": ["reviewed"]}
        assert found["SYSTEM"]["properties"]["frequency"] == "hours(1)"
        assert [each.entity for each in metadata.search("reviewed live")] == ["feed/clicks", "dashboard/otd"]
        assert [each.entity for each in metadata.search("reviewed live", kinds=["feed"])] == ["feed/clicks"]
        with pytest.raises(MetadataRefusedError, match="scope 'mine': there is no such scope"):
            metadata.search("reviewed", scope="mine")


def test_what_cannot_be_written_is_refused(project: Path) -> None:
    with open_metadata(author="nightly-check", folder=project) as metadata:
        with pytest.raises(MetadataRefusedError, match="property 'a b': a name has"):
            metadata.put("feed/clicks", {"a b": "x"})
        with pytest.raises(MetadataRefusedError, match="property 'a' is no text"):
            metadata.put("feed/clicks", {"a": None})


def test_without_a_state_there_is_nothing_to_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    settings = load_settings(environ={}, start=tmp_path)
    with pytest.raises(SettingsError, match="Set DAGSTER_HOME"), open_metadata(author="x", settings=settings):
        pass
