"""Mutations of metadata: CDAP's cases, and random sequences against a model."""

from hypothesis import given
from hypothesis import strategies as st

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


KEYS = st.builds(MetadataKey, st.sampled_from(Scope), st.sampled_from(MetadataKind), st.sampled_from("abc"))
VALUES = st.builds(MetadataValue, st.sampled_from("12"), st.just(Origin.PERSON), st.just("ann"))
SAID = st.dictionaries(KEYS, VALUES, max_size=5)
SUBSETS = st.lists(st.sampled_from(Scope), unique=True), st.lists(st.sampled_from(MetadataKind), unique=True)
MUTATIONS = st.one_of(
    st.builds(Update, SAID),
    st.builds(Create, SAID, st.dictionaries(KEYS, st.sampled_from(Directive), max_size=4)),
    st.builds(Remove, st.none() | st.lists(KEYS, max_size=4), *SUBSETS),
    st.builds(Drop),
)


def model(before: Metadata, mutation: Mutation) -> Metadata:
    """What a reader of CDAP's rules would write."""
    match mutation:
        case Update(values):
            return {**before, **values}
        case Drop():
            return {}
        case Remove():
            gone = [key for key in before if key.scope in mutation.scopes and key.kind in mutation.kinds]
            chosen = gone if mutation.keys is None else [key for key in gone if key in mutation.keys]
            return {key: before[key] for key in before if key not in chosen}
        case Create(values, directives):
            after = {}
            for key in before.keys() | values.keys():
                if all(other.scope is not key.scope for other in values) or (
                    key in before and key in directives and (directives[key] is Directive.PRESERVE or key not in values)
                ):
                    after[key] = before[key]
                elif key in values:
                    after[key] = values[key]
            return after


@given(st.lists(MUTATIONS, max_size=6))
def test_any_sequence_is_that_of_the_rules_and_a_batch_is_one_by_one(mutations: list[Mutation]) -> None:
    expected: Metadata = {}
    one_by_one: Metadata = {}
    for mutation in mutations:
        expected, one_by_one = model(expected, mutation), decide_mutation(one_by_one, mutation)
    assert decide_mutations({}, mutations) == one_by_one == expected
