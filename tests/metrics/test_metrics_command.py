"""`feed-assets metrics`: what it prints."""

import re
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from feed_assets.metrics.expositions import load_dashboard
from tests.cli.project import prepare, run
from tests.definitions.verbs.harness import ALL


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    prepare(tmp_path)
    (tmp_path / "entities/all.yaml").write_text(yaml.safe_dump_all(ALL))
    return tmp_path


def test_metrics_are_printed_for_prometheus_and_for_graphite(project: Path) -> None:
    printed = run("metrics")
    assert (printed.exit_code, printed.stderr) == (0, "")
    found = {each.name: each for each in text_string_to_metric_families(printed.stdout)}
    entities = {sample.labels["entity"] for sample in found["feed_assets_instances"].samples}
    assert entities == {"counting"}
    graphite = run("metrics", "--format", "graphite")
    assert "feed_assets.primary.default.counting.instances.WAITING 0 " in graphite.stdout
    assert run("metrics", "--dashboard").stdout == load_dashboard()


def test_what_errors_leave_out_keeps_its_series_and_is_counted_by_file(project: Path) -> None:
    assert 'feed_assets_invalid_entities{file=""} 0.0' in run("metrics").stdout
    assert run("apply", "--yes").exit_code == 0
    before = _series(run("metrics").stdout)
    text = yaml.safe_dump_all(ALL)
    for wrong, count in ((text.replace("feed: clicks", "feed: clikcs"), 1), (text.replace("outputs:", "outputz:"), 1)):
        (project / "entities/all.yaml").write_text(wrong)
        run("apply", "--yes")  # records the edit
        printed = run("metrics").stdout
        assert f'feed_assets_invalid_entities{{file="entities/all.yaml"}} {float(count)}' in printed
        assert {each for each in before if "counting" in each} <= _series(printed)
        assert any("feed_assets_instances" in each for each in _series(printed))


def _series(printed: str) -> set[str]:
    return {line.rpartition(" ")[0] for line in printed.splitlines() if "entity=" in line}


def test_what_is_left_out_is_said_on_standard_error(project: Path) -> None:
    result = run("metrics", "--max-series", "5")
    assert result.exit_code == 0
    (number,) = re.findall(
        r"^feed-assets: (\d+) series are left out: there are more than 5\. --max-series allows more\.$",
        result.stderr.strip(),
    )
    assert f"feed_assets_series_left_out {float(number)}" in result.stdout
    assert "counting" not in result.stdout
