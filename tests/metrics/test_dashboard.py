"""Each query of the dashboard asks for metrics and labels that there are."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from feed_assets.context.operation import OperationContext
from feed_assets.metrics.collecting import collect_metrics
from feed_assets.metrics.expositions import load_dashboard, render_prometheus
from feed_assets.metrics.families import BUILD, FAMILIES, INVALID, LIMIT

DASHBOARD: dict[str, Any] = json.loads(load_dashboard())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
VARIABLES = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}

SELECTOR = re.compile(r"(feed_assets_\w+)(?:\{([^}]*)\})?")  # feed_assets_instances{cluster=~"$cluster"}
MATCHER = re.compile(r'(\w+)(?:=~|!~|!=|=)"([^"]*)"')
GROUPING = re.compile(r"\bby \(([^)]*)\)")
LEGEND = re.compile(r"\{\{(\w+)\}\}")
VARIABLE = re.compile(r"\$\{?(\w+)\}?")


@pytest.fixture(scope="module")
def exposed(told: OperationContext) -> dict[str, list[dict[str, str]]]:
    """The labels of all samples of the exposition, by the names of the samples."""
    found: dict[str, list[dict[str, str]]] = {}
    for family in text_string_to_metric_families(render_prometheus(collect_metrics(told))):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(dict(sample.labels))
    return found


def queries() -> Iterator[tuple[str, str, str]]:
    """The queries of panels and of variables: whose it is, the query, the legend."""
    for panel in PANELS:
        for target in panel["targets"]:
            yield panel["title"], target["expr"], target["legendFormat"]
    for name, variable in VARIABLES.items():
        if variable["type"] == "query":
            yield name, variable["query"]["query"], ""


@pytest.mark.parametrize(("title", "query", "legend"), list(queries()))
def test_a_query_names_metrics_and_labels_of_the_exposition(
    exposed: dict[str, list[dict[str, str]]], title: str, query: str, legend: str
) -> None:
    selected = SELECTOR.findall(query)
    assert selected, title
    labels: set[str] = set()
    for name, matchers in selected:
        assert name in exposed, (title, name)
        labels |= set(exposed[name][0])
        wanted = dict(MATCHER.findall(matchers))
        fixed = {label: value for label, value in wanted.items() if "$" not in value}
        assert set(wanted) <= set(exposed[name][0]), (title, name)
        for sample_label, value in fixed.items():
            known = {labels[sample_label] for labels in exposed[name]}
            assert set(value.split("|")) <= known, (title, name, value)
    grouped = {label.strip() for group in GROUPING.findall(query) for label in group.split(",")}
    assert grouped <= labels, title
    assert set(LEGEND.findall(legend)) <= grouped, title


@pytest.mark.parametrize(("title", "query", "legend"), list(queries()))
def test_a_query_is_balanced_and_its_variables_are_declared(title: str, query: str, legend: str) -> None:
    plain = re.sub(r'"[^"]*"', "", query)
    for opening, closing in ("()", "{}", "[]"):
        assert plain.count(opening) == plain.count(closing), title
    assert {name for name in VARIABLE.findall(query) if name != "datasource"} <= set(VARIABLES), title
    assert legend or title in VARIABLES


def test_every_family_but_those_about_the_exposition_has_a_panel() -> None:
    asked = {name for _, query, _ in queries() for name, _ in SELECTOR.findall(query)}
    left = {family for family in FAMILIES if not asked & set(family.sample_names)}
    assert left == {
        BUILD,
        INVALID,
        LIMIT,
        *(family for family in FAMILIES if family.name == "oldest_pending_event_age_seconds"),
    }


def test_the_dashboard_can_be_imported_into_any_grafana() -> None:
    assert DASHBOARD["schemaVersion"] >= 39
    assert "id" not in DASHBOARD
    assert VARIABLES["datasource"]["query"] == "prometheus"
    sources = {json.dumps(found) for found in _find("datasource", DASHBOARD) if isinstance(found, dict)}
    assert sources == {'{"type": "prometheus", "uid": "${datasource}"}'}
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in DASHBOARD["panels"]}
    assert len(places) == len(ids)
    assert all(panel["description"] for panel in PANELS)


def _find(key: str, value: object) -> Iterator[object]:
    if isinstance(value, dict):
        yield from (found for name, found in value.items() if name == key)
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _find(key, each)
