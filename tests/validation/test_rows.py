"""The rows of Falcon's features that are about validation, each as a black box."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from feed_assets.issues import SourceMap
from feed_assets.validation.rules import validate_bundle
from tests.entities.samples import REMOVED, bundle
from tests.validation.cases import BACKUP, DAILY, LIMIT, PRIMARY, SHARED, another, tables

AS_OF = datetime(2015, 6, 1, 14, tzinfo=UTC)
INPUT = f"{DAILY}/inputs/clicks"
BY_INTERFACES = SHARED["interfaces"]["cluster primary"]
EXTERNAL = SHARED["external"]


def _codes(changes: dict[str, Any], root: Path | None = None) -> list[str]:
    issues = validate_bundle(bundle(changes), SourceMap(), root)
    return [issue.code for issue in issues if issue.code != "no-effect"]


def _texts(changes: dict[str, Any]) -> list[str]:
    return [issue.render() for issue in validate_bundle(bundle(changes), SourceMap())]


def test_row_7_a_cluster_by_its_interfaces_is_held_to_all_rules() -> None:
    assert _codes({"cluster primary": BY_INTERFACES}) == []
    assert _codes({"cluster primary": {**BY_INTERFACES, "locations": {}}}) == ["cluster-staging"]


def test_row_8_staging_and_working_are_different_folders() -> None:
    assert _codes({"cluster primary/locations": {"staging": "/a", "working": "/a"}}) == ["cluster-folders"]


def test_row_9_a_datasource_without_driver_or_credential_is_refused() -> None:
    assert set(_codes({"datasource shop/credential": REMOVED})) == {"datasource-interface"}
    assert set(_codes({"datasource shop/driver": REMOVED})) == {"datasource-interface"}


def test_row_12_a_table_needs_an_address_and_a_catalog() -> None:
    assert _codes(tables()) == []
    assert "table-address" in _codes(tables(**{"feed clicks/table": "catalog:web:clicks#"}))
    assert "path-without-time" in _codes(tables(**{"feed clicks/table": "catalog:web:clicks"}))
    assert "table-catalog" in _codes(tables(**{"cluster primary/catalog": None}))
    for address in (
        "sqlite:////data/catalog.db",
        "postgresql://me@host/lake",
        "thrift://host:9083",
        "https://host/api",
    ):
        lake = {"cluster primary/catalog": f"iceberg+{address}", "cluster primary/catalog_options": {"warehouse": "/w"}}
        assert not {"interface-address", "catalog-options"} & set(_codes(tables(**lake)))
    for relative in ("sqlite:///catalog.db", "sqlite:///data/catalog.db", "sqlite:////data/"):
        assert "interface-address" in _codes(tables(**{"cluster primary/catalog": f"iceberg+{relative}"}))


def test_row_13_the_variables_of_a_clusters_own_location_match_the_default() -> None:
    own = {f"{BACKUP}/locations": {"data": "/copies/${YEAR}/${MONTH}/${DAY}"}}
    assert "path-variables" in _codes(own)


@pytest.mark.parametrize(
    ("changes", "is_refused"),
    [
        ({}, False),
        ({"frequency": "minutes(60)"}, True),
        ({"locations": {"data": "/v/${YEAR}/${MONTH}/${DAY}/${HOUR}/${MINUTE}"}}, True),
    ],
)
def test_row_14_a_second_feed_of_a_group_has_its_frequency_and_variables(
    changes: dict[str, Any], is_refused: bool
) -> None:
    locations = {"data": "/views/${YEAR}-${MONTH}-${DAY}-${HOUR}"}
    views = another("feed clicks", **{"name": "views", "locations": locations, **changes})
    assert _codes({"feed views": views}) == ["feed-group"] * is_refused


@pytest.mark.parametrize(("version", "is_refused"), [(0, False), (2, False), (3, True)])
def test_row_16_a_version_above_that_of_the_cluster_is_refused(version: int, is_refused: bool) -> None:
    changes = {"cluster primary/version": 2, f"{PRIMARY}/version": version}
    assert _codes(changes) == ["cluster-version"] * is_refused


@pytest.mark.parametrize(
    ("low", "high", "is_refused"),
    [
        ("hours(2)", "hours(1)", True),
        ("hours(2)", "hours(2)", False),
        ("hours(2)", "days(30)", False),
        ("hours(2)", "days(31)", True),
    ],
)
def test_row_19_slas_are_in_order_and_not_longer_than_retention(low: str, high: str, is_refused: bool) -> None:
    changes = {f"{PRIMARY}/sla": {"low": low, "high": high}}
    assert _codes(changes) == ["feed-sla"] * is_refused


@pytest.mark.parametrize(
    ("changes", "codes"),
    [
        ({}, []),
        ({f"{INPUT}/feed": "nowhere"}, ["unknown-reference"]),
        ({f"{DAILY}/outputs/summary/feed": "nowhere"}, ["unknown-reference"]),
        ({f"{DAILY}/clusters": {"nowhere": {"validity": {"start": "2015-01-02T00:00Z"}}}}, ["unknown-reference"]),
        ({f"{DAILY}/workflow": {"engine": "sql", "path": "nowhere.sql"}}, ["workflow-file"]),
        ({f"{DAILY}/workflow": {"engine": "sql", "path": "a.sql", "lib": ["nowhere.py"]}}, ["workflow-file"]),
    ],
)
def test_row_20_a_missing_feed_cluster_or_workflow_is_refused(
    tmp_path: Path, changes: dict[str, Any], codes: list[str]
) -> None:
    (tmp_path / "a.sql").touch()
    found = _codes(changes, tmp_path)
    assert set(found) >= set(codes)
    assert bool(found) == bool(codes)


def test_a_file_outside_the_project_is_refused_alike_whether_it_exists_or_not(tmp_path: Path) -> None:
    root, there = tmp_path / "project", tmp_path / "there.sql"
    root.mkdir()
    there.touch()
    for name in ("../there.sql", "../lost.sql", "x/../../there.sql", str(there), str(tmp_path / "lost.sql")):
        changes = {f"{DAILY}/workflow": {"engine": "sql", "path": name}}
        (issue,) = (each for each in validate_bundle(bundle(changes), SourceMap(), root) if "file" in each.code)
        assert issue.render().partition(": the file ")[2] == (
            f"{name!r} is not below {root}. Put it into the folder of feed_assets.yaml, and write its path from there."
        )


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({f"{INPUT}/start": "yesterday(-1,0)"}, "before the start of the feed"),
        ({f"{INPUT}/start": "today(1,0)"}, "the end is before the start"),
        ({f"{INPUT}/end": "currentYear(12,0,0,1)"}, "after the end of the feed"),
    ],
)
def test_row_21_a_window_outside_the_feed_is_refused_with_a_text_of_its_own(changes: dict[str, Any], text: str) -> None:
    found = [each for each in _texts(changes) if "the first instance on primary" in each]
    assert len(found) == 1
    assert text in found[0]


def test_row_22_a_window_that_begins_before_what_is_kept_is_refused_and_latest_passes() -> None:
    short = {f"{PRIMARY}/retention/limit": "hours(20)"}
    assert _codes(short) == ["window-retention"]
    assert _codes({**short, INPUT: {"feed": "clicks", "start": "latest(-100)", "end": "latest(0)"}}) == []
    assert _codes({**short, INPUT: {"feed": "clicks", "start": "now(-20,0)", "end": "now(0,0)"}}) == []


def test_row_22_the_limit_of_a_retention_stage_counts() -> None:
    stage = {"retention_stage": {"properties": {LIMIT: "hours(20)"}}}
    assert _codes({"feed clicks/lifecycle": stage}) == ["window-retention"]


def test_row_23_an_input_and_an_output_of_one_name_are_refused() -> None:
    other = another("feed summary", name="other", locations={"data": "/other/${YEAR}/${MONTH}/${DAY}"})
    output = {f"{DAILY}/outputs/clicks": {"feed": "other", "instance": "now(0,0)"}}
    assert _codes({"feed other": other, **output}) == ["input-output-names"]


@pytest.mark.parametrize(
    ("start", "end", "is_refused"),
    [
        ("hours(3)", "hours(2)", True),
        ("hours(2)", "hours(2)", False),
        ("hours(13)", "hours(14)", True),
        ("hours(12)", "hours(14)", False),
    ],
)
def test_row_24_a_process_should_start_before_it_should_end_and_before_it_times_out(
    start: str, end: str, is_refused: bool
) -> None:
    changes = {f"{DAILY}/sla": {"should_start_in": start, "should_end_in": end}}
    assert _codes(changes) == ["process-sla"] * is_refused


def test_row_25_a_late_input_needs_a_feed_with_late_arrival() -> None:
    late = {f"{DAILY}/late_process": {"policy": "final", "delay": "hours(1)", "inputs": ["clicks"]}}
    assert _codes(late) == []
    assert _codes({**late, "feed clicks/late_arrival": REMOVED}) == ["late-input"]


def test_row_26_an_application_without_a_master_or_a_jar_is_refused() -> None:
    assert _codes({f"{DAILY}/workflow": EXTERNAL}) == []
    by_interfaces = {"cluster primary": BY_INTERFACES, f"{DAILY}/workflow": EXTERNAL}
    assert _codes(by_interfaces) == ["workflow-master"]
    assert _codes({**by_interfaces, f"{DAILY}/workflow": {**EXTERNAL, "master": "yarn"}}) == []
    with pytest.raises(ValidationError, match="path"):
        bundle({f"{DAILY}/workflow": {"engine": "spark-submit"}})


@pytest.mark.parametrize(
    ("stage", "codes"),
    [
        ({"frequency": "hours(1)", "queue": "etl", "priority": "LOW", "properties": {LIMIT: "days(40)"}}, []),
        ({"frequency": "minutes(59)", "properties": {LIMIT: "days(40)"}}, ["lifecycle-frequency"]),
        ({"properties": {}}, ["lifecycle-limit"]),
        (None, ["lifecycle-stage", "lifecycle-stage"]),
    ],
)
def test_row_57_a_retention_stage_is_mandatory_and_not_too_frequent(
    stage: dict[str, Any] | None, codes: list[str]
) -> None:
    assert _codes({"feed clicks/lifecycle": {} if stage is None else {"retention_stage": stage}}) == codes


def test_row_57_retention_is_not_more_frequent_than_the_feed() -> None:
    stage = {"retention_stage": {"frequency": "hours(6)", "properties": {LIMIT: "days(40)"}}}
    assert _codes({"feed summary/lifecycle": stage}) == ["lifecycle-frequency"]
