"""The example of docs/replication.md in tables: from a partition at the source to that of the target, and what later
becomes of both.
"""

import itertools
import os
import re
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from feed_assets.instances.late.lateness import LateVerdict
from feed_assets.loading.bundles import load_files
from feed_assets.loading.entity_files import EntityFile, Values
from feed_assets.log.records import FeedEventKind, FeedInstanceStatus
from feed_assets.replication.auditing import CopyVerdict
from feed_assets.replication.repairing import RepairOutcome
from feed_assets.storage.pool import StorePool
from tests.documents.markdown import ROOT, fences
from tests.instances.harness import START, LifecycleHarness, at
from tests.replication.copies import outcomes, repaired, status, verdicts
from tests.replication.test_flows import pass_time
from tests.storage.harnesses import read_all
from tests.tables import Catalog

pytestmark = [pytest.mark.server, pytest.mark.spark]

FLOW = "clicks@new-york"
_numbers = itertools.count()


@pytest.fixture
def catalog(metastore_port: int) -> Catalog:
    """Both metastores of the example in one, as their databases have other names."""
    return Catalog(metastore_port)


@pytest.fixture
def lifecycle(catalog: Catalog, metastore_port: int, tmp_path: Path) -> LifecycleHarness:
    """The example, with the table of its source; the other one is still to be made."""
    number = f"{os.getpid()}_{next(_numbers)}"
    text = fences(ROOT / "docs/replication.md", "yaml")[1]
    text = re.sub(r"metastore-[a-z-]+:9083", f"127.0.0.1:{metastore_port}", text)
    text = text.replace("/data/", f"{tmp_path}/").replace(":clicks#", f"_{number}:clicks#")
    loaded = load_files([EntityFile(name="clicks.yaml", content=text.encode())], Values(variables={}, environ={}))
    assert loaded.issues == ()
    for name, cluster in (("web", "new-york"), ("archive", "lake")):
        catalog.make_database(f"{name}_{number}", tmp_path / cluster / name)
    catalog.make_table(f"web_{number}", "clicks", tmp_path / "new-york/clicks", [("ds", "string")])
    return LifecycleHarness.of(tmp_path, *loaded.bundle.entities, clusters=(), stores=StorePool())


def day_of(time: datetime) -> str:
    return f"ds={time:%Y-%m-%d}"


def land(lifecycle: LifecycleHarness, catalog: Catalog, time: datetime, name: str) -> None:
    """A file in a partition of the source, as another program lays it there."""
    record = lifecycle.feed("clicks", "new-york")
    assert record.table is not None
    table = catalog.find_table(record.table.database, "clicks")
    assert table is not None
    folder = lifecycle.root / "new-york/clicks" / day_of(time)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"{name}\n")
    catalog.add_partition(table, [f"{time:%Y-%m-%d}"], f"file:{folder}")


def names(lifecycle: LifecycleHarness, time: datetime) -> list[str]:
    record = lifecycle.feed("clicks", "lake")
    return sorted(read_all(lifecycle.stores.get(record.store), record.path(time)))


def test_rows_63_67_75_a_partition_is_copied_after_its_delay_and_late_files_until_the_cut_off(
    lifecycle: LifecycleHarness, catalog: Catalog
) -> None:
    land(lifecycle, catalog, START, "a")
    pass_time(lifecycle, START + timedelta(minutes=5))
    assert lifecycle.statuses(FLOW, "lake") == {}
    pass_time(lifecycle, START + timedelta(minutes=11))
    assert (names(lifecycle, START), lifecycle.feed_statuses("clicks", "lake")) == (
        ["a"],
        {START: FeedInstanceStatus.AVAILABLE},
    )
    (event,) = [event for event in lifecycle.events("clicks") if event.cluster == "lake"]
    assert event.kind is FeedEventKind.REPLICATED
    land(lifecycle, catalog, START, "late")
    as_of = at("02T05")
    assert lifecycle.look_for_late(as_of, "lake").verdicts == (LateVerdict.RERUN,)
    pass_time(lifecycle, as_of)
    assert names(lifecycle, START) == ["a", "late"]
    lifecycle.look_for_late(at("04"), "lake")
    land(lifecycle, catalog, START, "too-late")
    lifecycle.look_for_late(at("05"), "lake")
    pass_time(lifecycle, at("05"))
    assert names(lifecycle, START) == ["a", "late"]


def test_a_flipped_byte_and_a_dropped_partition_are_found_and_repaired(
    lifecycle: LifecycleHarness, catalog: Catalog
) -> None:
    second = START + timedelta(days=1)
    as_of = at("02T01")
    assert set(verdicts(lifecycle, as_of, start=START).values()) == {CopyVerdict.WAITING}
    for time in (START, second):
        land(lifecycle, catalog, time, "a")
    pass_time(lifecycle, as_of)
    assert verdicts(lifecycle, as_of, start=START) == {START: CopyVerdict.IN_SYNC, second: CopyVerdict.IN_SYNC}
    record = lifecycle.feed("clicks", "lake")
    store = lifecycle.stores.get(record.store)
    place = store.place(record.path(START))
    folder = place.store.local_path(place.path)
    assert folder is not None
    (folder / "a").write_text("b\n")
    assert record.table is not None
    table = catalog.find_table(record.table.database, "clicks")
    assert table is not None
    catalog.drop_partitions(table, catalog.find_partitions(table, [day_of(second)]))
    assert verdicts(lifecycle, as_of, start=START)[START] is CopyVerdict.IN_SYNC
    told = verdicts(lifecycle, as_of, start=START, deep=True)
    assert told == {START: CopyVerdict.ROTTEN, second: CopyVerdict.MISSING}
    assert set(outcomes(repaired(lifecycle, as_of, start=START, deep=True)).values()) == {RepairOutcome.REPAIRED}
    assert (names(lifecycle, START), names(lifecycle, second)) == (["a"], ["a"])
    assert [each.nominal_time for each in status(lifecycle, as_of, start=START).instances] == [START, second]
