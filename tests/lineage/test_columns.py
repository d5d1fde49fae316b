"""Lineage of columns, from the sets that productions have recorded, on both databases."""

import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from feed_assets.catalog.column_sets import NOT_TOLD
from feed_assets.context.errors import InstanceQueryError
from feed_assets.entities.content.column_lineage import DECLARED, ColumnLineage, ColumnSource, SourceKind
from feed_assets.entities.errors import EntityNotFoundError
from feed_assets.json_form import render_document
from feed_assets.lineage.columns import Column
from feed_assets.lineage.commands import column
from feed_assets.lineage.records import LineageGraph
from tests.context.contexts import context_of
from tests.instances.harness import START, LifecycleHarness, at, feed, process

GOLDEN = Path(__file__).parent / "golden"
S, T, U = "s", "t", "u"


def source(text: str, kind: SourceKind = SourceKind.DIRECT, by: str = "") -> ColumnSource:
    name, _, column = text.partition(".")
    return ColumnSource(input=name, column=column, kind=kind, text=by)


def made(columns: Mapping[str, list[ColumnSource]], *indirect: ColumnSource, **more: Any) -> ColumnLineage:
    return ColumnLineage(columns={name: tuple(of) for name, of in columns.items()}, indirect=indirect, **more)


INSERT = made({"c": [source("s.a", by="f(a, b)"), source("s.b", by="f(a, b)")]})
"""insert into t select f(a,b) as c from s"""
SUMMED = made(
    {"total": [source("t.c", by="sum(c)")], "version": []},
    source("t.day", SourceKind.INDIRECT, "day = current_date()"),
    beyond=("external/prices",),
)


@pytest.fixture
def lifecycle(tmp_path: Path, state_url: str) -> LifecycleHarness:
    """s → t by one process, t → u by another one; u has a copy."""
    pair = {"primary": {"type": "source"}, "backup": {"type": "target"}}
    copied = feed(U, replication={}, clusters=("primary", "backup"))
    clusters = {name: {**dict(entry), **pair[name]} for name, entry in copied.model_dump()["clusters"].items()}
    found = LifecycleHarness.of(
        tmp_path,
        feed(S),
        feed(T),
        type(copied).model_validate({**copied.model_dump(by_alias=True, exclude_defaults=True), "clusters": clusters}),
        process("insert", inputs={S: "now(0,0)"}, outputs={T: "now(0,0)"}),
        process("add", inputs={T: "now(0,0)"}, outputs={U: "now(0,0)"}),
        clusters=("primary", "backup"),
        state=state_url,
    )
    found.lineage = {T: INSERT, U: SUMMED}
    found.land(S, *(START + timedelta(hours=hour) for hour in range(2)))
    for name in ("insert", "add"):
        found.run(name, START, at("01T01:00"))
    found.copy("u@primary", [START], at("01T02:00"))
    return found


def lineage(lifecycle: LifecycleHarness, name: str, of: str | None = None, **asked: Any) -> LineageGraph:
    return column(context_of(lifecycle, at("02T00:00")), feed=name, column=of, **asked)


def edges(graph: LineageGraph) -> set[tuple[str, str, str]]:
    names = {each.id: each.name for each in graph.nodes}
    return {(names[each.source], names[each.target], each.kind.value) for each in graph.edges}


@pytest.mark.both_databases
def test_bd_55_a_column_shows_its_sources_and_the_function(lifecycle: LifecycleHarness) -> None:
    wanted = {("s.a", "f(a, b)", "direct"), ("s.b", "f(a, b)", "direct"), ("f(a, b)", "t.c", "direct")}
    assert edges(lineage(lifecycle, T, "c", up=True)) == wanted
    assert {("s.a", "f(a, b)", "direct"), ("f(a, b)", "t.c", "direct")} <= edges(lineage(lifecycle, S, "A", down=True))


@pytest.mark.both_databases
@pytest.mark.parametrize("asked", ["u-total --up", "s-a --down", "t-c", "u --up", "u-total --up --levels 1"])
def test_each_form_is_as_it_was(lifecycle: LifecycleHarness, asked: str, request: pytest.FixtureRequest) -> None:
    names, *options = asked.split(" ", 1)
    words = options[0].split() if options else []
    levels = int(words[-1]) if "--levels" in words else 10
    graph = lineage(lifecycle, *names.split("-"), up="--up" in words, down="--down" in words, levels=levels)
    forms = [graph.text, graph.dot, json.dumps(render_document(graph), indent=1, default=str)]
    file = GOLDEN / f"columns_{asked.replace(' ', '_')}.txt"
    found = "\n\n".join(forms) + "\n"
    if request.config.getoption("--update-golden"):
        file.write_text(found)
    assert found == file.read_text()


def test_the_sets_of_an_instance_are_those_of_its_time(lifecycle: LifecycleHarness) -> None:
    lifecycle.lineage = {T: made({"c": [source("s.z")]}), U: made({"total": [source("t.c")]})}
    lifecycle.run("insert", START + timedelta(hours=1), at("01T03:00"))
    assert edges(lineage(lifecycle, T, "c", up=True)) == {("s.z", "t.c", "direct")}
    was = {("s.a", "f(a, b)", "direct"), ("s.b", "f(a, b)", "direct"), ("f(a, b)", "t.c", "direct")}
    assert edges(lineage(lifecycle, T, "c", up=True, as_of=at("01T02:00"))) == was
    assert was <= edges(lineage(lifecycle, U, "total", up=True, instance="2013-11-01T00:00Z"))
    assert ("s.z", "t.c", "direct") in edges(lineage(lifecycle, U, "total", up=True, clusters=("primary",)))
    with pytest.raises(InstanceQueryError, match="2013-11-01T05:00Z: no production of it is on record"):
        lineage(lifecycle, U, "total", instance="2013-11-01T05:00Z")


def test_what_is_unknown_is_told_with_its_reason(lifecycle: LifecycleHarness) -> None:
    lifecycle.lineage = {T: ColumnLineage(unknown="it reads an RDD")}
    lifecycle.run("insert", START + timedelta(hours=1), at("01T03:00"))
    (node,) = lineage(lifecycle, T, "c", up=True).nodes
    assert node.remarks == ("what it is made of is unknown: it reads an RDD",)
    assert ("s.a", "t.*", "read") in edges(lineage(lifecycle, S, "a", down=True))
    lifecycle.lineage = {}
    lifecycle.run("insert", START + timedelta(hours=1), at("01T04:00"))
    (node,) = lineage(lifecycle, T, up=True).nodes
    assert node.label == f"column t.* on primary 2013-11-01T01:00Z; what it is made of is unknown: {NOT_TOLD}"


def test_nothing_made_until_a_time_is_said(lifecycle: LifecycleHarness) -> None:
    graph = lineage(lifecycle, T, "c", up=True, as_of=START)
    assert graph.notes == ("nothing of feed 't' on 'primary' was made until 2013-11-01T00:00Z",)
    assert lineage(lifecycle, S, "a", as_of=START).notes == lineage(lifecycle, T, "c").notes == ()


def test_each_column_is_looked_up_by_its_name(lifecycle: LifecycleHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    lifecycle.lineage = {T: made({f"c{number}": [source(f"s.c{number}")] for number in range(200)})}
    lifecycle.run("insert", START + timedelta(hours=1), at("01T03:00"))
    looked: list[str] = []
    covers = Column.covers
    monkeypatch.setattr(Column, "covers", lambda column, name: looked.append(name) or covers(column, name))
    assert len(edges(lineage(lifecycle, T, up=True))) == 200
    assert len(edges(lineage(lifecycle, S, down=True))) == 2 * 200  # of each column, and of all
    assert len(looked) < 200 * 10


def test_declared_sources_are_marked(lifecycle: LifecycleHarness) -> None:
    lifecycle.lineage = {T: made({"c": [source("s.a", by=DECLARED)]})}
    lifecycle.run("insert", START + timedelta(hours=1), at("01T03:00"))
    graph = lineage(lifecycle, T, "c", up=True)
    assert edges(graph) == {("s.a", "t.c", "declared")}
    assert "declared to be of column s.a" in graph.text


def test_at_most_three_names_are_suggested_the_nearest_first(lifecycle: LifecycleHarness) -> None:
    lifecycle.lineage = {T: made({name: [] for name in ("price", "prices", "day", "week", "size")})}
    lifecycle.run("insert", START + timedelta(hours=1), at("01T03:00"))
    with pytest.raises(EntityNotFoundError, match=r"Did you mean 'price' or 'prices' or '\w+'\?$"):
        lineage(lifecycle, T, "pric")


def test_a_field_of_a_column_that_has_none_is_refused(tmp_path: Path) -> None:
    found = LifecycleHarness.of(tmp_path, feed(S, schema="mean double, at struct<day: date>"))
    for name in ("Mean", "at.day"):
        assert lineage(found, S, name).starts
    with pytest.raises(EntityNotFoundError, match=r"no column 's\.mean\.x'. Did you mean 'mean'"):
        lineage(found, S, "mean.x")


def test_other_names_are_refused_and_the_known_ones_named(lifecycle: LifecycleHarness) -> None:
    with pytest.raises(EntityNotFoundError, match=r"no column 'u\.sum'. Did you mean 'version' or 'total'"):
        lineage(lifecycle, U, "sum", clusters=("primary",))
    with pytest.raises(EntityNotFoundError, match=r"no column 's\.x'. Did you mean 'b' or 'a'"):
        lineage(lifecycle, S, "x")
    with pytest.raises(EntityNotFoundError, match="no feed 'v'"):
        lineage(lifecycle, "v", "x")
