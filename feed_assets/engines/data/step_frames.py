"""Give the frames of a step their names and places: Parquet for the steps behind it, or outputs of the process."""

import re
from collections.abc import Collection

from feed_assets.engines.errors import OutputMismatchError
from feed_assets.engines.port import InputData, InputInstance, OutputTarget, StepPlace, Work

_FORMAT = "parquet"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


def name_single(work: Work, step: StepPlace) -> str:
    """Return the name of the only frame that a step yields: the only output, if it is a last step, else its own."""
    is_only_output = step.frames_url is None and len(work.outputs) == 1
    return work.outputs[0].name if is_only_output else step.name


def frame_targets(work: Work, step: StepPlace, names: Collection[str]) -> tuple[OutputTarget, ...]:
    """Return where a step writes its frames.

    Raises:
        OutputMismatchError: a last step yields what is no output; or a frame cannot have its name.
    """
    if step.frames_url is None:
        outputs = {target.name: target for target in work.outputs}
        if unknown := sorted(set(names) - outputs.keys()):
            raise OutputMismatchError(
                subject=f"step {step.name!r} of process {work.process!r}",
                reason=f"it yields {', '.join(unknown)}, but no step comes after it, and the outputs are "
                f"{', '.join(outputs) or 'none'}",
                next_step="Name its frames as outputs, or let a step come after it.",
            )
        return tuple(outputs[name] for name in names)
    wrong = next((name for name in names if not _NAME.fullmatch(name)), None)
    if wrong is not None:
        raise OutputMismatchError(
            subject=f"step {step.name!r} of process {work.process!r}",
            reason=f"a frame cannot be called {wrong!r}: names have letters, digits, _ and -, and no digit first",
            next_step="Give the frame another name.",
        )
    return tuple(
        OutputTarget(name=name, feed=step.name, url=f"{step.frames_url}/{name}", format=_FORMAT) for name in names
    )


def frame_input(work: Work, step: str, name: str, url: str) -> InputData:
    """Return a frame of a step as an input of the steps behind it."""
    instance = InputInstance(nominal_time=work.nominal_time, url=f"{url}/{name}")
    return InputData(name=name, feed=step, instances=(instance,), format=_FORMAT)
