"""A rule about the steps of a workflow: their graph, and their names."""

from collections.abc import Iterator
from difflib import get_close_matches

from feed_assets.entities.process import Process
from feed_assets.entities.steps import find_ring
from feed_assets.entities.workflow import StepEngine
from feed_assets.validation.rules_process import TAKEN
from feed_assets.validation.rules_workflow import iter_whole_workflows
from feed_assets.validation.scope import Complaint, Scope


def check_steps(_: Scope, process: Process) -> Iterator[Complaint]:
    """Steps must come after steps, never after themselves, and have names that no input has."""
    parameters = {_parameter(name): name for name in process.inputs}
    for where, workflow in iter_whole_workflows(process):
        steps = workflow.steps
        for name, step in steps.items():
            path = (*where, "steps", name)
            taken = parameters.get(_parameter(name))
            if step.engine is not StepEngine.EXTERNAL and (taken is not None or name in TAKEN):
                reason = "functions have another argument of this name" if taken is None else f"{taken!r} is an input"
                message = f"the frame of step {name!r} cannot be passed to the steps behind it: {reason}"
                yield Complaint(path=path, message=message, remedy="Rename the step.")
            for position, before in enumerate(step.after):
                if before not in steps:
                    close = get_close_matches(before, steps, n=1)
                    remedy = f"Did you mean {close[0]!r}?" if close else f"The steps are {', '.join(steps)}."
                    message = f"step {name!r} comes after {before!r}, which is no step"
                    yield Complaint(path=(*path, "after", position), message=message, remedy=remedy)
        ring = find_ring(steps)
        if ring:
            message = f"these steps wait for one another: {' → '.join((*ring, ring[0]))}"
            yield Complaint(path=(*where, "steps", ring[-1], "after"), message=message, remedy="Remove one from after.")


def _parameter(name: str) -> str:
    return name.replace("-", "_")
