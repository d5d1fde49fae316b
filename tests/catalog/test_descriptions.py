"""What this program says of declared entities, from their plan and the state."""

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from feed_assets.catalog.descriptions import Circumstances, Description, iter_descriptions
from feed_assets.catalog.store import MetadataStore, render_metadata
from feed_assets.catalog.writing import Target, write_metadata
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.datasource import Datasource
from feed_assets.entities.feed import Feed
from feed_assets.entities.metadata import MetadataKey, MetadataKind, MetadataValue, Origin, Scope, Update
from feed_assets.entities.process import Process
from feed_assets.instances.gates.plan_changes import apply_plan
from feed_assets.log.definitions.records import Schedule, ScheduleState
from feed_assets.plan.location import declare_location
from feed_assets.setting_sections import SystemMetadataSettings
from tests.instances.harness import START, LifecycleHarness, feed, process, validity

HERE = Cluster(name="here", colo="berlin", storage="file:///data", description="The one in the cellar.")
THERE = Cluster(name="there", storage="s3://bucket", storage_options={"key": "k", "secret": "hidden"})
CLICKS = Feed(
    name="clicks",
    description="What people click.",
    frequency="hours(1)",
    timezone="Asia/Tokyo",
    format="csv",
    schema="at date, page struct<url: string, tags: array<string>> COMMENT 'p', seen map<string, struct<n: int>>",
    availability_flag="_SUCCESS",
    late_arrival={"cut_off": "hours(4)"},
    sla={"low": "hours(2)", "high": "hours(3)"},
    groups=["web", "raw"],
    tags={"owner": "web"},
    locations={"data": "/clicks/${YEAR}-${MONTH}-${DAY}-${HOUR}"},
    clusters={
        "here": {**validity(START, None), "type": "source", "retention": {"limit": "days(2)"}},
        "there": {
            **validity(START, START + timedelta(days=9)),
            "type": "target",
            "retention": {"limit": "days(90)", "max_instances": 5},
            "locations": {"data": "/copies/${YEAR}-${MONTH}-${DAY}-${HOUR}"},
        },
    },
)
APPROVAL = Feed(name="approval", signal=True, clusters={"here": validity(START, None)})
COUNT = Process(
    name="count",
    clusters={"here": validity(START, None)},
    trigger={"when": {"all": ["approval", {"any": ["clicks", "other"]}]}, "or_every": "days(1)"},
    inputs={"clicks": {"feed": "clicks", "take": "new"}},
    workflow={"steps": {"load": {"path": "jobs:load", "after": ["extract"]}, "extract": {"path": "jobs:extract"}}},
)
SHOP = Datasource(
    name="shop",
    description="The web shop.",
    type="mysql",
    interfaces={"readonly": {"endpoint": "jdbc:mysql://shop/orders"}},
    driver={"class": "com.mysql.Driver", "jars": ["mysql.jar"]},
    credential={"user": "me", "password": "hidden"},
)


HIVE = Cluster(name="hive", storage="file:///hive", catalog="thrift://one:9083", spark={"master": "local[2]"})
VIEWS = Feed(
    name="views",
    frequency="days(1)",
    table="catalog:web:views#ds=${YEAR}-${MONTH}-${DAY}",
    clusters={"hive": {**validity(START, None), "produced_by": {"asset": ["web", "views"]}}},
)
SUMS = feed("sums", "days(1)", clusters=["hive"])
ADDING = process("adding", "days(1)", inputs={"views": "now(0,0)"}, outputs={"sums": "now(0,0)"}, clusters=["hive"])
ALL = (HERE, THERE, HIVE, CLICKS, APPROVAL, COUNT, SHOP, VIEWS, SUMS, ADDING)


def described(*entities: Any, **known: Any) -> dict[str, Description]:
    plan = declare_location(entities, Path("/project")).plan
    return {each.target.path: each for each in iter_descriptions(plan, Circumstances(**known))}


def test_a_feed_says_what_its_plan_says() -> None:
    suspended = Schedule(
        kind="feed", name="clicks", cluster="there", state=ScheduleState.SUSPENDED, changed_at=START, author="ann"
    )
    found = described(HERE, THERE, CLICKS, APPROVAL, COUNT, schedules={suspended.key: suspended})
    clicks = dict(found["feed/clicks"].system)
    schema = json.loads(clicks.pop("schema"))
    assert clicks == {
        "kind": "feed",
        "entity-name": "clicks",
        "description": "What people click.",
        "owner": "web",
        "groups": "web, raw",
        "frequency": "hours(1)",
        "timezone": "Asia/Tokyo",
        "clusters": "here, there",
        "validity-start": "2013-11-01T00:00Z",
        "validity-end": "there: 2013-11-10T00:00Z",
        "format": "csv",
        "location": "here: /clicks/${YEAR}-${MONTH}-${DAY}-${HOUR}, there: /copies/${YEAR}-${MONTH}-${DAY}-${HOUR}",
        "availability-flag": "_SUCCESS",
        "late-arrival": "hours(4)",
        "retention": "here: days(2), there: days(90) or 5 instances",
        "sla": "low hours(2), high hours(3)",
        "replication": "here to there",
        "schedule": "here: SCHEDULED, there: SUSPENDED",
        "readers": "count",
    }
    assert found["feed/clicks"].system_tags == {"external", "replicated"}
    assert [each["name"] for each in schema["fields"]] == ["at", "page", "seen"]
    assert schema["fields"][1]["type"]["fields"][1] == {"name": "tags", "type": {"type": "array", "items": "string"}}
    assert schema["fields"][2]["type"]["values"]["fields"] == [{"name": "n", "type": "int"}]
    assert found["feed/approval"].system_tags == {"external", "signal"}
    assert "location" not in found["feed/approval"].system


def test_a_process_says_its_steps_code_and_trigger() -> None:
    found = described(HERE, THERE, CLICKS, APPROVAL, COUNT, without_row=ScheduleState.SUBMITTED)["process/count"]
    said = {name: found.system[name] for name in ("engine", "steps", "code", "trigger", "schedule", "inputs")}
    assert said == {
        "engine": "steps",
        "steps": "extract, load",
        "code": "jobs:extract, jobs:load",
        "trigger": "(approval and (clicks or other)), or every days(1)",
        "schedule": "SUBMITTED",
        "inputs": "clicks",
    }
    assert found.system_tags == {"batch"}


def test_clusters_and_datasources_say_what_they_are_and_no_secret() -> None:
    found = described(HERE, THERE, SHOP)
    assert found["cluster/here"].system["description"] == "The one in the cellar."
    assert (found["cluster/here"].system["colo"], found["cluster/here"].system["storage"]) == ("berlin", "file:///data")
    assert found["datasource/shop"].system == {
        "kind": "datasource",
        "entity-name": "shop",
        "description": "The web shop.",
        "type": "mysql",
        "colo": "default",
    }
    assert "hidden" not in str([each.system for each in found.values()])


def test_columns_and_the_fields_in_them_are_entities() -> None:
    found = described(HERE, THERE, CLICKS)
    columns = {path.removeprefix("feed/clicks/column/"): each for path, each in found.items() if "/column/" in path}
    assert {path: each.system["type"] for path, each in columns.items()} == {
        "at": "date",
        "page": "struct<url: string, tags: array<string>>",
        "page.url": "string",
        "page.tags": "array<string>",
        "seen": "map<string, struct<n: int>>",
        "seen.value.n": "int",
    }
    assert (columns["page.url"].target.name, columns["page.url"].system["entity-name"]) == ("url", "page.url")
    assert columns["page"].system["description"] == "p"


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({"include": ("feed/*",)}, {"feed": ["frequency", "kind", "tags"], "cluster": [], "column": []}),
        ({"exclude": ("*/kind", "column/*")}, {"feed": ["frequency", "tags"], "cluster": [], "column": []}),
        ({"include": ("*/frequency", "column/kind")}, {"feed": ["frequency"], "cluster": [], "column": ["kind"]}),
        ({"exclude": ("feed/external", "feed/replicated")}, {"feed": ["frequency", "kind"]}),
    ],
)
def test_settings_choose_by_kind_and_name_what_the_program_says(
    chosen: dict[str, Any], expected: dict[str, list[str]]
) -> None:
    found = described(HERE, THERE, CLICKS, chosen=SystemMetadataSettings(**chosen))
    paths = {"feed": "feed/clicks", "cluster": "cluster/here", "column": "feed/clicks/column/page.url"}
    for kind, names in expected.items():
        each = found[paths[kind]]
        said = [name for name in ("frequency", "kind") if name in each.system]
        assert [*said, *(["tags"] if each.system_tags else [])] == names


def system_of(lifecycle: LifecycleHarness, path: str) -> dict[str, Any]:
    with lifecycle.database.read() as connection:
        store = MetadataStore(connection)
        entity = store.find(path)
        return render_metadata(store.read(entity.id)).get(Scope.SYSTEM, {}) if entity is not None else {}


def test_what_exists_is_described_at_the_first_use_and_again_with_other_settings(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"), process("count"))
    before = system_of(lifecycle, "feed/clicks")
    with lifecycle.database.begin() as connection:
        store = MetadataStore(connection)
        store.remove([each.id for each in store.all()])
        connection.execute(text("DELETE FROM fa_cursors WHERE name = 'metadata/described'"))
    apply_plan(lifecycle.database, lifecycle.timeline, START)
    assert system_of(lifecycle, "feed/clicks") == before
    assert before["properties"]["created-by"]
    apply_plan(lifecycle.database, lifecycle.timeline, START, described=SystemMetadataSettings(exclude=("feed/*",)))
    assert system_of(lifecycle, "feed/clicks") == {}
    assert system_of(lifecycle, "process/count") != {}


def test_what_a_plan_lacks_is_forgotten_when_its_deletion_is_recorded(tmp_path: Path) -> None:
    clicks = feed("clicks", schema="a int, b int")
    lifecycle = LifecycleHarness.of(tmp_path, clicks, feed("views"))
    before = system_of(lifecycle, "feed/clicks")
    without = {key: facts for key, facts in lifecycle.plan.facts.items() if key != ("feed", "clicks")}
    feeds = {key: record for key, record in lifecycle.plan.feeds.items() if record.feed != "clicks"}
    lifecycle.use(replace(lifecycle.plan, digest="its file has an error", facts=without, feeds=feeds))
    assert system_of(lifecycle, "feed/clicks") == before != {}
    lifecycle.declare(feed("clicks", schema="a int"), feed("views"))
    assert system_of(lifecycle, "feed/clicks/column/a") != {}
    assert system_of(lifecycle, "feed/clicks/column/b") == {}
    lifecycle.declare(feed("views"))
    assert [system_of(lifecycle, path) for path in ("feed/clicks", "feed/clicks/column/a")] == [{}, {}]


def test_a_changed_declaration_replaces_what_the_program_says_and_nothing_else(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks", description="old"))
    target = Target(path="feed/clicks", kind="feed", name="clicks", is_declared=True)
    checked = MetadataKey(Scope.USER, MetadataKind.TAG, "checked")
    with lifecycle.database.begin() as connection:
        said = {checked: MetadataValue("", Origin.PERSON, "ann")}
        write_metadata(connection, target, [Update(said)], author="ann", origin=Origin.PERSON, now=START)
    lifecycle.now = START + timedelta(days=1)
    lifecycle.declare(feed("clicks", flag="_SUCCESS"))
    found = system_of(lifecycle, "feed/clicks")["properties"]
    assert "description" not in found
    assert (found["availability-flag"], found["version"]) == ("_SUCCESS", "2")
    assert (found["creation-time"], found["update-time"]) == ("2013-11-01T00:00Z", "2013-11-02T00:00Z")
    with lifecycle.database.read() as connection:
        entity = MetadataStore(connection).find("feed/clicks")
        assert entity is not None
        assert checked in MetadataStore(connection).read(entity.id)
