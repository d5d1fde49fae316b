"""What the retention of a feed compiles to."""

from typing import Any

import pytest

from feed_assets.entities.bundle import Bundle
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.common import LocationKind, RetentionAction, SweepLimits
from feed_assets.entities.feed import KEEP_BEYOND_VALIDITY, LIMIT_PROPERTY, Feed
from feed_assets.entities.fields import Size
from feed_assets.plan.compile import compile_plan
from feed_assets.plan.records import FeedRecord, RetentionRecord
from feed_assets.plan.retention import find_stricter
from feed_assets.retention.rules.locations import archive_path
from feed_assets.retention.rules.schedule import digest_policy
from feed_assets.timing.dates import parse_datetime
from feed_assets.timing.sequence import parse_frequency

PRIMARY = Cluster(name="primary", colo="nyc", storage="file:///data/primary")
BACKUP = Cluster(name="backup", colo="sfo", storage="s3://bucket/backup", storage_options={"key": "a"})
DATED = "${YEAR}/${MONTH}/${DAY}"
HOURLY = f"/clicks/{DATED}/${{HOUR}}"
END = "2016-01-01T00:00Z"


def feed(name: str = "clicks", retention: Any = None, *, cluster: str = "primary", **fields: Any) -> Feed:
    entry: dict[str, Any] = {"validity": {"start": "2015-01-01T00:00Z", "end": END}, **fields.pop("entry", {})}
    if retention is not None:
        entry["retention"] = retention
    plain = {"frequency": "hours(1)", "locations": {"data": HOURLY}}
    return Feed.model_validate({**plain, "name": name, "clusters": {cluster: entry}, **fields})


def compiled(*feeds: Feed) -> dict[str, FeedRecord]:
    plan = compile_plan(Bundle(entities=(PRIMARY, BACKUP, *feeds)))
    return {key[0]: record for key, record in plan.feeds.items()}


def policy_of(*feeds: Feed) -> RetentionRecord:
    policy = compiled(*feeds)[feeds[0].name].retention
    assert policy is not None
    return policy


def obstacles(*feeds: Feed) -> dict[str, list[str | None]]:
    return {
        name: [location.obstacle for location in record.retention.locations]
        for name, record in compiled(*feeds).items()
        if record.retention is not None
    }


def test_a_feed_without_retention_keeps_everything() -> None:
    record = compiled(feed())["clicks"]
    assert (record.retention, record.retention_limit) == (None, None)
    assert compiled(feed(retention={"keep_newest": 3}))["clicks"].retention is None


def test_the_defaults_are_those_that_are_documented() -> None:
    policy = policy_of(feed(retention={"limit": "days(20)"}))
    assert (
        policy.limit
        == parse_frequency("days(20)")
        == compiled(feed(retention={"limit": "days(20)"}))["clicks"].retention_limit
    )
    assert (policy.action, policy.archive) == (RetentionAction.DELETE, None)
    assert (policy.keep_newest, policy.max_instances, policy.max_bytes) == (0, None, None)
    assert (policy.until_read_by, policy.until_replicated_to) == ((), ())
    assert policy.stops_at is None
    assert (policy.cadence.render(), policy.trash.render()) == ("days(1)", "days(7)")
    assert policy.sweep_limits == SweepLimits(share=0.5, instances=10_000, bytes=None)
    assert (policy.priority, policy.queue) == (0, None)


def test_everything_that_is_written_is_in_the_record() -> None:
    written = {
        "limit": "days(20)",
        "action": "archive",
        "archive_to": f"s3://cold/old/{DATED}/${{HOUR}}",
        "keep_newest": 3,
        "max_instances": 500,
        "max_bytes": "10GiB",
        "until_read_by": ["daily"],
        "until_replicated_to": ["backup"],
        "after_validity": False,
        "frequency": "hours(3)",
        "trash": "days(2)",
        "sweep_limits": {"share": 0.2, "instances": 7, "bytes": "1KB"},
    }
    policy = policy_of(feed(retention=written, properties={"jobPriority": "LOW", "queueName": "etl"}))
    assert (policy.keep_newest, policy.max_instances, policy.max_bytes) == (3, 500, 10 * 1024**3)
    assert (policy.until_read_by, policy.until_replicated_to) == (("daily",), ("backup",))
    assert policy.stops_at == parse_datetime(END)
    assert (policy.cadence.render(), policy.trash.render()) == ("hours(3)", "days(2)")
    assert policy.sweep_limits == SweepLimits(share=0.2, instances=7, bytes=Size(1000))
    assert (policy.priority, policy.queue) == (-1, "etl")
    assert policy.archive is not None
    assert (policy.archive[0].url, policy.archive[1].text) == ("s3://cold", f"/old/{DATED}/${{HOUR}}")


@pytest.mark.parametrize(
    ("limit", "frequency", "cadence"),
    [
        ("hours(23)", "days(1)", "hours(6)"),
        ("hours(24)", "hours(1)", "days(1)"),
        ("months(3)", "minutes(5)", "days(1)"),
    ],
)
def test_row_55_retention_looks_every_six_hours_below_a_day_and_else_daily(
    limit: str, frequency: str, cadence: str
) -> None:
    assert policy_of(feed(retention={"limit": limit}, frequency=frequency)).cadence.render() == cadence


@pytest.mark.parametrize(("frequency", "cadence"), [("hours(1)", "hours(6)"), ("days(1)", "days(1)")])
def test_without_an_age_the_frequency_of_the_feed_says_how_often(frequency: str, cadence: str) -> None:
    assert policy_of(feed(retention={"max_instances": 3}, frequency=frequency)).cadence.render() == cadence


def test_row_57_a_stage_stands_in_the_place_of_limit_frequency_queue_and_priority() -> None:
    stage = {"queue": "slow", "priority": "HIGH", "frequency": "hours(12)", "properties": {LIMIT_PROPERTY: "hours(4)"}}
    properties = {"jobPriority": "LOW", "queueName": "etl"}
    retention = {"limit": "days(90)", "frequency": "hours(1)", "keep_newest": 3, "trash": "days(2)"}
    policy = policy_of(feed(retention=retention, lifecycle={"retention_stage": stage}, properties=properties))
    assert policy.limit == parse_frequency("hours(4)")
    assert (policy.cadence.render(), policy.queue, policy.priority) == ("hours(12)", "slow", 1)
    assert (policy.keep_newest, policy.trash.render()) == (3, "days(2)")
    bare = {"retention_stage": {"properties": {LIMIT_PROPERTY: "hours(4)"}}}
    policy = policy_of(feed(lifecycle=bare, properties=properties))
    assert (policy.cadence.render(), policy.queue, policy.priority) == ("hours(6)", "etl", -1)


def test_row_57_the_stage_of_a_cluster_wins() -> None:
    own = {"retention_stage": {"properties": {LIMIT_PROPERTY: "hours(4)"}}}
    stage = {"retention_stage": {"frequency": "hours(9)", "properties": {LIMIT_PROPERTY: "hours(8)"}}}
    policy = policy_of(feed(lifecycle=stage, entry={"lifecycle": own}))
    assert (policy.limit, policy.cadence.render()) == (parse_frequency("hours(4)"), "hours(6)")


@pytest.mark.parametrize(("value", "stops"), [("true", True), (" TRUE", True), ("false", False), ("", False)])
def test_falcons_property_stops_retention_with_the_validity(value: str, stops: bool) -> None:
    policy = policy_of(feed(retention={"limit": "days(2)"}, properties={KEEP_BEYOND_VALIDITY: value}))
    assert (policy.stops_at is not None) is stops


def test_without_an_end_there_is_nothing_to_stop_at() -> None:
    entry = {"validity": {"start": "2015-01-01T00:00Z"}}
    assert policy_of(feed(retention={"limit": "days(2)", "after_validity": False}, entry=entry)).stops_at is None


def test_every_location_is_looked_after_those_without_a_year_are_not() -> None:
    locations = {"data": HOURLY, "stats": f"/stats/{DATED}", "meta": "/meta", "tmp": "s3://tmp/${MONTH}/x"}
    policy = policy_of(feed(retention={"limit": "days(2)"}, locations=locations))
    found = {
        location.kind: (location.store.url, location.template.text, location.obstacle) for location in policy.locations
    }
    reason = "its path has no ${YEAR}, so it does not say how old it is"
    assert found == {
        LocationKind.DATA: ("file:///data/primary", HOURLY, None),
        LocationKind.STATS: ("file:///data/primary", f"/stats/{DATED}", None),
        LocationKind.META: ("file:///data/primary", "/meta", reason),
        LocationKind.TMP: ("s3://tmp", "/${MONTH}/x", reason),
    }


def test_what_is_to_be_archived_nowhere_is_not_removed() -> None:
    locations = {"data": HOURLY, "stats": f"/stats/{DATED}"}
    found = obstacles(feed(retention={"limit": "days(2)", "action": "archive"}, locations=locations))
    assert found == {"clicks": ["the action is archive, and archive_to names no place"] * 2}


HIVE = Cluster(name="hive", storage="file:///data/hive", catalog="thrift://one:9083,two")
DAILY = "catalog:web:clicks#ds=${YEAR}-${MONTH}-${DAY}"


def in_table(name: str, table: str) -> Feed:
    return feed(name, {"limit": "days(2)"}, cluster="hive", locations=None, table=table, frequency="days(1)")


def policies_in_tables(*feeds: Feed) -> dict[str, RetentionRecord | None]:
    plan = compile_plan(Bundle(entities=(HIVE, *feeds)))
    return {key[0]: record.retention for key, record in plan.feeds.items()}


def test_row_54_of_a_table_its_partitions_are_the_location() -> None:
    policy = policies_in_tables(in_table("a", DAILY))["a"]
    assert policy is not None
    (location,) = policy.locations
    assert (location.kind, location.obstacle) == (LocationKind.DATA, None)
    assert (location.store.url, location.template.text) == (
        "thrift://one:9083,two/web/clicks",
        DAILY.split("#")[1],
    )
    assert policy.partition == location.template


def test_what_retention_removes_and_archives_goes_by_the_zone_of_the_paths() -> None:
    archive = {"limit": "days(2)", "action": "archive", "archive_to": f"s3://cold/old/{DATED}/${{HOUR}}"}
    here, there = (
        compiled(feed(retention=archive, timezone="GMT+08:00", path_timezone=zone))["clicks"] for zone in (None, "UTC")
    )
    assert here.retention is not None
    assert there.retention is not None
    assert there.retention.archive is not None
    assert archive_path(there, parse_datetime("2015-01-01T16:00Z")) == (there.retention.archive[0], "old/2015/01/01/16")
    (place,) = there.retention.locations
    assert place.template == there.template
    assert find_stricter(here.retention, there.retention) == ("action", "locations")
    assert digest_policy(here) != digest_policy(there)


def test_two_feeds_in_one_partition_of_a_table_are_left_alone() -> None:
    one = in_table("a", f"{DAILY};region=eu")
    other = in_table("b", "catalog:WEB:clicks#Region=eu;ds=${YEAR}-${MONTH}-${DAY}")
    apart = in_table("c", f"{DAILY};region=us")
    found = policies_in_tables(one, other, apart)
    obstacles = {name: policy.locations[0].obstacle for name, policy in found.items() if policy is not None}
    assert obstacles == {
        "a": "it is at the data of feed 'b' on hive",
        "b": "it is at the data of feed 'a' on hive",
        "c": None,
    }


KEPT = {"limit": "days(2)"}


def data(path: str) -> dict[str, str]:
    return {"data": path}


def test_feeds_in_one_place_and_one_inside_the_other_are_left_alone() -> None:
    monthly, inside = feed("a", KEPT, locations=data("/d/${YEAR}")), feed("b", KEPT, locations=data(f"/d/{DATED}"))
    assert obstacles(monthly, inside) == {
        "a": ["the data of feed 'b' on primary is inside it"],
        "b": ["it is inside the data of feed 'a' on primary"],
    }
    same = feed("b", KEPT, locations=data("file:///data/primary/d//${YEAR}/"))
    assert obstacles(monthly, same) == {
        "a": ["it is at the data of feed 'b' on primary"],
        "b": ["it is at the data of feed 'a' on primary"],
    }


def test_a_feed_that_only_lies_there_keeps_the_other_from_removing() -> None:
    fixed = feed("b", locations={"data": f"/other/{DATED}", "stats": "/d/2015/07"})
    assert obstacles(feed("a", KEPT, locations=data("/d/${YEAR}/${MONTH}")), fixed) == {
        "a": ["it is at the stats of feed 'b' on primary"]
    }
    assert obstacles(feed("a", KEPT, locations=data("/stats/${YEAR}")), feed("b", locations={"stats": "/stats"})) == {
        "a": [None]
    }


def test_clusters_with_one_storage_meet_under_all_its_names() -> None:
    one = feed("a", KEPT, locations=data("s3a://bucket/backup/d/${YEAR}"))
    assert obstacles(one, feed("b", KEPT, cluster="backup", locations=data("/d/${YEAR}"))) == {
        "a": ["it is at the data of feed 'b' on backup"],
        "b": ["it is at the data of feed 'a' on primary"],
    }


def test_what_lies_inside_the_data_of_its_own_feed_goes_with_them() -> None:
    inside = {"data": HOURLY, "stats": f"{HOURLY}/_stats", "meta": HOURLY, "tmp": "/clicks/${YEAR}/tmp"}
    assert obstacles(feed(retention=KEPT, locations=inside)) == {
        "clicks": [
            None,
            "it is inside the data of the feed, and is removed with them",
            "it is at the data of the feed, and is removed with them",
            None,
        ]
    }


def test_a_coarse_place_around_finer_ones_of_its_own_feed_is_left_alone() -> None:
    around = {"data": f"/d/{DATED}", "stats": "/d/${YEAR}", "meta": f"/m/{DATED}", "tmp": f"/m/{DATED}"}
    assert obstacles(feed(retention=KEPT, locations=around)) == {
        "clicks": [
            None,
            "the data of the feed is inside it",
            None,
            "it is at the meta of the feed, and is removed with it",
        ]
    }


def test_an_archive_in_the_way_of_a_feed_keeps_it_from_removing() -> None:
    archive = {"limit": "days(2)", "action": "archive"}
    assert obstacles(feed("a", {**archive, "archive_to": f"{HOURLY}/old"})) == {
        "a": ["the archive of the feed is inside it"]
    }
    one = feed("a", {**archive, "archive_to": "/d/${YEAR}"}, locations=data(HOURLY))
    assert obstacles(one, feed("b", KEPT, locations=data(f"/d/{DATED}"))) == {
        "a": [None],
        "b": ["it is inside the archive of feed 'a' on primary"],
    }
