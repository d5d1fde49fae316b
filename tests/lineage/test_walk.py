"""The walk from event to event, on a record in memory."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from feed_assets.json_form import render_document
from feed_assets.lineage.port import Giver
from feed_assets.lineage.records import Edge, EdgeKind, LineageGraph, Node, NodeKind
from feed_assets.lineage.walk import find_version, walk_lineage
from feed_assets.log.records import FeedEventKind, FeedKey, ProcessKey
from feed_assets.log.removals.records import Sweep, SweepState
from tests.instances.harness import START
from tests.lineage.memory import MemoryLineage

GOLDEN = Path(__file__).parent / "golden"


def chain() -> MemoryLineage:
    """One is made of the other, by two processes."""
    port = MemoryLineage()
    port.happen("raw", "a")
    port.run("clean", {"raw": "a"}, {"clean": "b"})
    port.run("report", {"clean": "b"}, {"reports": "c"})
    port.givers[1] = [Giver(NodeKind.AUTHOR, "ann"), Giver(NodeKind.FILE, "in/a.csv")]
    return port


def loop() -> MemoryLineage:
    """A process reads of the day before what it writes."""
    port = MemoryLineage()
    port.happen("raw", "a")
    port.run("add", {"raw": "a"}, {"totals": "t1"})
    port.run("carry", {"totals": "t1"}, {"raw": "b"})
    port.run("add", {"raw": "b"}, {"totals": "t2"})
    return port


def cycle() -> MemoryLineage:
    """Two of the same bytes, each made of the other."""
    port = MemoryLineage()
    port.happen("one", "x")
    port.run("there", {"one": "x"}, {"two": "x"})
    port.run("back", {"two": "x"}, {"one": "x"})
    port.run("there", {"one": "x"}, {"two": "x"})
    return port


def branch() -> MemoryLineage:
    """Data that are made again after somebody has read them: he has the old ones, who comes later the new ones."""
    port = MemoryLineage()
    port.happen("raw", "a")
    port.run("count", {"raw": "a"}, {"counts": "c1"})
    port.run("early", {"counts": "c1"}, {"early": "e"})
    port.happen("raw", "b", FeedEventKind.CHANGED)
    port.run("count", {"raw": "b"}, {"counts": "c2"})
    port.run("tardy", {"counts": "c2", "raw": "b"}, {"tardy": "t"})
    port.happen("counts", "c2", FeedEventKind.EVICTED, sweep="s-1")
    port.sweeps["s-1"] = Sweep(
        sweep_id="s-1",
        cluster="primary",
        state=SweepState.DONE,
        as_of=START,
        created_at=START,
        author="ann",
        origin="retention",
        digest="d",
        purge_at=START + timedelta(days=9),
    )
    return port


def walked(port: MemoryLineage, name: str, **more: int) -> LineageGraph:
    options = {"up": True, "down": True, "levels": 10, **more}
    return walk_lineage(port, [FeedKey(name, "primary", START)], **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("make", "of"), [(chain, "clean"), (loop, "totals"), (cycle, "two"), (branch, "counts")])
def test_walks_are_told_as_trees_graphs_and_json(
    make: Callable[[], MemoryLineage], of: str, request: pytest.FixtureRequest
) -> None:
    graph = walked(make(), of)
    file = GOLDEN / f"walk_{make.__name__}.txt"
    edges = (f"{each['source']} -> {each['target']} {each['kind']}" for each in render_document(graph)["edges"])
    text = "\n".join([graph.text, "", graph.dot, "", *edges, ""])
    if request.config.getoption("--update-golden"):
        file.write_text(text)
    assert file.read_text() == text


def test_a_graph_has_one_node_for_instances_with_the_same_neighbours_but_one_for_each_attempt() -> None:
    times = [START + timedelta(hours=hour) for hour in range(4)]
    raw = [Node(id=f"raw/{at:%H}", kind=NodeKind.EVENT, name="raw", nominal_time=at, state="ARRIVED") for at in times]
    tries = [
        Node(id=f"day/{number}", kind=NodeKind.ATTEMPT, name="day", nominal_time=START, state="FAILED", number=number)
        for number in (1, 2)
    ]
    own = Node(id="file", kind=NodeKind.FILE, name="3.csv")
    edges = [Edge(source=one.id, target=other.id, kind=EdgeKind.READ, name="raw") for one in raw for other in tries]
    edges += [Edge(source=own.id, target=raw[3].id, kind=EdgeKind.GAVE)]
    graph = LineageGraph(starts=(tries[0].id, tries[1].id), nodes=(*tries, *reversed(raw), own), edges=tuple(edges))
    assert [line.split(" shape")[0].strip() for line in graph.dot.splitlines()[1:-1]] == [
        '"day/1" [label="process day 2013-11-01T00:00Z attempt 1 FAILED"',
        '"day/2" [label="process day 2013-11-01T00:00Z attempt 2 FAILED"',
        '"raw/03" [label="feed raw 2013-11-01T03:00Z ARRIVED"',
        '"raw/00" [label="feed raw 2013-11-01T00:00Z to 2013-11-01T02:00Z ARRIVED (3 instances)"',
        '"file" [label="file 3.csv"',
        '"raw/00" -> "day/1" [label="raw"];',
        '"raw/00" -> "day/2" [label="raw"];',
        '"raw/03" -> "day/1" [label="raw"];',
        '"raw/03" -> "day/2" [label="raw"];',
        '"file" -> "raw/03" [label="gave"];',
    ]
    down = replace(graph, starts=(raw[0].id,), edges=tuple(edges[:2]), up=False)
    assert "attempt 1 FAILED\n" in down.text


def test_only_who_has_read_these_bytes_is_downstream() -> None:
    port = branch()
    graph = walk_lineage(port, [ProcessKey("count", "primary", START)], up=False, down=True, levels=10)
    names = {each.name for each in graph.nodes}
    assert names == {"count", "counts", "early", "tardy", "s-1"}
    port = branch()
    late = port.events[3]
    assert late.kind is FeedEventKind.CHANGED
    found = {each.id: each for each in walked(port, "tardy", down=False).nodes}
    assert "attempt/early/primary/2013-11-01T00:00Z/1" not in found
    assert found["event/2"].remarks == ("replaced since",)
    assert found["event/5"].remarks == ("evicted by sweep s-1: undo brings it back",)


def test_a_reader_of_another_version_is_no_reader_and_is_told() -> None:
    port = MemoryLineage()
    port.happen("raw", "a")
    port.run("copy", {"raw": "a"}, {"out": "1"})
    port.run("other", {"raw": "a"}, {"out": "2"})
    port.run("use", {"out": "1"}, {"used": "u"})
    graph = walk_lineage(port, [ProcessKey("other", "primary", START)], up=False, down=True, levels=9)
    assert "use" not in {each.name for each in graph.nodes}
    (made,) = [each for each in graph.nodes if each.number == 3 and each.kind is NodeKind.EVENT]
    assert made.remarks == ("process use on primary 2013-11-01T00:00Z attempt 1 has read another version",)


def test_levels_end_the_walk_and_a_large_graph_is_cut_off_and_says_so() -> None:
    port = MemoryLineage()
    port.happen("f0", "x")
    for n in range(30):
        port.run(f"p{n}", {f"f{n}": "x"}, {f"f{n + 1}": "x"})
    near = walked(port, "f30", down=False, levels=2)
    assert ({each.name for each in near.nodes}, near.is_whole) == ({"f30", "p29", "f29", "p28", "f28"}, False)
    assert (near.text.splitlines()[-1], near.notes) == (
        "... and more",
        ("there is more beyond --levels 2: give a higher number",),
    )
    for of, levels, is_whole in (("f0", 30, True), ("f0", 29, False), ("f28", 2, True), ("f28", 1, False)):
        assert walked(port, of, up=False, levels=levels).is_whole is is_whole
    for of, levels, is_whole in (("f30", 30, True), ("f30", 29, False), ("f2", 2, True), ("f2", 1, False)):
        assert walked(port, of, down=False, levels=levels).is_whole is is_whole
    cut = walk_lineage(port, [FeedKey("f30", "primary", START)], up=True, down=False, levels=99, most=20)
    assert (cut.is_whole, len(cut.nodes), cut.text.splitlines()[-1]) == (False, 21, "... and more")


def test_readers_are_in_the_order_of_their_instances() -> None:
    port = MemoryLineage()
    port.happen("raw", "a")
    for n in range(3):
        port.run("use", {"raw": "a"}, {f"used{n}": "u"})
    hours = zip(port.attempts, (3, 1, 2), strict=True)
    port.attempts = [replace(each, nominal_time=START + timedelta(hours=hour)) for each, hour in hours]
    told = [line for line in walked(port, "raw", up=False).text.splitlines() if "read by" in line]
    assert [line.split()[6] for line in told] == [f"2013-11-01T0{hour}:00Z" for hour in (1, 2, 3)]


def test_a_level_costs_a_few_questions_however_many_instances_it_has() -> None:
    port = MemoryLineage()
    for n in range(50):
        port.happen(f"in{n}", f"{n}")
    port.run("sum", {f"in{n}": f"{n}" for n in range(50)}, {"sums": "s"})
    assert len(walked(port, "sums").nodes) == 52
    assert port.asked < 20


def test_what_is_not_in_the_record_any_more_is_said() -> None:
    port = chain()
    del port.events[0]
    graph = walked(port, "clean", down=False)
    (gone,) = [each for each in graph.nodes if each.kind is NodeKind.FEED]
    cleaned, unknown = (
        "the record has no event with this content: it was cleaned up",
        "what has brought it is not known",
    )
    assert gone.remarks == (cleaned, unknown)
    assert gone.digest == "sha256:a"
    port.attempts.clear()
    (work,) = [each for each in walked(port, "clean", down=False).nodes if each.kind is NodeKind.PROCESS]
    assert work.label == "process clean on primary; its attempt is not in the record"


def test_the_version_is_the_last_before_with_the_same_content_or_that_nothing_proves_to_be_another() -> None:
    port = MemoryLineage()
    unknown, first, second = port.happen("raw", None), port.happen("raw", "a"), port.happen("raw", "b")
    events = port.events
    assert find_version(events, "sha256:a", port.now) == first
    assert find_version(events, None, port.now) == second
    assert find_version(events, None, unknown.recorded_at) == unknown
    assert find_version(events, "sha256:c", port.now) == unknown
    assert find_version(events[1:], "sha256:c", port.now) is None


def test_numbers_of_the_log_go_before_clocks() -> None:
    port = MemoryLineage()
    first, again, other = port.happen("raw", "a"), port.happen("raw", "a"), port.happen("raw", "b")
    at_once = [replace(each, recorded_at=START) for each in (first, again, other)]
    assert find_version(at_once, "sha256:a", START, START, below=2) == at_once[0]
    assert find_version(at_once, "sha256:b", START, START, below=3) is None
    early = START - timedelta(hours=1)
    assert find_version(at_once, "sha256:a", early, early) == at_once[0]
    assert find_version(at_once, "sha256:b", early, early, below=4) == at_once[2]
    assert find_version(at_once, None, early, early, below=4) == at_once[0]
    port.run("use", {"raw": "a"}, {"used": "u"})
    port.attempts[0] = replace(port.attempts[0], started_at=early, ended_at=early)
    graph = walked(port, "raw", up=False)
    assert {each.name for each in graph.nodes} == {"raw", "use", "used"}
    assert not [remark for each in graph.nodes for remark in each.remarks if "version" in remark]


def test_the_same_bytes_of_a_later_event_were_not_read_before() -> None:
    port = chain()
    later = port.happen("raw", "a")
    del port.events[0]
    up = walked(port, "clean", down=False)
    (gone,) = [each for each in up.nodes if each.kind is NodeKind.FEED]
    assert gone.remarks[0] == "the record tells this content only by a later event"
    down = {each.number: each for each in walked(port, "raw", up=False).nodes}
    use = "process clean on primary 2013-11-01T00:00Z attempt 1"
    assert down[later.seq].remarks == (f"{use} has read the same content, by another event",)


def test_unknown_content_is_not_the_same() -> None:
    port = MemoryLineage()
    port.happen("raw", None)
    port.happen("raw", None, FeedEventKind.CHANGED)
    port.happen("raw", None, FeedEventKind.EVICTED)
    port.happen("raw", None, FeedEventKind.RESTORED)
    told = [each.remarks for each in walked(port, "raw").nodes]
    again = "recorded again since: whether it is the same is not known"
    assert told == [(again,), ("evicted, and brought back since",), (), ()]
