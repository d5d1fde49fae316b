"""docs/replication.md, and the properties of docs/falcon.md, against the code: modes, options, figures, numbers."""

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Any

import pytest

from feed_assets.entities.bundle import Bundle
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.copies.options import RemovedFiles, Verification
from feed_assets.entities.feed import Feed
from feed_assets.entities.flow_names import flow_name
from feed_assets.entities.replication import LATE_DELAY, PROPERTIES, RETRY, WITHOUT_EFFECT, Replication
from feed_assets.instances.gates.decide_retries import retry_delay
from feed_assets.instances.gates.staging_sweep import ABANDONED_AFTER
from feed_assets.log.records import FeedEventKind, FeedInstanceStatus
from feed_assets.orchestration import names
from feed_assets.orchestration.runs import listed_instances
from feed_assets.orchestration.sensors import building
from feed_assets.plan.compile import compile_plan
from feed_assets.plan.copy_records import CopyOptions, OnError
from feed_assets.plan.records import ProcessRecord
from feed_assets.replication import flows
from feed_assets.replication.flows import describe_copy
from feed_assets.transfer import copying
from feed_assets.transfer.plans import FLAG
from feed_assets.transfer.requests import Copied, CopyStatus
from tests.documents.markdown import ROOT, codes, plain, tables_of

DOCUMENT = "docs/replication.md"
PAGE = " ".join((ROOT / DOCUMENT).read_text("utf-8").split())
MINUTE = timedelta(minutes=1)


def rows_of(header: str) -> list[tuple[str, ...]]:
    (table,) = [table for table in tables_of(DOCUMENT) if plain(table.header[0]) == header]
    return list(table.rows)


def flow_of(**feed: Any) -> ProcessRecord:
    """The flow of a feed that says nothing about its copies but this."""
    validity = {"validity": {"start": "2013-11-01T00:00Z"}}
    clicks = Feed.model_validate(
        {
            "name": "clicks",
            "frequency": "hours(1)",
            "locations": {"data": "/clicks/${YEAR}/${MONTH}/${DAY}/${HOUR}"},
            "clusters": {"east": {"type": "source", **validity}, "west": {"type": "target", **validity}},
            **feed,
        }
    )
    clusters = (Cluster(name=name, storage=f"memory://{name}") for name in clicks.clusters)
    return compile_plan(Bundle(entities=(*clusters, clicks))).processes[flow_name("clicks", "east"), "west"]


@pytest.mark.parametrize(("header", "enumeration"), [("mode", Verification), ("removed_files", RemovedFiles)])
def test_each_mode_is_described_once(header: str, enumeration: type[StrEnum]) -> None:
    assert [plain(row[0]) for row in rows_of(header)] == [member.value for member in enumeration]


def test_every_option_is_described_with_what_holds_unless_it_is_declared() -> None:
    described = {name: row[1] for row in rows_of("option") for name in codes(row[0])}
    assert described.keys() == Replication.model_fields.keys()
    flow = flow_of()
    options = flow.copied.options
    assert {name: plain(text) for name, text in described.items() if text.startswith("`")} == {
        "parallel": str(flow.parallel),
        "order": flow.order.value,
        "catch_up": flow.catch_up.value,
        "verification": options.verification.value,
        "removed_files": options.removed_files.value,
        "overwrite": str(options.overwrite).lower(),
        "ignore_errors": str(options.on_error is not OnError.STOP).lower(),
        "max_tasks": str(options.max_tasks),
        "hidden": str(options.hidden).lower(),
        "allow_empty": str(options.allow_empty).lower(),
    }
    nothing: Mapping[str, object] = {
        "preserve": options.preserve,
        "bandwidth": options.bandwidth,
        "task_bandwidth": options.task_bandwidth,
        "include": options.include,
    }
    assert not any(nothing.values())
    assert flow.timeout.as_duration() == timedelta(hours=6)
    often = flow_of(frequency="minutes(1)", locations={"data": "/c/${YEAR}/${MONTH}/${DAY}/${HOUR}/${MINUTE}"})
    assert often.timeout.as_duration() == timedelta(minutes=30)
    assert flow.retry is not None
    waits = [retry_delay(flow.retry.policy, flow.retry.delay.as_duration(), run) // MINUTE for run in range(3)]
    assert described["retry"] == f"{flow.retry.attempts} times, after {waits[0]}, {waits[1]} and {waits[2]} minutes"


def test_the_figures_of_a_copy_are_those_that_are_told() -> None:
    whole = Copied(
        status=CopyStatus.COPIED,
        source_url="a",
        target_url="b",
        removed=("x",),
        skipped=("pipe",),
        resumed=1,
        verification=Verification.WHOLE,
    )
    assert [plain(row[0]) for row in rows_of("figure")] == list(describe_copy(whole))
    assert {CopyStatus.COPIED.value, CopyStatus.UNCHANGED.value} <= set(codes(rows_of("figure")[0][1]))


def test_the_numbers_are_those_of_the_code() -> None:
    assert dict(rows_of("number")) == {
        "attempts while a source changes": str(CopyOptions().tries),
        "retries after a failure": str(RETRY.attempts),
        "minutes before the first retry": str(RETRY.delay.as_duration() // MINUTE),
        "hours from the nominal time to the first check for late data": str(LATE_DELAY.as_duration() // (60 * MINUTE)),
        "instances that are copied together": str(copying.BATCH),
        "MiB that are copied before what was copied is written down": str(flows.BYTES_AT_ONCE >> 20),
        "minutes of waiting for an instance that another source is writing": str(flows.LEASE_PATIENCE // MINUTE),
        "run requests per minute and cluster": str(listed_instances.COPIES_A_TICK),
    }
    assert f"swept after {ABANDONED_AFTER.days} days" in PAGE
    assert "repeated, three times at most" in PAGE


def test_names_are_those_of_the_code() -> None:
    assert f"`{flow_name('clicks', 'new-york')}`" in PAGE
    assert names.OfCluster.REPLICATION_JOB.of("lake") == "replication_lake"
    assert "`replication_<cluster>`" in PAGE
    assert building.EVERY_MINUTE == "* * * * *"
    assert f"or `{FLAG}`" in PAGE
    assert f"a {FeedEventKind.REPLICATED.name} event" in PAGE
    assert f"is {FeedInstanceStatus.PARTIAL.name} until" in PAGE


def test_every_property_of_falcon_is_described_with_what_it_becomes() -> None:
    (table,) = [table for table in tables_of("docs/falcon.md") if table.section == "Properties of replication"]
    described = {plain(row[0]): row[1] for row in table.rows}
    assert {name: plain(text) for name, text in described.items() if text != "–"} == {
        name: f"replication.{field}" for name, field in PROPERTIES.items()
    }
    assert {name for name, text in described.items() if text == "–"} == WITHOUT_EFFECT.keys()
