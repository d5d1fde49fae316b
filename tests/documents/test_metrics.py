"""docs/metrics.md against the code: its table of families, its labels, its rules for Prometheus, and its commands."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from feed_assets.metrics.collecting import SERIES_LIMIT
from feed_assets.metrics.families import FAMILIES
from feed_assets.metrics.records import PREFIX, Label, MetricType
from tests.cli.project import prepare
from tests.documents.markdown import NONE, ROOT, codes, fences, plain, tables_of
from tests.documents.shell import Shell

PAGE = "docs/metrics.md"
GROUPS = {"*process*": ["cluster", "pipeline", "entity"], "*feed*": ["cluster", "entity"]}
SELECTOR = re.compile(r"(feed_assets_\w+)(?:\{([^}]*)\})?")


def test_the_table_has_every_family_with_type_labels_and_meaning() -> None:
    (table,) = [table for table in tables_of(PAGE) if table.header[0] == "metric"]
    expected = []
    for family in FAMILIES:
        suffix = "_total" if family.type is MetricType.COUNTER else ""
        name, labels = f"{PREFIX}_{family.name}{suffix}", [label.value for label in family.labels]
        expected.append((name, family.type.value, labels, family.meaning.removesuffix(".")))
    found = [
        (plain(name), kind, [label for word in cell.split() for label in _labels(word)], meaning)
        for name, kind, cell, meaning in table.rows
    ]
    assert found == expected


def _labels(word: str) -> list[str]:
    return [] if word == NONE else GROUPS.get(word, [word.strip("`")])


def test_the_groups_of_labels_and_the_limit_are_those_of_the_text() -> None:
    text = " ".join((ROOT / PAGE).read_text("utf-8").split())
    for name, labels in GROUPS.items():
        assert f"{name} {'stands ' if name == '*process*' else ''}for " in text
        assert " ".join(f"`{label}`" for label in labels) in text
    assert f"at most {SERIES_LIMIT:,} series" in text


def test_every_label_is_explained() -> None:
    (table,) = [table for table in tables_of(PAGE) if table.header[0] == "label"]
    assert {plain(label) for label in table.column["label"]} == {label.value for label in Label}


def test_the_rules_for_prometheus_ask_for_what_there_is() -> None:
    by_name = {name: family for family in FAMILIES for name in family.sample_names}
    scraping, alerting = (yaml.safe_load(block) for block in fences(ROOT / PAGE, "yml"))
    assert scraping["scrape_configs"][0]["job_name"] == "feed-assets"
    rules: list[dict[str, Any]] = alerting["groups"][0]["rules"]
    assert len(rules) > 3
    for rule in rules:
        selected = SELECTOR.findall(rule["expr"])
        assert selected, rule
        for name, matchers in selected:
            labels = set(re.findall(r"(\w+)=", matchers))
            assert labels <= {label.value for label in by_name[name].labels}, rule


def test_the_commands_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    prepare(tmp_path)
    shell = Shell(monkeypatch=monkeypatch)
    shell.run_page(PAGE)
    assert json.loads((tmp_path / "dashboard.json").read_text())["title"] == "feed-assets"
    (printed,) = [answer for line, answer in shell.answers.items() if line == "feed-assets metrics"]
    assert "# TYPE feed_assets_instances gauge" in printed
    sent = [block for block in fences(ROOT / PAGE, "sh") if "graphite" in block]
    assert codes(f"`{sent[0].split('|')[0].strip()}`") == ["feed-assets metrics --format graphite"]
