"""Manifests as text."""

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feed_assets.storage.errors import ManifestError
from feed_assets.storage.manifests import parse_manifest, render_manifest
from feed_assets.storage.records import Manifest, ManifestEntry

names = st.binary(min_size=1).map(os.fsdecode) | st.text(st.characters(categories=("L", "P", "Z")), min_size=1)
entries = st.builds(
    ManifestEntry,
    path=names,
    size=st.integers(min_value=0),
    checksum=st.from_regex(r"sha256:[0-9a-f]{8}", fullmatch=True),
    unknown=st.just({}),
)


def parse(text: str) -> Manifest:
    return parse_manifest(text, store="file:///data", path="weather/05")


@given(found=st.lists(entries, unique_by=lambda entry: entry.path), extra=st.dictionaries(st.text(), st.text()))
def test_a_manifest_survives_a_round_trip(found: list[ManifestEntry], extra: dict[str, str]) -> None:
    manifest = Manifest.of(found, extra)
    assert parse(render_manifest(manifest)) == manifest


@given(found=st.lists(entries, unique_by=lambda entry: entry.path, min_size=1), data=st.data())
def test_the_digest_tells_content_apart_and_not_its_order(found: list[ManifestEntry], data: st.DataObject) -> None:
    manifest = Manifest.of(found)
    assert Manifest.of(data.draw(st.permutations(found))).digest == manifest.digest
    assert Manifest.of(found[1:]).digest != manifest.digest


def test_fields_of_a_newer_program_survive_a_round_trip() -> None:
    document = json.loads(render_manifest(Manifest.of([ManifestEntry(path="x", size=1, checksum="sha256:1")])))
    document["schema"] = {"a": "int"}
    document["entries"][0]["rows"] = 7
    assert json.loads(render_manifest(parse(json.dumps(document)))) == document


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"version": 2}, "version 2"),
        ({"entries": [{"path": "x", "size": "1", "checksum": "c"}]}, "damaged"),
        ({"entries": None}, "damaged"),
        ({"extra": []}, "damaged"),
        ({"digest": "sha256:0"}, "does not fit"),
    ],
)
def test_a_manifest_that_cannot_be_used_says_why(change: dict[str, object], reason: str) -> None:
    document = {**json.loads(render_manifest(Manifest.of([]))), **change}
    with pytest.raises(ManifestError, match=reason):
        parse(json.dumps(document))


@pytest.mark.parametrize("text", ["", "[]", "null", '{"version": 1}', "\0"])
def test_text_that_is_no_manifest_is_damaged(text: str) -> None:
    with pytest.raises(ManifestError, match="damaged"):
        parse(text)


def test_a_message_has_not_what_a_damaged_manifest_has() -> None:
    with pytest.raises(ManifestError, match="damaged") as caught:
        parse_manifest(b"\xff" * 10_000, store="file:///data", path="weather")
    assert len(str(caught.value)) < 1_000
