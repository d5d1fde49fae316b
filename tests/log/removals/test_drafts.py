"""What a sweep takes, as it is cut, counted, stored and read."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from feed_assets.log.removals.chunks import SweepChunks, SweepDraft, digest_items
from feed_assets.log.removals.records import CHUNK_ITEMS, ChunkState, ItemOutcome, ItemResult, SweepItem
from feed_assets.log.removals.store import Sweeps
from feed_assets.sql.database import Database
from feed_assets.sql.errors import SweepDamagedError
from tests.log.samples import HOUR, finished, hour, sweep_draft, sweep_item

pytestmark = pytest.mark.both_databases


TEXTS = st.text(st.characters(exclude_categories=()))  # lone surrogates, too: names on disk that are no text
NUMBERS = st.none() | st.integers(min_value=0, max_value=2**58)  # of which twenty are a number of 64 bits
TIMES = st.datetimes(timezones=st.just(UTC))
ITEMS = st.builds(
    SweepItem, path=TEXTS, nominal_time=TIMES, bytes=NUMBERS, files=NUMBERS, rule=TEXTS, reason=TEXTS, fingerprint=TEXTS
)
RESULTS = st.builds(
    ItemResult, outcome=st.sampled_from(ItemOutcome), reason=st.none() | TEXTS, bytes=NUMBERS, files=NUMBERS
)


_numbers = count(1)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(ITEMS, RESULTS, min_size=1, max_size=20))
def test_items_and_their_results_come_back_as_they_were(
    database: Database, results: dict[SweepItem, ItemResult]
) -> None:
    draft = SweepDraft(f"s{next(_numbers)}", "primary")
    draft.add("clicks", "data", results)
    (chunk,) = draft.chunks
    with database.begin() as connection:
        Sweeps(connection).add(finished(draft), draft.chunks)
        chunks = SweepChunks(connection, draft.sweep_id)
        assert chunks.get(0) == chunk
        chunks.claim("a", hour(0), HOUR)
        chunks.finish(chunk, "a", ChunkState.DONE, results)
        found = chunks.get(0)
    assert found == replace(chunk, state=ChunkState.DONE, results=results)
    times = [item.nominal_time for item in results]
    assert (found.first, found.last) == (min(times), max(times))


@given(st.lists(ITEMS, max_size=5, unique=True), st.lists(ITEMS, max_size=5, unique=True))
def test_two_lists_have_one_digest_only_if_they_are_equal(one: list[SweepItem], other: list[SweepItem]) -> None:
    assert (digest_items(one) == digest_items(other)) == (one == other)


def test_items_are_cut_into_chunks_of_one_feed_and_one_kind() -> None:
    draft = SweepDraft("s1", "primary")
    draft.add("clicks", "data", (sweep_item(n) for n in range(CHUNK_ITEMS + 1)))
    draft.add("clicks", "stats", [sweep_item(0, bytes=None, files=None)])
    draft.add("views", "data", [])
    draft.add("views", "meta", [sweep_item(3)])
    heads = draft.chunks
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


FIRST = sweep_item(0)


@pytest.mark.parametrize(
    "change",
    [
        lambda items: items[:1],
        lambda items: items[::-1],
        lambda items: [FIRST._replace(path="clicks/2024/01/01"), *items[1:]],
        lambda items: [FIRST._replace(nominal_time=hour(0.5)), *items[1:]],
        lambda items: [FIRST._replace(bytes=None), *items[1:]],
        lambda items: [FIRST._replace(rule="sizes"), *items[1:]],
        lambda items: [FIRST._replace(reason=""), *items[1:]],
        lambda items: [FIRST._replace(fingerprint="f"), *items[1:]],
    ],
)
def test_a_chunk_that_is_not_what_was_planned_is_refused(
    database: Database, change: Callable[[Sequence[SweepItem]], Sequence[SweepItem]]
) -> None:
    draft = sweep_draft("s7")
    assert draft.chunks[0].items[0] == FIRST
    with database.begin() as connection:
        Sweeps(connection).add(finished(draft), [replace(draft.chunks[0], items=tuple(change(draft.chunks[0].items)))])
        for read in (lambda chunks: chunks.get(0), lambda chunks: chunks.claim("a", hour(0), HOUR)):
            with pytest.raises(
                SweepDamagedError, match=r"the sweep s7 differs from its plan: its chunk 0 .* plan again"
            ):
                read(SweepChunks(connection, "s7"))
