"""docs/rows.md against the tests: a row that is described has a test of its name, and the other way round."""

import re

from tests.documents.markdown import ROOT, plain, tables_of

NAME = re.compile(r"^\s*def test_rows?_((?:\d+_)+)", re.MULTILINE)  # def test_rows_69_70_checks_come(


def test_rows_that_are_described_are_tested_and_the_other_way_round() -> None:
    found = [
        number
        for file in (ROOT / "tests").rglob("test_*.py")
        for numbers in NAME.findall(file.read_text("utf-8"))
        for number in numbers.rstrip("_").split("_")
    ]
    described = [int(plain(row[0])) for table in tables_of("docs/rows.md") for row in table.rows]
    assert sorted(set(map(int, found))) == described
