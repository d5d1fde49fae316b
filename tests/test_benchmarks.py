"""Every part of the benchmarks runs, at a size at which its figures say nothing; the dearest in drills."""

import shutil
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.report import Part
from tests.java_start import LIGHT

JAVA = [
    pytest.mark.spark,
    pytest.mark.skipif(shutil.which("javac") is None, reason="Hadoop is measured by a Java program: it needs a JDK"),
]
RSYNC = pytest.mark.skipif(shutil.which("rsync") is None, reason="rsync is a peer of copies: install it")
MARKS = {
    Part.TICKS: [pytest.mark.drill],
    Part.RUNS: [pytest.mark.drill],
    Part.RETENTION: JAVA,
    Part.REPLICATION: [*JAVA, RSYNC, pytest.mark.drill],
    Part.SEARCHING: [pytest.mark.server],
    Part.INBOXES: [pytest.mark.server],
    Part.KEEPING: [pytest.mark.server],
}


@pytest.mark.parametrize("part", [pytest.param(part, marks=MARKS.get(part, [pytest.mark.long])) for part in Part])
def test_a_part_measures_something(
    part: Part, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JDK_JAVA_OPTIONS", " ".join(LIGHT))  # Java compiles the programs of Hadoop as they start
    assert main(["--only", part, "--scale", "tiny", "--folder", str(tmp_path)]) == 0, capsys.readouterr().err
