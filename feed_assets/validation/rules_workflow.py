"""Rules about the work of processes: the path fits the engine, a Spark is available, the files exist, and the steps
make a graph.

Nothing is imported or run.
"""

from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path

from feed_assets.entities.cluster import Cluster, InterfaceType
from feed_assets.entities.process import Order, Process, iter_whole_workflows, iter_workflows
from feed_assets.entities.workflow import StepEngine, Workflow, WorkflowEngine, find_ring
from feed_assets.issues import FieldPath
from feed_assets.validation.rules_cluster import MASTER_REMEDY, is_spark_master
from feed_assets.validation.rules_process import TAKEN
from feed_assets.validation.scope import Complaint, Scope

_SUBMIT_ONLY = ("master", "deploy_mode", "main_class", "args", "conf", "submit")


def check_workflow(_: Scope, process: Process) -> Iterator[Complaint]:
    """The path must name a function, a SQL file, or an application, depending on the engine."""
    for path, workflow in iter_workflows(process):
        match workflow.engine:
            case WorkflowEngine.PYTHON:
                fault = _python_fault(workflow.path)
                remedy = "Write package.module:function or folder/file.py:function."
            case WorkflowEngine.SQL:
                fault = "" if workflow.path.endswith(".sql") else "it does not end with .sql"
                remedy = "Write the path of a .sql file."
            case WorkflowEngine.SPARK_SUBMIT:
                fault = "" if workflow.path.endswith((".py", ".jar", ".R", ".zip")) else "it is neither .py nor .jar"
                remedy = "Write the path of a .py file or a jar."
                if not fault and workflow.path.endswith(".jar") and workflow.main_class is None:
                    fault, remedy = "a jar needs its main class", "Write main_class."
            case _:
                fault, remedy = "", ""
        if fault:
            where = ".".join(map(str, path))
            message = f"{where}.path {workflow.path!r} does not match engine {workflow.engine.value}: {fault}"
            yield Complaint(path=(*path, "path"), message=message, remedy=remedy)


def check_application(scope: Scope, process: Process) -> Iterator[Complaint]:
    """P16: an application for Spark must have a master, its own or each cluster's.

    Differs from Falcon: every cluster counts, not only the first. A cluster without Spark settings is `local[*]`,
    unless it is declared by interfaces.
    """
    for path, workflow in iter_workflows(process):
        if workflow.engine is not WorkflowEngine.SPARK_SUBMIT:
            continue
        if workflow.master is not None:
            if not is_spark_master(workflow.master):
                message = f"{'.'.join(map(str, path))}.master {workflow.master!r} is not a master of Spark"
                yield Complaint(path=(*path, "master"), message=message, remedy=MASTER_REMEDY)
            continue
        for name in process.clusters:
            cluster = scope.bundle.find_cluster(name)
            if cluster is not None and _lacks_master(cluster):
                yield Complaint(
                    path=path,
                    message=f"there is no Spark master for {'.'.join(map(str, path))}: neither it "
                    f"nor cluster {name!r} has one",
                    remedy="Write master at the workflow, or spark.master (or the interface spark) at the cluster.",
                )


def _lacks_master(cluster: Cluster) -> bool:
    if cluster.spark.master is None:
        return cluster.spark.connect is None
    is_default = "spark" not in cluster.model_fields_set and InterfaceType.SPARK not in cluster.interfaces
    return bool(cluster.interfaces) and is_default


def check_submit_options(_: Scope, process: Process) -> Iterator[Complaint]:
    """Options of spark-submit must belong to a workflow that uses it."""
    for path, workflow in iter_workflows(process):
        if workflow.engine is WorkflowEngine.SPARK_SUBMIT:
            continue
        for name in _SUBMIT_ONLY:
            if getattr(workflow, name):
                yield Complaint(
                    path=(*path, name),
                    message=f"{name} has no effect with engine {workflow.engine.value}",
                    remedy="Remove it, or write engine: spark-submit.",
                )


def check_work_elsewhere(_: Scope, process: Process) -> Iterator[Complaint]:
    """Somebody's program must be able to take the work: it takes batches, and tries them again itself."""
    for path, workflow in iter_whole_workflows(process):
        if workflow.engine is WorkflowEngine.EXTERNAL and path != ("workflow",):
            yield Complaint(
                path=(*path, "engine"),
                message=f"{'.'.join(map(str, path))}: late data are processed here, not elsewhere",
                remedy="Write another engine.",
            )
    if process.workflow.engine is not WorkflowEngine.EXTERNAL:
        return
    if not process.makes_batches:
        yield Complaint(
            path=("workflow", "engine"),
            message="work elsewhere takes batches of what has come, but this process has a frequency",
            remedy="Write a trigger instead of the frequency, for example trigger: {or_every: hours(1)}.",
        )
    if process.order is not Order.FIFO:
        message = f"order {process.order.value} has no effect: whoever works elsewhere takes the oldest batch first"
        yield Complaint(path=("order",), message=message, remedy="Remove order.")
    for name, reason in _NOT_ELSEWHERE.items():
        if getattr(process, name) is not None:
            yield Complaint(path=(name,), message=f"{name} has no effect: {reason}", remedy=f"Remove {name}.")


_NOT_ELSEWHERE = {
    "retry": "a batch that failed elsewhere is the next one that is taken there",
    "late_process": "the events of a batch are frozen",
}


def check_files(scope: Scope, process: Process) -> Iterator[Complaint]:
    """P4: files and libraries of workflows must exist below the project's folder; only live checks look at URLs."""
    if scope.root is None:
        return
    for path, workflow in iter_workflows(process):
        for place, name in iter_files(workflow):
            if "://" not in name and not (scope.root / name).exists():
                close = _similar_file(scope.root, name)
                remedy = f"Did you mean {close!r}? The path" if close else "Correct the path; it"
                yield Complaint(
                    path=(*path, *place),
                    message=f"the file {name!r} does not exist in {scope.root}",
                    remedy=f"{remedy} is relative to the folder of feed_assets.yaml.",
                )


def _similar_file(root: Path, name: str) -> str | None:
    """Return the file in the same folder that was probably meant."""
    file = root / name
    there = [child for child in file.parent.iterdir() if child.is_file()] if file.parent.is_dir() else []
    stems = [child.stem for child in there if child.suffix == file.suffix]
    close = get_close_matches(file.stem, stems, n=1, cutoff=0.75)
    return Path(name).with_name(close[0] + file.suffix).as_posix() if close else None


def iter_files(workflow: Workflow) -> Iterator[tuple[FieldPath, str]]:
    """Yield the files and URLs of a workflow, with their paths; the files of an unsupported engine are elsewhere."""
    if not workflow.engine.is_supported or not workflow.path:
        return
    for position, library in enumerate(workflow.lib):
        yield ("lib", position), library
    if workflow.engine is not WorkflowEngine.PYTHON:
        yield ("path",), workflow.path
    elif ".py:" in workflow.path:
        yield ("path",), workflow.path.rpartition(":")[0]


def _python_fault(path: str) -> str:
    where, separator, function = path.rpartition(":")
    if not separator:
        return "it names no function"
    if not function.isidentifier():
        return f"{function!r} is not a function name"
    if where.endswith(".py"):
        return ""
    return "" if where and all(part.isidentifier() for part in where.split(".")) else f"{where!r} is not a module"


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
