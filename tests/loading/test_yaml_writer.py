from hypothesis import given, settings

from feed_assets.entities.bundle import AnyEntity
from feed_assets.loading.entity_documents import iter_entities
from feed_assets.loading.entity_files import Values
from feed_assets.loading.yaml_writer import render_yaml
from tests.entities.samples import build, documents
from tests.loading.entity_strategies import ENTITIES

NO_VALUES = Values(variables={}, environ={})


@settings(max_examples=150, deadline=None)
@given(entity=ENTITIES)
def test_every_entity_survives_yaml(entity: AnyEntity) -> None:
    text = render_yaml(entity)
    (document,) = iter_entities("a.yaml", text, NO_VALUES)
    assert [issue.render() for issue in document.issues] == []
    assert document.entity == entity
    assert render_yaml(document.entity) == text


def test_documents_are_tidy() -> None:
    feed = build("feed clicks", documents({})["feed clicks"])
    assert render_yaml(feed) == (
        "kind: feed\n"
        "name: clicks\n"
        "frequency: hours(1)\n"
        "late_arrival: {cut_off: hours(6)}\n"
        "locations: {data: '/clicks/${YEAR}/${MONTH}/${DAY}/${HOUR}'}\n"
        "partitions: [country, colo]\n"
        "clusters:\n"
        "  primary:\n"
        "    type: source\n"
        "    validity: {start: '2015-01-01T00:00Z', end: '2016-01-01T00:00Z'}\n"
        "    retention: {limit: days(30)}\n"
        "  backup:\n"
        "    type: target\n"
        "    validity: {start: '2015-01-01T00:00Z', end: '2016-01-01T00:00Z'}\n"
        "    retention: {limit: days(90)}\n"
        "groups: [web]\n"
    )


def test_references_are_kept_where_they_were_written_and_escaped_where_they_are_meant_literally() -> None:
    cluster = build("cluster a", {"name": "a", "storage": "file://${ROOT}", "properties": {"b": "${env:B}"}})
    assert "storage: file://$${ROOT}\n" in render_yaml(cluster)
    kept = render_yaml(cluster, has_references=True)
    assert "storage: file://${ROOT}\n" in kept
    (document,) = iter_entities("a.yaml", kept, Values(variables={"ROOT": "/data"}, environ={"B": "1"}))
    assert document.entity == build("cluster a", {"name": "a", "storage": "file:///data", "properties": {"b": "1"}})


def test_texts_that_yaml_would_take_for_something_else_are_quoted() -> None:
    odd = {"a": "8", "b": "true", "c": "null", "d": "-inf", "e": "=", "f": "0755", "g": "a\nb\n", "<<": "x"}
    cluster = build("cluster a", {"name": "a", "storage": "file:///data", "storage_options": odd})
    (document,) = iter_entities("a.yaml", render_yaml(cluster), NO_VALUES)
    assert document.entity == cluster
