"""`feed-assets metrics`: what it prints, what it serves, and how it stops."""

import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from feed_assets.metrics.expositions import load_dashboard
from tests.cli.project import prepare, run
from tests.definitions.verbs.harness import ALL

ROOT = Path(__file__).parents[2]


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


@pytest.mark.parametrize("address", ["here", "127.0.0.1:", "127.0.0.1:65536", "::1:9464", ":-1"])
def test_what_is_no_address_is_refused(project: Path, address: str) -> None:
    result = run("metrics", "--listen", address)
    assert result.exit_code == 2
    assert "is no address. Write" in " ".join(result.stderr.split())


def test_graphite_is_not_served(project: Path) -> None:
    result = run("metrics", "--format", "graphite", "--listen", "0")
    assert result.exit_code == 2
    assert "Graphite does not ask" in result.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serving_follows_changed_definitions_and_ends_cleanly(project: Path, number: signal.Signals) -> None:
    code = "from feed_assets.cli.main import main; main(prog_name='feed-assets')"
    command = [sys.executable, "-c", code, "metrics", "--listen", "0", "--max-series", "200"]
    environ = {"PYTHONPATH": str(ROOT), "HOME": str(project)}
    with subprocess.Popen(command, cwd=project, env=environ, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        url = server.stderr.readline().removeprefix("serving ").strip()
        assert url.startswith("http://127.0.0.1:")
        assert 'entity="counting"' in _ask(url)
        (project / "entities/all.yaml").write_text(yaml.safe_dump_all(ALL[:2]))
        changed = _ask(url)
        assert 'entity="counting"' not in changed
        assert 'entity="clicks"' in changed
        server.send_signal(number)
        assert server.wait() == 0
        assert server.stderr.read() == ""


def _ask(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as response:
        return str(response.read().decode())
