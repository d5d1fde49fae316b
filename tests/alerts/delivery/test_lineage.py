"""What receivers of OpenLineage are told of attempts: by HTTP and into a file, each begin and end once."""

import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from feed_assets.alerts.delivery.notifier import ReceiverDesk
from feed_assets.alerts.delivery.receivers import read_receivers
from feed_assets.clock import FrozenClock
from feed_assets.engines.port import Work
from feed_assets.instances.gates.actions import InstanceAction, apply_action
from feed_assets.log.messages.outbox import Outbox
from feed_assets.masking import remember_unnamed
from feed_assets.receivers import Topic
from feed_assets.settings import Settings, load_settings
from tests.alerts.delivery.openlineage import check_event
from tests.alerts.delivery.samples import begin, deliver_on
from tests.instances.harness import START, LifecycleHarness, feed, process
from tests.receivers import Receiver

SOON = START + timedelta(minutes=5)
SCHEMA = "user string COMMENT 'who', n long"


def settings_of(url: str, **more: Any) -> Settings:
    return load_settings({"notify": {"catalogue": {"url": url, **more}}}, environ={}, start=None)


def harness_of(tmp_path: Path, state: str | None = None, **more: Any) -> LifecycleHarness:
    """A process that reads clicks of two hours, and writes counts."""
    clicks = feed("clicks", columns=SCHEMA, tags={"team": "web"}, acl={"owner": "ann"}, description="What people click")
    window = {"inputs": {"clicks": "now(-1,0) now(0,0)"}, "outputs": {"counts": "now(0,0)"}}
    work = process("daily", start=START + timedelta(hours=1), acl={"owner": "bob"}, **window, **more)
    lifecycle = LifecycleHarness.of(tmp_path, clicks, feed("counts"), work, state=state)
    lifecycle.database.tells_lineage = True
    return lifecycle


def run(lifecycle: LifecycleHarness, run_id: str = "run-1", minutes: int = 5) -> None:
    hour = START + timedelta(hours=1)
    lifecycle.land("clicks", START, hour)
    lifecycle.tick(hour)
    lifecycle.run("daily", hour, hour + timedelta(minutes=minutes), run_id)


def catalogue(lifecycle: LifecycleHarness, url: str, **more: Any) -> Any:
    """The receiver, from now on."""
    (found,) = read_receivers(settings_of(url, **more), lifecycle.plan).usable.values()
    begin(lifecycle.database, found, clock=FrozenClock(START))
    return found


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [check_event(json.loads(line)) for line in file.read_text().splitlines()]


def test_an_attempt_is_told_by_http_with_what_it_read_and_wrote(tmp_path: Path, receiver: Receiver) -> None:
    lifecycle, run_id = harness_of(tmp_path), str(uuid4())
    url = f"openlineage+http://127.0.0.1:{receiver.port}/api/v1/lineage"
    way = catalogue(lifecycle, url, secret="a-key-of-the-catalogue")
    run(lifecycle, run_id)
    done = deliver_on(lifecycle.database, way, FrozenClock(START))
    assert (done.delivered, done.error) == (2, None)
    assert {(post.path, post.headers["Authorization"]) for post in receiver.posts} == {
        ("/api/v1/lineage", "Bearer a-key-of-the-catalogue")
    }
    begun, ended = map(check_event, receiver.taken)
    assert (begun["eventType"], begun["eventTime"]) == ("START", "2013-11-01T01:05:00+00:00")
    assert (ended["eventType"], ended["run"]["runId"]) == ("COMPLETE", begun["run"]["runId"])
    assert ended["run"]["facets"]["nominalTime"]["nominalStartTime"] == "2013-11-01T01:00:00+00:00"
    assert ended["run"]["facets"]["parent"]["run"]["runId"] == run_id
    assert (ended["job"]["namespace"], ended["job"]["name"]) == ("feed-assets/default", "primary.daily")
    assert ended["job"]["facets"]["ownership"]["owners"] == [{"name": "bob"}]
    (read,), (written,) = ended["inputs"], ended["outputs"]
    root = f"{tmp_path}/primary"
    assert (read["namespace"], read["name"]) == (
        "file",
        f"{root}/clicks",
    )
    assert read["inputFacets"]["subset"]["inputCondition"]["locations"] == [
        f"file://{root}/clicks/2013-11-01/{hour}-00" for hour in ("00", "01")
    ]
    assert read["facets"]["schema"]["fields"] == [
        {"name": "user", "type": "string", "description": "who", "fields": []},
        {"name": "n", "type": "bigint", "fields": []},
    ]
    assert read["facets"]["tags"]["tags"] == [{"key": "team", "value": "web", "source": "FEED_ASSETS"}]
    assert read["facets"]["documentation"]["description"] == "What people click"
    assert written["facets"]["lifecycleStateChange"]["lifecycleStateChange"] == "CREATE"
    figures = written["outputFacets"]["outputStatistics"]
    assert (figures["rowCount"], figures["fileCount"], figures["size"]) == (1, 1, 4)


def test_a_second_attempt_overwrites_and_has_another_run(tmp_path: Path) -> None:
    lifecycle, file = harness_of(tmp_path), tmp_path / "lineage.ndjson"
    way = catalogue(lifecycle, f"openlineage+file://{file}")
    run(lifecycle)
    lifecycle.run("daily", START + timedelta(hours=1), START + timedelta(hours=2))
    assert deliver_on(lifecycle.database, way, FrozenClock(START)).delivered == 4
    events = lines_of(file)
    assert [each["eventType"] for each in events] == ["START", "COMPLETE"] * 2
    assert len({each["run"]["runId"] for each in events}) == 2
    changes = [each["outputs"][0]["facets"].get("lifecycleStateChange", {}) for each in events]
    assert [each.get("lifecycleStateChange") for each in changes] == [None, "CREATE", None, "OVERWRITE"]


@pytest.mark.both_databases
def test_a_failure_and_a_kill_are_told_without_secrets(tmp_path: Path, state_url: str) -> None:
    lifecycle, file = harness_of(tmp_path, state_url), tmp_path / "lineage.ndjson"
    remember_unnamed("correct-horse-battery")

    def fail(_: Work) -> Mapping[str, str]:
        raise ValueError("no access with correct-horse-battery")

    way = catalogue(lifecycle, f"openlineage+file://{file}")
    lifecycle.job = fail
    with suppress(Exception):
        run(lifecycle)

    def kill(work: Work) -> Mapping[str, str]:
        key = ("daily", "primary", START + timedelta(hours=1))
        apply_action(lifecycle.database, lifecycle.timeline, InstanceAction.KILL, [key], author="ann", as_of=SOON)
        return {target.name: "made" for target in work.outputs}

    lifecycle.job = kill
    with suppress(Exception):
        lifecycle.run("daily", START + timedelta(hours=1), START + timedelta(hours=2))
    deliver_on(lifecycle.database, way, FrozenClock(START))
    events = lines_of(file)
    assert [each["eventType"] for each in events] == ["START", "FAIL", "START", "ABORT"]
    assert events[1]["run"]["facets"]["errorMessage"]["programmingLanguage"] == "PYTHON"
    assert "no access with" in events[1]["run"]["facets"]["errorMessage"]["message"]
    assert "correct-horse-battery" not in file.read_text()
    assert [len(each["outputs"]) for each in events] == [1, 1, 1, 1]


def test_nothing_is_written_for_lineage_unless_a_receiver_gets_it(tmp_path: Path) -> None:
    lifecycle = harness_of(tmp_path)
    lifecycle.database.tells_lineage = False
    run(lifecycle)
    with lifecycle.database.read() as connection:
        assert Outbox(connection).count(0, Topic.LINEAGE) == 0
        assert Outbox(connection).count(0) > 0
    assert settings_of("openlineage+file:///tmp/x").tells_lineage
    assert not settings_of("https://example.org/x").tells_lineage


def test_a_receiver_of_lineage_is_tried_with_an_event_that_says_so(tmp_path: Path) -> None:
    lifecycle, file = harness_of(tmp_path), tmp_path / "lineage.ndjson"
    settings = settings_of(f"openlineage+file://{file}")
    desk = ReceiverDesk(settings=settings, database=lifecycle.database, plan=lifecycle.plan, clock=FrozenClock(START))
    assert [each.verdict for each in desk.test("catalogue")] == ["delivered"]
    (event,) = lines_of(file)
    assert "nothing has happened" in event["job"]["facets"]["documentation"]["description"]
    remember = "openlineage+https://ann:a-pass-word@catalogue.example.org/api/T0123456789AB/lineage"
    assert catalogue(lifecycle, remember).shown_address == "openlineage+https://catalogue.example.org/…"
    (listed,) = desk.receivers()
    assert (listed.of and listed.of.shown_address, listed.choice) == (f"openlineage+file://{file}", "lineage")


@pytest.mark.parametrize(
    ("rest", "kept"), [("", ""), ('{"eventT', ""), ('{"eventTime":"2013', ""), ("a note", "a note\n")]
)
def test_what_a_kill_has_left_of_an_event_is_removed(tmp_path: Path, rest: str, kept: str) -> None:
    lifecycle, file = harness_of(tmp_path), tmp_path / "lineage.ndjson"
    way = catalogue(lifecycle, f"openlineage+file://{file}")
    file.write_text('{"eventTime":1}\n' + rest)
    run(lifecycle)
    assert deliver_on(lifecycle.database, way, FrozenClock(START)).delivered == 2
    before, _, told = file.read_text().partition("\n")
    assert before == '{"eventTime":1}'
    assert told.startswith(kept)
    assert [json.loads(line)["eventType"] for line in told.removeprefix(kept).splitlines()] == ["START", "COMPLETE"]
