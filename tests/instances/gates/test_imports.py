"""Imports are begun, skipped and listed like all work, without a database."""

from datetime import timedelta
from pathlib import Path
from typing import Any

from feed_assets.context.consolidation import Lifecycle
from feed_assets.entities.common import Kind
from feed_assets.entities.datasource import Datasource
from feed_assets.entities.feed import Feed
from feed_assets.instances.lists.queries import list_instances
from feed_assets.log.records import ProcessInstanceStatus
from tests.context.contexts import context_of, query_of
from tests.instances.harness import START, LifecycleHarness, at, feed, hours

SHOP = Datasource(
    name="shop",
    type="postgres",
    interfaces={name: {"endpoint": "jdbc:postgresql://host/shop"} for name in ("readonly", "write")},
    driver={"class": "org.postgresql.Driver", "jars": ["postgresql.jar"]},
    credential={"user": "me", "password": "abc"},
)
RUNNING_ON = at("01T02:10")
SKIPPED, SUCCEEDED = ProcessInstanceStatus.SKIPPED, ProcessInstanceStatus.SUCCEEDED


def imported(**extract: Any) -> Feed:
    """An hourly feed of a table."""
    made = feed("orders").model_dump(mode="json", by_alias=True, exclude_defaults=True)
    source = {"name": "shop", "table": "orders", "extract": extract}
    made["clusters"]["primary"] |= {"type": "source", "import": {"source": source}}
    return Feed.model_validate(made)


def harness_of(tmp_path: Path, **extract: Any) -> LifecycleHarness:
    return LifecycleHarness.of(tmp_path, SHOP, imported(**extract))


def test_a_whole_table_is_read_for_the_newest_due_instance_and_older_ones_say_why_not(tmp_path: Path) -> None:
    lifecycle = harness_of(tmp_path)
    lifecycle.launch(lifecycle.tick(RUNNING_ON), RUNNING_ON)
    first, second, third = hours(3)
    assert lifecycle.statuses("orders.import") == {first: SKIPPED, second: SKIPPED, third: SUCCEEDED}
    reason = "a whole table is read as it is now, for the newest due instance only"
    assert lifecycle.instances("orders.import")[first].reason == reason
    assert lifecycle.content("orders", third) == "made"
    assert lifecycle.content("orders", first) is None
    context, wanted = context_of(lifecycle, RUNNING_ON), frozenset({Lifecycle.IMPORT})
    rows = list_instances(context, query_of(context, "orders", Kind.FEED, start=START, lifecycles=wanted)).instances
    assert [(row.name, row.lifecycle, row.status) for row in rows] == [
        ("orders.import", Lifecycle.IMPORT, status) for status in ("SKIPPED", "SKIPPED", "SUCCEEDED")
    ]


def test_with_history_each_due_instance_reads_it(tmp_path: Path) -> None:
    lifecycle = harness_of(tmp_path, history=True)
    lifecycle.launch(lifecycle.tick(RUNNING_ON), RUNNING_ON)
    assert set(lifecycle.statuses("orders.import").values()) == {SUCCEEDED}


def test_an_increment_by_window_is_read_when_its_period_is_over(tmp_path: Path) -> None:
    lifecycle = harness_of(tmp_path, type="incremental", delta_column="at")
    lifecycle.tick(RUNNING_ON)
    assert list(lifecycle.statuses("orders.import")) == hours(2)
    assert lifecycle.process("orders.import").delay == timedelta(hours=1)


def test_what_is_read_makes_a_release_and_how_it_is_read_does_not(tmp_path: Path) -> None:
    lifecycle = harness_of(tmp_path)
    before = lifecycle.process("orders.import")
    lifecycle.declare(SHOP, imported(consistent=False))
    assert lifecycle.process("orders.import").fingerprint == before.fingerprint
    lifecycle.declare(SHOP, imported(history=True))
    assert lifecycle.process("orders.import").fingerprint != before.fingerprint
