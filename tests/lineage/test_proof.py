"""What lineage says of present data, held against storage."""

from pathlib import Path

import pytest

from feed_assets.context.operation import OperationContext
from feed_assets.lineage.commands import show
from feed_assets.lineage.records import LineageGraph
from feed_assets.storage.checksums import checksum_of
from tests.context.contexts import context_of, counting_harness
from tests.instances.harness import START, LifecycleHarness, at, feed, hours, process
from tests.retention.harness import RetentionHarness, kept_feed


@pytest.fixture
def lifecycle(tmp_path: Path) -> LifecycleHarness:
    """An hour of clicks that was counted twice."""
    lifecycle = counting_harness(tmp_path)
    lifecycle.land("clicks", *hours(1))
    lifecycle.flag("clicks", *hours(1))
    lifecycle.arrive(at("01T00:10"))
    for minute in (20, 30):
        lifecycle.job = lambda work, text=f"at {minute}": dict.fromkeys([each.name for each in work.outputs], text)
        lifecycle.run("count", START, at(f"01T00:{minute}"), f"run-{minute}")
    return lifecycle


def proven(context: OperationContext, name: str = "counts") -> LineageGraph:
    graph = show(context, names=(name, "2013-11-01T00:00Z"), proof=True)
    assert isinstance(graph, LineageGraph)
    return graph


def proofs(graph: LineageGraph) -> list[tuple[str, str | None]]:
    return [(each.name, each.proof) for each in graph.nodes if each.kind == "event"]


def test_the_present_content_is_proven_and_what_it_replaced_claims_nothing(lifecycle: LifecycleHarness) -> None:
    graph = proven(context_of(lifecycle, at("01T01:00")))
    arrived = ("clicks", "not known: no digest of the content was recorded")
    assert {*proofs(graph)} == {("counts", None), ("counts", "proven"), arrived}
    assert graph.notes == ("proof: 1 proven, 0 differs, 0 gone, 1 not known",)
    assert not graph.has_failed
    assert "[proven]" in graph.text


@pytest.mark.parametrize("change", ["byte", "file", "extra", "all"])
def test_whatever_is_changed_in_storage_differs(lifecycle: LifecycleHarness, change: str) -> None:
    folder = lifecycle.folder("counts", START)
    file = folder / "part-0.csv"
    match change:
        case "byte":
            file.write_text("at 31")
        case "file":
            file.unlink()
        case "extra":
            (folder / "part-1.csv").write_text("more")
        case _:
            folder.rename(folder.with_name("elsewhere"))
    graph = proven(context_of(lifecycle, at("01T01:00")))
    (said,) = [proof for name, proof in proofs(graph) if name == "counts" and proof]
    has, manifest = (checksum_of([text.encode()]) for text in ("at 31", "at 30"))
    assert (
        said
        == {
            "byte": f"differs: at {folder.as_uri()}: changed part-0.csv (it has {has}, not {manifest})",
            "file": f"differs: at {folder.as_uri()}: missing part-0.csv",
            "extra": f"differs: at {folder.as_uri()}: additional part-1.csv",
            "all": f"differs: storage does not have it at {folder.as_uri()}",
        }[change]
    )
    assert graph.has_failed


def test_another_publication_than_the_record_says_differs(lifecycle: LifecycleHarness) -> None:
    """Somebody has put a whole publication of other content in its place, with its manifest."""
    (lifecycle.root / "other").mkdir()
    other = counting_harness(lifecycle.root / "other")
    other.land("clicks", START)
    other.flag("clicks", START)
    other.arrive(at("01T00:10"))
    other.run("count", START, at("01T00:20"), "run-1")
    there, here = other.folder("counts", START), lifecycle.folder("counts", START)
    here.rename(here.with_name("before"))
    there.rename(here)
    graph = proven(context_of(lifecycle, at("01T01:00")))
    (said,) = [proof for name, proof in proofs(graph) if name == "counts" and proof]
    assert said.startswith(f"differs: {here.as_uri()} has sha256:")
    assert ", the record has sha256:" in said


def test_the_place_that_was_read_is_told_where_it_is_not_the_declared_one(lifecycle: LifecycleHarness) -> None:
    former = lifecycle.folder("counts", START)
    lifecycle.declare(feed("counts").model_copy(update={"locations": feed("elsewhere").locations}))
    graph = proven(context_of(lifecycle, at("01T01:00")))
    assert ("counts", f"proven: at {former.as_uri()}") in proofs(graph)


def test_what_was_evicted_is_gone_and_what_is_restored_is_known_again(tmp_path: Path) -> None:
    harness = RetentionHarness.of(tmp_path, kept_feed())
    harness.land("clicks", START)
    harness.arrive(at("01T00:10"))
    harness.wait(at("20"))
    sweep = harness.sweep_now("clicks")
    context = context_of(harness.lifecycle, at("20T01:00"))
    gone = proven(context, "clicks")
    assert (proofs(gone), gone.has_failed) == ([("clicks", "gone"), ("clicks", "gone")], False)
    assert gone.notes == ("proof: 0 proven, 0 differs, 1 gone, 0 not known",)
    harness.undo(sweep)
    back = proven(context, "clicks")
    unknown = "not known: no digest of the content was recorded"
    assert [proof for _, proof in proofs(back)] == [unknown, None, unknown]
    assert back.notes == ("proof: 0 proven, 0 differs, 0 gone, 1 not known",)


def test_what_is_restored_is_proven_by_the_digest_of_who_has_read_it(tmp_path: Path) -> None:
    late = {"policy": "exp-backoff", "delay": "hours(1)", "inputs": ["clicks"]}
    count = process("count", inputs={"clicks": "now(0,0)"}, outputs={"counts": "now(0,0)"}, late_process=late)
    late_arrival = feed("clicks", late_arrival={"cut_off": "hours(9)"}).late_arrival
    clicks = kept_feed().model_copy(update={"late_arrival": late_arrival})
    harness = RetentionHarness.of(tmp_path, clicks, feed("counts"), count)
    harness.land("clicks", START)
    harness.arrive(at("01T00:10"))
    harness.lifecycle.run("count", START, at("01T00:20"), "run-1")
    for hour in ("02", "04", "12"):
        harness.lifecycle.look_for_late(at(f"01T{hour}:00"))
    harness.wait(at("20"))
    sweep = harness.sweep_now("clicks")
    harness.undo(sweep)
    context = context_of(harness.lifecycle, at("20T01:00"))
    graph = show(context, names=("counts", "2013-11-01T00:00Z"), up=True, proof=True)
    assert isinstance(graph, LineageGraph)
    line = next(each for each in graph.text.split("\n") if "feed clicks" in each)
    assert "[proven]; evicted by sweep" in line
    assert graph.notes == ("proof: 2 proven, 0 differs, 0 gone, 0 not known",)


def test_only_what_the_tree_tells_of_is_counted(tmp_path: Path) -> None:
    """A report rests on counts that were replaced since, so those that are there now say nothing about it."""
    lifecycle = counting_harness(tmp_path)
    lifecycle.land("clicks", *hours(4))
    lifecycle.flag("clicks", *hours(4))
    lifecycle.arrive(at("01T00:10"))
    for hour in hours(4):
        lifecycle.run("count", hour, at("01T04:20"), "run-1")
    lifecycle.run("report", START, at("01T04:30"), "run-2")
    lifecycle.job = lambda work: dict.fromkeys([each.name for each in work.outputs], "other")
    lifecycle.run("count", START, at("01T05:00"), "run-3")
    graph = show(context_of(lifecycle, at("01T06:00")), names=("reports", "2013-11-01T00:00Z"), up=True, proof=True)
    assert isinstance(graph, LineageGraph)
    assert graph.text.count("[proven]") == 4
    assert graph.notes[-1].startswith("proof: 4 proven")
