"""What people say of feeds, processes and columns stands at their assets, and a change of it asks for a reload."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster import DagsterInstance
from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext, DefinitionsLoadType

from feed_assets import build_definitions
from feed_assets.catalog.writing import Target, write_metadata
from feed_assets.entities.metadata import MetadataKey, MetadataKind, MetadataValue, Origin, Scope, Update
from feed_assets.orchestration.definitions import load_user_metadata
from feed_assets.orchestration.location.reloading import has_to_reload
from feed_assets.settings import Settings, load_settings
from tests.cli import project
from tests.definitions.verbs.harness import CLICKS, CLUSTER, COUNTING, COUNTS, changed
from tests.orchestration.dagster_home import Home
from tests.orchestration.hand_ticked import NOON, LocationHarness

SAYING = changed(
    COUNTS,
    schema="day string COMMENT 'in UTC', n bigint, of struct<a: int>",
    tags={"owner": "ops"},
    metadata={
        "properties": {"tier": "gold"},
        "tags": ["public"],
        "columns": {"n": {"properties": {"unit": "clicks", "description": "how many"}, "tags": ["measure"]}},
    },
)
MAKING = changed(COUNTING, metadata={"properties": {"tier": "silver", "runbook": "https://wiki/counting"}})


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEED_ASSETS_NOW", "2013-11-03T12:00Z")
    project.prepare(tmp_path)
    (tmp_path / "entities" / "all.yaml").write_text(yaml.safe_dump_all([CLUSTER, CLICKS, SAYING, MAKING]))
    assert project.run("apply", "--yes").exit_code == 0
    for said in (["put", "feed/clicks", "note=mine", "owner=ann"], ["tag", "feed/clicks", "seen"]):
        assert project.run("metadata", *said).exit_code == 0
    assert project.run("metadata", "tag", "feed/counts/column/day", "partition").exit_code == 0
    assert project.run("metadata", "put", "process/counting", "note=slow").exit_code == 0
    return load_settings(start=tmp_path)


def asset(settings: Settings, name: str) -> dg.AssetSpec:
    definitions = build_definitions(settings=settings)
    return definitions.resolve_asset_graph().get(dg.AssetKey(["primary", name])).to_asset_spec()


def user_of(spec: dg.AssetSpec) -> dict[str, Any]:
    metadata = {name: each for name, each in spec.metadata.items() if name.startswith("user/")}
    return {name.removeprefix("user/"): value for name, value in metadata.items()}


def tags_of(spec: dg.AssetSpec) -> dict[str, str]:
    return {name: value for name, value in spec.tags.items() if not name.startswith("dagster/")}


def test_an_asset_has_the_properties_and_tags_of_its_feed_and_process_whoever_says_them(settings: Settings) -> None:
    clicks, counts = asset(settings, "clicks"), asset(settings, "counts")
    assert user_of(clicks) == {"note": "mine", "owner": "ann"}
    assert tags_of(clicks) == {"seen": ""}
    assert user_of(counts) == {
        "owner": "ops",
        "tier": "gold",
        "process/tier": "silver",
        "runbook": "https://wiki/counting",
        "note": "slow",
    }
    assert tags_of(counts) == {"owner": "ops", "public": ""}
    columns = {each.name: each for each in counts.metadata["dagster/column_schema"].columns}
    assert (columns["day"].description, columns["day"].tags) == ("in UTC", {"partition": ""})
    assert (columns["n"].description, columns["n"].tags) == ("how many", {"unit": "clicks", "measure": ""})


def test_a_run_loads_the_location_without_reading_what_people_say(settings: Settings) -> None:
    reconstruction = DefinitionsLoadContext(load_type=DefinitionsLoadType.RECONSTRUCTION)
    with DefinitionsLoadContext.scoped(reconstruction):
        assert user_of(asset(settings, "clicks")) == {}
        assert user_of(asset(settings, "counts"))["tier"] == "gold"


def test_a_state_that_is_not_there_or_is_no_state_keeps_nothing_from_being_loaded(tmp_path: Path) -> None:
    absent = load_settings(environ={"FEED_ASSETS_STATE": f"sqlite:///{tmp_path}/absent.db"}, start=tmp_path)
    assert (load_user_metadata(absent).values, load_user_metadata(absent).revision) == ({}, "")
    assert not (tmp_path / "absent.db").exists()
    (tmp_path / "text.db").write_text("no database at all, and longer than a page's header" * 9)
    wrong = load_settings(environ={"FEED_ASSETS_STATE": f"sqlite:///{tmp_path}/text.db"}, start=tmp_path)
    assert (load_user_metadata(wrong).values, load_user_metadata(wrong).revision) == ({}, None)


def test_a_change_by_a_person_asks_once_for_a_reload_and_one_by_a_program_does_not(
    tmp_path: Path, instance: DagsterInstance
) -> None:
    state = f"sqlite:///{tmp_path}/state.db"
    harness = LocationHarness(Home(folder=tmp_path), instance, state=state)
    runtime = harness.runtime
    harness.tick()

    def asks(origin: Origin, path: str) -> bool:
        said = {MetadataKey(Scope.USER, MetadataKind.TAG, f"by-{origin.value}"): MetadataValue("", origin, "ann")}
        target = Target(path=path, kind=path.split("/")[0], name="it", is_declared=True)
        with runtime.database(instance).begin() as connection:
            write_metadata(connection, target, [Update(said)], author="ann", origin=origin, now=NOON)
        harness.tick()
        return has_to_reload(runtime, harness.layout)

    runtime.shown_revision = load_user_metadata(harness.settings).revision
    assert not has_to_reload(runtime, harness.layout)
    assert not asks(Origin.PROGRAM, "feed/numbers")
    assert not asks(Origin.PERSON, "dashboard/otd")
    assert asks(Origin.PERSON, "feed/numbers")
    assert not has_to_reload(runtime, harness.layout)
    runtime.shown_revision = None
    assert not asks(Origin.PERSON, "process/summing")
