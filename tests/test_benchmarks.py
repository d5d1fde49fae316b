"""Every part of the benchmarks runs, at a size at which its figures say nothing; the dearest in drills."""

import shutil
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.millions import COMMANDS
from benchmarks.plain_import import JAR
from benchmarks.report import Part
from feed_assets.operation import Does
from feed_assets.operation_list import list_operations
from tests.java_start import LIGHT

JAVA = [
    pytest.mark.spark,
    pytest.mark.skipif(shutil.which("javac") is None, reason="Hadoop is measured by a Java program: it needs a JDK"),
]
RSYNC = pytest.mark.skipif(shutil.which("rsync") is None, reason="rsync is a peer of copies: install it")
DATABASE = pytest.mark.skipif(not JAR.exists(), reason="a table is read by a driver: install libpostgresql-jdbc-java")
MARKS = {
    Part.LOADING: [pytest.mark.drill],
    Part.STARTING: [pytest.mark.drill],
    Part.CALENDAR: [pytest.mark.drill],
    Part.TICKS: [pytest.mark.drill],
    Part.RUNS: [pytest.mark.drill],
    Part.RETENTION: [*JAVA, pytest.mark.drill],
    Part.REPLICATION: [*JAVA, RSYNC, pytest.mark.drill],
    Part.TRIGGERS: [pytest.mark.drill],
    Part.SEARCHING: [pytest.mark.drill, pytest.mark.server],
    Part.DEADLINES: [pytest.mark.drill],
    Part.INBOXES: [pytest.mark.server],
    Part.KEEPING: [pytest.mark.drill, pytest.mark.server],
    Part.MILLIONS: [pytest.mark.drill],
    Part.LINEAGE: [pytest.mark.server],
    Part.RIGHTS: [pytest.mark.drill, pytest.mark.server],
    Part.IMPORTS: [DATABASE, pytest.mark.drill, pytest.mark.server, pytest.mark.spark],
}

OF_FILES = {
    "admin operations",
    "entity validate",
    "export-falcon",
    "import-falcon",
    "init",
    "schema",
    "serve",
    "settings",
    "validate",
}
"""Operations that do not read the state."""
NOT_THERE = {
    "admin audit verify",  # reads all rows of the audit
    "batch show",
    "datasource check",
    "datasource columns",
    "datasource tables",
    "extension describe",
    "extension job list",
    "extension job show",
    "extension job validate",
    "extension list",
    "extension show",
    "import marks",
    "import plan",
    "import new",
    "front",
    "lineage run",
    "mirror new",
    "mirror plan",
    "mirror snapshots",
    "quality show",
    "queue show",
    "registration verify",
    "replication status",
    "replication verify",
    "retention report",
    "retention show",
    "token list",
    "try",
}
"""Operations on what is not there: batches, databases, jobs, mirrors, rows, copies, tables, sweeps, tokens, runs."""


@pytest.mark.parametrize("part", [pytest.param(part, marks=MARKS.get(part, [pytest.mark.long])) for part in Part])
def test_a_part_measures_something(
    part: Part, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JDK_JAVA_OPTIONS", " ".join(LIGHT))  # Java compiles the programs of Hadoop as they start
    assert main(["--only", part, "--scale", "tiny", "--folder", str(tmp_path)]) == 0, capsys.readouterr().err


def test_every_operation_that_reads_is_measured_with_a_million_instances_or_said_not_to_be() -> None:
    reading = {each.name for each in list_operations().items if each.does is Does.READS}
    known = {*COMMANDS, *OF_FILES, *NOT_THERE}
    assert reading <= known, f"add to benchmarks/millions.py: {reading - known}"
    assert known <= {each.name for each in list_operations().items}
