"""Runs on storages that never answer: what works there ends with a sentence, and all other work is done."""

from pathlib import Path

import pytest

from feed_assets.clock import Stopwatch
from feed_assets.entities.locations import overlaps
from feed_assets.log.records import FeedInstanceStatus, ProcessInstanceStatus
from feed_assets.log.removals.records import SweepState
from feed_assets.patience import Patience
from feed_assets.plan.copy_records import StoreAddress
from feed_assets.retention.errors import FeedsUnsweptError
from feed_assets.retention.sweeps.purging import purge_sweeps
from feed_assets.storage.errors import StorageError
from feed_assets.storage.pool import StorePool
from tests.instances.harness import START, at
from tests.replication.test_flows import FLOW, files, harness_of, pass_time, replicated
from tests.retention.harness import RetentionHarness, hourly, kept_feed
from tests.storage.hanging import LONGEST, hanging

SECONDS = 0.2
EXPIRED, YOUNG = hourly(START, 2), hourly(at("02"), 4)
HOUR = "${YEAR}-${MONTH}-${DAY}/${HOUR}"


def patient_stores() -> StorePool:
    return StorePool(patience=Patience(SECONDS))


def retention_of(folder: Path, *away: str) -> RetentionHarness:
    """Two hours of each feed have expired. The feeds `away` are on filesystems of their own; `clicks` is not."""
    feeds = [kept_feed(name, locations={"data": f"file://{folder}/{name}/{HOUR}"}) for name in away]
    harness = RetentionHarness.of(folder / "here", *feeds, kept_feed())
    harness.land("clicks", *EXPIRED, *YOUNG)
    for place in (folder / name / f"{time:%Y-%m-%d/%H}" for name in away for time in (*EXPIRED, *YOUNG)):
        place.mkdir(parents=True)
        (place / "part.csv").write_text("data")
    harness.arrive(at("04"))
    return harness


@pytest.fixture(autouse=True)
def roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlaps, "_PATIENCE", Patience(SECONDS))
    for name in ("here/primary", "aside", "beside", "copies/primary", "copies/backup", "copies/other"):
        (tmp_path / name).mkdir(parents=True)


def test_a_storage_is_opened_if_it_answers_whatever_it_answers(tmp_path: Path) -> None:
    stores = patient_stores()
    (tmp_path / "file").touch()
    silent, answering, wrong = (StoreAddress(url=f"file://{tmp_path}/{name}") for name in ("aside", "beside", "file"))
    watch = Stopwatch()
    with hanging(tmp_path / "aside"):
        for _ in range(3):
            with pytest.raises(StorageError) as caught:
                stores.get(silent)
        assert stores.get(answering).look(["2013"], None)
        assert stores.get(wrong).root_url == wrong.url
    assert watch.seconds < LONGEST
    assert str(caught.value) == (
        f"{silent.url}: it has not answered within 0.2 seconds. Check that it runs and can be reached; "
        "if it needs longer, raise the setting tick_patience."
    )


def test_a_plan_leaves_out_the_feed_whose_storage_hangs(tmp_path: Path) -> None:
    harness = retention_of(tmp_path, "aside")
    harness.lifecycle.stores = patient_stores()
    with hanging(tmp_path / "aside"):
        planned = harness.plan()
    (sweep,) = planned.sweeps
    assert [count.feed for count in sweep.counts] == ["clicks"]
    (left_out,) = [each.left_out for each in planned.feeds if each.left_out]
    assert left_out.startswith(f"file://{tmp_path}/aside: it has not answered within 0.2 seconds.")


def test_a_sweep_takes_what_answers_and_goes_on_with_the_rest_later(tmp_path: Path) -> None:
    harness = retention_of(tmp_path, "aside", "beside")
    sweep = harness.planned()
    before = harness.tree()
    with hanging(tmp_path / "aside"), hanging(tmp_path / "beside"):
        harness.lifecycle.stores = patient_stores()
        with pytest.raises(FeedsUnsweptError) as caught:
            harness.run(sweep)
    for feed in ("aside", "beside"):
        assert f"Feed '{feed}': file://{tmp_path}/{feed}: it has not answered" in str(caught.value)
    assert harness.sweep(sweep.sweep_id).state is SweepState.RUNNING
    assert harness.tree() != before
    assert {time for time, row in harness.rows().items() if row.status is FeedInstanceStatus.EVICTED} == set(EXPIRED)
    assert [chunk.holder for chunk in harness.chunks(sweep)] == [None] * 3

    harness.lifecycle.stores = patient_stores()
    done = harness.run(sweep)
    assert done.state is SweepState.DONE
    assert {count.feed: count.evicted for count in done.counts} == {"aside": 2, "beside": 2, "clicks": 2}


def test_the_trash_of_a_sweep_is_purged_whatever_another_storage_does(tmp_path: Path) -> None:
    harness = retention_of(tmp_path, "aside")
    sweeps = {feed: harness.run(harness.planned(feed)) for feed in ("clicks", "aside")}
    with hanging(tmp_path / "aside"):
        harness.lifecycle.stores = patient_stores()
        done = purge_sweeps(harness.context(), "primary", list(sweeps.values()))
    obstacles = {purged.sweep.sweep_id: purged.obstacle or "" for purged in done}
    assert obstacles[sweeps["clicks"].sweep_id] == ""
    assert f"file://{tmp_path}/aside: it has not answered" in obstacles[sweeps["aside"].sweep_id]
    states = {feed: harness.sweep(sweep.sweep_id).state for feed, sweep in sweeps.items()}
    assert states == {"clicks": SweepState.PURGED, "aside": SweepState.DONE}


def test_a_copy_to_a_storage_that_hangs_fails_and_the_other_target_gets_its_own(tmp_path: Path) -> None:
    lifecycle = harness_of(tmp_path / "copies", replicated(targets={"backup": {}, "other": {}}))
    lifecycle.land("clicks", START)
    lifecycle.arrive(at("01T00:05"))
    with hanging(tmp_path / "copies/backup"):
        lifecycle.stores = patient_stores()
        pass_time(lifecycle, at("01T00:05"), "backup", "other")
    row = lifecycle.instances(FLOW, "backup")[START]
    assert row.status is ProcessInstanceStatus.FAILED
    assert f"file://{tmp_path}/copies/backup: it has not answered within 0.2 seconds." in str(row.reason)
    assert not list((tmp_path / "copies/backup").iterdir())
    assert lifecycle.statuses(FLOW, "other") == {START: ProcessInstanceStatus.SUCCEEDED}
    assert files(lifecycle, START, "other") == files(lifecycle, START, "primary") != {}
