"""Metrics in the formats of Prometheus and Graphite."""

import re
from collections.abc import Callable, Iterable

import pytest
from prometheus_client import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from feed_assets.context.operation import OperationContext
from feed_assets.metrics.collecting import collect_metrics
from feed_assets.metrics.expositions import build_registry, render_graphite, render_prometheus
from feed_assets.metrics.families import FAMILIES
from feed_assets.metrics.records import PREFIX, MetricType
from tests.metrics.story import NOW

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
UNITS = ("seconds", "bytes", "ratio")


@pytest.mark.parametrize(("accept", "parse"), [("text/plain", parse_text), (OPENMETRICS, parse_openmetrics)])
def test_every_family_can_be_parsed_with_its_type_its_labels_and_all_samples(
    told: OperationContext, accept: str, parse: Callable[[str], Iterable[Metric]]
) -> None:
    metrics = collect_metrics(told)
    encode, _ = choose_encoder(accept)
    text = encode(build_registry(lambda: metrics)).decode()
    found = {each.name: each for each in parse(text)}
    assert set(found) == {f"{PREFIX}_{family.name}" for family in FAMILIES}
    for family, samples in metrics.families.items():
        parsed = found[f"{PREFIX}_{family.name}"]
        assert (parsed.type, parsed.documentation) == (family.type.value, family.meaning)
        assert {sample.name for sample in parsed.samples} == set(family.sample_names)
        assert {tuple(sorted(sample.labels)) for sample in parsed.samples} == {tuple(sorted(family.labels))}
        assert len(parsed.samples) == len(samples) * len(family.sample_names)


def test_names_follow_the_conventions_of_prometheus() -> None:
    names = [family.name for family in FAMILIES]
    assert len(names) == len(set(names))
    for family in FAMILIES:
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", family.name)
        assert not family.name.endswith(("_total", "_count", "_sum", "_bucket"))
        assert family.meaning.endswith(".")
        if family.type is MetricType.SUMMARY:
            assert family.name.endswith(UNITS)


def test_a_scrape_may_ask_for_some_families(told: OperationContext) -> None:
    registry = build_registry(lambda: collect_metrics(told))
    (name,) = {each.name for each in registry.restricted_registry(["feed_assets_missing_instances"]).collect()}
    assert name == "feed_assets_missing_instances"


def test_labels_with_any_characters_survive(told: OperationContext) -> None:
    assert 'pipeline="web,daily"' in render_prometheus(collect_metrics(told))


def test_row_152_graphite_has_a_path_in_each_pipeline_or_in_the_default_one(told: OperationContext) -> None:
    lines = render_graphite(collect_metrics(told)).splitlines()
    parts = [re.fullmatch(r"([A-Za-z0-9_.@+=-]+) ([0-9.e+-]+) ([0-9]+)", line) for line in lines]
    values = {found[1]: (float(found[2]), int(found[3])) for found in parts if found is not None}
    assert len(values) == len(lines)
    assert {at for _, at in values.values()} == {int(NOW.timestamp())}
    for pipeline in ("web", "daily"):
        of_count = f"feed_assets.primary.{pipeline}.count"
        assert values[f"{of_count}.instance_ends_total.FAILED"][0] == 1
        assert values[f"{of_count}.start_delay_seconds_sum"][0] == 5 * 11 * 60
        assert values[f"{of_count}.start_delay_seconds_count"][0] == 5
        assert f"{of_count}.processing_seconds_sum.SUCCEEDED" in values
    assert values["feed_assets.backup.default.counts@primary.instance_ends_total.SUCCEEDED"][0] == 5
    assert values["feed_assets.primary.default.clicks.missing_instances"][0] == 2
    assert values["feed_assets.backup.tick_age_seconds"][0] == 120


def test_what_separates_parts_of_a_path_does_not_stand_in_one(told: OperationContext) -> None:
    lines = render_graphite(collect_metrics(told), prefix="east.etl").splitlines()
    assert all(line.startswith("east.etl.") for line in lines)
    assert any(re.match(r"east\.etl\.build_info\.\d+_\d+_\d+ 1 ", line) for line in lines)
