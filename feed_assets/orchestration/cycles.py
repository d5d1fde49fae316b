"""Which inputs Dagster's graph cannot show: its assets form no ring, while a feed may read what it became yesterday."""

from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from feed_assets.plan.records import Key, Plan


def undrawn_inputs(plan: Plan) -> frozenset[tuple[Key, Key]]:
    """(feed, process) pairs to leave out of the graph: of each ring the input that reads furthest into the past."""
    before: dict[tuple[str, Key], set[tuple[str, Key]]] = {}
    reach: dict[tuple[Key, Key], int] = {}
    for process in plan.processes.values():
        for edge in process.inputs:
            feed = edge.feed_key
            before.setdefault(("process", process.key), set()).add(("feed", feed))
            last = edge.shifts[1] if edge.shifts else 0
            reach[feed, process.key] = max(last, reach.get((feed, process.key), last))
        for out in process.outputs:
            before.setdefault(("feed", out.feed_key), set()).add(("process", process.key))
    undrawn: set[tuple[Key, Key]] = set()
    while (ring := _find_ring(before)) is not None:
        inputs = [(feed, process) for (kind, feed), (_, process) in ring if kind == "feed"]
        feed, process_key = min(inputs, key=lambda pair: (reach[pair], pair))
        before["process", process_key].discard(("feed", feed))
        undrawn.add((feed, process_key))
    return frozenset(undrawn)


def _find_ring(
    before: dict[tuple[str, Key], set[tuple[str, Key]]],
) -> list[tuple[tuple[str, Key], tuple[str, Key]]] | None:
    """The (predecessor, successor) pairs of some ring."""
    try:
        TopologicalSorter(before).prepare()
    except CycleError as exc:
        nodes = exc.args[1]
        return list(pairwise(nodes))
    return None
