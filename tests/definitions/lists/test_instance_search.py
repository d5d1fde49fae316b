from pathlib import Path

import pytest

from feed_assets.context.errors import InstanceQueryError
from feed_assets.definitions.lists.instance_search import search_instances
from feed_assets.definitions.lists.query_fields import SearchQuery
from feed_assets.entities.common import Kind
from tests.context.contexts import context_of, counting_harness
from tests.instances.harness import START, LifecycleHarness, at, counted_statements, hours


def a_harness(tmp_path: Path, state: str | None = None) -> LifecycleHarness:
    lifecycle = counting_harness(tmp_path, state)
    lifecycle.land("clicks", *hours(2))
    lifecycle.flag("clicks", *hours(2))
    lifecycle.launch(lifecycle.tick(at("01T04:30")), at("01T04:30"))
    return lifecycle


def found(lifecycle: LifecycleHarness, **query: object) -> list[tuple[str, int, str]]:
    page = search_instances(context_of(lifecycle, at("01T04:30")), SearchQuery(**query))  # type: ignore[arg-type]
    return [(each.name, each.nominal_time.hour, each.status) for each in page.instances]


def test_row_120_search_goes_across_entities_newest_first(tmp_path: Path, state_url: str) -> None:
    lifecycle = a_harness(tmp_path, state_url)
    assert found(lifecycle, kinds=(Kind.PROCESS,), results=3) == [
        ("report", 4, "WAITING"),
        ("count", 4, "WAITING"),
        ("count", 3, "WAITING"),
    ]


def test_row_120_by_status_tags_and_name(tmp_path: Path, state_url: str) -> None:
    lifecycle = a_harness(tmp_path, state_url)
    assert found(lifecycle, statuses=("succeeded",)) == [("count", 1, "SUCCEEDED"), ("count", 0, "SUCCEEDED")]
    assert found(lifecycle, statuses=("AVAILABLE",), tag_keys=("GOLD", "web")) == [
        ("clicks", 1, "AVAILABLE"),
        ("clicks", 0, "AVAILABLE"),
    ]
    names = {name for name, _, _ in found(lifecycle, name_sequence="cts", results=100)}
    assert names == {"counts"}
    assert found(lifecycle, name_sequence="zzz") == []
    with pytest.raises(InstanceQueryError, match="status AVAILBLE: an instance of a feed or process never has it"):
        found(lifecycle, statuses=("availble", "MISSING"))
    with pytest.raises(InstanceQueryError, match="an instance of a feed never has it"):
        found(lifecycle, statuses=("SUCCEEDED",), kinds=(Kind.FEED,))


def test_row_120_pages_ranges_and_order(tmp_path: Path) -> None:
    lifecycle = a_harness(tmp_path)
    ranged = {"start": START, "end": at("01T02:00"), "name_sequence": "count", "kinds": (Kind.PROCESS,)}
    assert found(lifecycle, **ranged) == [("count", 1, "SUCCEEDED"), ("count", 0, "SUCCEEDED")]
    assert found(lifecycle, **ranged, offset=1, results=1) == [("count", 0, "SUCCEEDED")]
    statuses = [status for _, _, status in found(lifecycle, kinds=(Kind.PROCESS,), order_by="status")]
    assert statuses == sorted(statuses, reverse=True)
    assert found(lifecycle, end=at("2013-01-01")) == []


def test_what_is_found_has_the_tags_of_its_entity(tmp_path: Path) -> None:
    page = search_instances(
        context_of(a_harness(tmp_path), at("01T04:30")), SearchQuery(name_sequence="clicks", results=1)
    )
    assert page.instances[0].tags == ("owner=web", "tier=gold")
    assert page.has_more
    assert page.total > page.listed


def test_of_very_many_it_says_that_there_are_more(tmp_path: Path) -> None:
    lifecycle = a_harness(tmp_path)
    query = SearchQuery(start=START, end=at("2015-06-01"), kinds=(Kind.FEED,), results=2)
    page = search_instances(context_of(lifecycle, at("2015-06-01")), query)
    assert (page.total, page.more_than_total, page.has_more) == (10_000, True, True)
    assert page.remarks[0] == "2 of more than 10,000 instances; --num-results and --offset show more"
    assert [each.nominal_time for each in page.instances] == [at("2015-05-31T23:00")] * 2


@pytest.mark.parametrize("by_status", [(), ("SUCCEEDED",), ("MISSING", "WAITING")])
def test_whatever_is_counted_the_page_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_status: tuple[str, ...]
) -> None:
    lifecycle = a_harness(tmp_path)
    ranged = {"start": START, "end": at("01T04:30"), "statuses": by_status}
    pages = [{**ranged, "offset": offset, "results": results} for offset in (0, 2, 5) for results in (1, 3, 100)]
    every = [found(lifecycle, **page) for page in pages]
    monkeypatch.setattr("feed_assets.instances.lists.queries.COUNTED", 1)
    assert every == [found(lifecycle, **page) for page in pages]


def test_a_page_reads_the_entities_that_are_on_it_alone(tmp_path: Path) -> None:
    context = context_of(a_harness(tmp_path), at("01T04:30"))
    with counted_statements() as of_all:
        page = search_instances(context, SearchQuery(results=1))
    with counted_statements() as of_one:
        only = search_instances(context, SearchQuery(results=1, name_sequence="weather"))
    assert page.instances == only.instances
    assert page.total > only.total
    assert len(of_all) == len(of_one)
