"""Lineage in a window of time: what it shows of graphs in a few words, and of a real record."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from feed_assets.catalog.column_sets import ColumnSet, ColumnSets
from feed_assets.entities.common import Kind
from feed_assets.entities.errors import EntityNotFoundError
from feed_assets.errors import WrongUsageError
from feed_assets.lineage.commands import show
from feed_assets.lineage.windows import WindowLineage, find_window_lineage, gather_relations, walk_relations
from feed_assets.log.events import EventLog
from feed_assets.log.instances.attempts import Attempts
from feed_assets.log.records import COLUMNS, Attempt, FeedEventKind, FrozenInput, NewFeedEvent, ProcessInstanceStatus
from tests.context.contexts import context_of, counting_harness
from tests.instances.harness import START, LifecycleHarness, at, feed, process
from tests.lineage.accesses import FIRST, data, program, read_accesses, written
from tests.lineage.batched import batched

GOLDEN = Path(__file__).parent / "golden"

CHAIN = ["P1/run1: D1 write, D2 read", "P2/run2: D2 write, D3 read"]
LOOP = ["P1/run1: D1 read, D2 write", "P2/run2: D2 read, D1 write, D3 write", "P3/run3: D3 read, D4 write"]
CYCLE = ["P1/run1: D1 read, D1 write", "P1/run2: D1 read, D1 write"]
BRANCH = [
    "P1/run1: D1 read, D2 write, D4 write",
    "P2/run2: D2 read, D3 write, D5 write",
    "P3/run3: D5 read, D6 write",
    "P4/run4: D2 read, D3 read, D7 write",
    "P5/run5: D3 read, D6 read, D1 write",
]


def lineage_of(lines: Sequence[str], root: str = "D1", **given: Any) -> WindowLineage:
    relations = walk_relations(gather_relations(read_accesses(lines)), [data(root)], **{"levels": 10, **given})
    until = FIRST + timedelta(days=1)
    return WindowLineage(kind=Kind.FEED, name=root, start=FIRST, end=until, relations=relations)


@pytest.mark.parametrize(
    ("name", "lines"), {"chain": CHAIN, "loop": LOOP, "cycle": CYCLE, "branch": BRANCH}.items(), ids=lambda value: value
)
def test_a_lineage_is_a_text_a_graph_and_the_document_of_cdap(
    name: str, lines: Sequence[str], request: pytest.FixtureRequest
) -> None:
    found = lineage_of(lines)
    file = GOLDEN / f"{name}.txt"
    text = "\n".join([*found.text, "", found.dot, "", json.dumps(found.cdap, indent=1), ""])
    if request.config.getoption("--update-golden"):
        file.write_text(text)
    assert file.read_text() == text


def test_one_direction_leads_to_what_the_data_were_made_of_or_to_what_was_made_of_them() -> None:
    up = lineage_of(CHAIN, "D2", up=True)
    assert {*map(written, up.relations)} == {"D2,P2,write", "D3,P2,read"}
    down = lineage_of(CHAIN, "D2", down=True)
    assert {*map(written, down.relations)} == {"D2,P1,read", "D1,P1,write"}
    near = lineage_of(BRANCH, "D7", up=True, levels=1)
    assert {*map(written, near.relations)} == {"D7,P4,write", "D2,P4,read", "D3,P4,read"}


def test_the_first_level_from_a_program_is_its_own_data() -> None:
    relations = gather_relations(read_accesses(CHAIN))
    assert {*map(written, walk_relations(relations, [program("P1")], 1))} == {"D1,P1,write", "D2,P1,read"}
    assert len(walk_relations(relations, [program("P1")], 2)) == 4


def counted(tmp_path: Path, state: str | None = None) -> LifecycleHarness:
    """One hour of clicks was counted at 00:10, and the report waits."""
    lifecycle = counting_harness(tmp_path, state)
    lifecycle.land("clicks", START)
    lifecycle.flag("clicks", START)
    lifecycle.launch(lifecycle.tick(at("01T00:10")), at("01T00:10"))
    return lifecycle


def window(lifecycle: LifecycleHarness, name: str, start: str, end: str, **given: Any) -> WindowLineage:
    return find_window_lineage(context_of(lifecycle, at("02")), name, start=at(start), end=at(end), **given)


@pytest.mark.both_databases
def test_what_attempts_have_read_and_written_is_found_also_of_what_is_deleted(tmp_path: Path, state_url: str) -> None:
    lifecycle = counted(tmp_path, state_url)
    found = window(lifecycle, "counts", "01", "02")
    assert found.text == (
        "feed counts on primary",
        "  written by process count on primary: 1 attempt at 2013-11-01T00:10Z",
        "feed clicks on primary",
        "  read by process count on primary: 1 attempt at 2013-11-01T00:10Z",
    )
    assert all(len(each.runs) == 1 for each in found.relations)
    assert window(lifecycle, "count", "01", "02").relations == tuple(reversed(found.relations))
    lifecycle.declare(feed("weather"))
    assert window(lifecycle, "counts", "01", "02").relations == found.relations
    assert window(lifecycle, "count", "01", "02", kind=Kind.PROCESS).name == "count"


def test_a_feed_that_nobody_touched_has_an_empty_lineage(tmp_path: Path) -> None:
    lifecycle = counted(tmp_path)
    for found in (window(lifecycle, "counts", "01T00:11", "01T05"), window(lifecycle, "weather", "01", "02")):
        assert (found.relations, found.text) == ((), ())
        assert found.summary.startswith("nothing has touched feed")


def test_a_replication_reads_at_its_source_and_what_was_cleaned_up_is_said(tmp_path: Path) -> None:
    lifecycle = counting_harness(tmp_path)
    running = ProcessInstanceStatus.RUNNING
    copy = Attempt(
        process="clicks@east",
        cluster="primary",
        nominal_time=START,
        attempt=1,
        run_id=None,
        status=running,
        started_at=START,
        inputs=(FrozenInput(name="source", feed="clicks", nominal_times=(START,), digests=(None,)),),
        outputs=(7,),
    )
    with lifecycle.database.begin() as connection:
        Attempts(connection).begin(copy)
        Attempts(connection).begin(replace(copy, process="count", inputs=(), outputs=()))
    found = window(lifecycle, "clicks@east", "01", "02")
    assert found.text[0] == "feed clicks on east"
    assert found.notes == ("1 outputs are missing here: their events of long ago were cleaned up",)


@pytest.mark.both_databases
def test_a_batch_reads_what_it_has_taken_also_when_its_process_is_deleted(tmp_path: Path, state_url: str) -> None:
    lifecycle = batched(tmp_path, state_url)
    found = window(lifecycle, "src", "01", "02")
    assert found.text[:2] == (
        "feed src on primary",
        "  read by process load on primary: 1 attempt at 2013-11-01T00:20Z",
    )
    assert found.text[2] == "feed dst on primary"
    lifecycle.declare(feed("src"))
    assert window(lifecycle, "src", "01", "02").relations == found.relations


def test_what_was_read_beyond_the_declaration_is_a_place(tmp_path: Path) -> None:
    lifecycle = counting_harness(tmp_path)
    address = "external/file:///rates.csv"
    with lifecycle.database.begin() as connection:
        columns = ColumnSet(beyond=(address,))
        ColumnSets(connection).add(columns)
        made = NewFeedEvent(
            feed="counts",
            cluster="primary",
            nominal_time=START,
            kind=FeedEventKind.PRODUCED,
            origin="run:r",
            recorded_at=START,
            payload={COLUMNS: columns.digest},
        )
        outputs = tuple(EventLog(connection).append([made]))
        running = ProcessInstanceStatus.RUNNING
        attempt = Attempt(
            process="count",
            cluster="primary",
            nominal_time=START,
            attempt=1,
            run_id="r",
            status=running,
            started_at=START,
            outputs=outputs,
        )
        Attempts(connection).begin(attempt)
    found = window(lifecycle, "counts", "01", "02", up=True)
    assert found.text[2:] == (
        f"place {address}",
        "  read by process count on primary: 1 attempt at 2013-11-01T00:00Z",
    )
    assert f'"place {address}"' in found.dot
    assert {each["data"] for each in found.cdap["relations"]} == {"dataset.primary.counts", f"dataset..{address}"}


def test_a_name_that_was_never_declared_is_refused_with_those_that_are_near(tmp_path: Path) -> None:
    lifecycle = counting_harness(tmp_path)
    for name in ("klicks", "klicks@east"):
        with pytest.raises(EntityNotFoundError, match="Did you mean 'clicks'"):
            window(lifecycle, name, "01", "02")


def test_wrong_windows_are_refused(tmp_path: Path) -> None:
    context = context_of(counting_harness(tmp_path), at("02"))
    for given, told in (
        ({"end": at("02")}, "Give --start"),
        ({"start": at("02"), "end": at("01")}, "is after --end 2013-11-01T00:00Z"),
        ({"start": at("03")}, "is after --end 2013-11-02T00:00:01Z"),
        ({"start": at("01"), "levels": 0}, "--levels 0 is below 1"),
        ({"start": at("01"), "as_of": at("01")}, "Leave out --as-of, or give INSTANCE"),
        ({"start": at("01"), "proof": True, "form": "cdap"}, "Leave out --proof, or give INSTANCE"),
    ):
        with pytest.raises(WrongUsageError, match=told):
            show(context, names=("clicks",), **given)
    for given, told in (
        ({"start": at("01")}, "Leave out --start, or INSTANCE"),
        ({"end": at("01"), "form": "cdap"}, "Leave out --end and --format, or INSTANCE"),
    ):
        with pytest.raises(WrongUsageError, match=told):
            show(context, names=("clicks", "2013-11-01T00:00Z"), **given)
    with pytest.raises(WrongUsageError, match="one INSTANCE, without 2013-11-02"):
        show(context, names=("clicks", "2013-11-01T00:00Z", "2013-11-02"))


def test_the_command_gives_the_document_of_cdap(tmp_path: Path) -> None:
    context = context_of(counted(tmp_path), at("02"))
    found = show(context, names=("counts",), start=at("01"), up=True, form="cdap")
    assert isinstance(found, dict)
    assert (found["start"], found["end"]) == (1383264000, 1383350401)
    assert [each["data"] for each in found["relations"]] == ["dataset.primary.counts", "dataset.primary.clicks"]


def test_of_a_feed_and_a_process_of_one_name_the_feed_is_meant(tmp_path: Path) -> None:
    harness = LifecycleHarness.of(
        tmp_path,
        feed("clicks"),
        feed("report"),
        process("report", inputs={"clicks": "now(0,0)"}, outputs={"report": "now(0,0)"}),
    )
    context = context_of(harness, at("02"))
    window = show(context, names=("report",), start=at("01"))
    assert isinstance(window, WindowLineage)
    assert window.kind is Kind.FEED
    graph = show(context, names=("report", "2013-11-01T00:00Z"))
    assert not getattr(graph, "nodes", None)
    of_process = show(context, kind=Kind.PROCESS, names=("report",), start=at("01"))
    assert isinstance(of_process, WindowLineage)
    assert of_process.kind is Kind.PROCESS
