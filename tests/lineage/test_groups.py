"""What hangs on a word or a place."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from feed_assets.entities.cluster import Cluster
from feed_assets.entities.errors import EntityNotFoundError
from feed_assets.lineage.commands import group
from feed_assets.lineage.records import EdgeKind
from feed_assets.loading.yaml_writer import render_yaml
from tests.definitions.verbs.harness import EntityHarness
from tests.instances.harness import feed, process


@pytest.fixture
def harness(tmp_path: Path) -> EntityHarness:
    """A chain of two processes and a ring of two, all in the pipeline `daily` but for a last reader."""
    found = EntityHarness.at(tmp_path)
    daily, ops = {"pipelines": ["daily"]}, {"owner": "ops"}
    entities = [
        Cluster(name="primary", storage="memory://primary", colo="north"),
        feed("clicks", groups=["web"]),
        feed("counts", groups=["web"], tags=ops),
        feed("reports", acl={"owner": "ann"}),
        feed("left"),
        feed("right"),
        process("count", inputs={"clicks": "now(0,0)"}, outputs={"counts": "now(0,0)"}, **daily),
        process(
            "report", inputs={"counts": "now(0,0)"}, outputs={"reports": "now(0,0)"}, tags={"owner": "ops"}, **daily
        ),
        process("read", inputs={"reports": "now(0,0)"}),
        process("ping", inputs={"left": "now(-1,0)"}, outputs={"right": "now(0,0)"}, **daily),
        process("pong", inputs={"right": "now(0,0)"}, outputs={"left": "now(0,0)"}, **daily),
    ]
    (tmp_path / "entities" / "all.yaml").write_text("---\n".join(map(render_yaml, entities)))
    return found


def lines(harness: EntityHarness, kind: str, name: str) -> Sequence[str]:
    return group(harness.context(), kind=kind, name=name).text.split("\n")  # type: ignore[arg-type]


def test_row_130_a_pipeline_is_a_graph_of_processes_with_the_feeds_that_they_hand_on(harness: EntityHarness) -> None:
    assert lines(harness, "pipeline", "daily") == [
        "pipeline daily",
        "  has process count",
        "    read feed clicks",
        "    hands counts to process report",
        "  has process ping",
        "    gets left from process pong",
        "    hands right to process pong",
        "  has process pong",
        "    gets right from process ping",
        "    hands left to process ping",
        "  has process report",
        "    gets counts from process count",
        "    made feed reports",
    ]
    edges = group(harness.context(), kind="pipeline", name="daily").edges
    assert {(each.source, each.name, each.target) for each in edges if each.name} == {
        ("process/count", "counts", "process/report"),
        ("process/ping", "right", "process/pong"),
        ("process/pong", "left", "process/ping"),
    }


def test_row_131_what_hangs_on_a_word_or_a_place_is_a_graph_of_its_entities(harness: EntityHarness) -> None:
    assert lines(harness, "group", "web") == [
        "group web",
        "  has feed clicks",
        "    read by process count",
        "  has feed counts",
        "    made by process count",
        "    read by process report",
    ]
    reports = ["  has feed reports", "    made by process report", "    read by process read"]
    assert lines(harness, "owner", "ann") == ["owner ann", *reports]
    tagged = [
        "  has feed counts",
        "    made by process count",
        "    read by process report",
        "  has process report",
        "    read feed counts",
        "    made feed reports",
    ]
    assert lines(harness, "owner", "ops") == ["owner ops", *tagged]
    assert lines(harness, "tag", "owner=ops") == ["tag owner=ops", *tagged]
    on_cluster = lines(harness, "cluster", "primary")
    assert on_cluster[:3] == ["cluster primary", "  has feed clicks", "    read by process count"]
    assert {"  has process read", "    read feed reports"} <= {*on_cluster}
    assert lines(harness, "colo", "north")[:3] == ["colo north", "  has cluster primary", "    has feed clicks"]


@pytest.mark.parametrize(
    ("kind", "name"), [("group", "web"), ("owner", "ops"), ("cluster", "primary"), ("colo", "north")]
)
def test_each_entity_hangs_on_what_it_has_and_its_data_are_in_every_form(
    harness: EntityHarness, kind: str, name: str
) -> None:
    graph = group(harness.context(), kind=kind, name=name)  # type: ignore[arg-type]
    drawn = {(each.source, each.kind, each.target) for each in graph.edges}
    assert ("feed/clicks", EdgeKind.READ, "process/count") in drawn or name == "ops"
    assert ("process/count", EdgeKind.MADE, "feed/counts") in drawn
    assert (f"{kind}/{name}", EdgeKind.HAS, "feed/counts") in drawn
    assert len({*graph.edges}) == len(graph.edges)
    assert {end for each in graph.edges for end in (each.source, each.target)} <= {each.id for each in graph.nodes}
    assert '"process/count" -> "feed/counts" [label="made"];' in graph.dot


@pytest.mark.parametrize("kind", ["pipeline", "group", "tag", "owner", "cluster", "colo"])
def test_a_name_that_nothing_has_is_refused(harness: EntityHarness, kind: str) -> None:
    with pytest.raises(EntityNotFoundError, match=f"there is no {kind} 'dayly'"):
        lines(harness, kind, "dayly")


def test_a_name_that_is_near_is_proposed(harness: EntityHarness) -> None:
    with pytest.raises(EntityNotFoundError, match="Did you mean 'daily'"):
        lines(harness, "pipeline", "dayly")
