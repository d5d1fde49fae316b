from pathlib import Path

from feed_assets.context.consolidation import Result
from feed_assets.context.operation import resolve_subject
from feed_assets.entities.common import Kind
from feed_assets.entities.process import Process
from feed_assets.json_form import render_document
from feed_assets.lineage.instance_views import TriageGraph, find_triage, label_of
from feed_assets.lineage.records import MOST_NODES
from feed_assets.log.records import ProcessInstanceStatus
from tests.context.contexts import about, context_of, counting_harness, put, row
from tests.instances.harness import START, LifecycleHarness, at, feed, hours, process, validity


def triage(lifecycle: LifecycleHarness, kind: Kind, name: str, as_of: str = "01T05:00") -> TriageGraph:
    (graph,) = about(find_triage, context_of(lifecycle, at(as_of)), name, START, kind=kind).items
    return graph


def test_row_119_the_graph_goes_upstream_to_the_first_that_are_healthy(tmp_path: Path, state_url: str) -> None:
    lifecycle = counting_harness(tmp_path, state_url)
    lifecycle.land("clicks", *hours(4))
    lifecycle.flag("clicks", *hours(3))
    lifecycle.launch(lifecycle.tick(at("01T05:00")), at("01T05:00"))

    graph = triage(lifecycle, Kind.PROCESS, "report")

    labels = [label_of(each) for each in graph.graph.nodes]
    assert labels[0] == "PROCESS:report:primary:2013-11-01T00:00Z [WAITING]"
    assert labels[1:5] == [
        "FEED:counts:primary:2013-11-01T00:00Z [AVAILABLE]",
        "FEED:counts:primary:2013-11-01T01:00Z [AVAILABLE]",
        "FEED:counts:primary:2013-11-01T02:00Z [AVAILABLE]",
        "FEED:counts:primary:2013-11-01T03:00Z [MISSING]",
    ]
    assert labels[5:] == [
        "PROCESS:count:primary:2013-11-01T03:00Z [WAITING]",
        "FEED:clicks:primary:2013-11-01T03:00Z [PARTIAL]",
    ]
    assert [tuple(edge.values()) for edge in graph.edges][-2:] == [
        (5, 4, "produces"),
        (6, 5, "consumed by"),
    ]
    assert graph.is_whole
    assert graph.text.splitlines() == [
        "PROCESS:report:primary:2013-11-01T00:00Z [WAITING]",
        "  FEED:counts:primary:2013-11-01T00:00Z to 2013-11-01T02:00Z [AVAILABLE] (3 instances)",
        "  FEED:counts:primary:2013-11-01T03:00Z [MISSING]",
        "    PROCESS:count:primary:2013-11-01T03:00Z [WAITING]",
        "      FEED:clicks:primary:2013-11-01T03:00Z [PARTIAL]",
    ]


def test_row_119_a_healthy_instance_is_one_vertex(tmp_path: Path) -> None:
    lifecycle = counting_harness(tmp_path)
    lifecycle.land("clicks", START)
    lifecycle.flag("clicks", START)
    lifecycle.launch(lifecycle.tick(at("01T00:10")), at("01T00:10"))
    graph = triage(lifecycle, Kind.PROCESS, "count")
    assert ([vertex["status"] for vertex in graph.vertices], graph.edges) == (["SUCCEEDED"], ())


def test_row_119_as_dot_text_and_json(tmp_path: Path) -> None:
    graph = triage(counting_harness(tmp_path), Kind.PROCESS, "count")
    count, clicks = (
        "PROCESS:count:primary:2013-11-01T00:00Z [UNSCHEDULED]",
        "FEED:clicks:primary:2013-11-01T00:00Z [MISSING]",
    )
    assert graph.dot.splitlines() == [
        'digraph "primary" {',
        f'  "{count}";',
        f'  "{clicks}";',
        f'  "{clicks}" -> "{count}" [label="consumed by"];',
        "}",
    ]
    assert graph.text.splitlines() == [count, f"  {clicks}"]
    assert render_document(graph)["edges"] == [{"source": 1, "target": 0, "label": "consumed by"}]


def test_row_119_a_time_that_is_no_instance_is_an_error(tmp_path: Path) -> None:
    context = context_of(counting_harness(tmp_path), at("02"))
    for kind, name in ((Kind.PROCESS, "count"), (Kind.FEED, "clicks")):
        found = find_triage(context, resolve_subject(context, name, at("01T00:30"), kind=kind))
        assert found.result is Result.FAILED
        assert "between two instances" in found.message


def test_an_instance_with_a_failed_producer_hangs_on_its_inputs_too(tmp_path: Path) -> None:
    lifecycle = counting_harness(tmp_path)
    put(lifecycle, row("count", START, ProcessInstanceStatus.FAILED))
    labels = [label_of(each) for each in triage(lifecycle, Kind.FEED, "counts").graph.nodes]
    labels = [each.split(":")[1] + each[-9:] for each in labels]
    assert labels == ["counts[MISSING]", "count [FAILED]", "clicks[MISSING]"]


def test_what_hangs_on_itself_through_time_ends(tmp_path: Path) -> None:
    """Each total reads the one before: a cycle among entities, a chain among instances."""
    lifecycle = LifecycleHarness.of(
        tmp_path,
        feed("totals", start=at("2013-10-31T00:00")),
        Process(
            name="add",
            frequency="hours(1)",
            clusters={"primary": validity(START, None)},
            inputs={"before": {"feed": "totals", "start": "now(-1,0)", "end": "now(-1,0)"}},
            outputs={"after": {"feed": "totals", "instance": "now(0,0)"}},
            workflow={"path": "jobs:run"},
        ),
    )
    (graph,) = about(find_triage, context_of(lifecycle, at("02")), "add", at("01T03:00")).items
    times = [vertex["nominal_time"] for vertex in graph.vertices if vertex["kind"] == "process"]
    assert times == [f"2013-11-01T0{hour}:00Z" for hour in (3, 2, 1, 0)]
    assert graph.vertices[-1]["nominal_time"] == "2013-10-31T23:00Z"


def test_a_graph_that_grows_too_large_is_cut_off_and_says_so(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(
        tmp_path,
        feed("clicks", "minutes(1)", start=at("2013-10-01")),
        process("sum", inputs={"clicks": "now(-40,0) now(0,0)"}),
        feed("sums"),
    )
    graph = triage(lifecycle, Kind.PROCESS, "sum")
    assert not graph.is_whole
    assert len(graph.vertices) <= MOST_NODES + 1
    assert graph.text.endswith("... and more")
    assert '  "... and more";' in graph.dot.splitlines()
