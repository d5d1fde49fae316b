"""Declare processes on the Python functions that do their work, with the function's position for messages."""

import inspect
from collections.abc import Callable, Mapping
from functools import update_wrapper
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar

from pydantic import ValidationError

from feed_assets.entities.common import Kind, label_of
from feed_assets.entities.errors import DefinitionsError
from feed_assets.entities.maps import EMPTY
from feed_assets.entities.process import Process
from feed_assets.entities.workflow import WorkflowEngine
from feed_assets.issues import FieldSources, Finding, Issue, Severity
from feed_assets.loading.messages import explain

P = ParamSpec("P")
R = TypeVar("R")


class ProcessFunction(Generic[P, R]):
    """A function together with the process that it implements. Calling it calls the function.

    `entity` is the process; `sources` is the position of the function. Created by `process`.
    """

    def __init__(self, function: Callable[P, R], entity: Process, sources: FieldSources) -> None:
        update_wrapper(self, function)
        self.entity = entity
        self.sources = sources
        self._function = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<{self.entity.label} at {self.sources.locate().render()}>"


def process(
    *,
    clusters: Mapping[str, Any],
    frequency: str | None = None,
    name: str | None = None,
    inputs: Mapping[str, Any] = EMPTY,
    outputs: Mapping[str, Any] = EMPTY,
    workflow: Mapping[str, Any] = EMPTY,
    **fields: Any,
) -> Callable[[Callable[P, R]], ProcessFunction[P, R]]:
    """Declare a process on the function that does its work; pass the result to `build_definitions`.

    Args:
        clusters: as in YAML, by name.
        frequency: as in YAML, `hours(1)`; None if it has a `trigger` that makes batches.
        name: None means the function's name with `-` for `_`.
        inputs: as in YAML, by name; the function has a parameter for each.
        outputs: as in YAML, by name.
        workflow: further workflow keys as in YAML, such as `lib`, but not `engine` and `path`.
        fields: every other field of a process.

    Raises:
        DefinitionsError: a field is wrong, or a run could not import the function; names the function's file and line.

    >>> @process(frequency="hours(1)", clusters={"primary": {"validity": {"start": "2015-01-01T00:00Z"}}})
    ... def clean_up() -> None: ...
    >>> clean_up.entity.name, clean_up.entity.workflow.path.rpartition(":")[2]
    ('clean-up', 'clean_up')
    """

    def declare(function: Callable[P, R]) -> ProcessFunction[P, R]:
        called = name or function.__name__.replace("_", "-")
        sources = _sources_of(function)
        key = (Kind.PROCESS.value, called)
        if (fault := _import_fault(function)) is not None:
            raise _refused(key, sources, [("workflow", fault)])
        work = {**workflow, "engine": WorkflowEngine.PYTHON, "path": f"{function.__module__}:{function.__name__}"}
        content = {
            "description": _first_line(function),
            **fields,
            "name": called,
            **({} if frequency is None else {"frequency": frequency}),
            "clusters": clusters,
            "inputs": inputs,
            "outputs": outputs,
            "workflow": work,
        }
        try:
            entity = Process.model_validate(content)
        except ValidationError as exc:
            findings = [(code, finding) for _, code, finding in explain(exc, Process)]
            raise _refused(key, sources, findings) from exc
        return ProcessFunction(function, entity, sources)

    return declare


def _sources_of(function: Callable[..., Any]) -> FieldSources:
    code = inspect.unwrap(function).__code__
    file = Path(code.co_filename)
    shown = file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file
    return FieldSources(file=str(shown), positions={(): (code.co_firstlineno, 1)})


def _import_fault(function: Callable[..., Any]) -> Finding | None:
    """Return why a run, which is a separate operating-system process, could not import the function."""
    if "." in function.__qualname__ or not function.__name__.isidentifier():
        message = f"{function.__qualname__} is not a function of a module"
        return Finding(message=message, remedy="Define it at the top level of its module.")
    if function.__module__ == "__main__":
        message = "it is in the main script, but runs import it by the name of its module"
        return Finding(message=message, remedy="Move it to a separate module, and import that one.")
    return None


def _first_line(function: Callable[..., Any]) -> str | None:
    text = inspect.getdoc(function)
    return text.splitlines()[0].strip() or None if text else None


def _refused(key: tuple[str, str], sources: FieldSources, found: list[tuple[str, Finding]]) -> DefinitionsError:
    issues = [
        Issue(
            severity=Severity.ERROR,
            code=code,
            entity=label_of(key),
            message=finding.message,
            remedy=finding.remedy,
            source=sources.locate(),
        )
        for code, finding in found
    ]
    return DefinitionsError(location="entities built in Python", issues=issues)
