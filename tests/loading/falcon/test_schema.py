"""What is written is valid in Falcon: its schemas need an end, an extract, and no action but `delete`."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from feed_assets.entities.bundle import AnyEntity
from feed_assets.entities.feed import LIMIT_PROPERTY, Feed
from feed_assets.entities.process import Retry
from feed_assets.loading.entity_documents import iter_entities
from feed_assets.loading.entity_files import Values
from feed_assets.loading.falcon.writing import render_falcon
from tests.loading.falcon.falcon_schema import find_faults

ROOT = Path(__file__).parents[3]
VALUES = Values(
    variables={"DATA_ROOT": "/data", "S3_ENDPOINT": "http://host"},
    environ={"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"},
)
DOCUMENTS = [
    ROOT / "examples" / "flights" / "entities" / "flights.yaml",
    ROOT / "tests" / "validation" / "documents" / "everything.yaml",
]


def feed_of(cluster: dict[str, Any], **fields: Any) -> Feed:
    return Feed.model_validate(
        {
            "name": "clicks",
            "frequency": "days(1)",
            "clusters": {"east": {"validity": {"start": "2015-01-01T00:00Z"}, **cluster}},
            **fields,
        }
    )


def is_read_back(entity: AnyEntity, text: str) -> bool:
    (document,) = iter_entities("a.xml", text, VALUES)
    return document.entity == entity


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda file: file.stem)
def test_every_entity_is_written_as_falcons_schema_says(file: Path) -> None:
    documents = list(iter_entities(file.name, file.read_text("utf-8"), VALUES))
    assert len(documents) == len(list(yaml.safe_load_all(file.read_text("utf-8"))))
    for document in documents:
        assert document.entity is not None, document.issues
        text = render_falcon(document.entity)
        assert find_faults(text) == []
        assert is_read_back(document.entity, text)


@pytest.mark.parametrize(
    ("validity", "written"),
    [
        ({"start": "2015-01-01T00:00Z"}, 'start="2015-01-01T00:00Z" end="2099-12-31T00:00Z"'),
        (
            {"start": "2015-01-01T00:00Z", "end": "2500-01-01T00:00Z"},
            'start="2015-01-01T00:00Z" end="2099-12-31T00:00Z"',
        ),
        ({"start": "2150-01-01T00:00Z"}, 'start="2099-12-31T00:00Z" end="2099-12-31T00:00Z"'),
    ],
    ids=["no end", "a late end", "a late start"],
)
def test_a_validity_ends_as_late_as_falcon_allows(validity: dict[str, str], written: str) -> None:
    feed = feed_of({"validity": validity})
    text = render_falcon(feed)
    assert f"<validity {written}/>" in text
    assert find_faults(text) == []
    assert is_read_back(feed, text)


@pytest.mark.parametrize("holder", ["cluster", "feed"])
def test_falcon_never_deletes_what_is_archived_here(holder: str) -> None:
    lifecycle = {"lifecycle": {"retention_stage": {"frequency": "hours(6)", "properties": {LIMIT_PROPERTY: "days(9)"}}}}
    retention = {"limit": "days(30)", "action": "archive", "archive_to": "/old/${YEAR}/${MONTH}/${DAY}"}
    of_cluster, of_feed = (lifecycle, {}) if holder == "cluster" else ({}, lifecycle)
    feed = feed_of({"retention": retention, **of_cluster}, **of_feed)
    text = render_falcon(feed)
    assert '<retention limit="months(9999)" action="delete"/>' in text
    of_east = text.split("</cluster>")[0]
    assert f'<property name="{LIMIT_PROPERTY}" value="months(9999)"/>' in of_east
    assert "days(9)" not in of_east
    assert find_faults(text) == []
    assert is_read_back(feed, text)


def test_an_import_without_an_extract_reads_the_whole_table_in_falcon() -> None:
    feed = feed_of({"import": {"source": {"name": "shop", "table": "orders"}}})
    text = render_falcon(feed)
    assert '<extract type="full">' in text
    assert find_faults(text) == []
    assert is_read_back(feed, text)


def test_numbers_are_no_greater_than_falcons() -> None:
    assert feed_of({}, version=2**31 - 1).version == 2**31 - 1
    with pytest.raises(ValidationError, match="less than or equal to 2147483647"):
        feed_of({}, version=2**31)
    retry = {"policy": "periodic", "delay": "minutes(1)"}
    assert Retry.model_validate(retry | {"attempts": 65_535}).attempts == 65_535
    with pytest.raises(ValidationError, match="less than or equal to 65535"):
        Retry.model_validate(retry | {"attempts": 65_536})
