import hashlib
import logging
import os
from pathlib import Path

import pytest

from feed_assets.definitions.store import record_location
from feed_assets.entities.errors import DefinitionsError
from feed_assets.loading.errors import LocationUnreadableError
from feed_assets.plan import location as location_module
from feed_assets.plan.location import Location, declare_location, load_location
from feed_assets.plan.release_fingerprint import parse_fingerprint
from feed_assets.releases.store import WorkflowFiles
from feed_assets.settings import Settings, load_settings
from tests.databases import open_migrated
from tests.instances.harness import START, feed, process

CLUSTER = """
kind: cluster
name: primary
storage: file:///data/primary
"""
CLICKS = """
kind: feed
name: clicks
frequency: hours(1)
format: csv
locations: {data: "/clicks/${YEAR}/${MONTH}/${DAY}/${HOUR}"}
clusters: {primary: {validity: {start: 2013-11-01T00:00Z}}}
"""
COUNT = """
kind: process
name: count
frequency: hours(1)
clusters: {primary: {validity: {start: 2013-11-01T00:00Z}}}
inputs: {clicks: {feed: clicks, start: "now(0,0)", end: "now(0,0)"}}
workflow: {path: "jobs:count"}
"""
PING = """
kind: process
name: ping
frequency: hours(1)
clusters: {primary: {validity: {start: 2013-11-01T00:00Z}}}
workflow: {path: "jobs:ping"}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "entities"
    folder.mkdir()
    for name, text in (("cluster", CLUSTER), ("clicks", CLICKS), ("count", COUNT), ("ping", PING)):
        (folder / f"{name}.yaml").write_text(text)
    return tmp_path


def load(project: Path, *, strict: bool = False, cached: bool = True) -> Location:
    return load_location(settings_of(project, strict=strict), project / "cache" if cached else None)


def settings_of(project: Path, *, strict: bool = False) -> Settings:
    return load_settings({"strict": strict}, environ={}, start=project)


def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The digests of what is compiled from here on."""
    seen: list[str] = []
    real = location_module.compile_location

    def noting(*args: object) -> Location:
        result = real(*args)  # type: ignore[arg-type]
        seen.append(result.digest)
        return result

    monkeypatch.setattr(location_module, "compile_location", noting)
    return seen


def test_the_plan_of_a_folder_has_everything_in_it(project: Path) -> None:
    location = load(project, cached=False)
    assert set(location.plan.processes) == {("count", "primary"), ("ping", "primary")}
    assert location.errors == ()
    facts = location.plan.feeds["clicks", "primary"].facts
    assert (Path(facts.file or "").name, facts.line) == ("clicks.yaml", 2)


def test_the_same_files_are_compiled_once(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = compiled(monkeypatch)
    first, second = load(project), load(project)
    assert first == second
    assert len(seen) == 1


def test_a_changed_file_is_compiled_anew(project: Path) -> None:
    first = load(project)
    (project / "entities" / "clicks.yaml").write_text(CLICKS.replace("hours(1)", "hours(2)"))
    second = load(project)
    assert first.digest != second.digest
    assert second.plan.feeds["clicks", "primary"].sequence.frequency.render() == "hours(2)"


def test_a_value_from_the_environment_is_part_of_what_was_loaded(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "entities" / "cluster.yaml").write_text(CLUSTER.replace("/data/primary", "${env:PLACE}"))
    monkeypatch.setenv("PLACE", "/one")
    first = load(project)
    monkeypatch.setenv("PLACE", "/two")
    second = load(project)
    assert [item.plan.clusters["primary"].store.url for item in (first, second)] == ["file:///one", "file:///two"]


def test_a_damaged_cache_file_is_compiled_anew(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load(project)
    (file,) = (project / "cache").glob("*.plan")
    whole = file.read_bytes()
    seen = compiled(monkeypatch)
    for damaged in (b"", b"g", b"not a plan at all" * 9, whole[:-7], whole[:99] + b"\x00" + whole[100:]):
        file.write_bytes(damaged)
        assert load(project) == first
    assert len(seen) == 5
    load(project)
    assert len(seen) == 5


def test_a_plan_of_other_code_is_not_used(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load(project)
    seen = compiled(monkeypatch)
    monkeypatch.setattr(location_module, "_code_stamp", lambda: "another release")
    load(project)
    assert len(seen) == 1


def test_a_cache_that_cannot_be_written_costs_only_time(project: Path, caplog: pytest.LogCaptureFixture) -> None:
    (project / "cache").write_text("in the way")
    with caplog.at_level(logging.WARNING):
        assert load(project).errors == ()
    assert "compiled plans cannot be cached" in caplog.text


def test_the_cache_keeps_few_plans_and_hides_them_from_others(project: Path) -> None:
    for hours in range(1, 8):
        (project / "entities" / "clicks.yaml").write_text(CLICKS.replace("hours(1)", f"hours({hours})"))
        load(project)
    files = list((project / "cache").iterdir())
    assert len(files) == 4
    assert {file.stat().st_mode & 0o077 for file in [*files, project / "cache"]} == {0}


def test_one_bad_entity_does_not_take_the_others_along(project: Path) -> None:
    (project / "entities" / "clicks.yaml").write_text(CLICKS.replace("hours(1)", "fortnights(1)"))

    location = load(project)

    assert set(location.plan.processes) == {("ping", "primary")}
    assert location.plan.feeds == {}
    assert [(issue.entity, issue.followers) for issue in location.errors] == [("feed 'clicks'", ("process 'count'",))]


def test_strict_settings_refuse_a_location_with_errors_and_name_them_all(project: Path) -> None:
    (project / "entities" / "clicks.yaml").write_text(CLICKS.replace("hours(1)", "fortnights(1)"))
    load(project)

    with pytest.raises(DefinitionsError) as caught:
        load(project, strict=True)

    text = str(caught.value)
    assert "clicks.yaml:4" in text
    assert "process 'count'" in text
    assert len(caught.value.issues) == text.count("\n")


def test_strict_settings_accept_a_location_without_errors(project: Path) -> None:
    assert load(project, strict=True).errors == ()


def test_a_place_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LocationUnreadableError, match="there is no such file or folder"):
        load(tmp_path)


def test_entities_built_in_python_are_refused_at_once_when_they_are_wrong() -> None:
    with pytest.raises(DefinitionsError, match="feed 'clicks'") as caught:
        declare_location([feed("clicks"), process("count", inputs={"clicks": "now(0,0)"})])
    assert caught.value.issues


def test_loading_reads_no_user_code(project: Path) -> None:
    before = set(project.iterdir())
    load(project, cached=False)
    assert set(project.iterdir()) == before


@pytest.mark.parametrize(
    "mistake", ["frequncy: hours(1)", "frequency: hours(0)", "groups: [3]", "properties: {a: '${env:GONE}'}"]
)
def test_a_feed_with_mistakes_protects_its_place_against_the_retention_of_others(project: Path, mistake: str) -> None:
    (project / "entities" / "kept.yaml").write_text(
        """
kind: feed
name: kept
frequency: days(1)
locations: {data: "/kept/${YEAR}/${MONTH}/${DAY}"}
clusters: {primary: {validity: {start: 2020-01-01T00:00Z}, retention: {limit: days(5)}}}
"""
    )

    def obstacle() -> str | None:
        plan = load(project, cached=False).plan
        policy = plan.feeds["kept", "primary"].retention
        assert policy is not None
        return policy.locations[0].obstacle

    assert obstacle() is None
    (project / "entities" / "inner.yaml").write_text(
        f"""
kind: feed
name: inner
{mistake}
locations: {{data: "/kept/${{YEAR}}/${{MONTH}}/${{DAY}}/inner"}}
clusters: {{primary: {{validity: {{start: 2020-01-01T00:00Z}}}}}}
"""
    )
    assert obstacle() == "the data of feed 'inner' on primary is inside it"


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o707])
def test_a_cache_that_others_can_enter_is_neither_read_nor_written(
    project: Path, mode: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    load(project)
    (project / "cache").chmod(mode)
    seen = compiled(monkeypatch)
    load(project)
    assert len(seen) == 1
    assert "compiled plans are not cached" in caplog.text


def test_a_cached_plan_that_another_could_have_written_is_not_read(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(project)
    (plan,) = (project / "cache").glob("*.plan")
    seen = compiled(monkeypatch)
    load(project)
    plan.chmod(0o622)
    load(project)
    assert len(seen) == 1
    (plan,) = (project / "cache").glob("*.plan")
    elsewhere = plan.rename(project / "elsewhere.plan")
    plan.symlink_to(elsewhere)
    load(project)
    assert len(seen) == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_cache_of_another_user_is_neither_read_nor_written(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load(project)
    os.chown(project / "cache", 12345, -1)
    seen = compiled(monkeypatch)
    load(project)
    assert len(seen) == 1


def test_a_changed_workflow_file_changes_a_cached_plan_and_a_missing_one_does_not(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "entities" / "ping.yaml").write_text(PING.replace('path: "jobs:ping"', "engine: sql, path: ping.sql"))
    (project / "ping.sql").write_text("select 1")
    key = ("ping", "primary")
    first, done = load(project), compiled(monkeypatch)
    (project / "ping.sql").write_text("select 2")
    second = load(project)
    assert first.digest == second.digest
    assert first.plan.digest != second.plan.digest
    assert first.plan.processes[key].fingerprint != second.plan.processes[key].fingerprint
    (project / "ping.sql").unlink()
    gone = parse_fingerprint(load(project).plan.processes[key].fingerprint)
    assert gone.is_alike(parse_fingerprint(second.plan.processes[key].fingerprint))
    assert done == []


def test_files_of_workflows_are_recorded_with_the_location_unless_they_have_changed_since(project: Path) -> None:
    (project / "entities" / "ping.yaml").write_text(PING.replace('path: "jobs:ping"', "engine: sql, path: ping.sql"))
    (project / "ping.sql").write_text("select 1")
    database, location = open_migrated(f"sqlite:///{project}/state.db"), load(project)
    assert record_location(database, settings_of(project), location, START)
    with database.read() as connection:
        stored = WorkflowFiles(connection).find(hashlib.sha256(b"select 1").hexdigest())
    assert stored == b"select 1"
    (project / "ping.sql").write_text("select 2")
    assert not record_location(database, settings_of(project), location, START)


def obstacle(location: Location, name: str = "clicks") -> str | None:
    retention = location.plan.feeds[name, "primary"].retention
    assert retention is not None
    return retention.locations[0].obstacle


def test_a_cached_plan_is_not_used_when_a_link_leads_elsewhere_now(project: Path) -> None:
    (project / "other").mkdir()
    (project / "entities/all.yaml").write_text(two_clusters(project))
    assert obstacle(load(project), "visits") is None
    (project / "other").rmdir()
    (project / "other").symlink_to(project / "data")
    assert obstacle(load(project), "visits") == "it is at the data of feed 'views' on second"


def two_clusters(project: Path) -> str:
    """A feed on `primary`, and one on a cluster whose folder may become the same."""
    feeds = [
        CLICKS.replace("name: clicks", f"name: {name}")
        .replace("/clicks/", "/same/")
        .replace("primary: {", f"{cluster}: {{retention: {{limit: days(2)}}, ")
        for name, cluster in (("visits", "primary"), ("views", "second"))
    ]
    (project / "entities/cluster.yaml").write_text(CLUSTER.replace("/data/primary", f"{project}/data"))
    second = f"kind: cluster\nname: second\nstorage: file://{project}/other\n"
    return "\n---\n".join([second, *feeds])


@pytest.mark.parametrize(
    ("mistake", "remedy"),
    [
        ("name: second", "name: second\nsprak: 1"),
        ("name: views", "name: views\nfrequncy: 1"),
        ("second: {retention", "second: {retetion"),
    ],
)
def test_what_is_left_out_because_of_a_mistake_keeps_its_place(project: Path, mistake: str, remedy: str) -> None:
    (project / "data").mkdir()
    (project / "other").symlink_to(project / "data")
    text = two_clusters(project)
    assert mistake in text
    (project / "entities/all.yaml").write_text(text.replace(mistake, remedy))
    location = load(project)
    assert ("views", "second") not in location.plan.feeds
    assert obstacle(location, "visits") == "it is at the data of feed 'views' on second"


@pytest.mark.parametrize("syntax", ["bad: [", "  bad: {a: b", "\tbad: 1", "bad: 'a"])
def test_what_stands_above_a_syntax_error_keeps_its_place(project: Path, syntax: str) -> None:
    (project / "data").mkdir()
    (project / "other").symlink_to(project / "data")
    (project / "entities/all.yaml").write_text(two_clusters(project) + syntax + "\n")
    location = load(project)
    assert [issue.code for issue in location.errors] == ["yaml-syntax"]
    assert obstacle(location, "visits") == "it is at the data of feed 'views' on second"


def test_a_damaged_copy_of_a_good_file_changes_nothing(project: Path) -> None:
    text = CLICKS.replace("primary: {", "primary: {retention: {limit: days(2)}, ")
    (project / "entities/clicks.yaml").write_text(text)
    (project / "entities/clicks-copy.yaml").write_text(text + "bad: [\n")
    assert obstacle(load(project)) is None


MIRROR = """
kind: process
name: models
frequency: days(1)
clusters: {primary: {validity: {start: 2013-11-01T00:00Z}}}
workflow:
  engine: directory-mirror
  mirror: {source: {directory: /models}, target: {directory: TARGET}}
"""


@pytest.mark.parametrize("name", ["name: models", "name: models\nfrequncy: 1"])
def test_nothing_is_removed_around_what_a_mirror_writes(project: Path, name: str) -> None:
    feed_text = CLICKS.replace("primary: {", "primary: {retention: {limit: days(2)}, ")
    (project / "entities/clicks.yaml").write_text(feed_text)
    text = MIRROR.replace("TARGET", "/clicks/2013/11/01/05/inner").replace("name: models", name)
    (project / "entities/mirror.yaml").write_text(text)
    assert obstacle(load(project)) == "the target of mirror 'models' on primary is inside it"


def test_nothing_is_removed_around_the_storage_of_a_cluster(project: Path) -> None:
    feed_text = CLICKS.replace("primary: {", "primary: {retention: {limit: days(2)}, ")
    (project / "entities/clicks.yaml").write_text(feed_text)
    inner = "kind: cluster\nname: inner\nstorage: file:///data/primary/clicks/2013/11/01/05/store\n"
    (project / "entities/inner.yaml").write_text(inner)
    assert obstacle(load(project)) == "the storage of cluster 'inner' is inside it"


def test_a_mirror_does_not_write_where_a_feed_with_a_mistake_has_its_data(project: Path) -> None:
    (project / "entities/clicks.yaml").write_text(CLICKS.replace("frequency", "frequncy"))
    (project / "entities/mirror.yaml").write_text(MIRROR.replace("TARGET", "/clicks"))
    location = load(project)
    assert ("models", "primary") not in location.plan.processes
    assert any(issue.code == "mirror-overlap" for issue in location.issues)
