from datetime import UTC, datetime, timedelta
from typing import Any as Anything

from feed_assets.entities.bundle import Bundle
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process
from feed_assets.plan.edges import All, Any, Name, TriggerInput, TriggerRecord, compile_trigger
from feed_assets.plan.release_fingerprint import release_fingerprint

ON = {"primary": {"validity": {"start": "2026-01-01T00:00Z"}}}
ORDERS = {"orders": {"feed": "orders", "take": "new"}}


def feed(name: str, **fields: Anything) -> Feed:
    return Feed.model_validate({"name": name, "frequency": "days(1)", "clusters": ON} | fields)


def load(**fields: Anything) -> Process:
    work = {"engine": "python", "path": "shop.jobs:load"}
    return Process.model_validate({"name": "load", "clusters": ON, "workflow": work} | fields)


def bundle(process: Process) -> Bundle:
    feeds = (feed("orders"), feed("rates", groups=["day"]), feed("approval", groups=["day"]))
    return Bundle(entities=(Cluster(name="primary", storage="file:///data"), *feeds, process))


def compiled(**fields: Anything) -> TriggerRecord:
    process = load(**fields)
    record = compile_trigger(bundle(process), process, "primary")
    assert record is not None
    return record


def test_names_are_inputs_then_feeds_and_groups_are_any_of_their_feeds() -> None:
    record = compiled(inputs={"new": ORDERS["orders"]}, trigger={"when": {"all": ["orders", "group:day", "gone"]}})
    group = Any((Name("approval", "approval"), Name("rates", "rates")))
    assert record.condition == All((Name("orders", "new"), group, Name("gone", None)))
    assert [(each.name, each.feed) for each in record.inputs] == [
        ("approval", "approval"),
        ("new", "orders"),
        ("rates", "rates"),
    ]


def test_by_default_all_mandatory_inputs_that_take_what_is_new_must_have_come() -> None:
    inputs = {**ORDERS, "rates": {"feed": "rates", "take": "new", "optional": True}}
    record = compiled(inputs=inputs, trigger={})
    assert record.condition == All((Name("orders", "orders"),))
    assert [each.name for each in record.inputs] == ["orders", "rates"]


def test_the_size_of_a_batch_is_that_of_its_data_and_an_approval_counts_alone() -> None:
    record = compiled(inputs=ORDERS, trigger={"when": ["orders", "approval"], "batch": {"min": 3, "until": "*_END"}})
    assert record.inputs == (
        TriggerInput("approval", "approval", "primary"),
        TriggerInput("orders", "orders", "primary", 3, "*_END"),
    )
    without = compiled(trigger={"when": "approval", "batch": {"min": 3}})
    assert without.inputs == (TriggerInput("approval", "approval", "primary", 3),)


def test_times_are_grids_in_the_zone_of_the_process() -> None:
    record = compiled(
        inputs=ORDERS,
        timezone="Europe/Berlin",
        trigger={"by": "06:00", "or_every": "hours(6)", "max_age": "hours(12)", "batch": {"quiet": "seconds(30)"}},
    )
    assert record.by is not None
    assert record.by.ceil(datetime(2026, 7, 1, tzinfo=UTC)) == datetime(2026, 7, 1, 4, tzinfo=UTC)
    assert record.or_every is not None
    assert record.or_every.ceil(datetime(2026, 7, 1, 1, tzinfo=UTC)) == datetime(2026, 7, 1, 6, tzinfo=UTC)
    assert (record.max_age, record.quiet) == (timedelta(hours=12), timedelta(seconds=30))


def test_a_changed_trigger_makes_no_release_and_its_sign_tells_which_events_and_times_count() -> None:
    one, other = load(inputs=ORDERS, trigger={}), load(inputs=ORDERS, trigger={"or_every": "days(1)"})
    assert release_fingerprint(bundle(one), one, "primary") == release_fingerprint(bundle(other), other, "primary")
    sign = compiled(inputs=ORDERS, trigger={}).sign
    assert sign == compiled(inputs=ORDERS, trigger={"batch": {"max": 5}, "on_pause": "drop"}).sign
    for trigger in ({"or_every": "days(1)"}, {"unchanged": "count"}, {"batch": {"until": "*"}}, {"when": "rates"}):
        assert sign != compiled(inputs=ORDERS, trigger=trigger).sign


def test_a_process_with_a_frequency_has_no_batches() -> None:
    process = load(frequency="days(1)", trigger={"on_update": "rerun"})
    assert compile_trigger(bundle(process), process, "primary") is None
