"""docs/search.md: each query finds, among the entities of the demo, what the page says."""

import json

import pytest

from tests.catalog.search.test_search_commands import demo
from tests.cli.project import run
from tests.commands import words_of
from tests.documents.markdown import codes, tables_of
from tests.documents.shell import commands_of

__all__ = ["demo"]

PAGE = "docs/search.md"


@pytest.fixture
def database_url(tmp_path: object) -> str:
    """The demo is on SQLite here."""
    return f"sqlite:///{tmp_path}/state.db"


@pytest.mark.usefixtures("demo")
def test_queries_find_what_the_page_says() -> None:
    (table,) = [each for each in tables_of(PAGE) if "on the demo" in each.column]
    rows = zip(table.column["query"], table.column["on the demo"], strict=True)
    for query, expected in rows:
        done = run("search", *codes(query), "--output", "json")
        assert [each["entity"] for each in json.loads(done.stdout)["results"]] == codes(expected), query


@pytest.mark.usefixtures("demo")
def test_the_commands_of_the_page_are_given() -> None:
    for line in commands_of(PAGE):
        done = run(*words_of(line))
        assert (done.exit_code, len(done.stdout.splitlines()) > 1) == (0, True), line
