import pytest

from feed_assets.loading.documents import PlainDocument
from feed_assets.loading.yaml_nodes import MAX_DEPTH, iter_documents, parse_scalar


def _one(text: str) -> PlainDocument:
    (document,) = iter_documents(text)
    return document


def _codes(text: str) -> list[str]:
    return [problem.code for document in iter_documents(text) for problem in document.problems]


def test_documents_come_with_the_place_of_every_key() -> None:
    first, second = iter_documents("a: 1\nb:\n  - x\n  - {c: d}\n---\ne: f\n")
    assert first.value == {"a": 1, "b": ["x", {"c": "d"}]}
    assert first.positions == {
        (): (1, 1),
        ("a",): (1, 1),
        ("b",): (2, 1),
        ("b", 0): (3, 5),
        ("b", 1): (4, 5),
        ("b", 1, "c"): (4, 6),
    }
    assert (second.line, second.value) == (6, {"e": "f"})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("-5", -5),
        ("0.5", 0.5),
        ("1e3", "1e3"),
        ("0x1F", "0x1F"),
        ("1_000", "1_000"),
        ("007", "007"),
        ("off", "off"),
        ("True", "True"),
        ("null", None),
        (".inf", ".inf"),
        ("9" * 60, "9" * 60),
        ("12:30:45", "12:30:45"),
    ],
)
def test_a_plain_scalar_is_a_number_only_if_it_reads_back_the_same(text: str, value: object) -> None:
    assert parse_scalar(text) == value
    assert type(parse_scalar(text)) is type(value)


def test_quoted_and_block_scalars_are_text() -> None:
    assert _one("a: '5'\nb: \"true\"\nc: |\n  5\nd: ! 5\n").value == {"a": "5", "b": "true", "c": "5\n", "d": 5}


def test_merged_maps_fill_in_what_is_missing() -> None:
    document = _one("x: &x {a: 1, b: 2}\ny: &y {c: 3}\nz: {<<: [*x, *y], b: 9}\n")
    assert document.value == {"x": {"a": 1, "b": 2}, "y": {"c": 3}, "z": {"b": 9, "a": 1, "c": 3}}
    assert document.positions["z", "a"] == (3, 5)
    assert not document.problems


def test_a_tag_is_refused_and_nothing_is_constructed() -> None:
    assert _codes("a: !!python/object/apply:os.system ['exit 1']\n") == ["yaml-tag"]
    assert _codes("!!set {a}\n") == ["yaml-tag"]


def test_a_key_is_written_once() -> None:
    (problem,) = _one("a: 1\nb: 2\na: 3\n").problems
    assert (problem.code, problem.line, problem.column) == ("duplicate-key", 3, 1)


def test_a_second_entity_needs_a_line_between() -> None:
    """The first is readable as far as it goes; a key that is repeated in the first is a mistake of its own."""
    first, after = iter_documents("kind: a\nname: b\nx: 1\nx: 2\n# other\nkind: c\nx: 3\nname: d\nx: 4\n---\nok: 1\n")
    assert [(each.code, each.line) for each in first.problems] == [("duplicate-key", 4), ("yaml-document", 6)]
    assert (first.value, after.value) == (None, {"ok": 1})
    assert first.readable == {"kind": "a", "name": "b", "x": 1}
    assert _codes("kind: a\nname: b\nkind: c\n") == ["duplicate-key"]


def test_an_alias_bomb_is_given_up_and_the_next_document_is_read() -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    for before, name in zip("abcdef", "bcdefg", strict=True):
        lines.append(f"{name}: &{name} [{', '.join(['*' + before] * 10)}]")
    bomb, after = iter_documents("\n".join(lines) + "\n---\nok: 1\n")
    assert [problem.code for problem in bomb.problems] == ["yaml-too-big"]
    assert after.value == {"ok": 1}


def test_endless_nesting_is_given_up() -> None:
    for text in ("[" * 50_000 + "]" * 50_000, "- " * (MAX_DEPTH + 5) + "x"):
        assert _codes(text) == ["yaml-too-deep"]


def test_an_alias_inside_what_it_names_is_refused() -> None:
    assert _codes("a: &a {b: *a}\n") == ["yaml-alias"]


def test_after_a_mistake_in_the_syntax_there_are_no_more_documents() -> None:
    good, bad = iter_documents("a: 1\n---\nb: c: d\n---\ne: 1\n")
    assert good.value == {"a": 1}
    assert [problem.code for problem in bad.problems] == ["yaml-syntax"]


def test_control_characters_are_a_mistake_in_the_syntax() -> None:
    assert "yaml-syntax" in _codes("a: \x00\n")


def test_an_empty_text_has_no_documents() -> None:
    assert list(iter_documents("")) == []
    assert list(iter_documents("# nothing\n")) == []
