"""Metrics in the formats of Prometheus, through its client's own exposition."""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from feed_assets.operations.metrics.families import FAMILIES
from feed_assets.operations.metrics.records import PREFIX, Metrics, MetricType, SampledFamily


class MetricsCollector(Collector):
    """Collects metrics anew for each exposition; it keeps none."""

    def __init__(self, collect: Callable[[], Metrics]) -> None:
        self._collect = collect

    def describe(self) -> Iterator[Metric]:
        """Yield the families without samples, so that a scrape may ask for some of them (`?name[]=`)."""
        return (_convert(SampledFamily(family=family, samples=())) for family in FAMILIES)

    def collect(self) -> Iterator[Metric]:
        """Yield the families, also those without samples."""
        return map(_convert, self._collect().families)


def build_registry(collect: Callable[[], Metrics]) -> CollectorRegistry:
    """Return a registry of its own with what `collect` returns, without metrics of this process."""
    registry = CollectorRegistry()
    registry.register(MetricsCollector(collect))
    return registry


def render_prometheus(metrics: Metrics) -> str:
    """Render metrics as Prometheus' text format."""
    return generate_latest(build_registry(lambda: metrics)).decode()


def _convert(sampled: SampledFamily) -> Metric:
    family = sampled.family
    name, labels = f"{PREFIX}_{family.name}", [label.value for label in family.labels]
    match family.type:
        case MetricType.GAUGE:
            gauge = GaugeMetricFamily(name, family.meaning, labels=labels)
            for sample in sampled.samples:
                gauge.add_metric(sample.labels, sample.value)
            return gauge
        case MetricType.COUNTER:
            counter = CounterMetricFamily(name, family.meaning, labels=labels)
            for sample in sampled.samples:
                counter.add_metric(sample.labels, sample.value)
            return counter
        case MetricType.SUMMARY:
            summary = SummaryMetricFamily(name, family.meaning, labels=labels)
            for sample in sampled.samples:
                summary.add_metric(sample.labels, sample.occurrences, sample.value)
            return summary
