import pytest

from feed_assets.entities.content.columns import parse_columns
from feed_assets.entities.errors import ColumnsError


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("a int", [("a", "int")]),
        ("a int, b string", [("a", "int"), ("b", "string")]),
        ("a: int,b:string , c : date", [("a", "int"), ("b", "string"), ("c", "date")]),
        ("a\tint,\n  b   double", [("a", "int"), ("b", "double")]),
        ("a decimal(10, 2), b map<string, array<int>>", [("a", "decimal(10, 2)"), ("b", "map<string, array<int>>")]),
        ("s struct<x: int, y: struct<z: int>>", [("s", "struct<x: int, y: struct<z: int>>")]),
        ("`a b` int, `c,d` date", [("a b", "int"), ("c,d", "date")]),
        ("`a``b` int", [("a`b", "int")]),
        ("`a:b` int", [("a:b", "int")]),
        ("a int NOT NULL, b int", [("a", "int NOT NULL"), ("b", "int")]),
        ("a int COMMENT 'x, y: (z', b int", [("a", "int COMMENT 'x, y: (z'"), ("b", "int")]),
        ('a int COMMENT "it\'s", b int', [("a", 'int COMMENT "it\'s"'), ("b", "int")]),
        ("größe double", [("größe", "double")]),
    ],
)
def test_columns_are_taken_apart_at_top_level_commas(text: str, columns: list[tuple[str, str]]) -> None:
    assert list(parse_columns(text)) == columns


@pytest.mark.parametrize("text", ["", " ", "a", "a int,", ", a int", "a int,,b int", "a:", "`` int", "`a`"])
def test_a_column_without_name_or_type_is_refused(text: str) -> None:
    with pytest.raises(ColumnsError, match="is not a name and a type"):
        parse_columns(text)


@pytest.mark.parametrize(
    "text", ["a array<int", "a int)", "a decimal(10,2", "a array<(>)", "`a int", "a int COMMENT 'x"]
)
def test_brackets_and_quotes_that_do_not_match_are_refused(text: str) -> None:
    with pytest.raises(ColumnsError, match="its brackets or quotes do not match"):
        parse_columns(text)


def test_the_refusal_says_what_to_write() -> None:
    with pytest.raises(ColumnsError) as caught:
        parse_columns("a")
    assert str(caught.value) == (
        "schema 'a': 'a' is not a name and a type. Write columns as Spark does: `name type, name type`."
    )
