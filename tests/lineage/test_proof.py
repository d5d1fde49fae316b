"""What lineage says of present data, held against storage."""

from pathlib import Path

import pytest

from feed_assets.context.operation import OperationContext
from feed_assets.lineage.commands import show
from feed_assets.lineage.records import LineageGraph
from tests.context.contexts import context_of, counting_harness
from tests.instances.harness import START, LifecycleHarness, at, hours
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
    name = "part-1.csv" if change == "extra" else "part-0.csv"
    gone = "differs: storage does not have it"
    assert said == (gone if change == "all" else f"differs: other files than in the manifest: {name}")
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
    assert [
        proof for name, proof in proofs(graph) if name == "counts" and (proof or "").startswith("differs: storage has")
    ]


def test_what_was_evicted_is_gone_and_what_is_restored_is_known_again(tmp_path: Path) -> None:
    harness = RetentionHarness.of(tmp_path, kept_feed())
    harness.land("clicks", START)
    harness.arrive(at("01T00:10"))
    harness.wait(at("20"))
    sweep = harness.sweep_now("clicks")
    context = context_of(harness.lifecycle, at("20T01:00"))
    gone = proven(context, "clicks")
    assert (proofs(gone), gone.has_failed) == ([("clicks", None), ("clicks", "gone")], False)
    harness.undo(sweep)
    assert proofs(proven(context, "clicks"))[-1] == ("clicks", "not known: no digest of the content was recorded")
