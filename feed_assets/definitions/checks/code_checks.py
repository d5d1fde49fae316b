"""Checks of the code that processes name: it is read, and neither imported nor run."""

from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

from feed_assets.engines.errors import CodeFault
from feed_assets.engines.workflow.python_code import Call, PythonFiles, find_frames, find_python_fault
from feed_assets.engines.workflow.sql_code import find_columns, find_marked, find_sql_faults, is_about_rows
from feed_assets.entities.bundle import Bundle
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process, iter_whole_workflows
from feed_assets.entities.workflow import StepEngine, Workflow, WorkflowEngine, last_steps
from feed_assets.errors import find_similar
from feed_assets.issues import EntityKey, FieldPath, Issue, Severity, Source, SourceMap, order_of
from feed_assets.loading.entity_files import display_name
from feed_assets.validation.scope import column_names

WORKFLOW_CODE = "workflow-code"
RULE_CODE = "quality-rule"
_CATALOGS = ("spark.sql.catalog", "spark.sql.defaultCatalog", "spark.sql.extensions", "spark.sql.warehouse")


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
    files = PythonFiles(root)
    issues = [
        issue_of(fault, process, path, sources)
        for process in bundle.processes
        if keys is None or process.key in keys
        for path, fault in _iter_faults(process, bundle, files, has_packages)
    ]
    issues += [
        issue_of(fault, feed, path, sources, RULE_CODE)
        for feed in bundle.feeds
        if keys is None or feed.key in keys
        for path, fault in (*_iter_unknown_columns(feed), *_iter_misplaced(feed))
    ]
    return sorted(dict.fromkeys(issues), key=order_of)


def issue_of(
    fault: CodeFault, entity: Feed | Process, path: FieldPath, sources: SourceMap, code: str = WORKFLOW_CODE
) -> Issue:
    """Return a fault as an issue at its line, or else at the path of what names the code."""
    declared = sources.locate(entity.key, path)
    source = Source(file=display_name(fault.file), line=fault.line) if fault.file is not None else declared
    return Issue(
        severity=Severity.ERROR if fault.is_certain else Severity.WARNING,
        code=code,
        entity=entity.label,
        message=fault.reason,
        remedy=fault.next_step,
        source=source,
    )


def _iter_faults(
    process: Process, bundle: Bundle, files: PythonFiles, has_packages: bool
) -> Iterator[tuple[FieldPath, CodeFault]]:
    outputs = {name: output.feed for name, output in process.outputs.items()}
    root, has_tables = files.root, any(_may_have_tables(bundle.find_cluster(name)) for name in process.clusters)
    for where, workflow in iter_whole_workflows(process):
        last = last_steps(workflow.steps)
        for below, part in workflow.parts():
            path, code = (*where, *below, "path"), part.path
            call = call_of(process, workflow, below, files)
            made = outputs if not below or last == {below[-1]} else {}
            match part.engine:
                case WorkflowEngine.PYTHON if _is_here(code.rpartition(":")[0], root):
                    fault = find_python_fault(code, call, files)
                    if fault is not None:
                        yield path, replace(fault, is_certain=fault.is_certain or (has_packages and call.is_certain))
                case WorkflowEngine.SQL if _is_here(code, root):
                    found = find_sql_faults(
                        root / code, call.inputs, made, has_tables=has_tables or not call.is_certain
                    )
                    yield from ((path, fault) for fault in found)
                case _:
                    pass


def _may_have_tables(cluster: Cluster | None) -> bool:
    """Return whether Spark may know tables there that no process declares."""
    if cluster is None or cluster.catalog is not None or cluster.spark.remote is not None:
        return True
    return any(name.startswith(_CATALOGS) for name in cluster.spark.conf)


def _iter_unknown_columns(feed: Feed) -> Iterator[tuple[FieldPath, CodeFault]]:
    """Yield the rules of quality that name a column which the feed does not have."""
    known = column_names(feed)
    if feed.quality is None or known is None:
        return
    known |= {name.lower() for name in feed.partitions}
    for field, text in iter_expressions(feed):
        for column in find_columns(text):
            if column.lower() not in known:
                close = find_similar(column.lower(), sorted(known), n=1)
                remedy = f"Did you mean {close[0]!r}?" if close else f"Its columns are {', '.join(sorted(known))}."
                reason = f"quality.{'.'.join(field)} names {column!r}, which is no column of the feed's schema"
                yield ("quality", *field), CodeFault(reason=reason, next_step=remedy)


def _iter_misplaced(feed: Feed) -> Iterator[tuple[FieldPath, CodeFault]]:
    """Yield the rules on a row that are about several, and the conditions on all rows that are about none."""
    for field, text in iter_expressions(feed):
        is_rule, found = field[0] == "rules", is_about_rows(text)
        if found is is_rule:
            has = "has an aggregate function, and is asked of each row" if is_rule else "has no aggregate function"
            remedy = "Write it below aggregates." if is_rule else "Write one, such as sum or count."
            remedy += "" if field[0] != "aggregates" else " What is asked of each row stands below rules."
            yield ("quality", *field), CodeFault(reason=f"quality.{'.'.join(field)} {has}: {text}", next_step=remedy)


def iter_expressions(feed: Feed) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the expressions of Spark SQL in the quality of a feed, each with its path there."""
    quality = feed.quality
    if quality is not None:
        yield from ((("rules", name), text) for name, text in quality.rules.items())
        yield from ((("aggregates", name), text) for name, text in quality.aggregates.items())
        yield from ((("compare", name, "value"), each.value) for name, each in quality.compare.items())


def call_of(process: Process, workflow: Workflow, below: FieldPath, files: PythonFiles) -> Call:
    """Return how a part of a workflow is called: with the inputs of the process, and a step also with the frames of the
    steps that it comes after. `below` is the path of the part.
    """
    if not below:
        return Call(inputs=tuple(process.inputs))
    name, inputs, is_certain = str(below[-1]), list(process.inputs), True
    for before in (each for each in workflow.steps[name].after if each in workflow.steps):
        step = workflow.steps[before]
        if step.engine is StepEngine.SQL:
            frames: tuple[str, ...] | None = find_marked(files.root / step.path) or (before,)
        else:
            frames = find_frames(step.path, files)
        is_certain = is_certain and frames is not None
        inputs += (before,) if frames is None else frames
    return Call(inputs=tuple(dict.fromkeys(inputs)), is_step=True, is_certain=is_certain)


def _is_here(name: str, root: Path) -> bool:
    """Return whether a file exists below the root; modules are looked for elsewhere, too."""
    return "://" not in name and (not name.endswith((".py", ".sql")) or (root / name).is_file())
