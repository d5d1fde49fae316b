"""What feeds say of their copies, to Falcon and back."""

from typing import Any

import pytest

from feed_assets.entities.feed import Feed
from feed_assets.entities.fields import parse_size
from feed_assets.entities.replication import (
    PROPERTIES,
    WITHOUT_EFFECT,
    Replication,
    complete_replication,
    render_properties,
)
from feed_assets.loading.documents import NoteKind
from feed_assets.loading.entity_documents import EntityDocument, iter_entities
from feed_assets.loading.entity_files import Values
from feed_assets.loading.falcon.writing import render_falcon
from feed_assets.timing.sequence import parse_frequency

VALUES = Values(variables={}, environ={})
SAID = {
    "parallel": "4",
    "order": "LIFO",
    "timeout": "hours(3)",
    "maxMaps": "33",
    "mapBandwidth": "2",
    "overwrite": "true",
    "ignoreErrors": "false",
    "skipChecksum": "true",
    "removeDeletedFiles": "false",
    "preserveTimes": "true",
    "preservePermission": "false",
    "preserveBlockSize": "true",
    "preserveReplicationNumber": "false",
    "preserveUser": "true",
    "preserveGroup": "false",
    "preserveAcl": "false",
}


def feed_of(properties: dict[str, str], **replication: Any) -> Feed:
    validity = {"start": "2015-01-01T00:00Z"}
    return Feed.model_validate(
        {
            "name": "clicks",
            "frequency": "hours(1)",
            "format": "csv",
            "locations": {"data": "/clicks/${YEAR}/${MONTH}/${DAY}/${HOUR}"},
            "clusters": {
                "east": {"type": "source", "validity": validity},
                "west": {"type": "target", "validity": validity},
            },
            "properties": properties,
            **({"replication": replication} if replication else {}),
        }
    )


def read(text: str) -> EntityDocument:
    (document,) = iter_entities("a.xml", text, VALUES)
    assert [issue.render() for issue in document.issues] == []
    return document


def test_every_property_that_falcon_knows_says_a_field_and_is_said_by_it() -> None:
    assert SAID.keys() == PROPERTIES.keys()
    policy = complete_replication(None, SAID)
    assert {field: getattr(policy, field) for field in set(PROPERTIES.values())} == {
        "parallel": 4,
        "order": "LIFO",
        "timeout": parse_frequency("hours(3)"),
        "max_tasks": 33,
        "task_bandwidth": parse_size("2MB"),
        "overwrite": True,
        "ignore_errors": False,
        "verification": "none",
        "removed_files": "keep",
        "preserve": {"times", "block-size", "owner"},
    }
    assert render_properties(policy) == SAID


def test_a_policy_is_written_as_falcons_properties_and_read_as_it_was() -> None:
    feed = feed_of(
        {"maxMaps": "7", "a": "b"}, max_tasks=33, parallel=2, task_bandwidth="3MB", bandwidth="1GB", include=["*.csv"]
    )
    text = render_falcon(feed)
    assert read(text).entity == feed
    for line in (
        '<property name="parallel" value="2"/>',
        '<property name="mapBandwidth" value="3"/>',
        '<property name="maxMaps" value="7"/>',
        '<property name="feed_assets.properties.parallel" value="null"/>',
    ):
        assert line in text
    assert text.count('"maxMaps"') == 1


@pytest.mark.parametrize("policy", [{"verification": "whole"}, {"task_bandwidth": "1500B"}, {"bandwidth": "1GB"}])
def test_what_falcon_cannot_say_stands_in_a_reserved_property_only(policy: dict[str, str]) -> None:
    feed = feed_of({}, **policy)
    assert render_properties(Replication.model_validate(policy)) == {}
    text = render_falcon(feed)
    assert read(text).entity == feed
    assert "feed_assets.replication" in text
    assert "feed_assets.properties" not in text


def test_an_import_tells_of_every_property_what_becomes_of_it() -> None:
    properties = {**SAID, **dict.fromkeys(WITHOUT_EFFECT, "true"), "jobPriority": "HIGH", "order": "RANDOM"}
    document = read(render_falcon(feed_of(properties)))
    notes = {kind: [note for note in document.notes if note.kind is kind] for kind in NoteKind}
    mapped = [note.message for note in notes[NoteKind.MAPPED]]
    for name, field in PROPERTIES.items():
        assert (f"property {name} → replication.{field}" in mapped) is (name != "order")
    assert "property jobPriority → the priority of runs" in mapped
    check = [note.message for note in notes[NoteKind.CHECK]]
    assert "property order 'RANDOM' is invalid: the default is used, as in Falcon" in check
    assert [f"property {name} has no effect: {why}" for name, why in WITHOUT_EFFECT.items()] == [
        message for message in check if "has no effect" in message
    ]
    assert not any("removed_files" in message for message in check)
    assert all(note.line for note in notes[NoteKind.CHECK])


def test_an_import_asks_about_removed_files_where_nothing_is_said() -> None:
    document = read(render_falcon(feed_of({})))
    assert any("removed_files: remove" in note.message for note in document.notes)
    again = read(render_falcon(feed_of({}, removed_files="by-manifest")))
    assert not any("removed_files" in note.message for note in again.notes)
