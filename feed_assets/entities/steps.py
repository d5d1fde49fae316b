"""The graph of a workflow's steps: the order in which they run, and which of them a new attempt need not repeat."""

from collections.abc import Collection, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

from feed_assets.entities.workflow import Step


def order_steps(steps: Mapping[str, Step]) -> tuple[str, ...]:
    """Return the names of steps in the order in which they run; among those that could be next, as they are written.

    >>> load, clean = Step(path="jobs:load", after=("clean",)), Step(path="jobs:clean")
    >>> order_steps({"load": load, "clean": clean})
    ('clean', 'load')
    """
    ordered: dict[str, None] = {}
    while len(ordered) < len(steps):
        free = (name for name, step in steps.items() if name not in ordered and ordered.keys() >= set(step.after))
        ordered[next(free)] = None
    return tuple(ordered)


def find_ring(steps: Mapping[str, Step]) -> tuple[str, ...]:
    """Return steps of which each comes after the one before it, the first also after the last; empty if there are none.

    Names that are no steps are ignored.
    """
    sorter = TopologicalSorter({name: [each for each in step.after if each in steps] for name, step in steps.items()})
    try:
        sorter.prepare()
    except CycleError as exc:
        return tuple(exc.args[1][:-1])
    return ()


def last_steps(steps: Mapping[str, Step]) -> frozenset[str]:
    """Return the steps that no other step comes after."""
    return frozenset(steps) - {name for step in steps.values() for name in step.after}


def decide_repeated(steps: Mapping[str, Step], kept: Collection[str]) -> frozenset[str]:
    """Decide which steps a new attempt runs; `kept` are the finished ones whose results are still there.

    Run are the steps that have not finished; each step before one that runs, unless its result is kept and it is
    recoverable; and each step behind one that runs. A last step that is not recoverable runs, too.

    >>> steps = {"a": Step(path="j:a"), "b": Step(path="j:b", after=("a",), recoverable=False),
    ...          "c": Step(path="j:c", after=("b",))}
    >>> sorted(decide_repeated(steps, {"a", "b"})), sorted(decide_repeated(steps, {"a"}))
    (['b', 'c'], ['b', 'c'])
    """
    usable = {name for name in kept if steps[name].recoverable}
    found = {name for name in last_steps(steps) if name not in usable}
    found |= {name for name in steps if name not in kept}
    while new := {*_lacking(steps, found, usable), *_behind(steps, found)} - found:
        found |= new
    return frozenset(found)


def _lacking(steps: Mapping[str, Step], found: Collection[str], usable: Collection[str]) -> Iterator[str]:
    return (each for name in found for each in steps[name].after if each not in usable)


def _behind(steps: Mapping[str, Step], found: Collection[str]) -> Iterator[str]:
    return (name for name, step in steps.items() if not set(step.after).isdisjoint(found))
