"""What a sweep takes, as it is cut, counted, stored and read."""

import json
import zlib
from dataclasses import replace
from datetime import UTC

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feed_assets.state.errors import StateError, SweepDamagedError
from feed_assets.state.sweep_content import SweepDraft, decode_chunk, encode_items, encode_results
from feed_assets.state.sweep_records import CHUNK_ITEMS, ItemOutcome, ItemResult, SweepItem
from tests.state.samples import finished, hour, sweep_draft, sweep_item

TEXTS = st.text(st.characters(exclude_categories=()))  # lone surrogates, too: names on disk that are no text
NUMBERS = st.none() | st.integers(min_value=0, max_value=2**62)
TIMES = st.datetimes(timezones=st.just(UTC))
ITEMS = st.builds(
    SweepItem, path=TEXTS, nominal_time=TIMES, bytes=NUMBERS, files=NUMBERS, rule=TEXTS, reason=TEXTS, fingerprint=TEXTS
)
RESULTS = st.builds(
    ItemResult, outcome=st.sampled_from(ItemOutcome), reason=st.none() | TEXTS, bytes=NUMBERS, files=NUMBERS
)


@given(st.lists(st.tuples(ITEMS, RESULTS), min_size=1, max_size=20))
def test_items_and_their_results_come_back_as_they_were(pairs: list[tuple[SweepItem, ItemResult]]) -> None:
    items, results = zip(*pairs, strict=True)
    draft = SweepDraft("s1", "primary")
    draft.add("clicks", "data", items)
    (chunk,) = draft.chunks
    found = decode_chunk(chunk.head, chunk.content, encode_results(results))
    assert (found.items, found.results) == (items, results)
    assert (found.first, found.last) == (
        min(item.nominal_time for item in items),
        max(item.nominal_time for item in items),
    )


@given(st.lists(ITEMS, max_size=5, unique=True), st.lists(ITEMS, max_size=5, unique=True))
def test_two_lists_have_one_digest_only_if_they_are_equal(one: list[SweepItem], other: list[SweepItem]) -> None:
    assert (encode_items(one)[1] == encode_items(other)[1]) == (one == other)


def test_items_are_cut_into_chunks_of_one_feed_and_one_kind() -> None:
    draft = SweepDraft("s1", "primary")
    draft.add("clicks", "data", (sweep_item(n) for n in range(CHUNK_ITEMS + 1)))
    draft.add("clicks", "stats", [sweep_item(0, bytes=None, files=None)])
    draft.add("views", "data", [])
    draft.add("views", "meta", [sweep_item(3)])
    heads = [chunk.head for chunk in draft.chunks]
    assert [(head.number, head.feed, head.kind, head.count) for head in heads] == [
        (0, "clicks", "data", CHUNK_ITEMS),
        (1, "clicks", "data", 1),
        (2, "clicks", "stats", 1),
        (3, "views", "meta", 1),
    ]
    assert (heads[1].first, heads[1].last) == (hour(CHUNK_ITEMS), hour(CHUNK_ITEMS))


def test_a_draft_counts_instances_paths_bytes_and_files_by_feed() -> None:
    draft = SweepDraft("s1", "primary")
    draft.add("views", "data", [sweep_item(0)])
    draft.add("clicks", "data", [sweep_item(0), sweep_item(1, bytes=None, files=None)])
    draft.add("clicks", "tmp", [sweep_item(0)])
    clicks, views = draft.counts
    assert (clicks.feed, clicks.instances, clicks.paths, clicks.bytes, clicks.files) == ("clicks", 2, 3, 200, 4)
    assert (views.feed, views.instances, views.paths) == ("views", 1, 1)
    sweep = finished(draft)
    assert (sweep.instances, sweep.paths, sweep.bytes, sweep.files, sweep.chunks) == (3, 4, 300, 6, 3)


def test_plans_that_take_the_same_have_one_digest_whenever_they_were_made() -> None:
    plain = finished(sweep_draft("s1"))
    assert finished(sweep_draft("s2"), n=5).digest == plain.digest
    others = [sweep_draft(count=4), sweep_draft(cluster="backup"), sweep_draft(feed="views"), sweep_draft(count=0)]
    assert len({plain.digest, *(finished(draft).digest for draft in others)}) == 5


def test_a_chunk_that_is_not_what_was_planned_is_refused() -> None:
    (chunk,) = sweep_draft("s7").chunks
    (other,) = sweep_draft("s7", 2).chunks
    for content in (other.content, b"", chunk.content[:-1], b"\x00" + chunk.content):
        with pytest.raises(SweepDamagedError, match=r"the sweep s7 differs from its plan: its chunk 0 .* plan again"):
            decode_chunk(chunk.head, content, None)


def test_content_of_a_newer_release_is_refused() -> None:
    (chunk,) = sweep_draft().chunks
    results = json.loads(zlib.decompress(encode_results([])))
    newer = zlib.compress(json.dumps(results | {"version": 2}).encode())
    with pytest.raises(StateError, match=r"content of version 2, but this release reads up to 1\. Upgrade"):
        decode_chunk(chunk.head, chunk.content, newer)
    assert decode_chunk(replace(chunk.head), chunk.content, None).results == ()
