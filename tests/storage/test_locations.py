"""Falcon's location rules, from the table of outside truth."""

import json
from pathlib import Path
from typing import Any

import pytest

from feed_assets.storage.locations import find_relative_path, resolve_location

TABLE = Path(__file__).parents[1] / "conformance" / "paths.json"
CASES = [case for case in json.loads(TABLE.read_text(encoding="utf-8")) if case["kind"] == "location_uri"]


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_each_location_of_the_table_resolves(case: dict[str, Any]) -> None:
    assert resolve_location(case["storage_url"], case["location"], case["user"]) == case["expected"]


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("s3://bucket/primary/a/b", "a/b"),
        ("s3://bucket/primary", None),
        ("s3://bucket/primary/", None),
        ("s3://bucket/primary2/a", None),
        ("s3a://bucket/primary/a", None),
    ],
)
def test_a_uri_has_a_path_only_below_the_storage(uri: str, path: str | None) -> None:
    assert find_relative_path("s3://bucket/primary/", uri) == path
