"""Rules about single processes: validity, names, SLA, late data, partitions and the texts rendered for them; and their
work: the path fits the engine, a Spark is available, the files exist, the steps make a graph, and made-up data and what
is declared of columns have the columns of the output's feed.

Nothing is imported or run.
"""

import keyword
import os
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import NamedTuple

from feed_assets.entities.cluster import Cluster, InterfaceType
from feed_assets.entities.content.columns import describe_column, has_path, parse_columns
from feed_assets.entities.content.made_up import MadeUpColumn, Making, span_of
from feed_assets.entities.errors import ColumnsError
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Order, Process, RetryPolicy, iter_whole_workflows, iter_workflows
from feed_assets.entities.workflow import StepEngine, Workflow, WorkflowEngine, find_ring
from feed_assets.errors import find_similar
from feed_assets.issues import FieldPath, Severity
from feed_assets.timing.dates import parse_timezone, render_datetime
from feed_assets.timing.errors import ExpressionError, TimingError
from feed_assets.timing.text import TextContext, render_text
from feed_assets.validation.entities.cluster import MASTER_REMEDY, is_spark_master, iter_unread_conf
from feed_assets.validation.scope import Complaint, Scope, column_names, complain, is_table_for

TAKEN = ("spark", "context")
"""Arguments of functions that are no inputs."""


def check_validity(_: Scope, process: Process) -> Iterator[Complaint]:
    """P3: the start must be before the end."""
    for name, entry in process.clusters.items():
        start, end = entry.validity.start, entry.validity.end
        if end <= start:
            yield Complaint(
                path=("clusters", name, "validity", "end"),
                message=f"the validity on {name} ends at {render_datetime(end)}, "
                f"not after its start {render_datetime(start)}",
                remedy="Move the end after the start.",
            )


def check_names(_: Scope, process: Process) -> Iterator[Complaint]:
    """P12: a name must belong to one input or output only, and be a valid parameter of the function."""
    for name in process.outputs:
        if name in process.inputs:
            yield Complaint(
                path=("outputs", name),
                message=f"{name!r} is the name of an input and of an output",
                remedy="Rename one of them.",
            )
    if all(part.engine is not WorkflowEngine.PYTHON for _, part in process.workflow.parts()):
        return
    for name in process.inputs:
        parameter = name.replace("-", "_")
        if parameter in TAKEN or keyword.iskeyword(parameter):
            reason = "is reserved" if parameter in TAKEN else "is a Python keyword"
            yield Complaint(
                path=("inputs", name),
                message=f"the input {name!r} cannot be a parameter of a function: {parameter} {reason}",
                remedy="Rename the input.",
            )


def check_sla(_: Scope, process: Process) -> Iterator[Complaint]:
    """P14: the expected start must not be later than the expected end or the timeout.

    Differs from Falcon: the SLA of a cluster is checked, too, and an SLA must have an end. Falcon's monitoring breaks
    down over one that has none.
    """
    for path, sla in process.slas():
        where = ".".join(path)
        if sla.should_end_in is None:
            yield Complaint(
                path=path,
                message=f"{where} has no should_end_in, so that nothing tells when an instance is late",
                remedy=f"Add should_end_in, or remove {where}.",
            )
        if sla.should_start_in is None:
            continue
        start = sla.should_start_in
        if sla.should_end_in is not None and start.as_duration() > sla.should_end_in.as_duration():
            yield Complaint(
                path=(*path, "should_start_in"),
                message=f"{where}.should_start_in {start} is longer than should_end_in {sla.should_end_in}",
                remedy="Lower should_start_in, or raise should_end_in.",
            )
        if process.timeout is not None and start.as_duration() > process.timeout.as_duration():
            yield Complaint(
                path=(*path, "should_start_in"),
                message=f"{where}.should_start_in {start} is longer than the timeout {process.timeout}: "
                "an instance would be given up before it is late",
                remedy="Lower should_start_in, or raise timeout.",
            )


def check_late_inputs(scope: Scope, process: Process) -> Iterator[Complaint]:
    """P13: late data must refer to existing inputs, of feeds that declare a late arrival."""
    if process.late_process is None:
        return
    for name in process.late_process.inputs:
        path = ("late_process", "inputs", name)
        item = process.inputs.get(name)
        if item is None:
            known = ", ".join(process.inputs) or "none"
            yield Complaint(
                path=path, message=f"late_process refers to a missing input {name!r}", remedy=f"The inputs are {known}."
            )
            continue
        feed = scope.bundle.find_feed(item.feed)
        if feed is not None and feed.late_arrival is None:
            yield Complaint(
                path=path,
                message=f"late_process watches the input {name!r}, but feed {item.feed!r} has no late_arrival",
                remedy="Remove the input from late_process, and write trigger: {on_update: rerun} at the process."
                if feed.is_current
                else "Write late_arrival: {cut_off: hours(6)} at the feed, or remove the input from late_process.",
            )


def check_late_delay(scope: Scope, process: Process) -> Iterator[Complaint]:
    """Late data must be looked for before the cut-off, too, if that is asked for."""
    late = process.late_process
    if late is None or late.policy is RetryPolicy.FINAL:
        return
    for item in (process.inputs[name] for name in late.inputs if name in process.inputs):
        feed = scope.bundle.find_feed(item.feed)
        cut_off = feed.late_arrival.cut_off if feed is not None and feed.late_arrival is not None else None
        if cut_off is not None and late.delay.as_duration() > cut_off.as_duration():
            yield Complaint(
                path=("late_process", "delay"),
                message=f"late_process.delay {late.delay} is longer than late_arrival.cut_off {cut_off} of feed "
                f"{item.feed!r}: late data are looked for once, at the cut-off",
                remedy="Lower the delay, raise cut_off of the feed, or write policy: final.",
                severity=Severity.WARNING,
            )
            return


def check_partition_depth(scope: Scope, process: Process) -> Iterator[Complaint]:
    """P9: the partition of an input must not be deeper than the feed declares; an input from a table has none."""
    for name, item in process.inputs.items():
        feed = scope.bundle.find_feed(item.feed)
        if feed is None or item.partition is None:
            continue
        if is_table_for(feed, process):
            yield Complaint(
                path=("inputs", name, "partition"),
                message=f"inputs.{name}.partition is not supported: feed {item.feed!r} is a table",
                remedy="Remove it.",
            )
            continue
        depth = len([part for part in item.partition.split("/") if part])
        if depth > len(feed.partitions):
            declared = "/".join(feed.partitions) or "no partitions"
            yield Complaint(
                path=("inputs", name, "partition"),
                message=f"inputs.{name}.partition {item.partition!r} is {depth} levels deep, "
                f"but feed {item.feed!r} declares {declared}",
                remedy="Shorten it, or declare the levels under partitions of the feed.",
            )


def check_texts(scope: Scope, process: Process) -> Iterator[Complaint]:
    """Every `${…}` in properties, partitions and arguments must have a value, on each cluster."""
    for name, entry in process.clusters.items():
        cluster = scope.bundle.find_cluster(name)
        if cluster is None:
            continue
        context = TextContext(
            nominal_time=entry.validity.start,
            timezone=parse_timezone(process.timezone),
            cluster={**cluster.properties, "name": cluster.name, "colo": cluster.colo},
            properties=process.properties,
            inputs=dict.fromkeys(process.inputs, ("",)),
        )
        for path, text in _texts(process):
            try:
                render_text(text, context)
            except ExpressionError as exc:
                yield complain(path, exc)


def _texts(process: Process) -> Iterator[tuple[FieldPath, str]]:
    for name, text in process.properties.items():
        yield ("properties", name), text
    for name, item in process.inputs.items():
        if item.partition is not None:
            yield ("inputs", name, "partition"), item.partition
    for position, text in enumerate(process.workflow.args):
        yield ("workflow", "args", position), text


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


def check_conf(_: Scope, process: Process) -> Iterator[Complaint]:
    """The configuration of an application must be one that Spark reads."""
    for path, workflow in iter_workflows(process):
        yield from iter_unread_conf((*path, "conf"), workflow.conf)


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
            if "://" in name:
                continue
            if not Path(os.path.normpath(scope.root / name)).is_relative_to(os.path.normpath(scope.root)):
                yield Complaint(  # the same whether it exists or not: that is told to nobody
                    path=(*path, *place),
                    message=f"the file {name!r} is not below {scope.root}",
                    remedy="Put it into the folder of feed_assets.yaml, and write its path from there.",
                )
            elif not (scope.root / name).exists():
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
    close = find_similar(file.stem, stems, n=1, cutoff=0.75)
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
                    close = find_similar(before, steps, n=1)
                    remedy = f"Did you mean {close[0]!r}?" if close else f"The steps are {', '.join(steps)}."
                    message = f"step {name!r} comes after {before!r}, which is no step"
                    yield Complaint(path=(*path, "after", position), message=message, remedy=remedy)
        ring = find_ring(steps)
        if ring:
            message = f"these steps wait for one another: {' → '.join((*ring, ring[0]))}"
            yield Complaint(path=(*where, "steps", ring[-1], "after"), message=message, remedy="Remove one from after.")


def _parameter(name: str) -> str:
    return name.replace("-", "_")


_TYPE = re.compile(r"(\w+)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?")  # decimal(10, 2)
_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")  # -12
_BITS: Mapping[str, int] = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_DECIMALS = ("decimal", "dec", "numeric")
_NUMBERS = (*_BITS, *_DECIMALS, "double", "float")


class _Made(NamedTuple):
    """What a way makes: values, the types that they can have, and the one that a column of them usually has."""

    values: str
    types: tuple[str, ...]
    usual: str


_MADE: Mapping[Making, _Made] = {
    Making.RANGE: _Made("whole numbers", (*_NUMBERS, "string"), "bigint"),
    Making.DECIMAL: _Made("decimal numbers", (*_DECIMALS, "double", "float", "string"), "decimal(18,{scale})"),
    Making.DATES: _Made("dates or times", ("date", "timestamp", "timestamp_ltz", "string"), "date"),
    Making.REGEX: _Made("texts", ("string",), "string"),
    Making.CHOICE: _Made("numbers, truth values, dates or texts", (*_NUMBERS, "boolean", "date", "string"), "string"),
}


def check_outputs(scope: Scope, process: Process) -> Iterator[Complaint]:
    """Made-up rows must be those of one output, which is no table and whose feed has a schema."""
    for where, workflow in iter_whole_workflows(process):
        if workflow.engine is not WorkflowEngine.GENERATE:
            continue
        if len(process.outputs) != 1:
            message = f"rows are made up for one output, but the process has {len(process.outputs) or 'none'}"
            yield Complaint(path=(*where, "engine"), message=message, remedy="Write a process for each feed.")
            continue
        feed = _output_feed(scope, process)
        if feed is not None and is_table_for(feed, process):
            message = f"rows are made up in files, but feed {feed.name!r} is a table"
            yield Complaint(path=(*where, "engine"), message=message, remedy="Give the feed locations.")
        elif feed is not None and feed.ddl is None:
            columns = ", ".join(_declared(name, column) for name, column in workflow.columns.items())
            message = f"feed {feed.name!r} has no schema, so the types of its columns are not known"
            yield Complaint(path=(*where, "columns"), message=message, remedy=f'Write schema: "{columns}" at the feed.')


def check_columns(scope: Scope, process: Process) -> Iterator[Complaint]:
    """Made-up columns must be those of the feed's schema, with values of their types and dates in their order."""
    feed = _output_feed(scope, process)
    if feed is None or feed.ddl is None:
        return
    try:
        declared = {name.lower(): (name, kind) for name, kind in parse_columns(feed.ddl)}
    except ColumnsError:
        return
    for where, workflow in iter_whole_workflows(process):
        if workflow.engine is WorkflowEngine.GENERATE:
            yield from _complaints(process, feed, workflow, (*where, "columns"), declared)


def _complaints(
    process: Process, feed: Feed, workflow: Workflow, where: FieldPath, declared: Mapping[str, tuple[str, str]]
) -> Iterator[Complaint]:
    written = [name.lower() for name in workflow.columns]
    missing = [name for key, (name, _) in declared.items() if key not in written]
    if missing:
        message = f"columns of feed {feed.name!r} are not made up: {', '.join(missing)}"
        yield Complaint(path=where, message=message, remedy="Say how their values are made.")
    for name, column in workflow.columns.items():
        if name.lower() not in declared or written.count(name.lower()) > 1:
            reason = "is written twice" if name.lower() in declared else f"is none of feed {feed.name!r}"
            yield Complaint(path=(*where, name), message=f"column {name!r} {reason}", remedy="Remove it.")
            continue
        if (misfit := _find_misfit(column, declared[name.lower()][1])) is not None:
            path = (*where, name, column.making.value)
            message = f"column {name!r} of feed {feed.name!r} is {declared[name.lower()][1]}, {misfit}"
            yield Complaint(path=path, message=message, remedy="Change it, or the schema of the feed.")
        if column.dates is not None and (emptiness := _find_empty_span(process, column.dates)) is not None:
            message = f"column {name!r}: {emptiness}"
            yield Complaint(path=(*where, name, "dates"), message=message, remedy="Write the earlier one first.")


def _find_empty_span(process: Process, dates: tuple[str, str]) -> str | None:
    """Return why dates have no value for the first instance; None if they have some."""
    instance = min(entry.validity.start for entry in process.clusters.values())
    try:
        first, last = span_of(dates, instance, parse_timezone(process.timezone))
    except TimingError as exc:
        return str(exc)
    if first <= last:
        return None
    return f"its dates end at {render_datetime(last)}, before they begin at {render_datetime(first)}"


def _find_misfit(column: MadeUpColumn, kind: str) -> str | None:
    """Return why made-up values are not of a declared type, as a clause; None if they are."""
    text = describe_column(kind).type
    found = _TYPE.fullmatch(text.strip())
    if text.upper().endswith("NOT NULL"):
        return "but Spark reads the columns of files as nullable: remove NOT NULL"
    name = describe_column(found[1]).type.lower() if found else text
    if found is None or name not in _MADE[column.making].types:
        return f"and {column.making.value} makes {_MADE[column.making].values}"
    fits = _test_of(name, int(found[2] or 10), int(found[3] or 0))
    wrong = next((value for value in _extremes(column) if not fits(value)), None)
    return None if wrong is None else f"and {wrong} is not"


def _test_of(name: str, precision: int, scale: int) -> Callable[[str], bool]:
    """Return a test of whether a text is a value of a type."""
    if name in _BITS:
        limit = 2 ** (_BITS[name] - 1)
        return lambda text: _WHOLE.fullmatch(text) is not None and -limit <= int(text) < limit
    if name in _DECIMALS:
        return lambda text: _is_number(text, scale=scale) and abs(Decimal(text)) < 10 ** (precision - scale)
    match name:
        case "double" | "float":
            return _is_number
        case "boolean":
            return lambda text: text.lower() in ("true", "false")
        case "date":
            return _is_date
        case _:
            return lambda _: True


def _extremes(column: MadeUpColumn) -> tuple[str, ...]:
    """Return the values that show whether all are of a type."""
    if column.decimal is not None:
        return tuple(str(Decimal(step).scaleb(-column.decimal.scale)) for step in column.decimal.steps)
    return tuple(map(str, column.range or column.choice))


def _is_number(text: str, scale: int | None = None) -> bool:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return False
    if not number.is_finite():
        return False
    exponent = number.as_tuple().exponent
    return scale is None or (isinstance(exponent, int) and -exponent <= scale)


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _declared(name: str, column: MadeUpColumn) -> str:
    """Return a column as a schema usually declares it."""
    quoted = name if name.isidentifier() else f"`{name}`"
    scale = column.decimal.scale if column.decimal is not None else 0
    return f"{quoted} {_MADE[column.making].usual.format(scale=scale)}"


def _output_feed(scope: Scope, process: Process) -> Feed | None:
    return scope.bundle.find_feed(next(iter(process.outputs.values())).feed) if len(process.outputs) == 1 else None


def check_lineage(scope: Scope, process: Process) -> Iterator[Complaint]:
    """The columns must be those of the output's feed, their sources those of inputs, as far as schemas are declared."""
    inputs = {name: scope.bundle.find_feed(item.feed) for name, item in process.inputs.items()}
    for name, output in process.outputs.items():
        feed = scope.bundle.find_feed(output.feed)
        for column, sources in output.column_lineage.items():
            path: FieldPath = ("outputs", name, "column_lineage", column)
            yield from _check_column(feed, column, path)
            for source in sources:
                read, _, of_input = source.partition(".")
                if not read or not of_input:
                    remedy = f"Write it as {next(iter(inputs), 'input')}.{read or of_input or 'column'}."
                    yield Complaint(path=path, message=f"{source!r} is no column of an input", remedy=remedy)
                    continue
                yield from _check_column(inputs.get(read), of_input, path)
                if read not in inputs:
                    remedy = f"Write one of {', '.join(inputs)}." if inputs else "Remove the source."
                    yield Complaint(path=path, message=f"{source!r} names {read!r}, which is no input", remedy=remedy)


def _check_column(feed: Feed | None, column: str, path: FieldPath) -> Iterator[Complaint]:
    """Complain of a column that a declared schema does not have; of a field in it, a column that may have fields."""
    known = column_names(feed) if feed is not None else None
    if feed is None or feed.ddl is None or known is None or has_path(feed.ddl, column):
        return
    if column not in feed.partitions:
        message = f"{column!r} is no column of the schema of feed {feed.name!r}"
        yield Complaint(path=path, message=message, remedy=f"Write one of {', '.join(sorted(known))}.")
