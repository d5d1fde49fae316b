"""Metrics in the formats of Prometheus, through its client's own exposition, and in Graphite's plaintext protocol.

In Graphite a line `path value timestamp` has each value. Differs from Falcon: its paths had the operation and one value
for each run; these are the same totals and values as for Prometheus. Like there, a process of several pipelines has a
path in each; whatever is in no pipeline is in `default`.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import starmap
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from feed_assets.metrics.families import FAMILIES
from feed_assets.metrics.records import PREFIX, Family, Label, Metrics, MetricType, Sample

NO_PIPELINE = "default"

_DASHBOARD = Path(__file__).with_name("dashboard.json")
_SEPARATING = re.compile(r"[^A-Za-z0-9_@+=-]")


class MetricsCollector(Collector):
    """Collects metrics anew for each exposition; it keeps none."""

    def __init__(self, collect: Callable[[], Metrics]) -> None:
        self._collect = collect

    def describe(self) -> Iterator[Metric]:
        """Yield the families without samples, so that a scrape may ask for some of them (`?name[]=`)."""
        return (_convert(family, ()) for family in FAMILIES)

    def collect(self) -> Iterator[Metric]:
        """Yield the families, also those without samples."""
        return starmap(_convert, self._collect().families.items())


def build_registry(collect: Callable[[], Metrics]) -> CollectorRegistry:
    """Return a registry of its own with what `collect` returns, without metrics of this process."""
    registry = CollectorRegistry()
    registry.register(MetricsCollector(collect))
    return registry


def render_prometheus(metrics: Metrics) -> str:
    """Render metrics as Prometheus' text format."""
    return generate_latest(build_registry(lambda: metrics)).decode()


def _convert(family: Family, samples: Iterable[Sample]) -> Metric:
    found = Metric(f"{PREFIX}_{family.name}", family.meaning, family.type.value)
    for sample in samples:
        labels = {label.value: text for label, text in zip(family.labels, sample.labels, strict=True)}
        for name, value in _values(family, sample):
            found.add_sample(name, labels, value)
    return found


def _values(family: Family, sample: Sample) -> Iterator[tuple[str, float]]:
    """Return the values of a sample, with the names of these."""
    values = [sample.value] if family.type is not MetricType.SUMMARY else [sample.occurrences, sample.value]
    return zip(family.sample_names, values, strict=True)


def render_graphite(metrics: Metrics, prefix: str = PREFIX) -> str:
    """Render metrics as lines: `<prefix>.<cluster>.<pipeline>.<entity>.<family>.<other labels>`."""
    at = int(metrics.as_of.timestamp())
    lines = (
        f"{path} {value:.15g} {at}"
        for family, samples in metrics.families.items()
        for sample in samples
        for path, value in _iter_values(family, sample, prefix)
    )
    return "".join(f"{line}\n" for line in lines)


def _iter_values(family: Family, sample: Sample, prefix: str) -> Iterator[tuple[str, float]]:
    labels = dict(zip(family.labels, sample.labels, strict=True))
    cluster = [labels.pop(Label.CLUSTER)] if Label.CLUSTER in labels else []
    pipelines = [[each or NO_PIPELINE] for each in labels.pop(Label.PIPELINE, "").split(",")]
    entity = [labels.pop(Label.ENTITY)] if Label.ENTITY in labels else []
    for pipeline in pipelines:
        for name, value in _values(family, sample):
            place = [*cluster, *(pipeline if entity else []), *entity, name.removeprefix(f"{PREFIX}_")]
            parts = [_SEPARATING.sub("_", part) for part in (*place, *labels.values())]
            yield ".".join([prefix, *parts]), value


def load_dashboard() -> str:
    """Return the JSON document of the dashboard for Grafana, as it is imported there."""
    return _DASHBOARD.read_text("utf-8")
