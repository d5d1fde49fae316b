from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from feed_assets.entities.bundle import Bundle
from feed_assets.issues import FieldSources, SourceMap
from feed_assets.validation.compatibility import find_broken_dependents, find_dependents
from tests.entities.samples import bundle
from tests.validation.cases import DAILY, ORDERS, PRIMARY, SHARED, another, load

AS_OF = datetime(2015, 6, 1, 14, tzinfo=UTC)
EXPORT = SHARED["export"]


def _texts(before: Bundle, after: Bundle) -> list[str]:
    issues = find_broken_dependents(before, after, sources=SourceMap())
    return [issue.render() for issue in issues]


def _after(changes: Mapping[str, Any]) -> list[str]:
    return _texts(bundle(), bundle(changes))


def test_row_17_shortening_a_feed_that_a_process_needs_is_refused_naming_the_process() -> None:
    assert _after({f"{PRIMARY}/validity/end": "2015-01-01T12:00Z"}) == [
        "process 'daily': it is not compatible with changes to feed 'clicks': the first instance on primary, "
        "2015-01-02T00:00Z, reads feed 'clicks' to 2015-01-01T23:00Z, after the end of the feed at 2015-01-01T12:00Z. "
        "End the window earlier, start the process earlier, or extend the feed's validity."
    ]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({f"{PRIMARY}/retention/limit": "hours(20)"}, "but feed 'clicks' on primary keeps hours(20)"),
        (
            {"feed clicks/clusters": {"backup": {"validity": {"start": "2015-01-01T00:00Z"}}}},
            "is not defined on cluster",
        ),
        ({"feed summary/clusters/primary/validity/start": "2015-02-01T00:00Z"}, "before the start of feed 'summary'"),
    ],
)
def test_row_17_what_else_a_process_needs_of_a_feed_is_looked_at(changes: dict[str, Any], reason: str) -> None:
    (text,) = _after(changes)
    assert text.startswith("process 'daily': it is not compatible with changes to feed ")
    assert reason in text


def test_row_17_an_input_partition_that_is_deeper_than_declared_from_now_on_is_refused() -> None:
    reads = {f"{DAILY}/inputs/clicks/partition": "us/nyc"}
    (text,) = _texts(bundle(reads), bundle({**reads, "feed clicks/partitions": ["country"]}))
    assert "is 2 levels deep, but feed 'clicks' declares country" in text


def test_a_feed_without_which_a_trigger_can_never_hold_does_not_go_away() -> None:
    signals = {f"feed {name}": {**ORDERS, "name": name} for name in ("approval", "ticket")}
    process = load({"when": ["orders", {"any": ["approval", "ticket"]}]})
    before = bundle({**process, **signals})
    assert _texts(before, before.without([("feed", "approval")])) == []
    gone = _texts(before, before.without([("feed", "approval"), ("feed", "ticket")]))
    said = "process 'load': it is not compatible with changes to feed 'approval' and feed 'ticket': trigger.when names"
    assert [text.split(", which")[0] for text in gone] == [f"{said} 'approval'", f"{said} 'ticket'"]


def test_a_process_that_a_feed_is_kept_for_does_not_go_away_or_stop_reading_it() -> None:
    kept = {f"{PRIMARY}/retention/until_read_by": ["daily"]}
    before = bundle(kept)
    (gone,) = _texts(before, before.without([("process", "daily")]))
    assert gone.startswith("feed 'clicks': it is not compatible with changes to process 'daily': there is no process ")
    (blind,) = _texts(before, bundle({**kept, f"{DAILY}/inputs": {}}))
    assert "process 'daily' does not read the feed on primary" in blind


def test_what_was_wrong_before_a_change_does_not_refuse_it() -> None:
    broken = {f"{DAILY}/inputs/clicks/start": "yesterday(-1,0)"}
    assert _texts(bundle(broken), bundle({**broken, f"{PRIMARY}/validity/start": "2015-01-01T01:00Z"})) == []


def test_harmless_changes_and_new_entities_break_nothing() -> None:
    assert _after({"feed clicks/tags": {"owner": "me"}, "feed more": another("feed summary", name="more")}) == []
    assert _after({}) == []


def test_mistakes_of_what_is_changed_itself_are_not_named_here() -> None:
    assert _after({"feed clicks/late_arrival/cut_off": "days(40)"}) == []


def test_a_cluster_that_loses_a_property_breaks_the_feeds_that_use_it() -> None:
    path = {"feed summary/locations/data": "/${cluster.zone}/${YEAR}/${MONTH}/${DAY}"}
    (text,) = _texts(bundle({**path, "cluster primary/properties": {"zone": "a"}}), bundle(path))
    assert text.startswith("feed 'summary': it is not compatible with changes to cluster 'primary': locations.data")


def test_a_feed_that_leaves_the_frequency_of_its_group_breaks_the_others() -> None:
    views = {
        "feed views": another("feed clicks", name="views", locations={"data": "/v/${YEAR}/${MONTH}/${DAY}/${HOUR}"})
    }
    changes = {**views, "feed clicks/frequency": "hours(2)"}
    assert any(text.startswith("feed 'views': it is not") for text in _texts(bundle(views), bundle(changes)))


def test_a_process_that_writes_what_another_one_writes_is_named_at_the_other_one() -> None:
    (text,) = _after({"process a-first": another(DAILY, name="a-first")})
    assert text.startswith("process 'daily': it is not compatible with changes to process 'a-first': output 'summary'")


def test_row_92_a_removal_is_refused_naming_everything_that_refers_to_what_goes() -> None:
    without = bundle().without({("cluster", "primary")})
    places = SourceMap({("feed", "clicks"): FieldSources(file="clicks.yaml", positions={(): (3, 1)})})
    (issue,) = find_broken_dependents(bundle(), without, sources=places)
    assert (issue.code, issue.render()) == (
        "still-referenced",
        "clicks.yaml:3: cluster 'primary': it cannot be removed, because feed 'clicks', feed 'summary' and process "
        "'daily' refer to it. Remove those first, or make them refer to another one.",
    )


def test_row_92_what_goes_together_does_not_hold_itself_back() -> None:
    gone = {("feed", "summary"), ("process", "daily")}
    assert _texts(bundle(), bundle().without(gone)) == []
    assert find_dependents(bundle(), [("feed", "summary")]) == {("feed", "summary"): (("process", "daily"),)}


def test_row_92_a_datasource_is_held_by_feeds_that_are_exported_to_it() -> None:
    whole = bundle({"feed clicks/clusters/backup/export": EXPORT})
    (text,) = _texts(whole, whole.without({("datasource", "shop")}))
    assert text.startswith("datasource 'shop': it cannot be removed, because feed 'clicks' refers to it.")
