"""Producers that tell what they have delivered."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from feed_assets.entities.errors import EntityNotFoundError
from feed_assets.json_form import render_document
from feed_assets.operations.errors import ArrivalRefusedError, InstanceQueryError
from feed_assets.operations.instances.arrival_notices import Notice, NoticeOutcome, NoticeResult, record_notice
from feed_assets.state.records import FeedEventKind, FeedInstanceStatus, ProcessInstanceStatus
from feed_assets.timing.errors import InstanceError
from tests.lifecycle.world import START, World, at, feed, process
from tests.operations.contexts import context_of, counting_world

NOON = at("01T12:00")
HOUR = timedelta(hours=1)


def notify(
    world: World, name: str = "clicks", when: datetime = START, dry_run: bool = False, **more: Any
) -> NoticeResult:
    notice = Notice(feed=name, nominal_time=when, **{"author": "ann", **more})
    return record_notice(context_of(world, NOON), notice, dry_run=dry_run)


def landed(root: Path, state: str | None = None) -> World:
    world = counting_world(root, state)
    world.land("clicks", START, text="data")
    world.flag("clicks", START)
    return world


def test_a_notice_records_an_arrival_and_opens_the_gates_of_those_who_wait(tmp_path: Path, state_url: str) -> None:
    world = landed(tmp_path, state_url)
    world.ready(NOON)
    result = notify(world)
    assert (result.outcome, result.bytes, result.files) == (NoticeOutcome.RECORDED, 4, 1)
    assert world.feed_statuses("clicks") == {START: FeedInstanceStatus.AVAILABLE}
    (event,) = world.events("clicks")
    assert (event.kind, event.origin) == (FeedEventKind.ARRIVED, "notice:ann")
    assert world.ready(NOON).ready == 1
    assert world.statuses("count")[START] is ProcessInstanceStatus.READY


def test_what_was_told_is_not_looked_for_again(tmp_path: Path) -> None:
    world = landed(tmp_path)
    notify(world)
    world.arrive(NOON)
    assert len(world.events("clicks")) == 1
    assert world.next_poll("clicks", START) is None


def test_a_second_notice_does_nothing(tmp_path: Path, state_url: str) -> None:
    world = landed(tmp_path, state_url)
    for key in (None, "k1", "k1"):
        notify(world, key=key)
    assert notify(world, key="k1").outcome is NoticeOutcome.KNOWN
    assert notify(world).outcome is NoticeOutcome.KNOWN
    assert len(world.events("clicks")) == 1


def test_a_notice_repeats_itself_by_its_key_also_when_the_data_are_gone(tmp_path: Path) -> None:
    world = landed(tmp_path)
    assert notify(world, key="k1").outcome is NoticeOutcome.RECORDED
    for file in world.folder("clicks", START).iterdir():
        file.unlink()
    assert notify(world, key="k1").outcome is NoticeOutcome.KNOWN


def test_a_key_is_for_one_instance(tmp_path: Path) -> None:
    world = landed(tmp_path)
    world.land("clicks", START + HOUR)
    world.flag("clicks", START + HOUR)
    notify(world, key="k1")
    with pytest.raises(
        ArrivalRefusedError, match=r"the key 'k1' was that of feed 'clicks' on primary at 2013-11-01T00"
    ):
        notify(world, when=START + HOUR, key="k1")


def test_a_notice_of_what_is_not_there_or_not_whole_is_refused(tmp_path: Path) -> None:
    world = counting_world(tmp_path)
    with pytest.raises(
        ArrivalRefusedError, match=r"file://.*/clicks/2013-11-01/00-00 does not exist\. Give notice when"
    ):
        notify(world)
    world.land("clicks", START)
    with pytest.raises(ArrivalRefusedError, match="has no _SUCCESS yet"):
        notify(world)
    world.land("weather", START, text="")
    with pytest.raises(ArrivalRefusedError, match="is empty"):
        notify(world, "weather")
    assert world.events() == []


def test_a_producer_that_is_trusted_is_believed(tmp_path: Path) -> None:
    world = counting_world(tmp_path)
    result = notify(world, is_trusted=True, bytes=17)
    assert (result.outcome, result.bytes, result.files) == (NoticeOutcome.RECORDED, 17, None)
    (event,) = world.events("clicks")
    assert (event.bytes, event.files, event.manifest_digest) == (17, None, None)
    assert event.payload["trusted"] is True


def test_what_a_notice_says_of_path_and_size_is_held_against_what_is_there(tmp_path: Path) -> None:
    world = landed(tmp_path)
    with pytest.raises(ArrivalRefusedError, match=r"its data belong to clicks/2013-11-01/00-00, not to /clicks/other"):
        notify(world, path="/clicks/other")
    with pytest.raises(ArrivalRefusedError, match="has 4 bytes, not 5"):
        notify(world, bytes=5)
    url = f"file://{tmp_path}/primary/clicks/2013-11-01/00-00/"
    (tmp_path / "link").symlink_to(tmp_path)
    for same in (
        url,
        f"file://localhost{tmp_path}/./link/primary/clicks/2013-11-01/00-00",
        url.removeprefix("file://"),
    ):
        assert notify(world, path=same, bytes=4, dry_run=True).outcome is NoticeOutcome.RECORDED
    assert notify(world, path="/clicks/2013-11-01/00-00", bytes=4).outcome is NoticeOutcome.RECORDED


def test_a_dry_run_records_nothing(tmp_path: Path) -> None:
    world = landed(tmp_path)
    assert notify(world, dry_run=True).render().endswith("would be recorded, 4 bytes in 1 file")
    assert world.events() == []


def test_what_is_no_instance_or_not_yet_one_or_made_here_is_refused(tmp_path: Path) -> None:
    world = counting_world(tmp_path)
    with pytest.raises(
        InstanceError, match=r"2013-10-31T23:00Z: it is outside the validity\. Instances are every hours"
    ):
        notify(world, when=START - HOUR)
    with pytest.raises(InstanceError, match="between two instances"):
        notify(world, when=START + HOUR / 2)
    with pytest.raises(ArrivalRefusedError, match="its nominal time is in the future"):
        notify(world, when=NOON + HOUR)
    with pytest.raises(
        ArrivalRefusedError, match=r"process 'count' writes it\. Run that with: feed-assets instance rerun"
    ):
        notify(world, "counts")
    with pytest.raises(EntityNotFoundError, match="clicks"):
        notify(world, "cliks")
    with pytest.raises(InstanceQueryError, match="not on cluster 'backup'"):
        notify(world, cluster="backup")


def test_where_a_feed_arrives_on_several_clusters_one_must_be_named(tmp_path: Path) -> None:
    clusters = ("backup", "primary")
    world = World.of(tmp_path, feed("clicks", clusters=clusters), clusters=clusters)
    world.land("clicks", START, cluster="backup")
    with pytest.raises(ArrivalRefusedError, match=r"it arrives on backup, primary\. Choose one with --cluster"):
        notify(world)
    assert notify(world, cluster="backup").cluster == "backup"


def test_on_a_cluster_where_a_process_makes_the_feed_it_does_not_arrive(tmp_path: Path) -> None:
    clusters = ("backup", "primary")
    maker = process("make", outputs={"clicks": "now(0,0)"}, clusters=("backup",))
    world = World.of(tmp_path, feed("clicks", clusters=clusters), maker, clusters=clusters)
    world.land("clicks", START)
    assert notify(world).cluster == "primary"


def test_a_result_has_a_line_and_a_json_form(tmp_path: Path) -> None:
    world = landed(tmp_path)
    result = notify(world)
    assert result.render() == "feed 'clicks' on primary at 2013-11-01T00:00Z: recorded, 4 bytes in 1 file"
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
