"""Run a Python function: find it by its path, bind its arguments, and check its result."""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib.abc import SourceLoader
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from feed_assets.engines.column_capture import mark_input, with_lineage
from feed_assets.engines.data.frames import frame_targets, name_single, read_input, write_output
from feed_assets.engines.errors import EventRefusedError
from feed_assets.engines.failures import reporting_failures
from feed_assets.engines.port import (
    OUTPUT_REMEDY,
    Context,
    Engine,
    Work,
    WorkReport,
    find_output_fault,
)
from feed_assets.engines.spark.sessions import open_session, restored
from feed_assets.engines.workflow.arguments import CONTEXT, SPARK, match_arguments, parameter_name
from feed_assets.engines.workflow.files import add_libraries
from feed_assets.entities.content.event_messages import EventMessage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class PythonEngine(Engine):
    """An engine that calls `function(spark, <one DataFrame per input>, context)` and writes the result.

    `Work.path` is `package.module:function` or `folder/file.py:function`, relative to the project's root. The root is
    on `sys.path` while the function is imported and while it runs. Arguments are passed by name: an input
    `late-flights` is the parameter `late_flights`. The function has a parameter for every input. The parameters `spark`
    and `context` are optional. Any other parameter needs a default.

    With one output the function returns a DataFrame. With any number of outputs it may return a mapping `{output:
    DataFrame}` with exactly the outputs' names. Without outputs it returns None. An optional output is left out by a
    mapping without its name or with None for it, and by None if there is no mandatory one. A step may have no parameter
    for an input, and returns a DataFrame, a mapping `{frame: DataFrame}`, or None.
    """

    def run(self, work: Work, session: "Callable[[], SparkSession]") -> WorkReport:
        with importable(work.root):
            function = load_function(work)
            names = bind_names(work, function)
            with reporting_failures(work), restored(open_session(session, work.run_id)) as spark:
                add_libraries(spark, work)
                context = work.context()
                known: dict[str, object] = {SPARK: spark, CONTEXT: context}
                taken = {name: data for data in work.inputs if (name := parameter_name(data.name)) in names}
                inputs = {data.name: mark_input(read_input(spark, data), data.name) for data in taken.values()}
                known |= {name: inputs[data.name] for name, data in taken.items()}
                result = function(**{name: known[name] for name in names})
                frames = _match_frames(work, result)
                targets = tuple(target for target in work.outputs if target.name in frames)
                if work.step is not None:
                    targets = frame_targets(work, work.step, tuple(frames))
                messages = match_messages(context, [target.name for target in targets])
                reports = []
                for target in targets:
                    report = replace(write_output(frames[target.name], target), message=messages[target.name])
                    reports.append(with_lineage(report, frames[target.name], work, inputs))
        details = {"function": f"{function.__module__}:{function.__qualname__}"}
        return WorkReport(outputs=tuple(reports), details=details, reported=context.reported)


@contextmanager
def importable(root: Path) -> Iterator[None]:
    """Put the project's folder on Python's path."""
    entry = str(root.resolve())
    sys.path.insert(0, entry)
    try:
        yield
    finally:
        with suppress(ValueError):
            sys.path.remove(entry)


def load_function(work: Work) -> Callable[..., Any]:
    """Import the module of a function, and return the function.

    Raises:
        WorkflowNotFoundError: there is no such module or function.
        WorkflowFailedError: the module raised while it was imported.
    """
    where, separator, name = work.path.rpartition(":")
    if not separator or not where or not name.isidentifier():
        next_step = "Write package.module:function, or folder/file.py:function with a file of the project."
        raise work.not_found("it does not name a function", next_step)
    with reporting_failures(work):
        module = _load_file(work, where) if where.endswith(".py") else _load_module(work, where)
    function = getattr(module, name, None)
    if not callable(function):
        offered = ", ".join(sorted(_functions_of(module))) or "none"
        raise work.not_found(f"{where} has no function {name!r}", f"Name one of its functions: {offered}.")
    return function  # type: ignore[no-any-return]


def _load_module(work: Work, name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as exc:
        if exc.name is None or not (name == exc.name or name.startswith(f"{exc.name}.")):
            raise
        reason = f"there is no module {exc.name!r} on the Python path or in {work.root}"
        next_step = "Install the package where Dagster runs, or name a file: folder/file.py:function."
        raise work.not_found(reason, next_step) from exc


def _load_file(work: Work, name: str) -> ModuleType:
    """Load a module from a file, anew for each attempt. It cannot be imported by its name."""
    file = work.root / name
    loader = PinnedLoader(file, work.pinned[name]) if name in work.pinned else None
    spec = importlib.util.spec_from_file_location(file.stem, file, loader=loader)
    if spec is None or spec.loader is None or not (loader or file.is_file()):
        raise work.not_found(f"{file} is not a file", "Name a file relative to the project's folder.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class PinnedLoader(SourceLoader):
    """Loads a module from the content that a file had, as if it still had it."""

    def __init__(self, file: Path, content: bytes) -> None:
        self._file = file
        self._content = content

    def get_filename(self, fullname: str) -> str:  # noqa: ARG002 - of the interface
        return str(self._file)

    def get_data(self, path: str | bytes) -> bytes:  # noqa: ARG002 - of the interface
        return self._content


def _functions_of(module: ModuleType) -> Iterator[str]:
    for name, function in inspect.getmembers(module, inspect.isfunction):
        if function.__module__ == module.__name__ and not name.startswith("_"):
            yield name


def bind_names(work: Work, function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of the function's arguments, chosen from `spark`, `context` and the inputs.

    Raises:
        WorkflowSignatureError: it requires another argument, lacks an input, or has a positional-only parameter.
    """
    found = match_arguments(
        inspect.signature(function).parameters.values(),
        [data.name for data in work.inputs],
        is_free=work.step is not None,
    )
    if found.faults:
        raise work.not_fitting(found.faults, found.next_step)
    return found.names


def _match_frames(work: Work, result: object) -> Mapping[str, "DataFrame"]:
    """Return what a function has made, by the names of outputs, or of frames of a step, which may have any."""
    from pyspark.sql import DataFrame

    step, names = work.step, [target.name for target in work.outputs]
    optional = {target.name for target in work.outputs if target.optional}
    given = result
    if isinstance(result, Mapping):
        given = {name: frame for name, frame in result.items() if frame is not None or name not in optional}
    match given:
        case DataFrame() if step is not None:
            return {name_single(work, step): given}
        case DataFrame() if len(names) == 1:
            return {names[0]: given}
        case None if step is not None or optional.issuperset(names):
            return {}
        case Mapping() if all(isinstance(df, DataFrame) for df in given.values()):
            if step is not None or set(given) | optional == set(names):
                return given
    returned = f"{work.path} returned {_render_result(result)}"
    if step is not None:
        raise work.mismatch(returned, "Return a Spark DataFrame, {name: DataFrame}, or None.")
    one = f"{work.outputs[0].subject} is its only output" if len(names) == 1 else None
    expectation = one or (f"its outputs are {', '.join(names)}" if names else "it has no output")
    raise work.mismatch(f"{expectation}, but {returned}", _expected_result(names, optional))


def match_messages(context: Context, made: Sequence[str]) -> dict[str, EventMessage]:
    """Return what the event of each output says that a function has made.

    Raises:
        EventRefusedError: it has said something about an output that it has not made.
    """
    for output in context.messages:
        if fault := find_output_fault(output, made):
            raise EventRefusedError(process=context.process, output=output, reason=fault, next_step=OUTPUT_REMEDY)
    return {name: context.messages.get(name, EventMessage()) for name in made}


def _expected_result(names: Sequence[str], optional: Collection[str]) -> str:
    match names:
        case []:
            return "Return None, or declare an output."
        case [name]:
            return "Return a Spark DataFrame, or None." if name in optional else "Return a Spark DataFrame."
        case _:
            kinds = ((name, "DataFrame or None" if name in optional else "DataFrame") for name in names)
            return f"Return {{{', '.join(f'{name!r}: {kind}' for name, kind in kinds)}}}."


def _render_result(result: object) -> str:
    if isinstance(result, Mapping):
        return f"{{{', '.join(f'{name!r}: {type(value).__name__}' for name, value in result.items())}}}"
    return "None" if result is None else f"a {type(result).__module__}.{type(result).__qualname__}"
