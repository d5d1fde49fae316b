"""What receivers of OpenLineage are told of attempts: by HTTP and into a file, each begin and end once."""

import json
import os
import random
import shutil
from base64 import b64encode
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from time import sleep
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from openlineage.client.naming import dataset

from feed_assets.alerts.delivery import senders
from feed_assets.alerts.delivery.dataset_names import name_feed, name_path
from feed_assets.alerts.delivery.lineage_events import LineageEvents
from feed_assets.alerts.delivery.notifier import ReceiverDesk
from feed_assets.alerts.delivery.receivers import read_receivers
from feed_assets.alerts.delivery.rounds import find_due
from feed_assets.clock import FrozenClock
from feed_assets.engines.port import Work
from feed_assets.entities.content.column_lineage import ColumnLineage, ColumnSource, SourceKind
from feed_assets.entities.maps import FrozenMap
from feed_assets.instances.gates.actions import InstanceAction, apply_action
from feed_assets.instances.gates.reconciliation import RunState, apply_reconciliation, find_launched
from feed_assets.instances.leasing import TTL
from feed_assets.log.instances.attempts import Attempts
from feed_assets.log.messages.outbox import Outbox
from feed_assets.log.records import ProcessInstanceStatus, ProcessKey
from feed_assets.masking import remember_unnamed
from feed_assets.plan.copy_records import StoreAddress
from feed_assets.plan.records import TableRecord
from feed_assets.receivers import Topic
from feed_assets.retention.sweeps.sweeping import begin_sweep
from feed_assets.settings import Settings, load_settings
from tests.alerts.delivery.openlineage import check_event
from tests.alerts.delivery.samples import SetClock, begin, deliver_on
from tests.alerts.delivery.test_killed import wait_until
from tests.drills import drill_seed, sized
from tests.instances.attempts import test_quality as quality
from tests.instances.harness import START, LifecycleHarness, at, feed, hours, process
from tests.processes import PROCESSES
from tests.receivers import Post, Receiver
from tests.replication import test_flows as flows
from tests.retention.harness import RetentionHarness

SOON = START + timedelta(minutes=5)
ROUNDS = sized(2, 100)
SCHEMA = "user string COMMENT 'who', n long"


def settings_of(url: str, **more: Any) -> Settings:
    return load_settings({"notify": {"catalogue": {"url": url, **more}}}, environ={}, start=None)


def harness_of(tmp_path: Path, state: str | None = None, **more: Any) -> LifecycleHarness:
    """A process that reads clicks of two hours, and writes counts."""
    clicks = feed("clicks", ddl=SCHEMA, tags={"team": "web"}, acl={"owner": "ann"}, description="What people click")
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


def runs_of(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for each in map(check_event, events) if "run" in each]


def test_an_attempt_is_told_by_http_with_what_it_read_and_wrote(tmp_path: Path, receiver: Receiver) -> None:
    lifecycle, run_id = harness_of(tmp_path), str(uuid4())
    url = f"openlineage+http://127.0.0.1:{receiver.port}/api/v1/lineage"
    way = catalogue(lifecycle, url, secret="a-key-of-the-catalogue")
    run(lifecycle, run_id)
    done = deliver_on(lifecycle.database, way, FrozenClock(START))
    assert (done.delivered, done.error) == (4, None)
    assert {(post.path, post.headers["Authorization"]) for post in receiver.posts} == {
        ("/api/v1/lineage", "Bearer a-key-of-the-catalogue")
    }
    begun, ended = runs_of(receiver.taken)
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
        {"name": "user", "type": "string", "description": "who"},
        {"name": "n", "type": "bigint", "description": ""},
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
    deliver_on(lifecycle.database, way, FrozenClock(START))
    events = runs_of(lines_of(file))
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
        apply_action(lifecycle.context(SOON).by("ann"), InstanceAction.KILL, [key])
        return {target.name: "made" for target in work.outputs}

    lifecycle.job = kill
    with suppress(Exception):
        lifecycle.run("daily", START + timedelta(hours=1), START + timedelta(hours=2))
    deliver_on(lifecycle.database, way, FrozenClock(START))
    events = runs_of(lines_of(file))
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
        assert Outbox(connection).count(0, 1, Topic.LINEAGE) == 0
        assert Outbox(connection).count(0, 1) > 0
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


@pytest.mark.parametrize("rest", ["", '{"eventT', '{"dataset":{"facets":', "\0\0", '{"eventTime":"' + "x" * 200_000])
def test_what_a_kill_has_left_of_an_event_is_removed(tmp_path: Path, rest: str) -> None:
    file = tmp_path / "lineage.ndjson"
    file.write_text('{"eventTime":1}\n' + rest)
    senders.append_line(str(file), b'{"eventTime":2}')
    assert file.read_text() == '{"eventTime":1}\n{"eventTime":2}\n'


def test_the_name_of_a_new_file_is_on_the_disk_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda number: synced.append(os.fstat(number).st_ino))
    for _ in range(2):
        senders.append_line(str(tmp_path / "lineage.ndjson"), b"{}")
    assert synced == [tmp_path.stat().st_ino]


def test_what_has_no_whole_line_is_removed_only_if_it_is_an_event(tmp_path: Path) -> None:
    torn, other = tmp_path / "lineage.ndjson", tmp_path / "notes.txt"
    torn.write_text('{"run":')
    senders.append_line(str(torn), b"{}")
    assert torn.read_text() == "{}\n"
    other.write_text("a note")
    with pytest.raises(OSError, match="something else than events"):
        senders.append_line(str(other), b"{}")
    assert other.read_text() == "a note"


def test_an_event_that_cannot_be_composed_is_a_dead_letter_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lifecycle, file = harness_of(tmp_path), tmp_path / "lineage.ndjson"
    way = catalogue(lifecycle, f"openlineage+file://{file}")
    run(lifecycle)

    def fail(*_: object) -> None:
        raise KeyError("path")

    with monkeypatch.context() as patched:
        patched.setattr(LineageEvents, "_published", fail)
        done = deliver_on(lifecycle.database, way, FrozenClock(START))
    assert (done.delivered, done.dead, done.error) == (3, 1, "it cannot be composed: KeyError: 'path'")
    run(lifecycle, "run-2", 8)
    deliver_on(lifecycle.database, way, FrozenClock(START))
    assert [each["eventType"] for each in runs_of(lines_of(file))] == ["START", "START", "COMPLETE"]


def test_what_was_sent_to_prove_who_we_are_is_hidden_when_the_receiver_repeats_it(receiver: Receiver) -> None:
    receiver.echoes, receiver.answer = True, lambda _: 400
    url = f"http://ann:pass%2Fword-of-ann@127.0.0.1:{receiver.port}/x?api_key=the-key-of-ann"
    with closing(senders.WebhookSender(url, None)) as sender:
        sent = sender.post(b"{}", {"X-Long": "x" * 180})
    assert sent.error is not None
    assert "Authorization: Basic ***" in sent.error
    assert "the-key-of-ann" not in sent.error
    assert b64encode(b"ann:pass/word-of-ann").decode()[:12] not in sent.error


def test_data_that_come_and_go_without_a_run_are_told(tmp_path: Path) -> None:
    lifecycle, file = harness_of(tmp_path), tmp_path / "lineage.ndjson"
    way = catalogue(lifecycle, f"openlineage+file://{file}")
    lifecycle.land("clicks", START)
    lifecycle.tick(START)
    shutil.rmtree(lifecycle.folder("clicks", START))
    with suppress(Exception):
        lifecycle.run("daily", START + timedelta(hours=1), START + timedelta(hours=1))
    deliver_on(lifecycle.database, way, FrozenClock(START))
    facets = [each["dataset"]["facets"] for each in lines_of(file)]
    changes = [each["lifecycleStateChange"]["lifecycleStateChange"] for each in facets]
    assert changes == ["CREATE", "DROP"]
    assert all(each["version"]["datasetVersion"].startswith("2013-11-01T00:00Z look:") for each in facets)


@pytest.mark.both_databases
def test_a_sweep_tells_what_it_has_dropped_and_an_undo_what_is_there_again(tmp_path: Path, state_url: str) -> None:
    harness, file = RetentionHarness.of(tmp_path, state=state_url), tmp_path / "lineage.ndjson"
    harness.lifecycle.database.tells_lineage = True
    harness.land("clicks", *hours(50))
    harness.arrive(at("04"))
    way = catalogue(harness.lifecycle, f"openlineage+file://{file}")
    sweep = harness.sweep_now()
    harness.undo(sweep)
    deliver_on(harness.lifecycle.database, way, FrozenClock(START))
    begun, ended, *restored = lines_of(file)
    assert (begun["eventType"], ended["eventType"]) == ("START", "COMPLETE")
    assert begun["run"]["runId"] == ended["run"]["runId"]
    assert ended["job"]["name"] == "primary.clicks.retention"
    (gone,) = ended["outputs"]
    assert gone["facets"]["lifecycleStateChange"]["lifecycleStateChange"] == "DROP"
    locations = gone["outputFacets"]["subset"]["outputCondition"]["locations"]
    assert len(locations) == len(restored) == 24
    assert locations[0] == f"file://{tmp_path}/primary/clicks/2013-11-01/00"
    assert {each["dataset"]["facets"]["lifecycleStateChange"]["lifecycleStateChange"] for each in restored} == {
        "CREATE"
    }


def test_a_sweep_that_is_undone_while_it_runs_is_broken_off(tmp_path: Path) -> None:
    harness, file = RetentionHarness.of(tmp_path), tmp_path / "lineage.ndjson"
    harness.lifecycle.database.tells_lineage = True
    harness.land("clicks", *hours(50))
    harness.arrive(at("04"))
    way = catalogue(harness.lifecycle, f"openlineage+file://{file}")
    sweep = harness.planned()
    begin_sweep(harness.context(), sweep.sweep_id)
    harness.undo(sweep)
    deliver_on(harness.lifecycle.database, way, FrozenClock(START))
    assert [each["eventType"] for each in lines_of(file)] == ["START", "ABORT"]


def test_columns_rules_and_the_text_of_the_release_are_told(tmp_path: Path) -> None:
    file, query = tmp_path / "lineage.ndjson", "SELECT user, count(*) AS n FROM clicks GROUP BY user"
    options = "OPTIONS (password '{}', aws_secret_access_key={}, path 's3://KEY:SE/{}@b')"
    (tmp_path / "count.sql").write_text(f"{query} {options.format('horse', 'battery', 'CRET')}")
    lifecycle = harness_of(tmp_path, workflow={"engine": "sql", "path": "count.sql"})
    source = ColumnSource(input="clicks", column="user", kind=SourceKind.DIRECT, text="user")
    grouped = replace(source, kind=SourceKind.INDIRECT, text="user > 1")
    lifecycle.lineage = {"counts": ColumnLineage(columns={"user": (source,)}, indirect=(grouped,))}
    way = catalogue(lifecycle, f"openlineage+file://{file}")
    run(lifecycle)
    (tmp_path / "count.sql").write_text("SELECT 1")
    deliver_on(lifecycle.database, way, FrozenClock(START))
    _, ended = runs_of(lines_of(file))
    hidden = options.format("***", "***", "***").replace("SE/", "").replace("=***,", "=***")
    assert ended["job"]["facets"]["sql"]["query"] == f"{query} {hidden}"
    (read,), (written,) = ended["inputs"], ended["outputs"]
    dataset = {"namespace": read["namespace"], "name": read["name"], "field": "user"}
    columns = written["facets"]["columnLineage"]
    how = {"type": "DIRECT"}
    assert columns["fields"] == {"user": {"inputFields": [{**dataset, "transformations": [how]}]}}
    assert columns["dataset"] == [{**dataset, "transformations": [{"type": "INDIRECT", "description": "user > 1"}]}]


def test_what_is_not_known_of_columns_is_told_and_what_was_read_beyond_the_inputs(tmp_path: Path) -> None:
    lifecycle, file = harness_of(tmp_path), tmp_path / "lineage.ndjson"
    beyond = ("external/s3a://lake/prices", "external/spark_catalog.default.tab", "external/wasbs://box@one/rates")
    lifecycle.lineage = {"counts": ColumnLineage(beyond=beyond, unknown="its plan is too long")}
    way = catalogue(lifecycle, f"openlineage+file://{file}")
    run(lifecycle)
    deliver_on(lifecycle.database, way, FrozenClock(START))
    begun, ended = runs_of(lines_of(file))
    facets = ended["outputs"][0]["facets"]
    assert "columnLineage" not in facets
    assert facets["feedAssets_columnsUnknown"]["reason"] == "its plan is too long"
    assert len(begun["inputs"]) == 1
    assert [(each["namespace"], each["name"]) for each in ended["inputs"][1:]] == [
        ("s3://lake", "prices"),
        ("feed-assets/default", "external/spark_catalog.default.tab"),
        ("wasbs://box@one", "/rates"),
    ]


def test_a_version_is_of_the_instance_and_its_content(tmp_path: Path) -> None:
    lifecycle, file = harness_of(tmp_path), tmp_path / "lineage.ndjson"
    way = catalogue(lifecycle, f"openlineage+file://{file}")
    run(lifecycle)
    lifecycle.job = lambda work: {target.name: "made again" for target in work.outputs}
    lifecycle.run("daily", START + timedelta(hours=1), START + timedelta(hours=2))
    deliver_on(lifecycle.database, way, FrozenClock(START))
    first, second = (each for each in runs_of(lines_of(file)) if each["eventType"] == "COMPLETE")

    def version(dataset: Any) -> str:
        return str(dataset["facets"]["version"]["datasetVersion"])

    assert version(first["outputs"][0]).startswith("2013-11-01T01:00Z sha256:")
    assert version(first["outputs"][0]) != version(second["outputs"][0])
    assert version(first["inputs"][0]) == version(second["inputs"][0])
    assert len(version(first["inputs"][0])) == 64  # of two instances


@pytest.mark.parametrize(("rows", "end"), [({"1": "", "2": "warm"}, "FAIL"), ({"1": "", "2": ""}, "COMPLETE")])
def test_what_was_found_about_the_rows_is_told_also_of_a_refusal(
    tmp_path: Path, rows: dict[str, str], end: str
) -> None:
    lifecycle, file = quality.declare(tmp_path), tmp_path / "lineage.ndjson"
    lifecycle.database.tells_lineage = True
    way = catalogue(lifecycle, f"openlineage+file://{file}")
    quality.read(lifecycle, rows)
    deliver_on(lifecycle.database, way, FrozenClock(START))
    ended = runs_of(lines_of(file))[-1]
    assert ended["eventType"] == end
    found = {each["name"].rpartition("/")[2]: each["facets"] for each in ended["outputs"]}
    whole, *rules = found["readings"]["dataQualityAssertions"]["assertions"]
    assert (whole["success"], whole["expected"]) == (end == "COMPLETE", "75")
    assert {each["name"]: each["success"] for each in rules} == {"warm": end == "COMPLETE", "named": True}


def test_a_receiver_that_fails_hangs_and_goes_away_gets_each_event_in_order(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    lifecycle, clock = harness_of(tmp_path), SetClock(START)
    way = catalogue(lifecycle, f"openlineage+http://127.0.0.1:{receiver.port}/api/v1/lineage")
    monkeypatch.setattr(senders, "SECONDS", 0.2)
    answers: list[Callable[[Post], int]] = [lambda _: 500, lambda _: (sleep(0.4), 200)[1], lambda _: 200]
    for attempt, answer in enumerate(answers):
        receiver.answer = answer
        run(lifecycle, f"run-{attempt}", 5 + attempt)
        deliver_on(lifecycle.database, way, clock)
        clock.advance(hours=1)
    receiver.die()
    run(lifecycle, "run-9", 9)
    assert deliver_on(lifecycle.database, way, clock).is_away
    receiver.live()
    while find_due(lifecycle.database, {way.name: way}, clock.at) or clock.at < START + timedelta(hours=9):
        deliver_on(lifecycle.database, way, clock)
        clock.advance(hours=1)
    told = [(each["run"]["runId"], each["eventType"]) for each in runs_of(receiver.taken)]
    firsts = list(dict.fromkeys(told))
    assert [kind for _, kind in firsts] == ["START", "COMPLETE"] * 4
    assert [run_id for run_id, _ in firsts][::2] == [run_id for run_id, _ in firsts][1::2]


def work_for_ever(root: Path, state: str, file: Path, number: int) -> None:
    """What a worker does until it is killed: it ends what others have left, runs the hours that are open, and tells."""
    lifecycle = harness_of(root, state)
    way = catalogue(lifecycle, f"openlineage+file://{file}")
    while True:
        step(lifecycle, way, number)


def step(lifecycle: LifecycleHarness, way: Any, number: int) -> None:
    """End what a killed worker has left, run the next hour, and tell all of it. Leases end from round to round."""
    database = lifecycle.database
    found = find_launched(database, "primary", SOON)
    gone = {row.run_id or "": RunState.ENDED for row in found.running}
    apply_reconciliation(lifecycle.context(SOON), found, gone, {})
    hour = START + timedelta(hours=1 + len(lifecycle.times("daily", ProcessInstanceStatus.SUCCEEDED)))
    lifecycle.land("clicks", hour - timedelta(hours=1), hour)
    lifecycle.run("daily", hour, hour + 2 * number * TTL, str(uuid4()))
    deliver_on(database, way, FrozenClock(START))


@pytest.mark.sample
def test_after_kills_at_any_moment_each_attempt_has_one_begin_and_one_end_in_the_file(
    tmp_path: Path, state_url: str
) -> None:
    moments, file = random.Random(drill_seed()), tmp_path / "lineage.ndjson"
    lifecycle = harness_of(tmp_path, state_url)
    way = catalogue(lifecycle, f"openlineage+file://{file}")
    for number in range(ROUNDS):
        size = file.stat().st_size if file.exists() else 0
        worker = PROCESSES.Process(target=work_for_ever, args=(tmp_path, state_url, file, number), daemon=True)
        worker.start()
        wait_until(lambda size=size: file.exists() and file.stat().st_size > size)
        sleep(moments.random() * 0.3)
        worker.kill()
        worker.join()
    step(lifecycle, way, ROUNDS)
    told: dict[str, list[tuple[str, str]]] = {}
    for each in runs_of(lines_of(file)):
        told.setdefault(each["run"]["runId"], []).append((each["eventType"], each["eventTime"]))
    with lifecycle.database.read() as connection:
        keys = [ProcessKey(*row.key) for row in lifecycle.instances("daily").values()]
        attempts = [each for found in Attempts(connection).of_many(keys).values() for each in found]
    assert len(told) == len(attempts)
    ends = [[kind for kind, _ in dict.fromkeys(found)] for found in told.values()]
    assert all(len(kinds) == 2 and kinds[0] == "START" for kinds in ends)
    assert {kinds[1] for kinds in ends} <= {"COMPLETE", "FAIL"}


def test_a_copy_reads_at_its_source_and_writes_at_its_target(tmp_path: Path) -> None:
    lifecycle, file = flows.harness_of(tmp_path, flows.replicated()), tmp_path / "lineage.ndjson"
    lifecycle.database.tells_lineage = True
    lifecycle.land("clicks", START)
    way = catalogue(lifecycle, f"openlineage+file://{file}")
    flows.pass_time(lifecycle, SOON, "backup")
    deliver_on(lifecycle.database, way, FrozenClock(START))
    begun, ended = runs_of(lines_of(file))
    assert (begun["eventType"], ended["eventType"]) == ("START", "COMPLETE")
    assert ended["job"]["name"] == "backup.clicks@primary"
    assert ended["job"]["facets"]["jobType"]["jobType"] == "REPLICATION"
    (read,), (written,) = ended["inputs"], ended["outputs"]
    assert (read["name"], written["name"]) == (f"{tmp_path}/primary/clicks", f"{tmp_path}/backup/clicks")


def test_a_pipe_is_no_file_of_lineage(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="is no file"):
        senders.append_line(str(pipe), b"{}")


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("file:///nowhere/x", "/nowhere/x: it is not there, nor can it be made: create its folder"),
        ("file:///tmp", "/tmp: it is a folder: write the path of a file"),
        ("http://127.0.0.1:9/x", "127.0.0.1:9: nothing listens there: start it, or correct host and port"),
        ("https://127.0.0.1:{port}/x", "127.0.0.1:{port}: no encrypted connection (TLS): correct scheme and port"),
    ],
)
def test_why_nobody_answers_is_told_with_what_to_do(tmp_path: Path, receiver: Receiver, url: str, reason: str) -> None:
    lifecycle = harness_of(tmp_path)
    way = catalogue(lifecycle, f"openlineage+{url}".format(port=receiver.port))
    run(lifecycle)
    done = deliver_on(lifecycle.database, way, FrozenClock(START))
    assert done.is_away
    assert (done.error or "").startswith(reason.format(port=receiver.port))


@pytest.mark.parametrize(
    ("url", "options", "name"),
    [
        ("s3a://lake/raw", {}, dataset.S3("lake", "raw/clicks")),
        ("gcs://lake", {}, dataset.GCS("lake", "clicks")),
        ("abfs://box@one.dfs.core.windows.net/in", {}, dataset.ABFSS("box", "one", "/in/clicks")),
        ("az://box/in", {"account_name": "one"}, dataset.ABFSS("box", "one", "/in/clicks")),
        ("hdfs://name:8020/data", {}, dataset.HDFS("name", "8020", "/data/clicks")),
        ("/data", {}, dataset.LocalFileSystem("/data/clicks")),
        ("file:///data/", {}, dataset.LocalFileSystem("/data/clicks")),
        ("abfs://box", {"connection_string": "X=1;AccountName=one"}, dataset.ABFSS("box", "one", "/clicks")),
        ("wasb://box@one.dfs.core.windows.net/in", {}, dataset.WASBS("box", "one", "/in/clicks")),
        ("file:/data", {}, dataset.LocalFileSystem("/data/clicks")),
        ("s3://lake", {"endpoint_url": "https://s3.eu-west-1.amazonaws.com"}, dataset.S3("lake", "clicks")),
        ("s3://lake", {"endpoint_url": "http://minio:9000"}, ("s3://lake@minio:9000", "clicks")),
        ("s3://KEY:SE/CRET@lake/raw", {}, dataset.S3("lake", "raw/clicks")),
        ("dbfs:/x", {}, ("dbfs", "/x/clicks")),
        ("sftp://me:pass@host/in", {}, ("sftp://host", "/in/clicks")),
    ],
)
def test_a_dataset_is_named_as_the_client_of_openlineage_does(url: str, options: dict[str, object], name: Any) -> None:
    wanted = name if isinstance(name, tuple) else (name.get_namespace(), name.get_name())
    assert name_path(StoreAddress(url=url, options=FrozenMap(options)), "/clicks/") == wanted


def test_a_table_is_named_by_its_metastore() -> None:
    table = TableRecord(catalog="thrift://one:9083,thrift://two:9083", database="web", name="clicks")
    record: Any = SimpleNamespace(table=table)
    wanted = dataset.Hive("one", "9083", "web", "clicks")
    assert name_feed(record) == (wanted.get_namespace(), wanted.get_name())
