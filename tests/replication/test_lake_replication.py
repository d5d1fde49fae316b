"""The example of docs/iceberg.md: from a partition at the source to that of the target, and what becomes of both."""

from collections.abc import Mapping
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
from tests.lakes import BY_DAY, Lake, append
from tests.replication.copies import outcomes, repaired, status, verdicts
from tests.replication.test_flows import pass_time

FLOW = "clicks@new-york"


@pytest.fixture
def lakes(tmp_path: Path) -> Mapping[str, Lake]:
    """A catalog and a folder of each cluster; the table is only in that of the source."""
    folders = [(name, tmp_path / name) for name in ("new-york", "lake")]
    for _, folder in folders:
        folder.mkdir()
    found = {name: Lake(folder) for name, folder in folders}
    found["new-york"].make("clicks", BY_DAY)
    return found


@pytest.fixture
def lifecycle(lakes: Mapping[str, Lake], tmp_path: Path) -> LifecycleHarness:
    text = fences(ROOT / "docs/iceberg.md", "yaml")[1].replace("${DATA_ROOT}", str(tmp_path))
    text += "replication: {hidden: true}\n"
    loaded = load_files([EntityFile(name="clicks.yaml", content=text.encode())], Values(variables={}, environ={}))
    assert loaded.issues == ()
    return LifecycleHarness.of(tmp_path, *loaded.bundle.entities, clusters=(), stores=StorePool())


def land(lakes: Mapping[str, Lake], time: datetime, number: int) -> None:
    """A row in a partition of the source, as another program appends it."""
    append(lakes["new-york"].table("clicks"), {"at": time, "region": "eu", "n": number})


def test_files_that_delete_rows_are_never_copied_as_hidden_ones(lifecycle: LifecycleHarness) -> None:
    flow = lifecycle.plan.processes[FLOW, "lake"]
    assert not flow.copied.options.hidden


def test_rows_63_67_75_a_partition_is_copied_after_its_delay_and_late_rows_until_the_cut_off(
    lifecycle: LifecycleHarness, lakes: Mapping[str, Lake]
) -> None:
    land(lakes, START, 1)
    pass_time(lifecycle, START + timedelta(minutes=5))
    assert lifecycle.statuses(FLOW, "lake") == {}
    pass_time(lifecycle, START + timedelta(minutes=11))
    assert lifecycle.feed_statuses("clicks", "lake") == {START: FeedInstanceStatus.AVAILABLE}
    assert lakes["lake"].rows("clicks") == [1]
    (event,) = [event for event in lifecycle.events("clicks") if event.cluster == "lake"]
    assert event.kind is FeedEventKind.REPLICATED
    land(lakes, START, 2)
    as_of = at("02T05")
    assert lifecycle.look_for_late(as_of, "lake").verdicts == (LateVerdict.RERUN,)
    pass_time(lifecycle, as_of)
    assert lakes["lake"].rows("clicks") == [1, 2]
    lifecycle.look_for_late(at("04"), "lake")
    land(lakes, START, 3)
    lifecycle.look_for_late(at("05"), "lake")
    pass_time(lifecycle, at("05"))
    assert lakes["lake"].rows("clicks") == [1, 2]


def test_a_flipped_byte_and_a_deleted_partition_are_found_and_repaired(
    lifecycle: LifecycleHarness, lakes: Mapping[str, Lake]
) -> None:
    second, as_of = START + timedelta(days=1), at("02T01")
    assert set(verdicts(lifecycle, as_of, start=START).values()) == {CopyVerdict.WAITING}
    land(lakes, START, 1)
    land(lakes, second, 2)
    pass_time(lifecycle, as_of)
    assert verdicts(lifecycle, as_of, start=START) == {START: CopyVerdict.IN_SYNC, second: CopyVerdict.IN_SYNC}
    replica = lakes["lake"].table("clicks")
    (task,) = replica.scan(row_filter="n = 1").plan_files()
    file = Path(task.file.file_path.removeprefix("file://"))
    content = bytearray(file.read_bytes())
    content[10] ^= 1
    file.write_bytes(content)
    replica.delete("n = 2")
    assert verdicts(lifecycle, as_of, start=START)[START] is CopyVerdict.IN_SYNC
    told = verdicts(lifecycle, as_of, start=START, deep=True)
    assert told == {START: CopyVerdict.ROTTEN, second: CopyVerdict.MISSING}
    assert set(outcomes(repaired(lifecycle, as_of, start=START, deep=True)).values()) == {RepairOutcome.REPAIRED}
    assert lakes["lake"].rows("clicks") == [1, 2]
    assert [each.nominal_time for each in status(lifecycle, as_of, start=START).instances] == [START, second]
