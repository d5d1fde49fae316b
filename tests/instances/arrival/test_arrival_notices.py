"""Producers that tell what they have delivered."""

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete

from feed_assets.context.errors import ArrivalRefusedError, InstanceQueryError
from feed_assets.entities.errors import EntityNotFoundError
from feed_assets.instances.arrival.arrival_notices import Notice, NoticeOutcome, NoticeResult, record_notice
from feed_assets.json_form import render_document
from feed_assets.log.audit import Audit
from feed_assets.log.instances.feed_places import FeedPlaces
from feed_assets.log.instances.tables import feed_places
from feed_assets.log.records import FeedEventKind, FeedInstanceStatus, ProcessInstanceStatus
from feed_assets.timing.errors import InstanceError
from tests.context.contexts import context_of, counting_harness
from tests.instances.harness import START, LifecycleHarness, at, feed, process
from tests.replication.test_flows import replicated

NOON = at("01T12:00")
HOUR = timedelta(hours=1)


def notify(
    lifecycle: LifecycleHarness,
    name: str = "clicks",
    when: datetime = START,
    dry_run: bool = False,
    author: str = "ann",
    **more: Any,
) -> NoticeResult:
    notice = Notice(feed=name, nominal_time=when, **more)
    return record_notice(context_of(lifecycle, NOON).by(author, dry_run=dry_run), notice)


def landed(root: Path, state: str | None = None) -> LifecycleHarness:
    lifecycle = counting_harness(root, state)
    lifecycle.land("clicks", START, text="data")
    lifecycle.flag("clicks", START)
    return lifecycle


def test_a_notice_records_an_arrival_and_opens_the_gates_of_those_who_wait(tmp_path: Path, state_url: str) -> None:
    lifecycle = landed(tmp_path, state_url)
    lifecycle.ready(NOON)
    result = notify(lifecycle)
    assert (result.outcome, result.bytes, result.files) == (NoticeOutcome.RECORDED, 4, 1)
    assert lifecycle.feed_statuses("clicks") == {START: FeedInstanceStatus.AVAILABLE}
    (event,) = lifecycle.events("clicks")
    assert (event.kind, event.origin) == (FeedEventKind.ARRIVED, "notice:ann")
    assert lifecycle.ready(NOON).ready == 1
    assert lifecycle.statuses("count")[START] is ProcessInstanceStatus.READY


def test_a_notice_before_the_first_tick_says_where_the_instance_is(tmp_path: Path, state_url: str) -> None:
    lifecycle = landed(tmp_path, state_url)
    with lifecycle.database.begin() as connection:
        known = FeedPlaces(connection).all()
        connection.execute(delete(feed_places))
    notify(lifecycle)
    with lifecycle.database.read() as connection:
        assert set(FeedPlaces(connection).all()) == {place for place in known if place[0] == "clicks"} != set()


def test_what_was_told_is_not_looked_for_again(tmp_path: Path) -> None:
    lifecycle = landed(tmp_path)
    notify(lifecycle)
    lifecycle.arrive(NOON)
    assert len(lifecycle.events("clicks")) == 1
    assert lifecycle.next_poll("clicks", START) is None


def test_a_second_notice_does_nothing(tmp_path: Path, state_url: str) -> None:
    lifecycle = landed(tmp_path, state_url)
    for key in (None, "k1", "k1"):
        notify(lifecycle, key=key)
    assert notify(lifecycle, key="k1").outcome is NoticeOutcome.KNOWN
    assert notify(lifecycle).outcome is NoticeOutcome.KNOWN
    assert len(lifecycle.events("clicks")) == 1


def test_a_notice_repeats_itself_by_its_key_also_when_the_data_are_gone(tmp_path: Path) -> None:
    lifecycle = landed(tmp_path)
    assert notify(lifecycle, key="k1").outcome is NoticeOutcome.RECORDED
    for file in lifecycle.folder("clicks", START).iterdir():
        file.unlink()
    assert notify(lifecycle, key="k1").outcome is NoticeOutcome.RECORDED
    with pytest.raises(ArrivalRefusedError, match="'k1' was that of a notice with another payload or marking"):
        notify(lifecycle, key="k1", marking="m")
    lifecycle.land("clicks", START, text="other content")
    lifecycle.flag("clicks", START)
    for _ in range(2):
        assert notify(lifecycle, key="k2", is_again=True).outcome is NoticeOutcome.CHANGED
    assert len(lifecycle.events("clicks")) == 2


def test_of_notices_at_once_with_one_key_one_is_recorded_and_all_are_answered_alike(
    tmp_path: Path, state_url: str
) -> None:
    lifecycle = landed(tmp_path, state_url)
    for key, outcome in (("k1", NoticeOutcome.RECORDED), ("k2", NoticeOutcome.CHANGED)):
        is_again = outcome is NoticeOutcome.CHANGED
        with ThreadPoolExecutor(8) as pool:
            told = [pool.submit(notify, lifecycle, key=key, is_again=is_again) for _ in range(8)]
        assert {(each.result().outcome, each.result().bytes) for each in told} == {(outcome, 17 if is_again else 4)}
        lifecycle.land("clicks", START, text="other content")
    assert [each.kind for each in lifecycle.events("clicks")] == [FeedEventKind.ARRIVED, FeedEventKind.CHANGED]
    with lifecycle.database.read() as connection:
        assert sum(each.action == "feed notify" for each in Audit(connection).newest(10)) == 2


def test_a_key_is_for_one_instance(tmp_path: Path) -> None:
    lifecycle = landed(tmp_path)
    lifecycle.land("clicks", START + HOUR)
    lifecycle.flag("clicks", START + HOUR)
    notify(lifecycle, key="k1")
    with pytest.raises(
        ArrivalRefusedError, match=r"the key 'k1' was that of feed 'clicks' on primary at 2013-11-01T00"
    ):
        notify(lifecycle, when=START + HOUR, key="k1")


def test_a_notice_of_what_is_not_there_or_not_whole_is_refused(tmp_path: Path) -> None:
    lifecycle = counting_harness(tmp_path)
    with pytest.raises(
        ArrivalRefusedError, match=r"file://.*/clicks/2013-11-01/00-00 does not exist\. Give notice when"
    ):
        notify(lifecycle)
    lifecycle.land("clicks", START)
    with pytest.raises(ArrivalRefusedError, match="has no _SUCCESS yet"):
        notify(lifecycle)
    lifecycle.land("weather", START, text="")
    with pytest.raises(ArrivalRefusedError, match="is empty"):
        notify(lifecycle, "weather")
    assert lifecycle.events() == []


def test_a_producer_that_is_trusted_is_believed(tmp_path: Path) -> None:
    lifecycle = counting_harness(tmp_path)
    result = notify(lifecycle, is_trusted=True, bytes=17)
    assert (result.outcome, result.bytes, result.files) == (NoticeOutcome.RECORDED, 17, None)
    (event,) = lifecycle.events("clicks")
    assert (event.bytes, event.files, event.manifest_digest) == (17, None, None)
    assert event.payload["trusted"] is True


def test_what_a_notice_says_of_path_and_size_is_held_against_what_is_there(tmp_path: Path) -> None:
    lifecycle = landed(tmp_path)
    with pytest.raises(ArrivalRefusedError, match=r"its data belong to clicks/2013-11-01/00-00, not to /clicks/other"):
        notify(lifecycle, path="/clicks/other")
    with pytest.raises(ArrivalRefusedError, match="has 4 bytes, not 5"):
        notify(lifecycle, bytes=5)
    url = f"file://{tmp_path}/primary/clicks/2013-11-01/00-00/"
    (tmp_path / "link").symlink_to(tmp_path)
    for same in (
        url,
        f"file://localhost{tmp_path}/./link/primary/clicks/2013-11-01/00-00",
        url.removeprefix("file://"),
    ):
        assert notify(lifecycle, path=same, bytes=4, dry_run=True).outcome is NoticeOutcome.RECORDED
    assert notify(lifecycle, path="/clicks/2013-11-01/00-00", bytes=4).outcome is NoticeOutcome.RECORDED


def test_a_dry_run_records_nothing(tmp_path: Path) -> None:
    lifecycle = landed(tmp_path)
    assert notify(lifecycle, dry_run=True).told.endswith("would be recorded, 4 bytes in 1 file")
    assert lifecycle.events() == []


def test_what_is_no_instance_or_not_yet_one_or_made_here_is_refused(tmp_path: Path) -> None:
    lifecycle = counting_harness(tmp_path)
    with pytest.raises(
        InstanceError, match=r"2013-10-31T23:00Z: it is outside the validity\. Instances are every hours"
    ):
        notify(lifecycle, when=START - HOUR)
    with pytest.raises(InstanceError, match="between two instances"):
        notify(lifecycle, when=START + HOUR / 2)
    with pytest.raises(ArrivalRefusedError, match="its nominal time is in the future"):
        notify(lifecycle, when=NOON + HOUR)
    with pytest.raises(ArrivalRefusedError, match=r"process 'count' writes it\. Run that: feed-assets instance rerun"):
        notify(lifecycle, "counts")
    with pytest.raises(EntityNotFoundError, match="clicks"):
        notify(lifecycle, "cliks")
    with pytest.raises(InstanceQueryError, match="not on cluster 'backup'"):
        notify(lifecycle, cluster="backup")


def test_where_a_feed_arrives_on_several_clusters_one_must_be_named(tmp_path: Path) -> None:
    clusters = ("backup", "primary")
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks", clusters=clusters), clusters=clusters)
    lifecycle.land("clicks", START, cluster="backup")
    with pytest.raises(
        ArrivalRefusedError,
        match=r"it arrives on backup, primary\. Choose one: feed-assets feed notify \w+ \S+ --cluster backup",
    ):
        notify(lifecycle)
    assert notify(lifecycle, cluster="backup").cluster == "backup"


def test_a_feed_that_is_written_and_copied_names_its_writer(tmp_path: Path) -> None:
    clusters = ("backup", "primary")
    maker = process("count", outputs={"clicks": "now(0,0)"})
    lifecycle = LifecycleHarness.of(tmp_path, replicated(), maker, clusters=clusters)
    told = r"on primary at .*process 'count' writes it\. Run that: feed-assets instance rerun count --instance"
    with pytest.raises(ArrivalRefusedError, match=told):
        notify(lifecycle)


def test_on_a_cluster_where_a_process_makes_the_feed_it_does_not_arrive(tmp_path: Path) -> None:
    clusters = ("backup", "primary")
    maker = process("make", outputs={"clicks": "now(0,0)"}, clusters=("backup",))
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks", clusters=clusters), maker, clusters=clusters)
    lifecycle.land("clicks", START)
    assert notify(lifecycle).cluster == "primary"


def test_a_result_has_a_line_and_a_json_form(tmp_path: Path) -> None:
    lifecycle = landed(tmp_path)
    result = notify(lifecycle)
    assert result.told == "feed 'clicks' on primary at 2013-11-01T00:00Z: recorded, 4 bytes in 1 file"
    assert render_document(result) == {
        "version": 2,
        "feed": "clicks",
        "cluster": "primary",
        "nominal_time": "2013-11-01T00:00Z",
        "outcome": "recorded",
        "url": f"file://{tmp_path}/primary/clicks/2013-11-01/00-00",
        "bytes": 4,
        "files": 1,
        "dry_run": False,
    }


def test_a_notice_of_a_known_arrival_tells_no_other_size(tmp_path: Path) -> None:
    lifecycle = landed(tmp_path)
    notify(lifecycle, key="k1")
    assert notify(lifecycle, bytes=4).outcome is NoticeOutcome.KNOWN
    for more in ({}, {"key": "k1"}, {"is_trusted": True}):
        with pytest.raises(ArrivalRefusedError, match=r"it has arrived with 4 bytes, not 99\. .* --bytes 99 .*--again"):
            notify(lifecycle, bytes=99, **more)
