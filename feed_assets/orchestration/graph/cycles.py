"""Find inputs that Dagster's graph must omit. Its assets form no cycle, but a feed may depend on its own past
instances.
"""

from itertools import pairwise

from feed_assets.entities.graph import iter_rings
from feed_assets.plan.edges import Key
from feed_assets.plan.records import Plan


def find_omitted_inputs(plan: Plan) -> frozenset[tuple[Key, Key]]:
    """Return (feed, process) pairs to omit from the graph: of each cycle, the input that reads furthest into the
    past.
    """
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
    omitted_inputs: set[tuple[Key, Key]] = set()
    while (ring := next(iter_rings(before), None)) is not None:
        inputs = [(feed, process) for (_, process), (kind, feed) in pairwise((*ring, ring[0])) if kind == "feed"]
        feed, process_key = min(inputs, key=lambda pair: (reach[pair], pair))
        before["process", process_key].discard(("feed", feed))
        omitted_inputs.add((feed, process_key))
    return frozenset(omitted_inputs)
