"""Lineage of instances from a real record, on both databases."""

from pathlib import Path

import pytest

from feed_assets.context.operation import resolve_subject
from feed_assets.errors import WrongUsageError
from feed_assets.lineage.commands import show
from feed_assets.lineage.recorded import show_lineage
from tests.context.contexts import context_of, counting_harness
from tests.instances.harness import START, at


def test_what_happened_to_an_instance_is_told_in_its_order(tmp_path: Path, state_url: str) -> None:
    lifecycle = counting_harness(tmp_path, state_url)
    lifecycle.land("clicks", START)
    lifecycle.flag("clicks", START)
    lifecycle.launch(lifecycle.tick(at("01T00:10")), at("01T00:10"))
    context = context_of(lifecycle, at("01T01:00"))
    graph = show_lineage(context, resolve_subject(context, "clicks", START), up=False, down=False, as_of=None)
    assert [(each.name, each.state, each.number) for each in graph.nodes] == [("clicks", "ARRIVED", 1)]
    early = show_lineage(context, resolve_subject(context, "count", START), up=False, down=False, as_of=START)
    assert early.nodes == ()


def test_an_instance_must_be_named(tmp_path: Path) -> None:
    with pytest.raises(WrongUsageError, match="Give one NAME and one INSTANCE"):
        show(context_of(counting_harness(tmp_path), at("02")), names=("count",))
