"""docs/rows.md: every row of Falcon's features once, its state in a word, and a test of its name for each built one."""

import re

from tests.documents.markdown import NONE, ROOT, plain, tables_of

NAME = re.compile(r"^\s*def test_rows?_((?:\d+_)+)", re.MULTILINE)  # def test_rows_69_70_checks_come(
ROWS = range(1, 159)
STATES = {"built", "partly", "not"}
TABLES = tables_of("docs/rows.md")


def column(name: str) -> list[str]:
    return [cell for table in TABLES for cell in table.column[name]]


def numbers_of(states: set[str]) -> set[int]:
    return {int(row) for row, state in zip(column("row"), column("state"), strict=True) if state in states}


def rows_with_tests() -> set[int]:
    return {
        int(number)
        for file in (ROOT / "tests").rglob("test_*.py")
        for numbers in NAME.findall(file.read_text("utf-8"))
        for number in numbers.rstrip("_").split("_")
    }


def test_every_row_is_there_once_and_in_order() -> None:
    assert [int(plain(row)) for row in column("row")] == list(ROWS)


def test_every_state_is_one_of_three_words() -> None:
    assert set(column("state")) == STATES


def test_every_built_row_has_a_test_and_every_tested_row_says_what_is_here() -> None:
    assert numbers_of({"built"}) <= rows_with_tests() <= set(ROWS)
    here = dict(zip(map(int, column("row")), column("here"), strict=True))
    assert [row for row in rows_with_tests() if here[row] == NONE] == []


def test_what_is_not_whole_says_what_is_missing() -> None:
    rows = zip(column("row"), column("state"), column("not as Falcon"), strict=True)
    assert [row for row, state, missing in rows if state == "partly" and missing == NONE] == []


def test_every_row_that_is_not_built_is_told_with_its_reason() -> None:
    page = (ROOT / "docs/not-there.md").read_text("utf-8")
    told = {int(row) for rows in re.findall(r"\brows? ([\d, ]+\d)", page) for row in rows.split(", ")}
    told |= {int(row) for row in re.findall(r"\b\d+", " ".join(tables_of("docs/not-there.md")[0].column["row"]))}
    assert numbers_of({"not"}) <= told
