"""Checks of the code that processes name: it is read, and neither imported nor run."""

import sys
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

from feed_assets.engines.code_faults import CodeFault
from feed_assets.engines.python_code import PythonFiles, find_python_fault
from feed_assets.engines.sql_code import find_sql_faults
from feed_assets.entities.bundle import Bundle
from feed_assets.entities.process import Process, WorkflowEngine
from feed_assets.issues import EntityKey, FieldPath, Issue, Severity, Source, SourceMap, order_of
from feed_assets.loading.entity_files import display_name
from feed_assets.validation.rules_workflow import iter_workflows

WORKFLOW_CODE = "workflow-code"


def check_code(
    bundle: Bundle,
    keys: Collection[EntityKey] | None = None,
    *,
    sources: SourceMap,
    root: Path,
    has_packages: bool = False,
) -> list[Issue]:
    """Read the functions and SQL files of processes. Issues are ordered by file and line.

    Files that do not exist are left to the rule `workflow-file`.

    Args:
        bundle: all entities.
        keys: the entities to check; None for all.
        sources: the files and lines of the entities.
        root: the project's folder, for relative paths.
        has_packages: whether the packages of the processes must be installed here; else their lack is a warning.
    """
    files = PythonFiles()
    issues = [
        issue_of(fault, process, path, sources)
        for process in bundle.processes
        if keys is None or process.key in keys
        for path, fault in _iter_faults(process, root, files, has_packages)
    ]
    return sorted(dict.fromkeys(issues), key=order_of)


def issue_of(fault: CodeFault, process: Process, path: FieldPath, sources: SourceMap) -> Issue:
    """Return a fault as an issue at its line, or else at the workflow's path."""
    declared = sources.locate(process.key, path)
    source = Source(file=display_name(fault.file), line=fault.line) if fault.file is not None else declared
    return Issue(
        severity=Severity.ERROR if fault.is_certain else Severity.WARNING,
        code=WORKFLOW_CODE,
        entity=process.label,
        message=fault.reason,
        remedy=fault.next_step,
        source=source,
    )


def _iter_faults(
    process: Process, root: Path, files: PythonFiles, has_packages: bool
) -> Iterator[tuple[FieldPath, CodeFault]]:
    outputs = {name: output.feed for name, output in process.outputs.items()}
    for where, workflow in iter_workflows(process):
        path, code = (*where, "path"), workflow.path
        match workflow.engine:
            case WorkflowEngine.PYTHON if _is_here(code.rpartition(":")[0], root):
                fault = find_python_fault(code, list(process.inputs), root, sys.path, files)
                if fault is not None:
                    yield path, replace(fault, is_certain=fault.is_certain or has_packages)
            case WorkflowEngine.SQL if _is_here(code, root):
                yield from ((path, fault) for fault in find_sql_faults(root / code, list(process.inputs), outputs))
            case _:
                pass


def _is_here(name: str, root: Path) -> bool:
    """Return whether a file exists below the root; modules are looked for elsewhere, too."""
    return "://" not in name and (not name.endswith((".py", ".sql")) or (root / name).is_file())
