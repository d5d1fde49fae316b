from datetime import UTC, datetime

import pytest

from feed_assets.issues import FieldSources, SourceMap
from feed_assets.validation.rules import validate_bundle
from tests.entities.samples import bundle
from tests.validation.cases import LOADED, ONLY_PRIMARY, Changes, load, ring

AS_OF = datetime(2015, 6, 1, 14, tzinfo=UTC)
NEW = {"feed": "loaded", "instance": "now(0,0)"}


def test_a_name_of_a_feed_that_has_errors_is_known_in_a_condition() -> None:
    declared = SourceMap({("feed", "cliks"): FieldSources(file="a.yaml", positions={})})
    for name in ("cliks", "group:sites"):
        assert validate_bundle(bundle(load({"when": ["orders", name]})), declared) == []


def waking(changes: Changes) -> list[str]:
    """What is said of batches that wake themselves, without the remedy; nothing else is said but of missing effects."""
    issues = validate_bundle(bundle(changes), SourceMap())
    assert {issue.code for issue in issues} <= {"wakes-itself", "no-effect"}
    return [f"{issue.entity}: {issue.message}" for issue in issues if issue.code == "wakes-itself"]


@pytest.mark.parametrize(
    ("changes", "is_endless"),
    [
        (ring(), True),
        (ring({"when": "loaded", "or_every": "days(1)", "batch": {"quiet": "minutes(5)"}}), True),
        (ring({"when": {"any": [["old", "orders"], "old"]}}), True),
        (ring({"when": ["old", "orders"]}), False),
        (ring({"when": "old", "and_every": "hours(1)"}), False),
        (ring({"batch": {"min": 2}}), False),
        (ring({"batch": {"until": "*_END"}}), False),
        (ring(outputs={"new": {**NEW, "optional": True}}), False),
        (ring(workflow={"engine": "external"}), False),
        (ring({"when": "orders"}, inputs={"old": {"feed": "loaded", "start": "latest(0)", "end": "latest(0)"}}), False),
    ],
)
def test_batches_wake_themselves_only_if_their_outputs_alone_fulfil_the_condition(
    changes: Changes, is_endless: bool
) -> None:
    assert bool(waking(changes)) is is_endless


def back(clusters: Changes = ONLY_PRIMARY) -> Changes:
    """A ring of two: the second process reads what the first one writes, and writes what that reads."""
    place = {"data": LOADED["locations"]["data"].replace("loaded", "copied")}
    second = {
        "name": "back",
        "clusters": clusters,
        "trigger": {},
        "inputs": {"copied": {"feed": "copied", "take": "new"}},
        "outputs": {"old": NEW},
        "workflow": {"path": "jobs:back"},
    }
    return {
        **ring(outputs={"new": {**NEW, "feed": "copied"}}),
        "feed copied": {**LOADED, "name": "copied", "locations": place},
        "process back": second,
    }


def test_two_processes_that_wake_each_other_are_both_told() -> None:
    assert waking(back()) == [
        "process 'back': on primary its batches wake themselves without end: back writes feed 'loaded', which wakes "
        "load, and load writes feed 'copied', which wakes back",
        "process 'load': on primary its batches wake themselves without end: load writes feed 'copied', which wakes "
        "back, and back writes feed 'loaded', which wakes load",
    ]


def test_processes_that_are_never_valid_together_wake_nobody_without_end() -> None:
    assert waking(back({"primary": {"validity": {"start": "2016-01-01T00:00Z"}}})) == []


def test_a_ring_may_lead_through_copies_on_another_cluster() -> None:
    both = {
        name: {**ONLY_PRIMARY["primary"], "type": role} for name, role in (("primary", "source"), ("backup", "target"))
    }
    there = {"backup": ONLY_PRIMARY["primary"]}
    changes = {**back(there), "feed copied/clusters": both}
    changes["feed loaded/clusters"] = {"backup": both["primary"], "primary": both["backup"]}
    assert waking(changes)[0] == (
        "process 'back': on backup its batches wake themselves without end: back writes feed 'loaded', whose copy on "
        "primary wakes load, and load writes feed 'copied', whose copy on backup wakes back"
    )
