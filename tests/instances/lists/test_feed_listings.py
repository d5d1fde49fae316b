from pathlib import Path

import pytest

from feed_assets.context.consolidation import Result
from feed_assets.context.operation import resolve_subject
from feed_assets.entities.errors import EntityNotFoundError
from feed_assets.instances.lists.feed_listings import list_feed
from feed_assets.json_form import render_document
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.records import FeedInstance, FeedInstanceStatus
from tests.context.contexts import about, context_of, counting_harness
from tests.instances.harness import START, LifecycleHarness, at, feed, hours


def test_row_117_a_listing_has_the_four_states_with_size_and_time(tmp_path: Path, state_url: str) -> None:
    lifecycle = counting_harness(tmp_path, state_url)
    lifecycle.land("clicks", START, at("01T01:00"), text="12345")
    lifecycle.flag("clicks", START)
    lifecycle.land("weather", START, text="")
    lifecycle.tick(at("01T02:00"))
    context = context_of(lifecycle, at("01T02:30"))

    clicks = list_feed(context, resolve_subject(context, "clicks"), start=START, end=at("01T03:00"))

    assert [each.status for each in clicks.instances] == ["AVAILABLE", "PARTIAL", "MISSING"]
    first, partial, missing = render_document(clicks)["instances"]
    assert first == {
        "feed": "clicks",
        "cluster": "primary",
        "nominal_time": "2013-11-01T00:00Z",
        "status": "AVAILABLE",
        "url": context.feed_url(lifecycle.feed("clicks"), START),
        "bytes": 5,
        "files": 1,
        "created_at": "2013-11-01T02:00:00Z",
        "looked_at": None,
    }
    assert (partial["bytes"], partial["created_at"]) == (5, None)
    assert (missing["bytes"], missing["created_at"]) == (None, None)
    (empty,) = list_feed(context, resolve_subject(context, "weather"), start=START, end=at("01T01:00")).instances
    assert (empty.status, empty.bytes) == (FeedInstanceStatus.EMPTY, 0)


def test_row_117_storage_is_asked_on_request_and_nothing_is_recorded(tmp_path: Path) -> None:
    lifecycle = counting_harness(tmp_path)
    lifecycle.tick(at("01T01:00"))
    lifecycle.land("clicks", START, text="12345")
    context = context_of(lifecycle, at("01T01:30"))
    assert [each.status for each in list_feed(context, resolve_subject(context, "clicks"), start=START).instances] == [
        "MISSING",
        "MISSING",
    ]
    first, second = list_feed(context, resolve_subject(context, "clicks"), start=START, look=True).instances
    assert (first.status, first.bytes, first.looked_at) == (FeedInstanceStatus.PARTIAL, 5, at("01T01:30"))
    assert first.created_at is not None
    assert (second.status, second.bytes) == (FeedInstanceStatus.MISSING, None)
    assert set(lifecycle.feed_statuses("clicks").values()) == {FeedInstanceStatus.MISSING}


def test_row_117_what_was_evicted_is_told_from_what_never_came(tmp_path: Path) -> None:
    lifecycle = counting_harness(tmp_path)
    evicted = FeedInstance(
        feed="clicks",
        cluster="primary",
        nominal_time=START,
        status=FeedInstanceStatus.EVICTED,
        updated_at=START,
    )
    with lifecycle.database.begin() as connection:
        FeedInstances(connection).put([evicted])
    context = context_of(lifecycle, at("01T01:30"))
    assert [each.status for each in list_feed(context, resolve_subject(context, "clicks"), start=START).instances] == [
        "EVICTED",
        "MISSING",
    ]
    only = list_feed(context, resolve_subject(context, "clicks"), start=START, statuses=frozenset({"EVICTED"}))
    assert [each.nominal_time for each in only.instances] == [START]


def test_the_end_is_not_in_a_listing_and_without_one_it_goes_up_to_now(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks", end=at("01T03:00")))
    context = context_of(lifecycle, at("01T01:30"))
    listing = list_feed(context, resolve_subject(context, "clicks"), start=START, end=at("09"))
    assert [each.nominal_time for each in listing.instances] == hours(2)
    assert [
        each.nominal_time
        for each in list_feed(context, resolve_subject(context, "clicks"), end=at("01T01:00")).instances
    ] == hours(1)
    later = about(list_feed, context_of(lifecycle, at("09")), "clicks")
    assert [each.nominal_time for each in later.instances] == hours(3)


def test_row_121_a_storage_that_refuses_fails_alone(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(
        tmp_path, feed("clicks", clusters=("primary", "backup")), clusters=("primary", "backup")
    )
    (tmp_path / "elsewhere/2013-11-01/00-00").mkdir(parents=True)
    (tmp_path / "backup").mkdir()
    (tmp_path / "backup" / "clicks").symlink_to(tmp_path / "elsewhere")
    context = context_of(lifecycle, at("01T01:30"))
    listing = list_feed(context, resolve_subject(context, "clicks"), look=True)
    assert listing.result is Result.PARTIAL
    assert {each.cluster for each in listing.instances} == {"primary"}
    assert listing.message.startswith("backup/")
    assert list_feed(context, resolve_subject(context, "clicks")).result is Result.SUCCEEDED
    assert (
        list_feed(context, resolve_subject(context, "clicks", clusters=["backup"]), look=True).result is Result.FAILED
    )


def test_a_listing_of_what_is_not_declared_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EntityNotFoundError, match="'clicks'"):
        about(list_feed, context_of(counting_harness(tmp_path), START), "click")
