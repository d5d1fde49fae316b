"""Pictures of graphs: nothing overlaps, nothing is markup, and the same graph is the same picture."""

import re
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from feed_assets.errors import WrongUsageError
from feed_assets.lineage.records import Edge, EdgeKind, LineageGraph, Node, NodeKind
from feed_assets.masking import remember

GOLDEN = Path(__file__).parent / "golden"
START = datetime(2013, 11, 1, tzinfo=UTC)
SVG = "{http://www.w3.org/2000/svg}"


def event(name: str, hour: int = 0, state: str = "ARRIVED") -> Node:
    at = START + timedelta(hours=hour)
    return Node(id=f"{name}/{hour}", kind=NodeKind.EVENT, name=name, cluster="east", nominal_time=at, state=state)


def attempt(name: str, number: int, state: str) -> Node:
    more = {"cluster": "east", "nominal_time": START, "state": state, "number": number}
    return Node(id=f"{name}#{number}", kind=NodeKind.ATTEMPT, name=name, **more)  # type: ignore[arg-type]


def read(source: Node, target: Node, name: str | None = None) -> Edge:
    return Edge(source=source.id, target=target.id, kind=EdgeKind.READ, name=name)


def graph_of(nodes: Sequence[Node], edges: Sequence[Edge], *starts: Node) -> LineageGraph:
    return LineageGraph(starts=tuple(each.id for each in starts), nodes=tuple(nodes), edges=tuple(edges))


def small() -> LineageGraph:
    raw, tries, report = [event("raw", hour) for hour in range(3)], [attempt("count", 1, "FAILED")], event("report")
    tries.append(attempt("count", 2, "SUCCEEDED"))
    alone = Node(id="owner/ann", kind=NodeKind.OWNER, name="ann")
    edges = [read(one, other, "raw") for one in raw for other in tries]
    edges += [Edge(source=tries[1].id, target=report.id, kind=EdgeKind.MADE, name="report"), read(raw[0], raw[0])]
    edges += [
        Edge(source=tries[0].id, target=tries[1].id, kind=EdgeKind.THEN),
        read(raw[0], report),
        read(report, raw[0]),
    ]
    return graph_of([*raw, *tries, report, alone], edges, report)


def chain(count: int, beside: int) -> LineageGraph:
    """Return a chain of data that each has others beside it."""
    line = [event(f"line{number}") for number in range(count)]
    others = [event(f"other{number}-{of}") for number in range(count) for of in range(beside)]
    edges = [read(one, other) for one, other in pairwise(line)]
    edges += [read(others[number * beside + of], line[number]) for number in range(count) for of in range(beside)]
    return graph_of([*line, *others], edges, line[-1])


def boxes_of(svg: str) -> list[tuple[float, float, float, float]]:
    names = ("x", "y", "width", "height")
    return [
        tuple(float(each.attrib[name]) for name in names) for each in ElementTree.fromstring(svg).iter(f"{SVG}rect")
    ]  # type: ignore[misc]


def points_of(svg: str) -> Iterator[tuple[float, float]]:
    """Yield points of all arrows: each end, and what lies on the way."""
    for each in ElementTree.fromstring(svg).iter(f"{SVG}path"):
        if "marker-end" in each.attrib:
            x, y = 0.0, 0.0
            for command, told in re.findall(r"([MHC])([^MHC]+)", each.attrib["d"]):
                numbers = [float(one) for one in told.split()]
                if command == "C":
                    (x1, y1, x2, y2, x3, y3), last = numbers, (x, y)
                    for t in (0.1, 0.3, 0.5, 0.7, 0.9):
                        parts = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3)
                        yield (
                            sum(p * q for p, q in zip(parts, (last[0], x1, x2, x3), strict=True)),
                            sum(p * q for p, q in zip(parts, (last[1], y1, y2, y3), strict=True)),
                        )
                    x, y = x3, y3
                else:
                    x, y = (numbers[0], numbers[1]) if command == "M" else (numbers[0], y)
                    yield x, y


def test_a_small_graph_is_the_picture_of_the_golden_file(request: pytest.FixtureRequest) -> None:
    svg, file = small().svg, GOLDEN / "drawing.svg"
    if request.config.getoption("--update-golden"):
        file.write_text(svg + "\n")
    assert file.read_text() == svg + "\n"


@pytest.mark.parametrize("graph", [small(), chain(14, 3), chain(3, 60), graph_of([], []), graph_of([event("a")], [])])
def test_boxes_do_not_overlap_and_no_arrow_goes_through_one(graph: LineageGraph) -> None:
    boxes, points = boxes_of(graph.svg), list(points_of(graph.svg))
    root = ElementTree.fromstring(graph.svg)
    wide, high = float(root.attrib["width"]), float(root.attrib["height"])
    for number, (x, y, w, h) in enumerate(boxes):
        assert min(x, y, wide - x - w, high - y - h) >= 0
        assert not any(abs(x - a) < w and abs(y - b) < h for a, b, *_ in boxes[number + 1 :])
        assert not any(x + 1 < px < x + w - 1 and y < py < y + h for px, py in points)


def test_of_500_nodes_those_of_the_nearest_steps_are_drawn() -> None:
    svg = chain(100, 4).svg
    assert len(boxes_of(svg)) == 196
    assert "Drawn are 196 of 500: those at most 39 steps away. The text has all." in svg
    wide = chain(1, 499).svg
    assert len(boxes_of(wide)) == 200
    assert "Drawn are 200 of 500: the nearest." in wide


def test_no_text_is_markup_and_no_secret_is_told() -> None:
    remember("hunter2hunter2", "DB_PASSWORD")
    wild = '"><script>alert(1)</script>\x00\x1b[2J\u202e\nhunter2hunter2' + "x" * 300
    graph = graph_of([event(wild), event("b", state=wild)], [read(event(wild), event("b"), wild)])
    svg = graph.draw(lambda nodes: f"/ui/{nodes[0].name}")
    assert {each.tag for each in ElementTree.fromstring(svg).iter()} == {
        f"{SVG}{name}" for name in ("svg", "defs", "marker", "path", "text", "g", "a", "title", "rect")
    }
    assert "hunter2" not in svg
    assert all(each.isprintable() or each == "\n" for each in svg)


def test_a_series_leads_to_the_address_of_all_its_instances() -> None:
    svg = small().draw(lambda nodes: f"/of/{nodes[0].name}/{len(nodes)}" if nodes[0].cluster else "")
    links = [each.attrib["href"] for each in ElementTree.fromstring(svg).iter(f"{SVG}a")]
    assert sorted(links) == ["/of/count/1", "/of/count/1", "/of/raw/1", "/of/raw/2", "/of/report/1"]
    assert "href" not in small().svg


def test_without_the_package_it_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fast_sugiyama", None)
    with pytest.raises(WrongUsageError, match=r"Install it: pip install 'feed-assets\[server\]'"):
        _ = small().svg
