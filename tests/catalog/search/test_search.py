"""What searches find: the rules of CDAP, one after the other, and what is refused."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from feed_assets.catalog.commands import list_keys, show_key
from feed_assets.catalog.search.index import SearchIndex
from feed_assets.catalog.search.records import PropertyName
from feed_assets.catalog.search.search import MOST_TERMS
from feed_assets.entities.errors import MetadataRefusedError
from feed_assets.entities.metadata import MetadataKind, Scope
from tests.catalog.described import Described, described
from tests.instances.harness import feed, process

MULTIWORD = "aV1 av2 ,  -  ,  av3 - av4_av5 av6"
NAMES = ("entity-name asc", "entity-name desc")
ORDERS = (*NAMES, "creation-time asc", "creation-time desc")
SCHEMA = {
    "type": "record",
    "name": "record1",
    "fields": [
        {"name": "map1", "type": {"type": "map", "keys": "string", "values": {"type": "array", "items": "bytes"}}},
        {"name": "y", "type": {"type": "array", "items": {"type": "record", "name": "in1", "fields": [
            {"name": "deep", "type": "double"},
        ]}}},
        {"name": "j", "type": ["int", {"type": "map", "values": "string"}]},
        {"name": "i", "type": ["null", "int"]},
    ],
}  # fmt: skip


@pytest.fixture
def found(tmp_path: Path, state_url: str) -> Iterator[Described]:
    with described(tmp_path, state=state_url) as one:
        yield one


def test_case_and_blanks_around_terms_and_colons_do_not_matter(found: Described) -> None:
    found.say("doc/One", {"sKey": "sValue"}, ["Tag1"])
    for text in ("SKEY:SVALUE", "  sKey  :  svalue ", "  tAGS  :  tag1  ", "svalue", "one", "DOC:one", "doc/one"):
        assert found.find(text) == ["One"], text


def test_a_term_is_a_whole_word_and_a_star_behind_it_makes_it_a_beginning(found: Described) -> None:
    found.say("doc/one", {"sKey": "sValue"})
    for text in ("sKey:s*", "s*", "sKey:*", "sKey:sValue*"):
        assert found.find(text) == ["one"], text
    for text in ("s", "sKey:s", "sKey", "*Value", "sKey:*Value", "s*e", "NullKey:s*", "sK:*"):
        assert found.find(text) == [], text


def test_a_star_finds_everything_alone_and_beside_other_terms(found: Described) -> None:
    found.say("doc/one", {"a": "b"})
    found.say("doc/two", {"a": "c"})
    for text in ("*", "", "  ", "* *"):
        assert found.find(text, kinds=["doc"]) == ["one", "two"], text
    assert found.find("c *", kinds=["doc"]) == ["two", "one"]


def test_values_and_tags_are_found_by_their_words_and_as_a_whole(found: Described) -> None:
    found.say("doc/one", {"multiword": MULTIWORD, "ratio": "a:b"}, ["tag12-tag33"])
    for text in (
        *MULTIWORD.split()[:2],
        "multiword:av5",
        "av6",
        "tag33",
        "tags:tag33",
        "tag12-tag33",
        "ratio:a:b",
        "b",
    ):
        if text[0].isalpha():
            assert found.find(text) == ["one"], text
    for text in ("-", ",", "_", ", - ,", "multiword:-", "av4_", "tag1"):
        assert found.find(text) == [], text


def test_words_of_sentences_are_found_without_their_punctuation_and_as_typed(found: Described) -> None:
    text = 'Orders of the shop; weekly roll-up (v2.1), incl. "e-mail" of the patient\'s data. Größe'
    found.say("doc/one", {"a": text, "place": "/in/a.b;c/(x)"})
    words = ("shop", "weekly", "roll-up", "v2.1", "e-mail", "mail", "patient", "patient's", "data", "data.")
    for word in (*words, "GRÖSSE", "GRO\u0308SSE", "grös*", "a:Data", '"Größe"', "+shop,", "/in/a.b;c/(x)", "/in/a.b*"):
        assert found.find(word) == ["one"], word
    for word in ("in", "/in", "v2", "sho", "s", ";"):
        assert found.find(word) == [], word


def test_a_type_is_found_under_each_of_its_names(found: Described) -> None:
    for name, kind in (("one", "long"), ("two", "bigint")):
        fields = [{"name": "order_id", "type": kind}, {"name": "n", "type": ["null", "int"]}]
        found.say(f"doc/{name}", {"schema": json.dumps({"type": "record", "name": "r", "fields": fields})})
    for word in ("order_id:LONG", "order_id:bigint"):
        assert found.find(word) == ["one", "two"], word
    assert found.find("n:integer") == ["one", "two"]


def test_one_of_several_terms_is_enough_and_more_rank_higher(found: Described) -> None:
    found.say("doc/one", {"a": "red"})
    found.say("doc/two", {"a": "red", "b": "green"})
    found.say("doc/three", {"a": "red", "b": "green", "c": "blue"})
    page = found.page("blue red green")
    assert [(each.name, each.terms) for each in page.results] == [("three", 3), ("two", 2), ("one", 1)]
    assert found.find("red red") == ["one", "three", "two"], "a term counts once"


def test_an_exact_name_comes_before_a_tag_and_a_tag_before_text(found: Described) -> None:
    found.say("doc/a-text", {"a": "delays and more"})
    found.say("doc/b-tag", {}, ["delays"])
    found.say("doc/delays", {"a": "b"})
    found.say("doc/a-delays", {"a": "b"})
    assert found.find("delays") == ["delays", "b-tag", "a-delays", "a-text"]
    assert found.find("delay*") == ["delays", "b-tag", "a-delays", "a-text"]


def test_a_plus_makes_a_term_required_and_is_a_letter_elsewhere(found: Described) -> None:
    found.say("doc/one", {"a": "red"})
    found.say("doc/two", {"a": "red", "b": "green"})
    found.say("doc/plus", {"a": "+", "b": "tag4+"})
    assert found.find("+green red") == ["two"]
    assert found.find("+red green") == ["two", "one"]
    assert found.find("+red +green") == ["two"]
    assert found.find("+green blue") == ["two"]
    assert found.find("+blue red") == []
    assert found.find("+") == found.find("++") == found.find("tag4+") == ["plus"]
    assert found.find("+ green") == ["plus", "two"]


def test_numbers_dates_and_times_are_compared(found: Described) -> None:
    for name, value in (("nine", "9"), ("ten", "10.0"), ("date", "2013-11-03"), ("text", "==many")):
        found.say(f"doc/{name}", {"size": value})
    found.say("doc/time", {"at": "2013-11-03T05:00Z"})
    for text, names in {
        "size:==10": ["ten"],
        "size:>9 size:<11": ["ten"],
        "size:>=9 size:<=9": ["nine"],
        "size:<2013-11-04 size:>=2013-11-03": ["date"],
        "at:>2013-11-03 at:<2013-11-04": ["time"],
        "at:==2013-11-03T05:00+00:00": ["time"],
        "size:==many": ["text"],
        "size:>many": [],
        "size:==10 nine": ["ten"],
        "other:>1": [],
        ":>1": [],
    }.items():
        assert found.find(text) == names, text


def test_properties_finds_who_has_a_property_and_names_of_properties_are_no_words(found: Described) -> None:
    found.say("doc/one", {"owner": "ann"}, ["properties"])
    found.tell("doc/two", {"plugin:lookup:source": "1.0", "Owner": "bob"})
    assert found.find("properties:owner") == found.find("properties:OWN*") == ["one", "two"]
    assert found.find("owner") == found.find("own*") == []
    assert found.find("properties", kinds=["doc"]) == ["one"]
    for text in ("plugin:lookup:*", "plugin:lookup:source:1*", "plugin:lookup:source:1.0", "plugin:*"):
        assert found.find(text) == ["two"], text


def test_a_scope_limits_where_words_are_found_but_not_what_is_shown(found: Described) -> None:
    found.tell("doc/one", {"description": "this is the first"}, ["batch"])
    found.say("doc/one", {"description": "of the business"})
    found.say("doc/two", {"a": "first"})
    assert found.find("first", scope=Scope.SYSTEM) == ["one"]
    assert found.find("first", scope=Scope.USER) == ["two"]
    assert found.find("one", scope=Scope.SYSTEM) == ["one"], "who describes an entity says its name"
    assert found.find("two", scope=Scope.USER) == ["two"]
    assert found.find(scope=Scope.SYSTEM, kinds=["doc"]) == ["one"]
    assert found.find(scope=Scope.USER, kinds=["doc"]) == ["one", "two"]
    (page,) = found.page("description:*", scope=Scope.USER).results
    assert page.metadata == {
        "SYSTEM": {"properties": {"description": "this is the first"}, "tags": ["batch"]},
        "USER": {"properties": {"description": "of the business"}, "tags": []},
    }
    assert page.description == "of the business"


def test_a_result_says_in_which_fields_its_terms_are_found(found: Described) -> None:
    found.tell("doc/delays", {"description": "delays of a day"}, ["delays"])
    found.say("doc/delays", {"owner": "delays"})
    (page,) = found.page("delays", scope=Scope.SYSTEM).results
    assert page.fields == ("description", "doc", "entity-name", "tags")
    assert found.page("delays").results[0].fields == ("description", "doc", "entity-name", "owner", "tags")
    assert found.page("*", kinds=["doc"]).results[0].fields == ()


def test_kinds_are_alternatives_and_an_unknown_one_alone_is_refused(found: Described) -> None:
    found.say("doc/one", {"a": "b"})
    found.say("doc/one/page/two", {"a": "b"})
    assert found.find("b", kinds=["Page", "nosuch"]) == ["two"]
    assert sorted(found.find("b", kinds=["doc", "page"])) == ["one", "two"]
    with pytest.raises(
        MetadataRefusedError, match=r"kind 'nosuch': nothing has it\. Kinds are .*column, .*doc, .*page"
    ):
        found.find("b", kinds=["nosuch"])


def test_a_schema_is_found_by_fields_and_their_types_at_any_depth(found: Described) -> None:
    found.say("doc/one", {"schema": json.dumps(SCHEMA)})
    for text in ("record1:RECORD", "map1:MAP", "y:ARRAY", "j:UNION", "i:INT", "deep:double", "deep", "in1", "schema:i"):
        assert found.find(text) == ["one"], text
        assert found.find(text if text.startswith("schema:") else f"schema:{text}") == ["one"], text
    for text in ("i:STRING", "fields", "dee", "y:RECORD"):
        assert found.find(text) == [], text
    assert found.find("dee*") == found.find("schema:dee*") == found.find("schema:*") == ["one"]


@pytest.mark.parametrize("text", ["an invalid schema", '{"type": "record", "fields": 5}', "[" * 4000, "[]", '"record"'])
def test_what_is_no_schema_is_text(found: Described, text: str) -> None:
    found.say("doc/one", {"schema": text})
    assert found.find("schema:*") == found.find(f"schema:{text.split()[0][:3]}*") == ["one"]


@pytest.mark.parametrize("sort", ["foo asc", "entity-name", "entity-name up", "name asc", "", "entity-name asc desc"])
def test_only_names_and_creation_times_are_sorted_by_and_the_direction_is_said(found: Described, sort: str) -> None:
    with pytest.raises(MetadataRefusedError, match="Write one of 'entity-name asc', 'entity-name desc', "):
        found.find(sort=sort)


@pytest.mark.parametrize("text", ["*", "a:b"])
def test_everything_and_what_a_query_finds_is_sorted(found: Described, text: str) -> None:
    for name in ("text", "view", "mydataset"):
        found.say(f"doc/{name}", {"a": "b"})
    orders = [found.find(text, kinds=["doc"], sort=sort.upper().replace(" ", "  ")) for sort in ORDERS]
    assert orders == [
        ["mydataset", "text", "view"],
        ["view", "text", "mydataset"],
        ["text", "view", "mydataset"],
        ["mydataset", "view", "text"],
    ]


@pytest.mark.parametrize("sort", ORDERS)
def test_the_pages_of_cursors_are_everything_once_also_while_entities_come_and_go(found: Described, sort: str) -> None:
    for name in ("a", "b", "c", "d", "e", "f"):
        found.say(f"doc/{name}", {"a": "b"}, ["same"])
        found.say(f"other/{name}", {"a": "b"})
    expected = found.find("same", sort=sort)
    page = found.page("same", sort=sort, limit=2, cursors=5)
    assert (page.total, page.offset, page.limit, len(page.cursors)) == (6, 0, 2, 2)
    found.drop(f"doc/{expected[0]}")
    second = found.page("same", sort=sort, cursor=page.cursors[0], offset=7, limit=1, cursors=1)
    third = found.page("same", sort=sort, cursor=page.cursors[1], cursors=1)
    assert [[each.name for each in one.results] for one in (page, second, third)] == [
        expected[:2],
        expected[2:4],
        expected[4:],
    ]
    assert second.cursors == (page.cursors[1],)
    assert (second.offset, second.limit, second.total, third.cursors) == (2, 2, 5, ())


def test_pages_have_an_offset_and_a_limit_and_the_total_counts_everything(found: Described) -> None:
    for number in range(5):
        found.say(f"doc/{number}", {"a": "b"})
    for offset, limit, names in (
        (0, 2, "01"),
        (2, 2, "23"),
        (4, 2, "4"),
        (4, 1, "4"),
        (5, 2, ""),
        (9, 2, ""),
        (0, 9, "01234"),
    ):
        page = found.page("b", offset=offset, limit=limit)
        assert ("".join(each.name for each in page.results), page.total, page.cursors) == (names, 5, ()), (
            offset,
            limit,
        )


def test_an_empty_cursor_is_none_and_the_last_page_has_none(found: Described) -> None:
    for number in range(4):
        found.say(f"doc/{number}", {"a": "b"})
    first = found.page("b", sort=NAMES[0], limit=2, cursor="", cursors=1)
    assert [each.name for each in first.results] == ["0", "1"]
    last = found.page("b", sort=NAMES[0], cursor=first.cursors[0], cursors=1)
    assert ([each.name for each in last.results], last.cursors) == (["2", "3"], ())


def test_hidden_entities_are_shown_if_asked_for_and_take_no_place_on_a_page(found: Described) -> None:
    for name in ("_a", "b", "_c", "d"):
        found.say(f"doc/{name}", {"secret": "x"})
    assert found.find("x", limit=1, offset=1) == found.find("x", limit=1, offset=1, sort=NAMES[0]) == ["d"]
    assert found.page("x").total == 2
    assert found.find("x", hidden=True) == ["_a", "_c", "b", "d"]
    assert list_keys(found.lifecycle.database, beginning="sec").items == (PropertyName(name="secret", entities=2),)
    assert show_key(found.lifecycle.database, key="secret").entities == 2
    assert list_keys(found.lifecycle.database, beginning="lst").summary == "no property begins with 'lst'"
    assert show_key(found.lifecycle.database, key="lst").summary == "nothing has a property 'lst'"


def test_old_words_are_not_found_after_a_change(found: Described) -> None:
    found.say("doc/one", {"a": "old word"}, ["first"])
    found.say("doc/one", {"a": "new word"})
    words = {text: found.find(text, kinds=["doc"]) for text in ("old", "new", "word", "first")}
    assert words == {"old": [], "new": ["one"], "word": ["one"], "first": ["one"]}
    found.unsay("doc/one", "first", MetadataKind.TAG)
    assert found.find("first", kinds=["doc"]) == []
    found.say("doc/two", {"b": "c"})
    found.drop("doc/one")
    assert found.find(kinds=["doc"], hidden=True) == ["two"]


def test_declared_entities_are_found_by_what_the_program_says(tmp_path: Path) -> None:
    flights = feed("flights", schema="carrier string, dep_delay double", description="Departures of a day")
    with described(tmp_path, flights, process("summary", inputs={"flights": "now(0,0)"})) as found:
        assert [each.entity for each in found.page("dep_delay").results] == [
            "feed/flights/column/dep_delay",
            "feed/flights",
        ]
        assert found.find("dep_delay:DOUBLE") == found.find("departures +feed:flights") == ["flights"]
        assert found.find("inputs:flights") == ["summary"]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"cursor": "x"}, "the search: a cursor needs an order"),
        ({"cursors": 1}, "the search: a cursor needs an order"),
        ({"sort": NAMES[0], "cursor": "x"}, "cursor 'x': no search in this order has given it"),
        ({"sort": NAMES[0], "cursor": "WzFd"}, "cursor 'WzFd': no search in this order"),
        ({"sort": NAMES[0], "cursor": "ä"}, "cursor 'ä': no search in this order"),
        ({"limit": 0}, "limit 0: there is no such page. Ask for 1 to 1,000."),
        ({"limit": 1001}, "limit 1,001: there is no such page"),
        ({"offset": -1}, "offset -1: there is no such page"),
        ({"cursors": -1, "sort": NAMES[0]}, "cursors -1: there is no such page"),
        ({"kinds": ["a/b"]}, "kind 'a/b': nothing has it"),
        ({"text": "\0"}, "the query: it has characters that cannot be printed"),
        ({"text": "\udcff"}, "the query: it has characters that cannot be printed"),
        ({"text": " ".join(map(str, range(MOST_TERMS + 1)))}, "the query: it has 51 terms, more than 50"),
    ],
)
def test_what_is_no_query_is_refused(found: Described, query: dict[str, object], message: str) -> None:
    with pytest.raises(MetadataRefusedError, match="^" + message.replace("(", r"\(")):
        found.page(**{"text": "*", **query})  # type: ignore[arg-type]


def test_a_cursor_belongs_to_its_order(found: Described) -> None:
    for number in range(3):
        found.say(f"doc/{number}", {"a": "b"})
    (cursor,) = found.page("b", sort=NAMES[0], limit=2, cursors=1).cursors
    for other in ORDERS[1:]:
        with pytest.raises(MetadataRefusedError, match="no search in this order has given it"):
            found.page("b", sort=other, cursor=cursor)


def test_as_many_terms_as_are_allowed_are_found(found: Described) -> None:
    found.say("doc/one", {"a": "7"})
    assert found.find(" ".join(f"+a:{number}*" if number == 7 else f"x:y:{number}*" for number in range(MOST_TERMS)))


def test_a_long_text_is_found_whole_and_by_its_beginning(found: Described) -> None:
    text = "x" * 4000
    found.say("doc/one", {"a": text})
    found.say("doc/two", {"a": text + "y"})
    assert found.find(f"a:{text}") == ["one"]
    assert found.find("xxx*") == ["one", "two"]


def test_keys_are_what_the_search_for_properties_finds_and_have_values(found: Described) -> None:
    database = found.lifecycle.database
    for number, owner in enumerate(["ann", "ann", "Bob"]):
        found.say(f"doc/{number}", {"owner": owner, "other": str(number)})
    found.tell("doc/0", {"Owner": "ann"})
    found.tell("doc/2", {"owner": "ann"})
    assert list_keys(database, beginning="OW").items == (PropertyName(name="owner", entities=3),)
    assert list_keys(database, beginning="OW", scope=Scope.SYSTEM).items == (PropertyName(name="owner", entities=2),)
    assert {each.name for each in list_keys(database, beginning="o").items} == {"owner", "other"}
    for key in list_keys(database, beginning="").items:
        assert found.page(f"properties:{key.name}", hidden=True).total == key.entities
    shown = show_key(database, key="Owner")
    assert (shown.name, shown.entities, shown.total) == ("owner", 3, 2)
    assert [(each.value, each.count, each.entities) for each in shown.values] == [
        ("ann", 3, ("doc/0", "doc/1", "doc/2")),
        ("Bob", 1, ("doc/2",)),
    ]
    assert [each.value for each in show_key(database, key="owner", scope=Scope.USER).values] == ["ann", "Bob"]
    assert [each.value for each in show_key(database, key="other", limit=2).values] == ["0", "1"]
    assert show_key(database, key="nobody").values == ()


def test_the_total_is_counted_only_if_the_page_does_not_tell_it(
    found: Described, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        found.say(f"doc/{number}", {"a": "b"})
    monkeypatch.delattr(SearchIndex, "count")
    assert found.page("b", limit=3).total == found.page("b", offset=2).total == 3
    with pytest.raises(AttributeError):
        found.page("b", limit=2)
