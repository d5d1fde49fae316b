"""docs/retention.md against the code: rules, protections, states, codes, outcomes, messages and numbers."""

import inspect
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum

import pytest

from feed_assets.entities.common import LocationKind, Retention
from feed_assets.explain import sentences
from feed_assets.explain.records import ReasonCode
from feed_assets.instances.leasing import TTL
from feed_assets.log.messages.outbox import outbox
from feed_assets.log.messages.payloads import EvictionOperation
from feed_assets.log.messages.records import render_payload
from feed_assets.log.records import FeedEventKind
from feed_assets.log.removals.records import CHUNK_ITEMS, ItemOutcome, SweepChunk, SweepItem, SweepState
from feed_assets.orchestration import names
from feed_assets.orchestration.sensors.building import EVERY_MINUTE
from feed_assets.receivers import Topic
from feed_assets.retention.rules import eligibility, schedule
from feed_assets.retention.rules.eligibility import ObstacleCode, Rule
from feed_assets.retention.rules.protections import ProtectionKind
from feed_assets.retention.sweeps import movers
from feed_assets.retention.sweeps.removal_records import Removal, _message
from feed_assets.storage.paths import CONTROL_FOLDER
from tests.documents.markdown import ROOT, codes, plain, tables_of

DOCUMENT = "docs/retention.md"
PAGE = " ".join((ROOT / DOCUMENT).read_text("utf-8").split())
TOLD_BY = (sentences._explain_eviction, sentences.explain_whereabouts, sentences._explain_keeping)
"""What `why` says of retention."""


def rows_of(header: str) -> list[tuple[str, ...]]:
    (table,) = [table for table in tables_of(DOCUMENT) if table.header[0] == header and table.section != "Reports"]
    return list(table.rows)


def names_in(rows: Iterable[tuple[str, ...]]) -> list[str]:
    return [plain(row[0]) for row in rows]


@pytest.mark.parametrize(
    ("header", "enumeration"),
    [
        ("rule", Rule),
        ("protection", ProtectionKind),
        ("state", SweepState),
        ("code", ObstacleCode),
        ("outcome", ItemOutcome),
    ],
)
def test_each_name_is_described_once(header: str, enumeration: type[StrEnum]) -> None:
    assert names_in(rows_of(header)) == [member.value for member in enumeration]


def test_codes_of_why_are_those_that_retention_gives() -> None:
    (table,) = [table for table in tables_of(DOCUMENT) if table.section == "Reports"]
    used = {name for each in TOLD_BY for name in re.findall(r"ReasonCode\.([A-Z_]+)", inspect.getsource(each))}
    assert set(names_in(table.rows)) == {ReasonCode[name].value for name in used}


def test_a_message_has_the_fields_that_are_named() -> None:
    moment = datetime(2013, 11, 1, tzinfo=UTC)
    item = SweepItem("clicks/2013", moment, None, None, Rule.AGE, "it is old")
    chunk = SweepChunk(
        sweep_id="s1",
        number=0,
        feed="clicks",
        kind=LocationKind.DATA,
        first=moment,
        last=moment,
        count=1,
        digest="",
        items=(item,),
    )
    removal = Removal(chunk=chunk, cluster="primary", store="file:///data", origin="test")
    message = _message(removal, item, EvictionOperation.DELETE, FeedEventKind.EVICTED, moment)
    _, _, after = PAGE.partition("**Messages.**")
    written = codes(after.partition("**Report.**")[0])
    keys = list(render_payload(message.payload))
    assert [name for name in written if name in keys] == keys
    assert {outbox.name, Topic.EVICTION, *EvictionOperation} <= set(written)


def test_the_numbers_are_those_of_the_code() -> None:
    assert {row[0]: row[1] for row in rows_of("number")} == {
        "paths a chunk": str(CHUNK_ITEMS),
        "paths from which Spark's executors are used": str(movers.WORTH_SPARK),
        "chunks on executors at once": str(movers.CHUNKS_AT_ONCE),
        "paths measured by a process if sizes decide nothing": str(movers.MEASURED_BY_DRIVER),
        "paths measured with Spark if sizes decide nothing": str(movers.MEASURED_ON_EXECUTORS),
        "due feeds a run": str(schedule.FEEDS_A_RUN),
        "minimum days that count as a clock jump": str(eligibility._LEAST_JUMP.days),
        "cadences that count as a clock jump": str(eligibility._CLOCK_CADENCES),
        "cadences whose instances any sweep may remove": str(eligibility._CADENCES),
    }
    assert f"of any other after {TTL.total_seconds():.0f} seconds" in PAGE
    assert f"`{Retention.model_fields['trash'].default}` unless declared" in PAGE


def test_names_in_dagster_and_in_storage_are_those_of_the_code() -> None:
    for name in (names.META_WHY, names.META_STATUS, names.META_SWEEP):
        assert f"`{name}`" in PAGE
    assert names.OfCluster.RETENTION_JOB.of("primary") == "retention_primary"
    assert "`retention_<cluster>`" in PAGE
    assert EVERY_MINUTE == "* * * * *"
    assert f"`{CONTROL_FOLDER}/trash/<sweep>/`" in PAGE
