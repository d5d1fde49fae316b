"""Mutations of metadata: CDAP's cases, and random sequences against a model."""

from collections.abc import Iterable, Iterator
from itertools import product
from random import Random
from typing import Any

import pytest

from feed_assets.entities.metadata import (
    Create,
    Directive,
    Drop,
    Metadata,
    MetadataKey,
    MetadataKind,
    MetadataValue,
    Mutation,
    Origin,
    Remove,
    Scope,
    Update,
    decide_mutation,
    decide_mutations,
    find_fault,
)

P, T = MetadataKind.PROPERTY, MetadataKind.TAG


def said(scope: Scope, tags: str = "", **properties: str) -> dict[MetadataKey, MetadataValue]:
    found = {MetadataKey(scope, T, tag): MetadataValue("", Origin.PERSON, "ann") for tag in tags.split()}
    return found | {
        MetadataKey(scope, P, name): MetadataValue(value, Origin.PERSON, "ann") for name, value in properties.items()
    }


def test_create_replaces_the_scopes_that_it_has_but_for_what_directives_save() -> None:
    before = said(Scope.SYSTEM, "st1 st2", sp1="sv1", sp2="sv2") | said(Scope.USER, "ut1", up1="uv1", up2="uv2")
    new = said(Scope.SYSTEM, "nst0", sp1="nsv1", nsp0="sv0")
    directives = {
        MetadataKey(Scope.SYSTEM, T, "st1"): Directive.KEEP,
        MetadataKey(Scope.SYSTEM, T, "st2"): Directive.PRESERVE,
        MetadataKey(Scope.SYSTEM, P, "sp1"): Directive.PRESERVE,
        MetadataKey(Scope.SYSTEM, P, "sp2"): Directive.KEEP,
    }
    expected = said(Scope.SYSTEM, "st1 st2 nst0", sp1="sv1", sp2="sv2", nsp0="sv0")
    expected |= said(Scope.USER, "ut1", up1="uv1", up2="uv2")
    assert decide_mutation(before, Create(new, directives)) == expected


def iter_sequences(count: int) -> Iterator[list[Mutation]]:
    """Random sequences of mutations over few keys, so that they meet."""
    random = Random(0)
    keys = [MetadataKey(*key) for key in product(Scope, MetadataKind, "abc")]

    def few(choices: Iterable[Any]) -> list[Any]:
        choices = list(choices)
        return random.sample(choices, random.randint(0, min(4, len(choices))))

    def some_values() -> Metadata:
        return {key: MetadataValue(random.choice("12"), random.choice(list(Origin)), "ann") for key in few(keys)}

    def mutation() -> Mutation:
        match random.randrange(7):
            case 0 | 1:
                return Update(some_values())
            case 2 | 3:
                directives = {key: random.choice(list(Directive)) for key in few(keys)}
                return Create(some_values(), directives, few(Origin) or tuple(Origin))
            case 4 | 5:
                return Remove(random.choice([None, few(keys)]), few(Scope), few(MetadataKind), few(Origin))
            case _:
                return Drop()

    for _ in range(count):
        yield [mutation() for _ in range(random.randint(1, 6))]


def model(before: Metadata, mutation: Mutation) -> Metadata:
    """What a reader of CDAP's rules would write."""
    match mutation:
        case Update(values):
            return {**before, **values}
        case Drop():
            return {}
        case Remove():
            gone = [key for key in before if key.scope in mutation.scopes and key.kind in mutation.kinds]
            gone = [key for key in gone if before[key].origin in mutation.origins]
            chosen = gone if mutation.keys is None else [key for key in gone if key in mutation.keys]
            return {key: before[key] for key in before if key not in chosen}
        case Create(values, directives, origins):
            after = {**before, **values}
            for key in before:
                is_meant = any(other.scope is key.scope for other in values) and before[key].origin in origins
                directive = directives.get(key) if any(other.scope is key.scope for other in values) else None
                if directive is Directive.PRESERVE:
                    after[key] = before[key]
                elif key not in values and is_meant and directive is None:
                    del after[key]
            return after


def test_a_thousand_random_sequences_are_those_of_the_rules_and_a_batch_is_one_by_one() -> None:
    for mutations in iter_sequences(1000):
        expected: Metadata = {}
        one_by_one: Metadata = {}
        for mutation in mutations:
            expected, one_by_one = model(expected, mutation), decide_mutation(one_by_one, mutation)
        assert decide_mutations({}, mutations) == one_by_one == expected


def test_a_sequence_that_is_repeated_changes_nothing() -> None:
    for mutations in iter_sequences(300):
        after = decide_mutations({}, mutations)
        assert decide_mutations(after, mutations) == after


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("a" * 51, "x", "a name has 1 to 50"),
        ("", "x", "a name has 1 to 50"),
        ("a key", "x", "a name has 1 to 50"),
        ("a.key", "x", "a name has 1 to 50"),
        ("tAgS", "x", "reserved for tags"),
        ("key", "a" * 4097, "4,097 characters"),
        ("key", "a\nb", "not printable"),
        ("key", "\ud800", "not printable"),
    ],
)
def test_what_a_property_cannot_be_is_refused_with_the_reason(name: str, value: str, reason: str) -> None:
    fault = find_fault(MetadataKey(Scope.USER, P, name), value)
    assert fault is not None
    assert reason in fault[0]
    assert find_fault(MetadataKey(Scope.USER, T, "tags"), "") is None


@pytest.mark.parametrize(
    ("value", "is_allowed", "is_strictly_allowed"),
    [
        ("a" * 50, True, True),
        ("a_b-c d\te", False, True),
        ("a\u00a0b", False, False),
        ("a" * 51, True, False),
        ("", True, False),
    ]
    + [
        (value, True, False) for value in ("a$", "https://wiki/x?y=1", "ann@example.org", "2013-11-03T05:00Z", "größer")
    ],
)
def test_a_value_is_printable_text_and_with_the_strict_rule_plain(
    value: str, is_allowed: bool, is_strictly_allowed: bool
) -> None:
    key = MetadataKey(Scope.USER, P, "key")
    assert (find_fault(key, value) is None) is is_allowed
    assert (find_fault(key, value, is_strict=True) is None) is is_strictly_allowed
