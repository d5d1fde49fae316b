import pytest

from feed_assets.entities.content.patterns import Alternatives, OneOf, Repetition, Sequence, parse_pattern
from feed_assets.entities.errors import PatternError


def test_groups_alternatives_and_counts_are_understood() -> None:
    either = Alternatives((Sequence((OneOf("a"), OneOf("b"))), Sequence(())))
    assert parse_pattern(r"(?:ab|){2,3}\.?") == Sequence((Repetition(either, 2, 3), Repetition(OneOf("."), 0, 1)))


@pytest.mark.parametrize(
    ("text", "characters"),
    [("[a-c_]", "abc_"), (r"[\d-]", "0123456789-"), (r"[a\]a]", "a]"), ("[-a]", "-a")],
)
def test_a_class_has_each_of_its_characters_once(text: str, characters: str) -> None:
    assert parse_pattern(text) == OneOf(characters)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ab*", "character 3: '*' has no end"),
        ("ab{2,}", "character 3: '{' begins no count with an end"),
        ("a{3,2}", "character 2: '{' begins a count of nothing"),
        ("^a", "character 1: '^' has no meaning"),
        ("a.b", "character 2: '.' is any character"),
        ("[^a]", "character 2: '^' leaves characters out"),
        ("[z-a]", "character 2: 'z' begins a range that has no characters"),
        ("[]", "character 1: '[' opens a class without characters"),
        ("[ab", "character 1: '[' opens a class that does not end"),
        ("[a\\", "character 3: '\\\\' is followed by"),
        ("a(b", "character 2: '(' opens a group that does not end"),
        ("a)b", "character 2: ')' closes no group"),
        ("(?=a)", "character 1: '(' opens a special group"),
        (r"a\b", "character 2: '\\\\' is followed by what has no meaning here"),
        (r"(a)\1", "character 4: '\\\\' is followed by what has no meaning here"),
        ("?", "character 1: '?' counts nothing"),
        ("((ab){99}){99}", "it has 19,602 parts"),
        ("[\u0100-\uffff]", "opens a class of 65,280 characters"),
    ],
)
def test_what_says_nothing_about_making_a_text_is_refused_at_its_place(text: str, reason: str) -> None:
    with pytest.raises(PatternError) as caught:
        parse_pattern(text)
    assert reason in str(caught.value)
