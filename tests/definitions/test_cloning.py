import pytest

from feed_assets.definitions.contents import StoredDocument
from feed_assets.definitions.errors import DefinitionStoreError
from feed_assets.definitions.folder import split_documents
from feed_assets.definitions.verbs.cloning import clone_text
from feed_assets.log.definitions.records import DocumentFormat

TEXT = """\
# flights ü of flights
kind: feed
name:   "flights"   # the name of flights
tags: {name: flights, "of flights": 'yes'}
locations: {data: "/flights/${YEAR}"}
"""
XML = """<process name="old" xmlns="uri:falcon:process:0.1">
<clusters><cluster name="primary"><validity start="2015-01-01T00:00Z" end="2016-01-01T00:00Z"/></cluster></clusters>
<parallel>1</parallel><order>FIFO</order><frequency>days(1)</frequency><timezone>UTC</timezone>
<workflow engine="pig" path="/a.pig"/></process>"""


def document(text: str, form: DocumentFormat = DocumentFormat.YAML) -> StoredDocument:
    (span,) = split_documents(text)
    return StoredDocument(key=("feed", "flights"), file="a.yaml", format=form, text=text, entity=None, span=span)


def test_only_the_name_is_another_and_comments_stay() -> None:
    assert clone_text(document(TEXT), "departures") == TEXT.replace('"flights"', "departures", 1)
    assert 'name:   "true"   #' in clone_text(document(TEXT), "true")


def test_texts_are_replaced_in_keys_and_values_but_not_in_comments() -> None:
    cloned = clone_text(document(TEXT), "departures", [("flights", "departures"), ("/dep", "/eu/dep")])
    assert cloned.splitlines() == [
        "# flights ü of flights",
        "kind: feed",
        "name:   departures   # the name of flights",
        "tags: {name: departures, \"of departures\": 'yes'}",
        'locations: {data: "/eu/departures/${YEAR}"}',
    ]


def test_a_text_that_does_not_occur_is_refused() -> None:
    with pytest.raises(DefinitionStoreError, match="'of the name' does not occur in its definition"):
        clone_text(document(TEXT), "departures", [("flights", "x"), ("of the name", "y")])


def test_a_name_that_is_written_elsewhere_is_refused() -> None:
    anchored = "description: &n flights\nkind: feed\nname: *n\n"
    with pytest.raises(DefinitionStoreError, match="its name stands in an anchor"):
        clone_text(document(anchored), "departures")


def test_falcons_xml_becomes_yaml() -> None:
    cloned = clone_text(document(XML, DocumentFormat.XML), "new", [("a.pig", "b.pig")])
    assert cloned.startswith("kind: process\nname: new\n")
    assert "path: /b.pig" in cloned
