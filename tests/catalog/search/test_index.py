"""The statements of searches mean the same to both databases."""

import random
from datetime import UTC, datetime

import pytest

from feed_assets.catalog.search.index import SearchIndex
from feed_assets.catalog.search.records import (
    Comparison,
    Match,
    PropertyName,
    PropertyValue,
    SearchFilter,
    SearchOrder,
    Term,
)
from feed_assets.catalog.store import MetadataStore, Token
from feed_assets.entities.metadata import MetadataKey, MetadataKind, MetadataValue, Origin, Scope
from feed_assets.sql.database import Database

pytestmark = pytest.mark.both_databases


NOW = datetime(2026, 1, 1, tzinfo=UTC)
USER, SYSTEM = Scope.USER, Scope.SYSTEM


def fill(database: Database) -> None:
    """Three entities, one of them hidden; the letter `é` is the last of all in the order of bytes."""
    tokens = {
        "zoo": {Token("zoo", "entity-name", USER, 4), Token("red", "colour", USER, 1), Token("é", "colour", USER, 1)},
        "Ant": {Token("red", "tags", SYSTEM, 2), Token("reddish", "colour", USER, 1), Token("7", "size", USER, 1, 7.0)},
        "_bee": {Token("red", "colour", USER, 1)},
    }
    owner = {MetadataKey(USER, MetadataKind.PROPERTY, "Colour"): MetadataValue("red", Origin.PERSON, "ann")}
    listed = Token("colour", "properties", USER, 0)
    with database.begin() as connection:
        store = MetadataStore(connection)
        found = store.add([(f"doc/{name}", "doc", name, "ann") for name in tokens], NOW)
        store.write([(each.id, {}, owner) for each in found.values()], NOW)
        store.write_tokens([(each.id, set(), tokens[each.name] | {listed}) for each in found.values()])


def word(text: str, field: str | None = None, **more: bool) -> Term:
    return Term(matches=(Match(text=text, field=field),), **more)


def names(index: SearchIndex, *terms: Term, **more: object) -> list[str]:
    chosen = SearchFilter(terms=terms, **more)  # type: ignore[arg-type]
    found = [each.name for each in index.find(chosen, 10, 0)]
    assert index.count(chosen) == len(found) + (more.get("after") is not None)
    return found


def test_entities_are_found_in_the_order_of_bytes_and_of_weights(database: Database) -> None:
    fill(database)
    beginning = Term(matches=(Match(text="red", is_beginning=True),))
    with database.read() as connection:
        index = SearchIndex(connection)
        assert names(index) == ["Ant", "zoo"]
        assert names(index, shows_hidden=True, order=SearchOrder.NAME_DESC) == ["zoo", "_bee", "Ant"]
        assert names(index, word("red")) == ["Ant", "zoo"], "a tag weighs more"
        assert names(index, word("red"), word("zoo")) == ["zoo", "Ant"]
        assert names(index, word("red"), word("zoo", is_required=True)) == ["zoo"]
        assert names(index, beginning, scope=USER) == ["Ant", "zoo"]
        assert names(index, word("red", "colour"), kinds=["doc"]) == ["zoo"]
        assert names(index, Term(matches=(Match(text="", is_beginning=True, field="colour"),))) == ["Ant", "zoo"]
        assert names(index, Term(field_beginning="colo")) == ["Ant", "zoo"]
        for comparison, is_met in zip(Comparison, (True, True, True, False, False), strict=True):
            assert names(index, Term(field="size", comparison=comparison, number=7)) == ["Ant"] * is_met
        (first, _) = index.find(SearchFilter(terms=()), 10, 0)
        for order in (SearchOrder.NAME_ASC, SearchOrder.AGE_DESC):
            assert names(index, order=order, after=first.position(SearchOrder(order))) in (["zoo"], [])
        shown = {each.entity: each.name for each in index.find(SearchFilter(terms=()), 10, 0)}
        fields = index.fields_of(SearchFilter(terms=(word("red"),), scope=USER), list(shown))
        assert {shown[entity]: found for entity, found in fields.items()} == {"zoo": ["colour"]}


def test_keys_are_counted_with_their_values(database: Database) -> None:
    fill(database)
    with database.read() as connection:
        index = SearchIndex(connection)
        colour = [PropertyName(name="colour", entities=2)]
        assert index.count_keys("", None, 10) == index.count_keys("col", USER, 10) == colour
        assert index.count_keys("colp", None, 10) == index.count_keys("", SYSTEM, 10) == []
        assert index.values_of("colour", None, 10, 1) == (PropertyValue(value="red", count=2, entities=("doc/Ant",)),)
        assert index.count_values("colour", USER) == (2, 1)


def test_thousands_of_rows_are_written_over_those_that_are_there(database: Database) -> None:
    chance = random.Random(0)
    names = [f"doc/{number}" for number in range(3_000)]
    key = MetadataKey(USER, MetadataKind.PROPERTY, "text")
    states = [{key: MetadataValue(f"'\"\\ é {chance.random()}", Origin.PERSON, "ann")} for _ in names]
    with database.begin() as connection:
        store = MetadataStore(connection)
        found = store.add([(path, "doc", path, "ann") for path in names], NOW)
        numbers = [found[path].id for path in names]
        store.write([(number, {}, said) for number, said in zip(numbers, states, strict=True)], NOW)
        store.write([(number, {}, said) for number, said in zip(numbers, states, strict=True)], NOW)
        assert store.read_many(numbers) == dict(zip(numbers, states, strict=True))
        assert {each.path for each in store.find_many(names).values()} == set(names)
        store.remove(numbers[:-1])
        assert (store.count(), store.count_orphans()) == (1, 0)
