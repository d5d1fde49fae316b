import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from feed_assets.entities.bundle import entity_digest
from feed_assets.entities.differences import FieldChange, diff_entities
from feed_assets.json_form import render_document
from feed_assets.masking import HIDDEN
from tests.entities.samples import REMOVED, build, documents

Change = tuple[str, object, object]

_VALUES: dict[str, list[Any]] = {
    "timeout": ["hours(12)", "hours(6)", REMOVED],
    "order": ["LIFO", "FIFO"],
    "parallel": [1, 4],
    "clusters/primary/validity/end": ["2015-12-31T00:00Z", "2016-12-31T00:00Z", REMOVED],
    "inputs/more": [{"feed": "clicks", "start": "now(0,0)", "end": "now(0,0)"}],
    "inputs/clicks/optional": [True, False],
    "late_process": [
        {"policy": "final", "delay": "hours(1)", "inputs": ["clicks"]},
        {"policy": "final", "delay": "hours(1)", "inputs": ["clicks", "more"]},
    ],
    "tags": [{"owner": "ops"}, {}, "owner=ops,tier=1"],
    "properties": [{"a.b": "1"}, {"a.b": "2", "c": "3"}],
    "workflow/path": ["jobs.daily:summarize", "jobs.daily:other"],
}


def _diff(label: str, before: dict[str, Any] | None, after: dict[str, Any] | None) -> list[Change]:
    def entity(changes: dict[str, Any] | None) -> Any:
        if changes is None:
            return None
        return build(label, documents({f"{label}/{path}": value for path, value in changes.items()})[label])

    changes = diff_entities(entity(before), entity(after))
    json.dumps(render_document(changes=changes))
    return [(change.field, change.before, change.after) for change in changes]


def test_fields_that_differ_are_named_with_both_values() -> None:
    changes = {"timeout": "hours(6)", "clusters/primary/validity/end": "2015-12-01T00:00Z"}
    assert _diff("process daily", {}, changes) == [
        ("clusters.primary.validity.end", "2015-12-31T00:00Z", "2015-12-01T00:00Z"),
        ("timeout", "hours(12)", "hours(6)"),
    ]


def test_a_default_is_shown_in_the_place_of_a_field_that_is_left_out() -> None:
    assert _diff("process daily", {}, {"order": "LIFO"}) == [("order", "FIFO", "LIFO")]
    assert _diff("process daily", {}, {"order": "FIFO"}) == []


def test_what_is_new_or_gone_is_listed_by_its_fields() -> None:
    extra = {"feed": "summary", "start": "now(0,0)", "end": "now(0,0)", "optional": True}
    assert _diff("process daily", {}, {"inputs/more": extra}) == [
        ("inputs.more.feed", None, "summary"),
        ("inputs.more.start", None, "now(0,0)"),
        ("inputs.more.end", None, "now(0,0)"),
        ("inputs.more.optional", None, True),
    ]
    assert _diff("process daily", {"inputs/more": extra}, {})[0] == ("inputs.more.feed", "summary", None)


def test_a_new_entity_is_all_that_is_written_of_it() -> None:
    assert _diff("cluster primary", None, {}) == [
        ("name", None, "primary"),
        ("colo", None, "nyc"),
        ("storage", None, "file:///data"),
    ]


def test_a_list_is_one_value() -> None:
    assert _diff("feed clicks", {}, {"partitions": ["country"]}) == [("partitions", ["country", "colo"], ["country"])]


def test_a_name_with_dots_stands_in_brackets() -> None:
    assert _diff("cluster primary", {}, {"properties": {"spark.ui": "x"}}) == [("properties[spark.ui]", None, "x")]


def test_inputs_that_change_places_are_a_difference() -> None:
    one = {"feed": "clicks", "start": "now(0,0)", "end": "now(0,0)"}
    assert _diff("process daily", {"inputs": {"a": one, "b": one}}, {"inputs": {"b": one, "a": one}}) == [
        ("inputs", ["a", "b"], ["b", "a"])
    ]


def test_a_name_without_a_value_that_comes_or_goes_is_a_difference() -> None:
    late = {"policy": "final", "delay": "hours(1)", "inputs": ["clicks", "more"]}
    before = {"late_process": {**late, "inputs": ["clicks"]}}
    after = {"late_process": late}
    assert _diff("process daily", before, after) == [("late_process.inputs", ["clicks"], ["clicks", "more"])]
    assert _diff("process daily", after, before) == [("late_process.inputs", ["clicks", "more"], ["clicks"])]


def test_secrets_differ_but_are_not_shown() -> None:
    assert _diff("datasource shop", {}, {"credential/password": "other"}) == [("credential.password", HIDDEN, HIDDEN)]
    options = {"key": "me", "endpoint_url": "http://s3"}
    assert _diff("cluster primary", {}, {"storage_options": options}) == [
        ("storage_options.key", None, HIDDEN),
        ("storage_options.endpoint_url", None, "http://s3"),
    ]


_written = st.fixed_dictionaries({}, optional={path: st.sampled_from(values) for path, values in _VALUES.items()})


@given(_written, _written)
def test_there_is_a_difference_exactly_where_digests_differ(one: dict[str, Any], other: dict[str, Any]) -> None:
    entities = [_process(changes) for changes in (one, other)]
    assert bool(diff_entities(*entities)) == (entity_digest(entities[0]) != entity_digest(entities[1]))


@given(_written, _written)
def test_a_difference_backwards_is_the_same_with_sides_changed(one: dict[str, Any], other: dict[str, Any]) -> None:
    before, after = _process(one), _process(other)
    turned = {FieldChange(path=each.path, before=each.after, after=each.before) for each in _flat(after, before)}
    assert set(_flat(before, after)) == turned


def _flat(before: Any, after: Any) -> list[FieldChange]:
    """Changes with values that can be in a set."""
    found = diff_entities(before, after)
    return [FieldChange(path=each.path, before=repr(each.before), after=repr(each.after)) for each in found]


def _process(changes: dict[str, Any]) -> Any:
    written = {f"process daily/{path}": value for path, value in changes.items()}
    return build("process daily", documents(written)["process daily"])
