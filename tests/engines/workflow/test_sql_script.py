import pytest

from feed_assets.engines.workflow.sql_script import parse_statements


@pytest.mark.parametrize(
    "text",
    [
        "SELECT ';'",
        'SELECT ";"',
        "SELECT `a;b` FROM t",
        "SELECT 'it''s; fine'",
        r"SELECT 'a\';b'",
        r"SELECT r'a\', 2",
        "SELECT 1 -- one; two\n + 2",
        "SELECT 1 /* a; /* nested; */ b; */ + 2",
        "SELECT '--', ';'",
        "SELECT '/*', ';' -- */",
    ],
)
def test_a_semicolon_in_text_or_comments_ends_nothing(text: str) -> None:
    assert [statement.text for statement in parse_statements(f"{text}\n;SELECT 2")] == [text, "SELECT 2"]


@pytest.mark.parametrize("text", ["", " \n", ";;", "-- only a comment", "/* block; */ ;\n-- line;\n"])
def test_what_holds_comments_only_is_no_statement(text: str) -> None:
    assert parse_statements(text) == ()


def test_a_marker_belongs_to_the_statement_that_it_stands_before() -> None:
    text = "CREATE VIEW v AS SELECT 1;\n\n-- output: late-flights\n\nSELECT 2;\n-- Output : b\nSELECT 3;"
    assert [(s.output, s.line) for s in parse_statements(text)] == [(None, 1), ("late-flights", 5), ("b", 7)]


def test_a_marker_without_a_statement_marks_nothing() -> None:
    assert [s.output for s in parse_statements("SELECT 1;\n-- output: b\n")] == [None]


def test_a_marker_inside_a_string_is_text() -> None:
    assert [s.output for s in parse_statements("SELECT '-- output: b'")] == [None]
