"""What Dagster is given: assets, edges, partitions, facts, sensors, and the check on the location's own asset."""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.code_pointer import load_python_file
from dagster_pyspark import LazyPySparkResource

from feed_assets import Cluster, Datasource, Feed, Process, build_definitions
from feed_assets.entities.bundle import AnyEntity
from feed_assets.entities.errors import DefinitionsError
from feed_assets.orchestration.assets import _covering
from feed_assets.orchestration.errors import AssetClashError, NameClashError
from feed_assets.orchestration.runs.instance_runs import in_queue
from feed_assets.settings import load_settings
from feed_assets.testing.projects import failure_of
from feed_assets.timing.dates import parse_timezone
from feed_assets.timing.sequence import InstanceSequence, parse_frequency, parse_instance
from feed_assets.timing.windows import parse_window
from tests.orchestration.dagster_home import open_dagster

VALIDITY = {"start": "2026-01-01T00:00Z", "end": "2026-03-01T00:00Z"}


def cluster(name: str = "here", storage: str = "memory://shop") -> Cluster:
    return Cluster(name=name, storage=storage, spark={"master": "local[1]"})


def feed(name: str, frequency: str = "days(1)", path: str = "/${YEAR}/${MONTH}/${DAY}", **fields: object) -> Feed:
    return Feed.model_validate(
        {
            "name": name,
            "frequency": frequency,
            "format": "csv",
            "schema": "n int, at timestamp",
            "locations": {"data": f"/{name}{path}"},
            "clusters": {"here": {"validity": VALIDITY}},
            **fields,
        }
    )


def process(name: str, inputs: dict[str, object], outputs: dict[str, object], **fields: object) -> Process:
    return Process.model_validate(
        {
            "name": name,
            "frequency": "days(1)",
            "clusters": {"here": {"validity": {"start": "2026-01-08T00:00Z", "end": "2026-03-01T00:00Z"}}},
            "inputs": inputs,
            "outputs": outputs,
            "workflow": {"engine": "python", "path": "jobs:run"},
            **fields,
        }
    )


def built(*entities: AnyEntity) -> dg.Definitions:
    definitions = build_definitions([cluster(), *entities], settings=load_settings(environ={}))
    dg.Definitions.validate_loadable(definitions)
    return definitions


def window(name: str, start: str, end: str, **fields: object) -> dict[str, object]:
    return {name: {"feed": name, "start": start, "end": end, **fields}}


def output(name: str, instance: str = "today(0,0)") -> dict[str, object]:
    return {name: {"feed": name, "instance": instance}}


def mapping(definitions: dg.Definitions, downstream: Sequence[str], upstream: Sequence[str]) -> dg.PartitionMapping:
    graph = definitions.resolve_asset_graph()
    found = graph.get(dg.AssetKey(downstream)).partition_mappings.get(dg.AssetKey(upstream))
    assert found is not None
    return found


def test_a_process_makes_the_feeds_of_its_own_instances() -> None:
    definitions = built(feed("a"), feed("b"), process("p", window("a", "today(0,0)", "today(0,0)"), output("b")))
    graph = definitions.resolve_asset_graph()
    assert graph.get(dg.AssetKey(["here", "b"])).is_executable
    assert not graph.get(dg.AssetKey(["here", "a"])).is_executable
    assert graph.get(dg.AssetKey(["here", "b"])).pools == {"process/here/p"}
    assert graph.get(dg.AssetKey(["here", "b"])).backfill_policy == dg.BackfillPolicy.single_run()


def test_a_process_that_writes_another_instance_is_an_asset_above_its_feed() -> None:
    definitions = built(
        feed("a"), feed("b"), process("p", window("a", "today(0,0)", "today(0,0)"), output("b", "yesterday(0,0)"))
    )
    graph = definitions.resolve_asset_graph()
    assert graph.get(dg.AssetKey(["here", "p"])).is_executable
    assert not graph.get(dg.AssetKey(["here", "b"])).is_executable
    assert graph.get(dg.AssetKey(["here", "b"])).parent_keys == {dg.AssetKey(["here", "p"])}


def test_a_process_of_the_name_of_a_feed_keeps_apart_from_it() -> None:
    definitions = built(
        feed("a"), feed("b"), process("a", window("a", "today(0,0)", "today(0,0)"), output("b", "yesterday(0,0)"))
    )
    assert dg.AssetKey(["here", "process", "a"]) in definitions.resolve_asset_graph().get_all_asset_keys()


def test_two_producers_of_one_feed_are_assets_above_it() -> None:
    early = process(
        "early",
        {},
        output("b"),
        clusters={"here": {"validity": {"start": "2026-01-01T00:00Z", "end": "2026-02-01T00:00Z"}}},
    )
    late = process(
        "late",
        {},
        output("b"),
        clusters={"here": {"validity": {"start": "2026-02-01T00:00Z", "end": "2026-03-01T00:00Z"}}},
    )
    graph = built(feed("b"), early, late).resolve_asset_graph()
    assert graph.get(dg.AssetKey(["here", "b"])).parent_keys == {
        dg.AssetKey(["here", "early"]),
        dg.AssetKey(["here", "late"]),
    }


def test_a_window_of_constant_instances_is_an_exact_mapping() -> None:
    definitions = built(feed("a"), feed("b"), process("p", window("a", "today(-144,0)", "today(0,0)"), output("b")))
    found = mapping(definitions, ["here", "b"], ["here", "a"])
    assert isinstance(found, dg.TimeWindowPartitionMapping)
    assert (found.start_offset, found.end_offset) == (-6, 0)


def test_a_day_of_hours_is_an_exact_mapping() -> None:
    hourly = feed("a", "hours(1)", "/${YEAR}/${MONTH}/${DAY}/${HOUR}")
    definitions = built(hourly, feed("b"), process("p", window("a", "today(0,0)", "today(23,0)"), output("b")))
    found = mapping(definitions, ["here", "b"], ["here", "a"])
    assert isinstance(found, dg.TimeWindowPartitionMapping)
    assert (found.start_offset, found.end_offset) == (0, 0)


def test_a_window_that_dagster_cannot_say_is_held_by_its_mapping() -> None:
    hourly = feed("a", "hours(1)", "/${YEAR}/${MONTH}/${DAY}/${HOUR}")
    definitions = built(hourly, feed("b"), process("p", window("a", "now(-30,0)", "now(-2,0)"), output("b")))
    graph = definitions.resolve_asset_graph()
    found = mapping(definitions, ["here", "b"], ["here", "a"])
    upstream = graph.get(dg.AssetKey(["here", "a"])).partitions_def
    downstream = graph.get(dg.AssetKey(["here", "b"])).partitions_def
    assert upstream is not None
    assert downstream is not None
    keys = found.get_upstream_mapped_partitions_result_for_partitions(
        downstream.subset_with_partition_keys(["2026-01-20"]), downstream, upstream
    ).partitions_subset.get_partition_keys()
    window_keys = {
        f"2026-01-{day}-{hour:02}:00"
        for day, first, last in ((18, 18, 23), (19, 0, 22))
        for hour in range(first, last + 1)
    }
    assert window_keys <= set(keys)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York"])
@pytest.mark.parametrize(
    ("start", "end", "offsets"),
    [
        ("currentMonth(0,0,0)", "nextMonth(-1,0,0)", (0, 0)),
        ("lastMonth(0,0,0)", "currentMonth(-1,0,0)", (-1, -1)),
        ("lastMonth(-1,0,0)", "nextMonth(0,0,0)", (-2, 1)),
        ("currentMonth(0,-1,0)", "nextMonth(2,36,0)", None),
        ("currentMonth(-40,0,0)", "nextMonth(40,0,0)", None),
    ],
)
def test_a_month_of_days_is_held_by_its_mapping_exactly_where_it_has_whole_months(
    zone: str, start: str, end: str, offsets: tuple[int, int] | None
) -> None:
    first = parse_instance("2026-01-01", parse_timezone(zone))
    days, months = (
        InstanceSequence(start=first, frequency=parse_frequency(each), timezone=parse_timezone(zone))
        for each in ("days(1)", "months(1)")
    )
    window = parse_window(start, end, parse_timezone(zone))
    begin, stop = _covering(window, days, months)
    assert offsets in (None, (begin, stop))
    for n in range(3, 14):
        seen = [days.at(k) for k in window.indices(months.at(n), days)]
        assert months.at(n + begin) <= seen[0]
        assert seen[-1] < months.at(n + stop + 1)


@pytest.mark.parametrize(
    ("frequency", "path"),
    [
        ("hours(5)", "/${YEAR}${MONTH}${DAY}${HOUR}"),
        ("minutes(45)", "/${YEAR}${MONTH}${DAY}${HOUR}${MINUTE}"),
        ("days(2)", "/${YEAR}${MONTH}${DAY}"),
    ],
)
def test_odd_frequencies_are_dynamic_partitions(frequency: str, path: str) -> None:
    definitions = built(
        feed("a", frequency, path),
        feed("b", frequency, path),
        process(
            "p",
            window("a", "now(0,0)", "now(0,0)"),
            output("b", "now(0,0)"),
            frequency=frequency,
            clusters={"here": {"validity": VALIDITY}},
        ),
    )
    graph = definitions.resolve_asset_graph()
    assert isinstance(graph.get(dg.AssetKey(["here", "b"])).partitions_def, dg.DynamicPartitionsDefinition)
    assert isinstance(mapping(definitions, ["here", "b"], ["here", "a"]), dg.IdentityPartitionMapping)


def test_feeds_that_read_each_other_through_time_load() -> None:
    """a reads yesterday's b, b reads today's a: no instance waits for itself."""
    definitions = built(
        feed("a"),
        feed("b"),
        process("pa", window("b", "yesterday(0,0)", "yesterday(0,0)"), output("a")),
        process("pb", window("a", "today(0,0)", "today(0,0)"), output("b")),
    )
    assert len(definitions.resolve_asset_graph().get_all_asset_keys()) == 3


def test_a_sensor_serves_the_assets_for_which_it_works_and_no_other() -> None:
    due = feed("b", sla={"low": "hours(1)", "high": "hours(2)"})
    entities = [cluster(), feed("a"), due, process("p", window("a", "today(0,0)", "today(0,0)"), output("b"))]
    mine, settings = dg.AssetSpec("mine"), load_settings(environ={})
    made = build_definitions(entities, settings=settings, resources={"spark_here": None}, assets=[mine])
    graph = made.resolve_asset_graph()
    served = {
        each.name: {key.path[-1] for key in (each.asset_selection or dg.AssetSelection.assets()).resolve(graph)}
        for each in made.sensors or ()
        if isinstance(each, dg.SensorDefinition)
    }
    assert served == {
        "arrival_here": {"a", "b"},
        "instances_here": set(),
        "late_data_here": set(),
        "sla_here": {"b"},
        "notify": set(),
    }


def test_a_feed_tells_what_it_is() -> None:
    described = feed(
        "a",
        description="What arrives.",
        tags={"owner": "ops", "level": "gold"},
        acl={"owner": "ann@firm.org", "group": "ops"},
        groups=["raw"],
        availability_flag="_DONE",
        late_arrival={"cut_off": "hours(6)"},
    )
    node = built(described).resolve_asset_graph().get(dg.AssetKey(["here", "a"]))
    assert (node.description or "").startswith("What arrives.\n\n- **Location**: `memory://shop/a/")
    assert node.group_name == "raw"
    assert node.owners == ["ann@firm.org", "team:ops"]
    assert {"owner": "ops", "level": "gold"}.items() <= node.tags.items()
    assert node.kinds == {"feed", "csv"}
    texts = {name: getattr(value, "value", value) for name, value in node.metadata.items()}
    assert texts["feed_assets/frequency"] == "days(1)"
    assert texts["feed_assets/flag"] == "_DONE"
    assert texts["feed_assets/late_cut_off"] == "hours(6)"
    assert texts["dagster/uri"] == "memory://shop/a/${YEAR}/${MONTH}/${DAY}"
    assert [(column.name, column.type) for column in texts["dagster/column_schema"].columns] == [
        ("n", "int"),
        ("at", "timestamp"),
    ]


def test_each_cluster_has_the_sensors_and_schedules_that_have_something_to_do() -> None:
    copied = {"here": {"type": "source", "validity": VALIDITY}, "b-c": {"type": "target", "validity": VALIDITY}}
    counting = process("p", window("a", "today(0,0)", "today(0,0)"), output("b"))
    entities = [cluster(), cluster("b-c", storage="memory://other"), feed("a", clusters=copied), feed("b"), counting]
    definitions = build_definitions(entities, settings=load_settings(environ={}))
    assert sorted(sensor.name for sensor in definitions.sensors or ()) == [
        *("arrival_b_c", "arrival_here"),
        "instances_here",
        *("late_data_b_c", "late_data_here"),
        "notify",
        *("sla_b_c", "sla_here"),
    ]
    schedules = ["replication_b_c", "retention_b_c", "retention_here"]
    assert sorted(schedule.name for schedule in definitions.schedules or ()) == schedules


def test_what_a_user_adds_belongs_to_the_same_definitions() -> None:
    @dg.asset
    def own() -> None: ...

    @dg.asset_check(asset=own)
    def is_there() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    @dg.sensor(job_name="of_own", name="watch")
    def watch() -> None: ...

    job = dg.define_asset_job("of_own", [own])
    more: dict[str, Any] = {
        "assets": [own],
        "asset_checks": [is_there],
        "jobs": [job],
        "schedules": [dg.ScheduleDefinition(job=job, cron_schedule="@daily", name="daily")],
        "sensors": [watch],
        "resources": {"mine": dg.ResourceDefinition.hardcoded_resource(1)},
    }
    settings = load_settings(environ={})
    made = build_definitions([cluster("a")], settings=settings, **more)
    repository = made.get_repository_def()
    assert {"of_own", "operate"} <= set(repository.job_names)
    assert {"watch", "arrival_a"} <= {each.name for each in repository.sensor_defs}
    assert {"daily", "retention_a"} <= {each.name for each in repository.schedule_defs}
    assert "mine" in repository.get_top_level_resources()
    assert is_there.check_key in repository.asset_checks_defs_by_key
    for kind, theirs, name in (
        ("sensors", dg.SensorDefinition(evaluation_fn=lambda _: None, job_name="of_own", name="notify"), "notify"),
        ("jobs", dg.define_asset_job("operate", [own]), "operate"),
    ):
        with pytest.raises(NameClashError, match=f"two {kind} have the name {name}: one is built here. Give yours"):
            build_definitions([cluster("a")], settings=settings, **{kind: [theirs]})


def test_wrong_entities_in_python_are_refused_at_once() -> None:
    with pytest.raises(DefinitionsError, match="there is no cluster 'here'"):
        build_definitions([feed("a")], settings=load_settings(environ={}))


GOOD = """
kind: cluster
name: here
storage: memory://shop
---
kind: feed
name: good
frequency: days(1)
locations: {data: "/good/${YEAR}/${MONTH}/${DAY}"}
clusters: {here: {validity: {start: 2026-01-01T00:00Z}}}
"""


def _written(tmp_path: Path) -> dict[str, str]:
    folder = tmp_path / "entities"
    folder.mkdir()
    (folder / "good.yaml").write_text(GOOD)
    (folder / "bad.yaml").write_text(
        GOOD.split("---")[1].replace("name: good", "name: bad").replace("days(1)", "weeks(1)")
    )
    return {"FEED_ASSETS_ENTITIES": str(folder)}


def test_one_bad_file_does_not_take_the_location_down(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    definitions = build_definitions(settings=load_settings(environ=_written(tmp_path), start=tmp_path))
    keys = definitions.resolve_asset_graph().get_all_asset_keys()
    assert dg.AssetKey(["here", "good"]) in keys
    assert dg.AssetKey(["here", "bad"]) not in keys
    assert "'weeks(1)' is not a frequency" in caplog.text
    (check,) = definitions.asset_checks or ()
    assert isinstance(check, dg.AssetChecksDefinition)
    with open_dagster(tmp_path / "instance") as instance:
        result = (
            dg.Definitions(asset_checks=[check])
            .resolve_implicit_global_asset_job_def()
            .execute_in_process(instance=instance)
        )
        (evaluation,) = result.get_asset_check_evaluations()
    assert not evaluation.passed
    assert "weeks(1)" in evaluation.metadata["issues"].value
    counts, said = (evaluation.description or "").split("\n\n")
    assert (counts, said) == ("1 error, 0 warnings, 0 failures", evaluation.metadata["issues"].value)
    assert "failures" not in evaluation.metadata


def test_strict_settings_refuse_the_location(tmp_path: Path) -> None:
    environ = {**_written(tmp_path), "FEED_ASSETS_STRICT": "true"}
    with pytest.raises(DefinitionsError, match="is not a frequency"):
        build_definitions(settings=load_settings(environ=environ, start=tmp_path))


def test_two_projects_of_one_workspace_have_their_own_settings_and_checks(tmp_path: Path) -> None:
    keys = set()
    for name, namespace in (("a", ""), ("b", "namespace: b")):
        (tmp_path / name).mkdir()
        _written(tmp_path / name)
        (tmp_path / name / "feed_assets.yaml").write_text(f"entities: entities/good.yaml\n{namespace}\n")
        definitions = build_definitions(folder=tmp_path / name)
        (check,) = definitions.asset_checks or ()
        assert isinstance(check, dg.AssetChecksDefinition)
        keys |= {key.asset_key.to_user_string() for key in check.check_keys}
    assert keys == {"feed_assets/definitions", "feed_assets/b/definitions"}


def test_the_project_of_the_calling_module_is_found_before_that_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("project", "elsewhere"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "feed_assets.yaml").write_text(f"entities: s\nnamespace: {name}\n")
        (tmp_path / name / "s").mkdir()
    (package := tmp_path / "project" / "src" / "shop").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "definitions.py").write_text("from feed_assets import build_definitions\ndefs = build_definitions()\n")
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.syspath_prepend(package.parent)
    by_file = load_python_file(str(package / "definitions.py"), None).defs
    by_module = importlib.import_module("shop.definitions").defs
    for definitions in (by_file, by_module):
        assert definitions.resolve_asset_graph().has(dg.AssetKey(["feed_assets", "project", "definitions"]))
    (tmp_path / "project" / "feed_assets.yaml").unlink()
    other = (package / "definitions.py").rename(package / "others.py")
    of_working_directory = load_python_file(str(other), None).defs
    assert of_working_directory.resolve_asset_graph().has(dg.AssetKey(["feed_assets", "elsewhere", "definitions"]))


def test_a_queue_becomes_the_queue_of_the_session_unless_its_configuration_names_one() -> None:
    spark, other = (LazyPySparkResource(spark_config=conf) for conf in ({"a": "b"}, {"spark.yarn.queue": "own"}))
    assert in_queue(spark, "reports").spark_config == {"a": "b", "spark.yarn.queue": "reports"}
    assert in_queue(spark, None) is spark
    assert in_queue(other, "reports") is other


def test_a_partition_that_the_process_of_a_feed_does_not_have_is_refused_with_those_that_it_has(tmp_path: Path) -> None:
    entities = [cluster(), feed("a"), feed("b"), process("p", window("a", "today(0,0)", "today(0,0)"), output("b"))]
    made = build_definitions(entities, settings=load_settings(environ={}), resources={"spark_here": None})
    with open_dagster(tmp_path / "instance") as instance:
        result = made.resolve_implicit_global_asset_job_def().execute_in_process(
            asset_selection=[dg.AssetKey(["here", "b"])],
            partition_key="2026-01-02",
            instance=instance,
            raise_on_error=False,
        )
        assert (
            "process 'p' on 'here' has no instance 2026-01-02T00:00Z: its instances are days(1) from 2026-01-08T00:00Z "
            "to 2026-02-28T00:00Z. Choose partitions among them."
        ) in failure_of(result)


def transferred(name: str, **transfers: object) -> Feed:
    clusters = {"here": {"type": "source", "validity": VALIDITY, **transfers}}
    return feed(name, description="Rows of a feed.", clusters=clusters)


def shop() -> Datasource:
    return Datasource.model_validate(
        {
            "name": "shop",
            "type": "postgres",
            "driver": {"class": "org.postgresql.Driver", "jars": ["postgresql.jar"]},
            "credential": {"user": "reader", "password_file": "secret"},
            "interfaces": {
                "readonly": {"endpoint": "jdbc:postgresql://h/s"},
                "write": {"endpoint": "jdbc:postgresql://h/s"},
            },
        }
    )


def test_tables_of_datasources_are_external_assets_before_imports_and_after_exports() -> None:
    def written(name: str, table: str) -> Feed:
        target = {"name": "shop", "table": table, "load": {"type": "allowinsert"}}
        return transferred(name, export={"target": target, "arguments": {"--update-key": "n"}})

    read = transferred("orders", **{"import": {"source": {"name": "shop", "table": "public.orders"}}})
    copied = process("p", window("orders", "today(0,0)", "today(0,0)"), output("back"))
    definitions = built(shop(), read, written("sums", "sums"), written("back", "public.orders"), copied)
    graph = definitions.resolve_asset_graph()
    orders, sums = (dg.AssetKey(["datasource", "shop", table]) for table in ("public.orders", "sums"))
    assert graph.get(dg.AssetKey(["here", "orders"])).parent_keys == {orders}
    export = graph.get(dg.AssetKey(["here", "sums.export"]))
    assert graph.get(sums).parent_keys == {export.key}
    assert (export.description or "").startswith("The process sums.export on cluster here.")
    assert graph.get(orders).parent_keys == set()  # what is written there, too, would come of itself
    assert not graph.get(orders).is_executable
    with pytest.raises(AssetClashError, match=r"two assets have the key datasource/shop/public\.orders"):
        build_definitions([cluster(), shop(), read], settings=load_settings(environ={}), assets=[dg.AssetSpec(orders)])
