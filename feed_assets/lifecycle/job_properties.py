"""What a job is told beside its data: the properties that Falcon gives every job, and the user's own on top."""

import getpass
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from feed_assets.engines.port import InputData
from feed_assets.plan.records import Plan, ProcessRecord
from feed_assets.timing.text import TextContext, render_text

NONE = "NONE"
"""Stands for the feeds, paths and names of a process without inputs or without outputs (Falcon's word)."""


def text_context(plan: Plan, process: ProcessRecord, nominal_time: datetime) -> TextContext:
    """What `${…}` in the process's properties, partitions and arguments can refer to."""
    cluster = plan.clusters[process.cluster]
    return TextContext(
        nominal_time=nominal_time,
        timezone=process.sequence.timezone,
        user=getpass.getuser(),
        cluster={**dict(cluster.properties), "name": cluster.name, "colo": cluster.colo},
        properties=dict(process.properties),
    )


def with_overrides(process: ProcessRecord, overrides: Mapping[str, object]) -> ProcessRecord:
    """The process with the properties that a person has given for one instance, in the place of its own."""
    if not overrides:
        return process
    properties = {**dict(process.properties), **{name: str(value) for name, value in overrides.items()}}
    return replace(process, properties=tuple(properties.items()))


def with_inputs(context: TextContext, inputs: Sequence[InputData]) -> TextContext:
    """The context in which `dataIn(name, partition)` knows the instances that were found."""
    urls = {item.name: tuple(instance.url for instance in item.instances) for item in inputs}
    return replace(context, inputs=urls)


def job_properties(
    process: ProcessRecord, context: TextContext, inputs: Sequence[InputData], outputs: Mapping[str, str]
) -> dict[str, str]:
    """The properties of one attempt, their variables filled in. The user's win over those given to every job.

    Given to every job (names as in Falcon, `reference`: its process coordinators): `nominalTime`
    (`yyyy-MM-dd-HH-mm`, UTC), `falconInputs`, `falconInputFeeds` and `falconInPaths` (joined by `#`), `feedNames` and
    `feedInstancePaths` (outputs, joined by `,`), and the paths of each input and output under its own name.
    """
    feeds = {edge.name: edge.feed for edge in process.outputs}
    given = {
        "nominalTime": f"{context.nominal_time:%Y-%m-%d-%H-%M}",
        "falconInputs": _joined("#", [item.name for item in inputs]),
        "falconInputFeeds": _joined("#", [item.feed for item in inputs]),
        "falconInPaths": _joined("#", [",".join(item.paths) for item in inputs]),
        "feedNames": _joined(",", [feeds[name] for name in outputs]),
        "feedInstancePaths": _joined(",", list(outputs.values())),
        **{item.name: ",".join(item.paths) or NONE for item in inputs},
        **outputs,
    }
    own = {name: render_text(value, context) for name, value in process.properties}
    return {**given, **own}


def _joined(separator: str, parts: Sequence[str]) -> str:
    return separator.join(parts) if parts else NONE
