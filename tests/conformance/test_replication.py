"""Replication against the tests, the manual and the code of Falcon: partitions, times, options and what arrives."""

import tempfile
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from feed_assets.clock import FrozenClock
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.copies.options import Preserve, RemovedFiles, Verification
from feed_assets.entities.feed import Feed, flow_delay, flow_sequence
from feed_assets.entities.flow_names import flow_name
from feed_assets.entities.replication import complete_replication
from feed_assets.issues import Severity
from feed_assets.loading.bundles import load_files
from feed_assets.loading.entity_files import EntityFile, Values
from feed_assets.log.records import ProcessInstanceStatus
from feed_assets.plan.compile import compile_plan, copy_options, normalize_slice, slice_path
from feed_assets.plan.copy_records import CopyOptions, OnError, StoreAddress
from feed_assets.storage.pool import StorePool
from feed_assets.timing.dates import parse_datetime, parse_timezone
from feed_assets.timing.sequence import InstanceSequence, parse_frequency
from feed_assets.transfer.plans import CopyFilter, Side, target_side
from tests.conformance.replicated_feeds import (
    LEVELS,
    MINUTE,
    START,
    bundle_of,
    codes_of,
    contents,
    feed_of,
    flows_of,
    pass_time,
    replicated,
)
from tests.instances.harness import LifecycleHarness
from tests.transfer.sides import copy_instance

Case = dict[str, Any]
TABLE = "replication.json"
SIDES = ("source", "target")
LATER = FrozenClock(datetime(2099, 1, 1, tzinfo=UTC))
PROPERTIES_OF = {
    "feed.xml": {"frequency": "minutes(20)", "properties": {"order": "FIFO", "parallel": "2"}},
    "fs-replication-feed.xml": {"frequency": "minutes(5)", "properties": {"maxMaps": "33", "mapBandwidth": "2"}},
}
"""What these documents of Falcon's tests say about their copies."""


def check_normalize(case: Case) -> None:
    assert normalize_slice(*case["parts"]) == case["expected"]


def check_cluster_expression(case: Case) -> None:
    cluster = case["cluster"]
    here = Cluster(**{**cluster, "storage": "file:///here"})
    feed = feed_of({here.name: {"partition": case["expr"]}}, {"there": {}})
    assert slice_path(feed, here, Cluster(name="there", storage="file:///there")) == case["expected"]


def check_source_relative_path(case: Case) -> None:
    source, target = (Cluster(**case[f"{side}_cluster"], storage="file:///x") for side in ("source", "target"))
    parts = [{"partition": case[f"{side}_partition"]} if f"{side}_partition" in case else {} for side in SIDES]
    part = slice_path(feed_of({source.name: parts[0]}, {target.name: parts[1]}), source, target)
    assert part == case["expected_suffix"]
    assert "/".join(filter(None, ["<instance path>", part])) == case["expected"]


def check_coordinator(case: Case) -> None:
    own = [
        {"validity": case[f"{side}_validity"], **({"delay": case[f"{side}_delay"]} if f"{side}_delay" in case else {})}
        for side in SIDES
    ]
    feed = feed_of({"s": own[0]}, {"t": own[1]}, frequency=case["frequency"])
    expected = case["expected"]
    if expected == "error":
        assert codes_of(feed) == {"replication-overlap"}
        return
    assert codes_of(feed) == set()
    sequence, delay = flow_sequence(feed, "s", "t"), flow_delay(feed, "s")
    if sequence is None:
        assert expected["start"] == expected["end"]
        assert codes_of(feed, Severity.WARNING) == {"replication-nothing"}
        return
    assert sequence.start + delay == parse_datetime(expected["start"])
    assert sequence.end is not None
    assert sequence.end + delay == parse_datetime(expected["end"])
    assert sequence.start == parse_datetime(case.get("first_instance", expected["start"])) or delay
    assert expected["instance"] == (f"now(0,-{delay // MINUTE})" if delay else "coord:current(0)")


def check_delay(case: Case) -> None:
    run_at = parse_datetime(case["run_at"])
    feed = feed_of({"s": {"delay": case["delay"]}}, {"t": {}}, frequency=case["frequency"])
    sequence = flow_sequence(feed, "s", "t")
    assert sequence is not None
    (instance,) = sequence.between(run_at - flow_delay(feed, "s"), run_at)
    assert instance == parse_datetime(case["expected_instance"])


def check_delay_expression(case: Case) -> None:
    minutes = flow_delay(feed_of({"s": {"delay": case["delay"]}}, {"t": {}}), "s") // MINUTE
    assert f"now(0,-{minutes})" == case["expected"]


def check_copied_instance(case: Case) -> None:
    sides = ({"validity": {"start": case[f"{side}_start"]}} for side in SIDES)
    feed = feed_of({"s": next(sides)}, {"t": next(sides)}, frequency=case["frequency"])
    assert codes_of(feed) == set()
    sequence = flow_sequence(feed, "s", "t")
    assert sequence is not None
    assert sequence.contains(parse_datetime(case["expected_target_instance"]))
    assert feed.sequence_on("s").contains(parse_datetime(case["expected_source_instance"]))


def check_coordinator_count(case: Case) -> None:
    names = {side: [each["name"] for each in case["clusters"] if each["type"] == side] for side in SIDES}
    slices = {"partition": "${cluster.name}"} if len(names["source"]) > 1 else {}
    feed = feed_of(dict.fromkeys(names["source"], slices), {name: {} for name in names["target"]}, partitions=["c"])
    found: dict[str, list[str]] = {}
    for record in flows_of(feed).values():
        assert record.process == flow_name("logs", record.copied.source)
        found.setdefault(record.cluster, []).append(record.copied.source)
    assert found == case["expected"]
    assert codes_of(feed) == set()


def check_coordinator_field(case: Case) -> None:
    written = PROPERTIES_OF[case["feed"]]
    (record,) = flows_of(feed_of({"s": {}}, {"t": {}}, **written)).values()
    options = record.copied.options
    match case["field"]:
        case "concurrency":
            found: object = record.parallel
        case "execution":
            found = record.order
        case "maxMaps":
            found = options.max_tasks
        case "mapBandwidth":
            found = None if options.task_bandwidth is None else options.task_bandwidth // 1_000_000
        case "falcon output feeds":
            found = "raw-logs" if record.outputs[0].feed == "logs" else record.outputs[0].feed
        case field:
            raise LookupError(field)
    assert str(found) == case["expected"]


def files_of(tree: list[str]) -> list[str]:
    """Those that nothing lies below."""
    return [path for path in tree if not any(other.startswith(f"{path}/") for other in tree)]


def check_copy_filter(case: Case) -> None:
    """A copy with the real engine; directories are where files are, so only files are compared."""
    flag = case.get("availability_flag")
    whole = case["include"] == case["source_root"]
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "source"), Path(folder, "target")
        for name in files_of(case["tree"]):
            file = source / "at" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(name)
        sides = [Side(store=StoreAddress(url=f"file://{each}"), path="at", flag=flag) for each in (source, target)]
        options = CopyOptions(sub_path="" if whole else case["include"], removed_files=RemovedFiles.REMOVE)
        copy_instance(StorePool(), *sides, options)
        found = (file.relative_to(target / "at").as_posix() for file in target.glob("at/**/*") if file.is_file())
        own = {flag, ".feed-assets.json"}
        copied = sorted(name for name in found if name not in own and not name.startswith(".feed-assets"))
        assert copied == sorted(files_of(case["expected"]))


def check_copy_filter_error(case: Case) -> None:
    feed = feed_of({"s": {"partition": case["include"]}}, {"t": {}}, partitions=LEVELS)
    assert ("replication-pattern" in codes_of(feed)) == (case["expected"] == "error")
    include = feed_of({"s": {}}, {"t": {}}, replication={"include": [case["include"]]})
    assert ("replication-pattern" in codes_of(include)) == (case["expected"] == "error")


def check_copy_roots(case: Case) -> None:
    part = case["include"].removeprefix(f"{case['source_path']}/")
    base = CopyFilter(sub_path=part).base
    assert {"from": f"{case['source_path']}/{base}", "to": f"{case['target_path']}/{base}"} == case["expected"]


def check_flag_written(case: Case) -> None:
    if case.get("source_empty"):
        with replicated(flag=case.get("availability_flag"), files=[]) as lifecycle:
            assert [file.name for file in contents(lifecycle, "t0")] == ["_SUCCESS"]
        return
    table = {"table": "catalog:db:logs#at=${YEAR}${MONTH}${DAY}${HOUR}${MINUTE}", "locations": None}
    places = table if case["storage"] == "TABLE" else {}
    feed = feed_of({"s": {}}, {"t": {}}, availability_flag=case["availability_flag"], **places)
    side = target_side(compile_plan(bundle_of(feed)).feeds["logs", "t"], START)
    assert side.flag == case["expected"]


def check_copy_options(case: Case) -> None:
    options = copy_options(complete_replication(None, case["properties"]), "")
    found = {
        "sync": not options.overwrite,
        "overwrite": options.overwrite,
        "removeDeletedFiles": options.removed_files is RemovedFiles.REMOVE,
        "ignoreErrors": options.on_error is not OnError.STOP,
        "skipChecksum": options.verification is Verification.NONE,
        "preserve": [{Preserve.TIMES: "Times", Preserve.PERMISSIONS: "Permission"}[each] for each in options.preserve],
    }
    assert {name: found[name] for name in case["expected"]} == case["expected"]


def check_scenario(case: Case) -> None:
    """Everything is there at once; what each target has got when the day has passed, and nothing else."""
    clusters = {
        each["name"]: {
            "type": each["type"],
            "validity": {"start": each["start"], "end": each["end"]},
            **{key: each[key] for key in ("partition",) if key in each},
            **({"locations": {"data": each["path"].rstrip("/")}} if "path" in each else {}),
        }
        for each in case["clusters"]
    }
    feed = Feed.model_validate(
        {
            "name": "logs",
            "frequency": case["frequency"],
            "locations": {"data": "/none/${YEAR}/${MONTH}/${DAY}/${HOUR}/${MINUTE}"},
            "partitions": LEVELS,
            "clusters": clusters,
        }
    )
    assert codes_of(feed) == set()
    with tempfile.TemporaryDirectory() as root:
        colos = [
            Cluster(name=each["name"], colo=each["colo"], storage=f"file://{root}/{each['name']}")
            for each in case["clusters"]
        ]
        lifecycle = LifecycleHarness.of(Path(root), *colos, feed, clusters=())
        for name, landed in case["data"].items():
            for time, parts in landed.items():
                for part in parts:
                    lifecycle.land("logs", parse_datetime(time), cluster=name, below=part)
        for _ in range(8):
            pass_time(lifecycle, parse_datetime("2012-10-01T12:26Z"))
        for name, expected in case["expected"].items():
            statuses = {
                time: status
                for record in lifecycle.plan.processes.values()
                if record.cluster == name
                for time, status in lifecycle.statuses(record.process, name).items()
            }
            done = [time for time, status in statuses.items() if status is ProcessInstanceStatus.SUCCEEDED]
            assert sorted(done) == sorted(map(parse_datetime, expected))
            assert set(statuses.values()) <= {ProcessInstanceStatus.SUCCEEDED, ProcessInstanceStatus.WAITING}
            for time, parts in expected.items():
                folder = lifecycle.folder("logs", parse_datetime(time), name)
                assert sorted({file.parent.relative_to(folder).as_posix() for file in folder.rglob("*.csv")}) == parts
        lifecycle.database.close()


def check_flag_scenario(case: Case) -> None:
    flag, expected = case.get("feed_flag"), case["expected"]
    with replicated(flag=flag, files=case["source_files"], targets=case.get("targets", 1)) as lifecycle:
        shown = flag or "_SUCCESS"
        for cluster in (name for name in lifecycle.plan.clusters if name != "s"):
            assert lifecycle.statuses("logs@s", cluster) == {START: ProcessInstanceStatus[expected["instance"]]}
            names = {side: [file.name for file in contents(lifecycle, side)] for side in ("s", cluster)}
            found = {
                "target_files": sum(name != shown for name in names[cluster]),
                "source_has_SUCCESS": "_SUCCESS" in names["s"],
                "target_has_SUCCESS": "_SUCCESS" in names[cluster],
                "source_has_flag": shown in names["s"],
                "target_has_flag": shown in names[cluster],
                "instance": expected["instance"],
            }
            assert {name: found[name] for name in expected} == expected


def check_submission(case: Case) -> None:
    assert case["expected"] == "refused"
    east_and_west = {"e": {}, "w": {}}
    match case["why"]:
        case "two sources, blank partitions":
            with pytest.raises(ValueError, match="partition"):
                feed_of({"e": {"partition": ""}, "w": {"partition": ""}}, {"t": {}})
        case "two sources without partition expression (only the target has one)":
            feed = feed_of(east_and_west, {"t": {"partition": "${cluster.colo}"}}, partitions=LEVELS)
            assert codes_of(feed) == {"replication-source"}
        case "same cluster listed twice":
            text = """{kind: feed, name: logs, frequency: hours(1), clusters: {
                a: {type: source, validity: {start: 2014-01-01T00:00Z}},
                a: {type: target, validity: {start: 2014-01-01T00:00Z}}}}"""
            loaded = load_files([EntityFile(name="a.yaml", content=text.encode())], Values(variables={}, environ={}))
            assert "duplicate-key" in {issue.code for issue in loaded.issues}
        case why:
            raise LookupError(why)


def check_instances(case: Case) -> None:
    ends = {name: parse_datetime(case[name]) for name in ("start", "end")}
    frequency = parse_frequency(case["frequency"])
    sequence = InstanceSequence(frequency=frequency, timezone=parse_timezone("UTC"), **ends)
    assert list(sequence.between(ends["start"], ends["end"])) == list(map(parse_datetime, case["expected"]))


def check_partition_rule(case: Case) -> None:
    given = {side: case[f"{side}_partitions"] for side in SIDES}
    sides = {
        side: {f"{side[0]}{number}": ({"partition": part} if part else {}) for number, part in enumerate(parts)}
        for side, parts in given.items()
    }
    feed = feed_of(sides["source"], sides["target"], partitions=LEVELS[: case["feed_partitions"]])
    assert (codes_of(feed) == set()) == case["valid"]


def check_replication_controls(case: Case) -> None:
    (record,) = flows_of(feed_of({"s": {}}, {"t": {}}, frequency=case["frequency"])).values()
    assert (record.parallel, str(record.order)) == (case["parallel"], case["order"])
    expected = case["expected"]
    minutes = record.timeout.as_duration() // MINUTE
    assert (str(record.parallel), str(record.order), str(minutes)) == (
        expected["concurrency"],
        expected["execution"],
        expected["timeout"],
    )


def check_replication_property(case: Case) -> None:
    feed = feed_of({"s": {}}, {"t": {}}, properties={case["property"]: case["value"]})
    (record,) = flows_of(feed).values()
    minutes = record.timeout.as_duration() // MINUTE
    found = {"timeout": str(minutes), "order": str(record.order), "parallel": str(record.parallel)}[case["property"]]
    is_read = case["expected"] != "default six periods"
    assert found == (case["expected"] if is_read else str(6 * 60))
    warned = "replication-property" in codes_of(feed, Severity.WARNING)
    assert warned == (case["value"] in ("abc", "RANDOM"))


RUNNERS: Mapping[str, Callable[[Case], None]] = {
    "normalize": check_normalize,
    "cluster_expression": check_cluster_expression,
    "source_relative_path": check_source_relative_path,
    "coordinator": check_coordinator,
    "delay": check_delay,
    "delay_expression": check_delay_expression,
    "copied_instance": check_copied_instance,
    "coordinator_count": check_coordinator_count,
    "coordinator_field": check_coordinator_field,
    "copy_filter": check_copy_filter,
    "copy_filter_error": check_copy_filter_error,
    "copy_roots": check_copy_roots,
    "flag_written": check_flag_written,
    "copy_options": check_copy_options,
    "scenario": check_scenario,
    "flag_scenario": check_flag_scenario,
    "submission": check_submission,
    "instances": check_instances,
    "partition_rule": check_partition_rule,
    "replication_controls": check_replication_controls,
    "replication_property": check_replication_property,
}


def test_each_case_of_the_table_holds_or_is_listed_with_a_reason(case: Case, judge: Callable[[Case], None]) -> None:
    judge(case)


def test_the_list_of_differences_names_only_what_is_in_the_table(unknown_differences: set[str]) -> None:
    assert unknown_differences == set()
