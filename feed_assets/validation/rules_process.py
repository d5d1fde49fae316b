"""Rules about single processes: validity, names, SLA, late data, partitions and the texts rendered for them."""

import keyword
from collections.abc import Iterator

from feed_assets.entities.process import Process, ProcessSla
from feed_assets.entities.workflow import WorkflowEngine
from feed_assets.issues import FieldPath
from feed_assets.timing.dates import parse_timezone, render_datetime
from feed_assets.timing.errors import ExpressionError
from feed_assets.timing.text import TextContext, render_text
from feed_assets.validation.scope import Complaint, Scope, complain

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
    levels: list[tuple[FieldPath, ProcessSla | None]] = [(("sla",), process.sla)]
    levels += [(("clusters", name, "sla"), entry.sla) for name, entry in process.clusters.items()]
    for path, sla in levels:
        if sla is None:
            continue
        where = ".".join(map(str, path))
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
                remedy="Write late_arrival: {cut_off: hours(6)} at the feed, or remove the input from late_process.",
            )


def check_partition_depth(scope: Scope, process: Process) -> Iterator[Complaint]:
    """P9: the partition of an input must not be deeper than the feed declares; an input from a table has none."""
    for name, item in process.inputs.items():
        feed = scope.bundle.find_feed(item.feed)
        if feed is None or item.partition is None:
            continue
        if any(feed.table_on(cluster) for cluster in process.clusters if cluster in feed.clusters):
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
    refused: set[tuple[FieldPath, str]] = set()
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
                complaint = complain(path, exc)
                if (path, complaint.message) not in refused:
                    refused.add((path, complaint.message))
                    yield complaint


def _texts(process: Process) -> Iterator[tuple[FieldPath, str]]:
    for name, text in process.properties.items():
        yield ("properties", name), text
    for name, item in process.inputs.items():
        if item.partition is not None:
            yield ("inputs", name, "partition"), item.partition
    for position, text in enumerate(process.workflow.args):
        yield ("workflow", "args", position), text
