"""Metrics in Graphite's plaintext protocol: a line `path value timestamp` for each value.

Differs from Falcon: its paths had the operation and one value for each run; these are the same totals and values as for
Prometheus. Like there, a process of several pipelines has a path in each; whatever is in no pipeline is in `default`.
"""

import re
from collections.abc import Iterator

from feed_assets.operations.metrics.records import PREFIX, Family, Label, Metrics, MetricType, Sample

NO_PIPELINE = "default"

_SEPARATING = re.compile(r"[^A-Za-z0-9_@+=-]")


def render_graphite(metrics: Metrics, prefix: str = PREFIX) -> str:
    """Render metrics as lines: `<prefix>.<cluster>.<pipeline>.<entity>.<family>.<other labels>`."""
    at = int(metrics.as_of.timestamp())
    lines = (
        f"{path} {value:.15g} {at}"
        for each in metrics.families
        for sample in each.samples
        for path, value in _iter_values(each.family, sample, prefix)
    )
    return "".join(f"{line}\n" for line in lines)


def _iter_values(family: Family, sample: Sample, prefix: str) -> Iterator[tuple[str, float]]:
    labels = dict(zip(family.labels, sample.labels, strict=True))
    cluster = [labels.pop(Label.CLUSTER)] if Label.CLUSTER in labels else []
    pipelines = [[each or NO_PIPELINE] for each in labels.pop(Label.PIPELINE, "").split(",")]
    entity = [labels.pop(Label.ENTITY)] if Label.ENTITY in labels else []
    values = [sample.value] if family.type is not MetricType.SUMMARY else [sample.occurrences, sample.value]
    for pipeline in pipelines:
        for name, value in zip(family.sample_names, values, strict=True):
            place = [*cluster, *(pipeline if entity else []), *entity, name.removeprefix(f"{PREFIX}_")]
            parts = [_SEPARATING.sub("_", part) for part in (*place, *labels.values())]
            yield ".".join([prefix, *parts]), value
