from pathlib import Path
from typing import Any

import pytest

from feed_assets.context.consolidation import Lifecycle
from feed_assets.context.errors import InstanceQueryError
from feed_assets.context.operation import OperationContext, resolve_subject
from feed_assets.entities.common import Kind
from feed_assets.entities.errors import AmbiguousNameError, EntityNotFoundError
from feed_assets.explain.explanations import explain
from feed_assets.instances.gates.actions import InstanceAction
from feed_assets.instances.lists.control import control_instances
from feed_assets.instances.lists.runs import find_params
from feed_assets.lineage.instance_views import find_dependencies
from tests.context.contexts import context_of
from tests.instances.harness import START, at, feed, process
from tests.replication.test_flows import FLOW, harness_of, replicated


@pytest.fixture
def context(tmp_path: Path) -> OperationContext:
    """The name `clicks` is that of a feed, which is copied, and of a process; the feed `local` has days of Warsaw."""
    clicks = process("clicks", inputs={"clicks": "now(0,0)"}, outputs={"counts": "now(0,0)"})
    local = feed("local", "days(1)", timezone="Europe/Warsaw")
    lifecycle = harness_of(tmp_path, replicated(), feed("counts"), local, clicks)
    return context_of(lifecycle, at("01T02:30"))


def test_a_shared_name_needs_a_kind_or_a_lifecycle_that_only_one_of_both_has(context: OperationContext) -> None:
    with pytest.raises(AmbiguousNameError, match="a process and a feed have the name 'clicks': give its kind, too"):
        resolve_subject(context, "clicks")
    assert resolve_subject(context, "clicks", kind=Kind.FEED).kind is Kind.FEED
    assert resolve_subject(context, "clicks", preferred=Kind.PROCESS).kind is Kind.PROCESS
    assert resolve_subject(context, "clicks", preferred=Kind.PROCESS, lifecycles=["replication"]).kind is Kind.FEED
    assert resolve_subject(context, "clicks", lifecycles=[Lifecycle.EXECUTION]).kind is Kind.PROCESS


def test_a_flow_is_a_process_whatever_kind_is_given(context: OperationContext) -> None:
    for kind in (None, Kind.FEED, Kind.PROCESS):
        found = resolve_subject(context, FLOW, kind=kind)
        assert (found.kind, found.on, found.asked) == (Kind.PROCESS, ("backup",), ("backup",))
    with pytest.raises(EntityNotFoundError, match="there is no process 'clicks@mars'"):
        resolve_subject(context, "clicks@mars")


def test_the_clusters_that_are_asked_for_need_not_be_those_where_it_is(context: OperationContext) -> None:
    found = resolve_subject(context, "clicks", kind=Kind.FEED, clusters=["mars", "backup"])
    assert (found.on, found.asked) == (("backup", "primary"), ("mars", "backup"))


def test_an_instance_is_a_time_or_a_day_in_the_time_zone_of_the_entity(context: OperationContext) -> None:
    assert resolve_subject(context, "local").nominal_time is None
    assert resolve_subject(context, "local", "2013-11-02").instance == at("01T23:00")
    assert resolve_subject(context, "local", "2013-11-01T23:00Z").instance == at("01T23:00")
    assert resolve_subject(context, "local", START).instance == START


def test_what_is_resolved_is_not_asked_for_again(context: OperationContext, monkeypatch: pytest.MonkeyPatch) -> None:
    copy, data = (resolve_subject(context, name, START, kind=Kind.FEED) for name in (FLOW, "clicks"))

    def asked(*_: Any) -> Any:
        raise AssertionError("the name was resolved again")

    for method in ("kinds_of", "clusters_of"):
        monkeypatch.setattr(OperationContext, method, asked)
    with pytest.raises(InstanceQueryError, match=r"no tick has created 2013-11-01T00:00Z on backup yet"):
        control_instances(context.by("ann", dry_run=True), InstanceAction.RERUN, data)
    for subject in (copy, data):
        for operation in (explain, find_dependencies, find_params):
            assert operation(context, subject).parts
