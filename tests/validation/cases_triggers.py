"""For rules about triggers: what they accept, and what they refuse with this text."""

from typing import Any

from tests.validation.cases import ONLY_PRIMARY, ORDERS, Case

LOADED = {
    "name": "loaded",
    "instances": "as-they-come",
    "locations": {"data": "/loaded/${YEAR}${MONTH}${DAY}${HOUR}${MINUTE}${SECOND}"},
    "clusters": ONLY_PRIMARY,
}


def load(trigger: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Orders that come, and a process that loads what comes by a trigger."""
    process = {"name": "load", "clusters": ONLY_PRIMARY, "trigger": trigger, "workflow": {"path": "jobs:load"}}
    inputs = {"orders": {"feed": "orders", "take": "new"}}
    return {"feed orders": ORDERS, "process load": {**process, "inputs": inputs, **fields}}


def ring(trigger: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """The process writes what it loads from, beside the orders."""
    inputs = {"old": {"feed": "loaded", "take": "new"}}
    outputs = {"new": {"feed": "loaded", "instance": "now(0,0)"}}
    return load({} if trigger is None else trigger, **{"inputs": inputs, "outputs": outputs, **fields}) | {
        "feed loaded": LOADED
    }


SHORT = {"primary": {"validity": {"start": "2015-01-01T12:00Z", "end": "2015-01-02T00:00Z"}}}
_SPAN = "in the validity on primary, from 2015-01-01T12:00Z to 2015-01-02T00:00Z"

TRIGGER_CASES = (
    Case(
        code="trigger-names",
        good=load({"when": ["orders", {"any": ["clicks", "group:web"]}]}),
        bad=load({"when": ["orders", "click"]}),
        text="process 'load': trigger.when names 'click', which is no input and no feed: no batch can ever run. "
        "Did you mean 'clicks'?",
    ),
    Case(
        code="trigger-names",
        name="group",
        bad=load({"when": {"any": ["orders", "group:wed"]}}),
        text="process 'load': trigger.when names 'group:wed', a group that no feed is in: this part of the condition "
        "never holds. Did you mean 'group:web'?",
    ),
    Case(
        code="trigger-names",
        name="cluster",
        good=load({"when": "clicks", "by": "06:00"}),
        bad=load({"when": "summary"}, inputs={}, clusters={"backup": ONLY_PRIMARY["primary"]}),
        text="process 'load': trigger.when names 'summary', a feed that is not defined on cluster backup, only on "
        "primary: no batch can ever run. Add the cluster to the feed, or remove it from the process.",
    ),
    Case(
        code="trigger-names",
        name="time",
        bad=load({"when": "approvals", "by": "06:00"}),
        text="process 'load': trigger.when names 'approvals', which is no input and no feed: this part of the "
        "condition never holds. Name an input, a feed, or group:NAME.",
    ),
    Case(
        code="trigger-times",
        good=load({"by": "23:59", "or_every": "hours(11)"}, clusters=SHORT),
        bad=load({"by": "06:00"}, clusters=SHORT),
        text=f"process 'load': trigger.by 06:00 never comes {_SPAN}. Write another time, remove by, or extend the "
        "validity.",
    ),
    Case(
        code="trigger-times",
        name="every",
        bad=load({"and_every": "hours(12)"}, clusters=SHORT),
        text=f"process 'load': trigger.and_every hours(12) never comes {_SPAN}. Write another time, remove and_every, "
        "or extend the validity.",
    ),
    Case(
        code="trigger-times",
        name="from",
        good=load({"from": "2015-01-01T23:59Z"}, clusters=SHORT),
        bad=load({"from": "2015-01-02T00:00Z"}, clusters=SHORT),
        text=f"process 'load': trigger.from 2015-01-02T00:00Z never comes {_SPAN}: no event counts. Write an earlier "
        "time, or extend the validity.",
    ),
    Case(
        code="wakes-itself",
        good=ring({"when": "orders"}),
        bad=ring({"when": {"any": ["orders", "old"]}}),
        text="process 'load': on primary its batches wake themselves without end: load writes feed 'loaded', which "
        "wakes load. Leave one of these feeds out of trigger.when (an input takes it all the same), or write "
        "and_every.",
    ),
    Case(
        code="output-data",
        good=ring({"when": "orders"}),
        bad=load({}, inputs={"old": {"feed": "loaded", "take": "new"}})
        | {"feed loaded": LOADED, "process load/outputs": {"done": {"feed": "orders", "instance": "now(0,0)"}}},
        text="process 'load': outputs.done writes feed 'orders', which is a signal, without data of its own. Write a "
        "feed with locations or a table.",
    ),
)
