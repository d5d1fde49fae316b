import pickle
from typing import Any

import pytest
from pydantic import ValidationError

from feed_assets.entities.process import Input, Process
from feed_assets.entities.triggers import AllOf, AnyOf, StartFrom, Trigger, iter_names
from feed_assets.loading.process_functions import process
from tests.entities.samples import BASE

NEW = {"orders": {"feed": "orders", "take": "new"}}


def build(**changes: Any) -> Process:
    given = {**BASE["process daily"], "inputs": NEW} | changes
    return Process.model_validate({key: value for key, value in given.items() if value is not None})


def test_a_condition_nests_names_inputs_and_groups() -> None:
    trigger = Trigger.model_validate({"when": {"all": ["orders", {"any": ["rates", "group:approvals"]}]}})
    assert trigger.when == AllOf(all=("orders", AnyOf(any=("rates", "group:approvals"))))
    assert list(iter_names(trigger.when)) == ["orders", "rates", "group:approvals"]
    assert Trigger(when=["orders", "rates"]).when == AllOf(all=("orders", "rates"))


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"when": "orders", "from": "earliest", "on_pause": "latest", "unchanged": "count"},
        {"when": {"any": ["a", ["b", "c"]]}, "or_every": "days(1)", "by": "06:00", "max_age": "hours(12)"},
        {"from": "2026-01-01T00:00Z", "batch": {"min": 3, "quiet": "seconds(30)", "until": "*_END"}},
    ],
)
def test_a_trigger_survives_a_round_trip(document: dict[str, Any]) -> None:
    trigger = Trigger.model_validate(document)
    written = trigger.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    assert Trigger.model_validate(written) == trigger == pickle.loads(pickle.dumps(trigger))
    assert Trigger.model_validate(trigger.model_dump(mode="json", by_alias=True)) == trigger
    assert hash(trigger) == hash(Trigger.model_validate(document))


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ({"when": []}, "the list of a condition is empty"),
        ({"when": {"all": "orders"}}, "'all' of a condition is not a list"),
        ({"when": {"all": ["a"], "any": ["b"]}}, "a condition has one key, 'all' or 'any'"),
        ({"when": 5}, "5 is not a condition"),
        ({"when": "group:a-b"}, "'group:a-b' names no group"),
        ({"when": ["a b"]}, "'a b' is not a name"),
        ({"by": 360}, "360 is not a time of day"),
        ({"by": "24:00"}, "'24:00' is not a time of day"),
        ({"from": "yesterday"}, "'yesterday' is not a date and time"),
        ({"or_every": "days(1)", "and_every": "days(1)"}, "both or_every and and_every"),
        ({"batch": {"min": 4, "max": 3}}, "at most 3 can never have 4 events"),
        ({"batch": {"max": 4, "until": "*_END"}}, "batch.max would cut through what the marking of batch.until ends"),
        ({"backlog": "latest", "batch": {"max": 3}}, "with backlog latest"),
        ({"max_age": "minutes(5)", "batch": {"quiet": "seconds(300)"}}, "it never holds"),
        ({"when": "a", "on_update": "rerun"}, "the events of a batch are frozen"),
    ],
)
def test_a_trigger_that_cannot_be_meant_is_refused(document: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError, match="(?s).*" + sentence.replace("[", r"\[")):
        Trigger.model_validate(document)


def test_a_process_with_a_trigger_needs_no_frequency() -> None:
    for trigger in ({}, {"when": "orders"}, {"or_every": "days(1)"}):
        batches = build(frequency=None, trigger=trigger)
        assert (batches.makes_batches, batches.frequency.render()) == (True, "seconds(1)")
    assert batches.inputs["orders"].takes_new


def test_a_trigger_that_is_only_about_updates_goes_with_a_frequency() -> None:
    updated = build(inputs=BASE["process daily"]["inputs"], trigger={"on_update": "hold"})
    assert (updated.makes_batches, updated.frequency.render()) == (False, "days(1)")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"trigger": {"when": "orders"}}, "a process has a frequency, or runs when something has come, but not both"),
        ({"trigger": {"on_update": "rerun"}}, "but not both"),
        ({"trigger": None}, "input 'orders' takes what is new, but the process has no trigger"),
        ({"trigger": None, "frequency": None}, "frequency"),
        ({"trigger": {"or_every": "days(1)"}, "frequency": None, "inputs": {}}, "nothing triggers"),
    ],
)
def test_frequency_and_trigger_exclude_each_other(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        build(**changes)


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ({}, "Field required"),
        ({"start": "now(0,0)"}, "Field required"),
        ({"take": "new", "start": "now(0,0)"}, "'start' is of a window"),
        ({"take": "new", "at_least": 1}, "'at_least' is of a window"),
        ({"start": "now(0,0)", "end": "now(0,0)", "at_least": 1, "missing_at_most": 1}, "both at_least and"),
        ({"start": "now(0,0)", "end": "now(0,0)", "at_least": 1, "optional": True}, "has no meaning for an optional"),
        ({"start": "now(0,0)", "end": "now(0,0)", "missing_at_most": 0}, "greater than or equal to 1"),
    ],
)
def test_an_input_has_a_window_or_takes_what_is_new(document: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        Input.model_validate({"feed": "orders", **document})


def test_a_function_of_a_module_is_declared_with_a_trigger() -> None:
    declared = process(clusters=BASE["process daily"]["clusters"], inputs=NEW, trigger={"from": "earliest"})(load)
    assert declared.entity.trigger is not None
    assert declared.entity.trigger.from_ is StartFrom.EARLIEST


def load(orders: object) -> None:
    """Load what is new."""
