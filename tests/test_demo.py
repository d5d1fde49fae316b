"""The demo on HDFS shows what it shows on local files."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents.markdown import ROOT
from tests.hdfs_cluster import run_hdfs
from tests.servers import free_port


@pytest.mark.drill
@pytest.mark.daemon
@pytest.mark.spark
def test_the_demo_on_hdfs_shows_what_its_page_says(tmp_path: Path) -> None:
    with run_hdfs() as cluster:
        command = [sys.executable, "-m", "examples.flights.demo", "--folder", str(tmp_path / "demo")]
        command += ["--port", str(free_port()), "--storage", f"{cluster.url}/demo"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=3000)
    assert done.returncode == 0, done.stdout + done.stderr
    said = [" ".join(line.split()) for line in re.sub("[│┃]", " ", done.stdout).splitlines()]
    page = (ROOT / "docs/demo.md").read_text("utf-8").partition("                            Feeds\n")[2]
    feeds = [" ".join(line.split()) for line in page.partition("\n\n")[0].splitlines()]
    assert len(feeds) == 7
    assert set(feeds) <= set(said)
    for part in (
        "backup 30 100774",
        "30 of 30",
        "239 88240 239",
        "10 are back",
        "is a materialized partition in Dagster",
    ):
        assert any(part in line for line in said), (part, done.stdout)
