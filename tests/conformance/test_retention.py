"""Retention against the tests and the code of Falcon: what a sweep takes, how often it looks, what it reports."""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from feed_assets.entities.bundle import Bundle
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.common import LocationKind
from feed_assets.entities.feed import LIMIT_PROPERTY, Feed
from feed_assets.issues import SourceMap
from feed_assets.plan.compile import compile_plan
from feed_assets.plan.records import FeedRecord, RetentionRecord
from feed_assets.retention.rules.eligibility import collect_candidates, cutoff, decide_eligible, find_before
from feed_assets.retention.rules.schedule import decide_next, decide_retention_schedule
from feed_assets.retention.running import render_evicted_paths, render_evicted_times
from feed_assets.storage.registry import open_store
from feed_assets.timing.dates import NEVER, parse_datetime, parse_timezone
from feed_assets.timing.errors import TableAddressError
from feed_assets.timing.sequence import parse_frequency
from feed_assets.timing.templates import TimeVariable, parse_path_template, parse_table_address
from feed_assets.transfer.mirroring import decide_pruning, snapshot_name
from feed_assets.validation.rules import validate_bundle
from tests.retention.partitioned_tables import expired_partitions
from tests.retention.reports import parse_evicted_paths

Case = dict[str, Any]
TABLE = "retention.json"
UTC_ZONE = parse_timezone("UTC")
NOW = parse_datetime("2016-03-17T05:42Z")
BEGIN, FAR = "2010-01-01T00:00Z", "2099-01-01T00:00Z"
HOURLY = "/d/${YEAR}/${MONTH}/${DAY}/${HOUR}/${MINUTE}"
FREQUENCIES = {
    None: "days(1)",
    TimeVariable.YEAR: "months(12)",
    TimeVariable.MONTH: "months(1)",
    TimeVariable.DAY: "days(1)",
    TimeVariable.HOUR: "hours(1)",
    TimeVariable.MINUTE: "minutes(1)",
}


def feed_of(
    frequency: str = "hours(1)",
    *,
    storage: str = "file:///none",
    data: str = HOURLY,
    limit: str = "days(90)",
    end: str = FAR,
    lifecycles: tuple[dict[str, Any] | None, dict[str, Any] | None] = (None, None),
    **feed: Any,
) -> Bundle:
    """One feed on one cluster; `lifecycles` are the feed's and the cluster's."""
    entry: dict[str, Any] = {"validity": {"start": BEGIN, "end": end}, "retention": {"limit": limit}}
    of_feed, of_cluster = lifecycles
    if of_cluster is not None:
        entry["lifecycle"] = of_cluster
    if of_feed is not None:
        feed["lifecycle"] = of_feed
    clicks = Feed.model_validate(
        {"name": "clicks", "frequency": frequency, "locations": {"data": data}, "clusters": {"primary": entry}, **feed}
    )
    return Bundle(entities=(Cluster(name="primary", storage=storage), clicks))


def record_of(bundle: Bundle) -> FeedRecord:
    return compile_plan(bundle).feeds["clicks", "primary"]


def policy_of(bundle: Bundle) -> RetentionRecord:
    policy = record_of(bundle).retention
    assert policy is not None
    return policy


def codes_of(bundle: Bundle) -> set[str]:
    return {issue.code for issue in validate_bundle(bundle, SourceMap())}


def stage(limit: str | None = "days(30)", **fields: Any) -> dict[str, Any]:
    given = {name: value for name, value in fields.items() if value is not None}
    return {"retention_stage": {"properties": {LIMIT_PROPERTY: limit} if limit else {}, **given}}


def check_evict_paths(case: Case) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for path in case["existing"]:
            place = root / path.strip("/")
            if path.endswith("/"):
                place.mkdir(parents=True)
            else:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text("x", "utf-8")
        granularity = parse_path_template(case["path_template"]).granularity
        bundle = feed_of(
            FREQUENCIES[granularity],
            storage=f"file://{folder}",
            data=case["path_template"],
            limit=case["limit"],
            timezone=case["timezone"],
        )
        record, now = record_of(bundle), parse_datetime(case["now"])
        policy = policy_of(bundle)
        store, (location,) = open_store(f"file://{folder}", {}), policy.locations
        found = collect_candidates(store, location, record.sequence, find_before(policy, now))
        eligible = decide_eligible(policy, {LocationKind.DATA: found}, [], now)
        paths = [path for each in eligible for path in each.candidates.paths]
        assert {f"/{path}" for path in paths} == set(case["deleted"])
        times = render_evicted_times(
            sorted(time for each in eligible for time in each.candidates.times), record.sequence.timezone
        )
        assert times == "instances=" + (",".join(case["evicted_dates"]) or "NULL")
        if paths:
            store.trash().put("sweep", paths)
        removed = store.trash().remove_empty_parents(location.template.base.strip("/"), paths)
        assert {f"/{path}" for path in removed} == set(case["removed_empty_parents"])
        assert all((root / path.strip("/")).exists() for path in case["kept"])
        assert not any((root / path.strip("/")).exists() for path in case["deleted"])


def check_evict_log(case: Case) -> None:
    text = render_evicted_paths(case["evicted"])
    assert text == case["expected_text"]
    assert parse_evicted_paths(text) == parse_evicted_paths(text + ",") == case["expected_parsed"]


def check_evict_report(case: Case) -> None:
    times = [datetime.strptime(f"{date}+0000", "%Y%m%d%H%M%z") for date in case["evicted_dates"]]
    assert render_evicted_times(times, UTC_ZONE) == case["expected"]


def check_evict_partitions(case: Case) -> None:
    keys = ";".join(f"{key}={value}" for key, value in case["partitions"].items())
    address = parse_table_address(f"catalog:falcon_db:clicks#{keys}")
    policy = replace(policy_of(feed_of(limit=case["limit"])), partition=address.template)
    expired = expired_partitions(address, case["existing"], policy, parse_datetime(case["now"]), UTC_ZONE)
    assert expired == case["deleted"]
    assert [values for values in case["existing"] if values not in expired] == case["kept"]


def check_evict_partitions_error(case: Case) -> None:
    database, _, rest = case["table_template"].split("/", 3)[3].partition("/")
    table, _, partition = rest.partition("/")
    assert case["expected"] == "error"
    with pytest.raises(TableAddressError):
        parse_table_address(f"catalog:{database}:{table}#{partition}")


def check_lifecycle_frequency(case: Case) -> None:
    of_feed, of_cluster = (
        stage(frequency=case[level]["frequency"]) if level in case else None
        for level in ("global_stage", "cluster_stage")
    )
    policy = policy_of(feed_of(case["feed_frequency"], lifecycles=(of_feed, of_cluster)))
    assert policy.cadence.render() == case["expected"]


def check_job_frequency(case: Case) -> None:
    assert policy_of(feed_of(case["feed_frequency"])).cadence.render() == case["expected"]


def check_job(case: Case) -> None:
    lifecycle = case["lifecycle"]
    if "validity_end_in_past" in case:
        stops = {"falcon.retention.keep.instances.beyond.validity": "true"}
        bundle = feed_of(end="2015-01-01T00:00Z", lifecycles=(stage() if lifecycle else None, None), properties=stops)
        policy = policy_of(bundle)
        (first,), _ = decide_retention_schedule(compile_plan(bundle), "primary", {}, NOW)
        assert decide_next(policy, NOW, NOW) == NEVER
        assert (first.due_at is None) == (case["expected"] is None)
        return
    own = stage(lifecycle["limit"], **{key: lifecycle[key] for key in ("frequency", "queue", "priority")})
    bundle = feed_of(limit=case["retention_tag_limit"], lifecycles=(None, own))
    policy, expected = policy_of(bundle), case["expected"]
    assert policy.limit is not None
    assert policy.limit.render() == expected["limit"]
    assert policy.cadence.render() == expected["frequency"]
    assert policy.queue == expected["queue"]
    assert policy.priority == {"HIGH": 1}[expected["priority"]]
    assert record_of(bundle).sequence.timezone.key == expected["timezone"]


def check_limit_validation(case: Case) -> None:
    limits = {"sla": {"low": "hours(1)", "high": case["sla_high"]}, "late_arrival": {"cut_off": case["late_cutoff"]}}
    bundle = feed_of(lifecycles=(stage(case.get("limit")), None), **limits)
    assert ("lifecycle-limit" not in codes_of(bundle)) == case["valid"]


def check_frequency_validation(case: Case) -> None:
    bundle = feed_of(case["feed_frequency"], lifecycles=(stage(frequency=case["retention_frequency"]), None))
    assert ("lifecycle-frequency" not in codes_of(bundle)) == case["valid"]


def check_lifecycle_validation(case: Case) -> None:
    lifecycle = stage() if case["retention_stage"] else {}
    lifecycles = tuple(lifecycle if case[level] else None for level in ("global_lifecycle", "cluster_lifecycle"))
    assert ("lifecycle-stage" not in codes_of(feed_of(lifecycles=lifecycles))) == case["valid"]  # type: ignore[arg-type]


def check_limit_zero(case: Case) -> None:
    assert case["valid"] is False
    with pytest.raises(ValueError):
        feed_of(limit=case["limit"])


def check_limit_seconds(case: Case) -> None:
    duration = parse_frequency(case["limit"]).as_duration()
    assert duration == timedelta(seconds=case["expected_seconds"])
    assert cutoff(parse_frequency(case["limit"]), NOW) == NOW - duration


def check_evict_snapshots(case: Case) -> None:
    names = [snapshot_name("p", NOW, NOW - timedelta(seconds=age)) for age in case["snapshot_ages_seconds"]]
    age = timedelta(seconds=case["age_limit_seconds"])
    removed = decide_pruning(names, case["keep_number"], age, NOW)
    assert len(names) - len(removed) == case["expected_remaining"]


RUNNERS: Mapping[str, Callable[[Case], None]] = {
    "evict_paths": check_evict_paths,
    "evict_log": check_evict_log,
    "evict_snapshots": check_evict_snapshots,
    "evict_report": check_evict_report,
    "evict_partitions": check_evict_partitions,
    "evict_partitions_error": check_evict_partitions_error,
    "lifecycle_retention_frequency": check_lifecycle_frequency,
    "retention_job_frequency": check_job_frequency,
    "retention_job": check_job,
    "limit_validation": check_limit_validation,
    "retention_frequency_validation": check_frequency_validation,
    "lifecycle_validation": check_lifecycle_validation,
    "retention_limit_zero": check_limit_zero,
    "limit_seconds_overflow": check_limit_seconds,
}


def test_each_case_of_the_table_holds_or_is_listed_with_a_reason(case: Case, judge: Callable[[Case], None]) -> None:
    judge(case)


def test_the_list_of_differences_names_only_what_is_in_the_table(unknown_differences: set[str]) -> None:
    assert unknown_differences == set()
