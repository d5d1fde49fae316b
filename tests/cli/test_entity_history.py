from pathlib import Path

import pytest

from feed_assets.log.definitions.records import Member, Release
from feed_assets.releases.store import Releases
from feed_assets.sql.database import open_database
from feed_assets.timing.dates import parse_datetime
from tests.cli.project import below, must, prepare, run


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    prepare(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "entities/all.yaml").write_text((tmp_path / "all.yaml").read_text())
    assert run("entity", "history", "cluster", "primary").exit_code == 0  # records what the folder says
    return tmp_path


def _release(project: Path, process: str) -> None:
    release = Release(
        process=process,
        cluster="primary",
        release=1,
        effective_from=parse_datetime("2024-01-01T00:00Z"),
        fingerprint="",
        members=(Member(kind="cluster", name="primary", version=1), Member(kind="process", name=process, version=1)),
        recorded_at=parse_datetime("2024-01-01T00:00Z"),
        reason="a test",
    )
    with open_database(f"sqlite:///{project}/state.db").begin() as connection:
        Releases(connection).put([release])


def test_an_instance_leads_to_the_definitions_that_govern_it(project: Path) -> None:
    _release(project, "counting")
    found = must("entity", "governing", "counting", "2024-01-02T00:00Z", "--cluster", "primary")
    lines = found.stdout.splitlines()
    assert lines[0] == "release 1 from 2024-01-01T00:00Z on: a test"
    assert [line.split("\t")[:3] for line in lines[2:]] == [["process", "counting", "1"], ["cluster", "primary", "1"]]


def test_an_instance_before_the_first_release_has_nothing_that_governs_it(project: Path) -> None:
    _release(project, "counting")
    found = run("entity", "governing", "counting", "2023-12-31T00:00Z", "--cluster", "primary")
    assert (found.exit_code, below(found.stdout)) == (0, "")
    assert "No release of 'counting' on 'primary' is in effect at 2023-12-31T00:00Z." in found.stderr


def test_the_only_cluster_of_the_process_need_not_be_named(project: Path) -> None:
    other = "---\nkind: cluster\nname: other\nstorage: file://${PROJECT_ROOT}/other\n"
    (project / "entities/other.yaml").write_text(other)
    _release(project, "counting")
    found = must("entity", "governing", "counting", "2024-01-02T00:00Z")
    assert found.stdout.splitlines()[0] == "release 1 from 2024-01-01T00:00Z on: a test"
    unknown = run("entity", "governing", "gone", "2024-01-02T00:00Z")
    assert "Name one of the clusters other, primary with --cluster." in unknown.stderr
