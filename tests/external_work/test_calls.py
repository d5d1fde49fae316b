"""The calls of programs that work elsewhere: their orders, right and wrong, from a shell script and one by one."""

import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from click.testing import Result
from sqlalchemy import Table, select, update

from feed_assets.context.operation import OperationContext, open_context
from feed_assets.external_work import calls
from feed_assets.instances.steps import store as step_store
from feed_assets.log import tables as log_tables
from feed_assets.log.instances import tables as instance_tables
from feed_assets.log.records import FeedInstanceStatus
from feed_assets.settings import load_settings
from feed_assets.sql import tables as schema
from feed_assets.sql.database import open_database
from feed_assets.storage.errors import StorageError
from feed_assets.triggers.queue import tables as trigger_schema
from tests.alerts.delivery.openlineage import check_event
from tests.cli.pasting import Pasting, of, paste
from tests.cli.project import let_ticks_come, run, shown
from tests.cli.project import must as ok
from tests.cli.scripts import run_script
from tests.projects import be, declare, enter
from tests.server.project import serve

__all__ = ["paste"]

ENTITIES = (Path(__file__).parent / "entities.yaml").read_text("utf-8")
FROM_NOW = """
---
{kind: feed, name: d, signal: true, clusters: {here: {validity: {start: 2026-01-01T00:00Z}}}}
---
kind: process
name: p
clusters: {here: {validity: {start: 2026-01-01T00:00Z}}}
trigger: {}
inputs: {d: {feed: d, take: new}}
workflow: {engine: external}
"""
KEPT_STILL = (
    instance_tables.process_instances,
    instance_tables.attempts,
    log_tables.feed_events,
    log_tables.shared_payloads,
    instance_tables.feed_instances,
    trigger_schema.batches,
    trigger_schema.queue_changes,
    step_store.steps,
)
"""The tables in which nothing moves when a call is refused."""


on_each = pytest.mark.parametrize(
    "database_url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.server)], indirect=True
)
"""What asks more of a database than the others is asked of both in each run of the tests."""


@pytest.fixture
def project(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    enter(tmp_path, monkeypatch)
    declare(tmp_path, ENTITIES, schedule="automatic", state=database_url)
    (tmp_path / "count.sql").write_text("select 1 as n")
    return tmp_path


def context(project: Path) -> OperationContext:
    settings = load_settings({}, start=project)
    return open_context(settings, open_database(settings.state or ""))


def put(project: Path, *seconds: int) -> None:
    """Put orders in their place, each a file of its second."""
    for second in seconds:
        folder = project / f"data/orders/20260301/0600{second:02}"
        folder.mkdir(parents=True)
        (folder / "part-0.csv").write_text(f"{second}\n")


def come(project: Path, *seconds: int) -> None:
    """Let orders come."""
    put(project, *seconds)
    for second in seconds:
        ok("feed", "notify", "orders", f"2026-03-01T06:00:{second:02}Z", "--marking", f"o{second}")


def taken(found: Mapping[str, Any]) -> list[tuple[object, ...]]:
    """What a batch has taken: input, number of events, the first and last of them, and their markings."""
    keys = ("input", "events", "min_event", "max_event", "min_marking", "max_marking")
    return [tuple(each[key] for key in keys) for each in found["inputs"]]


def staging(found: Mapping[str, Any], output: str = "loaded") -> Path:
    """Where the program puts the files of an output."""
    urls = {each["output"]: each["url"] for each in found["outputs"]}
    return Path(urlsplit(urls[output]).path)


def refused(sentence: str, *arguments: str) -> str:
    result = run(*arguments)
    assert (result.exit_code, sentence in result.stderr) == (1, True), result.output
    return result.stderr


def work(*steps: str) -> None:
    for step in steps:
        ok("batch", "step-start", "load", step)
        ok("batch", "step-end", "load", step)


def loaded(project: Path, *seconds: int, marking: str = "x") -> str:
    """Load orders, and return the batch."""
    come(project, *seconds)
    ok("feed", "notify", "rates")
    found = shown("batch", "init", "load")
    work("extract", "clean", "store")
    (staging(found) / "part-0.csv").write_text("a\n")
    ok("batch", "end", "load", "--marking", marking)
    return str(found["batch"])


WRONG_ORDERS = """
refused() {  # the sentence, then the call
  sentence=$1; shift
  feed-assets batch "$@" > /dev/null 2> said; code=$?
  if [ $code != 1 ]; then echo "exit code $code: $*"; exit 9; fi
  grep -qF "$sentence" said || { echo "$*: not '$sentence', but"; cat said; exit 9; }
}
call() { feed-assets batch "$@" > called || { echo "refused: $*"; exit 9; }; }
notify() { feed-assets feed notify "$@" > /dev/null || exit 9; }

refused "there is no process 'lode'" init lode
refused "its work runs here, with engine sql" init count
refused "it has no step 'extrat'. Its steps are extract, clean, store" step-start load extrat
for verb in end fail; do refused "no batch is under way" $verb load; done
refused "no batch is under way" step-start load extract
refused "0 of 2; orders lacks an event; rates lacks an event" init load            # BD-11
notify orders 2026-03-01T06:00:01Z; notify orders 2026-03-01T06:00:02Z
refused "1 of 2; rates lacks an event" init load                                   # BD-26
notify rates
call init load --max 1                                                             # BD-12
refused "is already under way: work elsewhere by ann, attempt 1" init load         # BD-10
for verb in step-end step-fail; do refused "step 'extract' is not under way, it is PENDING" $verb load extract; done
refused "step 'clean' comes after 'extract', which is PENDING" step-start load clean
refused "step 'extract' has not been done" end load
call step-start load extract
refused "step 'extract' is already under way" step-start load extract              # BD-20
for verb in end fail; do refused "step 'extract' is still under way" $verb load; done
call step-end load extract
refused "step 'extract' has ended already" step-start load extract
refused "step 'extract' is not under way, it is SUCCEEDED" step-end load extract
call step-start load clean; call step-fail load clean --reason "no luck"
refused "step 'clean' has failed" end load                                         # BD-29
call step-start load clean; call step-end load clean
call step-start load store; call step-end load store
refused "output 'loaded' has no files" end load
refused "its marking '' is empty" end load --marking ""
call fail load                                                                     # BD-27
refused "no batch is under way" fail load
refused "no batch is under way" end load
"""


@on_each
def test_wrong_orders_of_calls_are_refused_by_a_sentence_and_move_nothing(project: Path) -> None:
    put(project, 1, 2)
    let_ticks_come(str(load_settings({}, start=project).state))
    calls: list[int] = []

    def give(*words: str) -> Result:
        before = rows(project)
        result = run(*words)
        if result.exit_code:
            assert rows(project) == before, words
        calls.append(result.exit_code)
        return result

    done = run_script(WRONG_ORDERS, project / "shell", give)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    assert (len(calls), sum(calls)) == (36, 23)
    assert [batch["status"] for batch in shown("batch", "list")["batches"]] == ["FAILED"]


def rows(project: Path, tables: Iterable[Table] = KEPT_STILL) -> list[list[object]]:
    """What the tables have in which nothing may move."""
    opened = context(project)
    with opened.database.read() as connection:
        found = [sorted(map(repr, connection.execute(select(table)))) for table in tables]
    opened.database.close()
    return [list(each) for each in found]


@on_each
def test_a_batch_that_failed_comes_again_with_the_same_events_and_names_its_next_step(project: Path) -> None:
    come(project, 1, 2, 3)
    ok("feed", "notify", "rates", "--marking", "eur")
    first = shown("batch", "init", "load", "--max", "2")
    assert taken(first) == [("orders", 2, 1, 2, "o1", "o2"), ("rates", 1, 4, 4, "eur", "eur")]
    files = [file for each in first["inputs"] for instance in each["instances"] for file in instance["files"]]
    assert [Path(urlsplit(file).path).read_text() for file in files] == ["1\n", "2\n"]
    assert (first["attempt"], first["next_step"]) == (1, "extract")
    work("extract", "clean")
    (staging(first) / "part-0.csv").write_text("of clean\n")
    ok("batch", "step-start", "load", "store")
    ok("batch", "step-fail", "load", "store", "--reason", "no luck")
    ok("batch", "fail", "load", "--reason", "the warehouse is away")
    come(project, 4)
    ok("feed", "notify", "rates")
    again = shown("batch", "init", "load", "--max", "1")
    assert (again["batch"], again["attempt"], again["inputs"]) == (first["batch"], 2, first["inputs"])
    statuses = [(step["step"], step["status"], step["made_in"]) for step in again["steps"]]
    assert statuses == [("extract", "KEPT", 1), ("clean", "PENDING", 2), ("store", "PENDING", 2)]
    assert again["next_step"] == "clean"
    assert (staging(again) / "part-0.csv").read_text() == "of clean\n"
    refused("has ended already, kept from attempt 1", "batch", "step-start", "load", "extract")
    work("clean", "store")
    (project / "facts.json").write_text('{"facts": {"rows": 7}, "metadata": {"feed/orders": {"tags": ["loaded"]}}}')
    ended = shown("batch", "end", "load", "--facts", "facts.json")
    of_batch = f"process/load/cluster/here/instance/{first['batch']}"
    assert "program/rows\t7" in ok("metadata", "get", of_batch).stdout
    assert "loaded\t\tprogram\tprocess/load" in ok("metadata", "get", "feed/orders", "--scope", "user").stdout
    assert [each["output"] for each in ended["published"]] == ["loaded"]
    assert not staging(again).exists()
    listed = ok("instance", "steps", "load", str(first["batch"])).stdout.splitlines()
    assert [line.split("\t")[1:4] for line in listed[1:]] == [
        ["1", "extract", "SUCCEEDED"],
        ["1", "clean", "SUCCEEDED"],
        ["1", "store", "FAILED"],
        ["2", "extract", "KEPT from 1"],
        ["2", "clean", "SUCCEEDED"],
        ["2", "store", "SUCCEEDED"],
    ]
    attempts = [line.split("\t") for line in ok("instance", "list", "load", "--all-attempts").stdout.splitlines()]
    assert [(cells[3], cells[-2]) for cells in attempts[1:]] == [
        ("2", "read orders (2 instances); wrote loaded (event 7)"),
        ("1", "the warehouse is away; read orders (2 instances)"),
    ]
    assert shown("queue", "show", "load")["queue"]["pending"] == 3
    ok("queue", "verify")


def test_an_end_is_one_event_that_each_reader_takes_by_its_marking(project: Path) -> None:
    loaded(project, 1)
    refused("loaded lacks an event marked *_DAILY_END", "batch", "init", "report")
    batch = loaded(project, 2, marking="1_DAILY_END")
    loaded(project, 3)
    found = shown("batch", "init", "report")
    assert [each["nominal_time"] for each in found["inputs"][0]["instances"]][1:] == [batch]
    assert taken(found)[0][4:] == ("1_DAILY_END", "x")
    consumers = [(each["process"], each["pending"]) for each in shown("queue", "consumers", "loaded")["consumers"]]
    assert consumers == [("copy", 3), ("report", 1)]
    ok("batch", "end", "report")
    assert not (project / "data/rejected").exists()


def test_a_batch_that_ends_with_a_marking_has_no_other_end(project: Path) -> None:
    loaded(project, 1, marking="2026-03-01_DAILY_END")
    refused("--max would cut through", "batch", "init", "report", "--max", "1")
    assert taken(shown("batch", "init", "report"))[0][:2] == ("loaded", 1)


def test_init_hands_what_each_event_says_as_show_does(project: Path) -> None:
    come(project, 1)
    ok("feed", "notify", "rates", "--payload", '{"eur": 1.1}', "--marking", "eur")
    found = shown("batch", "init", "load")
    handed = [event for each in found["inputs"] for event in each["taken"]]
    assert handed == shown("batch", "show", "load", str(found["batch"]))["events"]
    assert [(each["payload"], each["marking"]) for each in handed] == [({}, "o1"), ({"eur": 1.1}, "eur")]


def test_a_batch_that_waits_for_a_lost_input_says_which(project: Path) -> None:
    come(project, 1)
    ok("feed", "notify", "rates")
    found = shown("batch", "init", "load")
    ok("batch", "fail", "load")
    instances = instance_tables.feed_instances
    with context(project).database.begin() as connection:
        lost = update(instances).where(instances.c.feed == "orders").values(status=FeedInstanceStatus.MISSING)
        connection.execute(lost)
    text = "input 'orders' lacks 1 of 1 instances of feed 'orders', the first 2026-03-01T06:00:01Z"
    assert f"batch {found['batch']} waits: {text}" in ok("why", "load").stdout


def test_several_batches_are_under_way_as_far_as_the_process_allows_and_are_named(project: Path) -> None:
    batches = []
    for second in (1, 2, 3):
        loaded(project, second)
        if second < 3:
            batches.append(str(shown("batch", "init", "copy")["batch"]))
    refused("is already under way: work elsewhere by ann, attempt 1, RUNNING (2 of 2)", "batch", "init", "copy")
    refused(f"several batches are under way: {batches[0]}, {batches[1]}. Name one with --batch", "batch", "end", "copy")
    assert "it has succeeded" in ok("batch", "end", "copy", "--batch", batches[1]).stdout
    refused("is SUCCEEDED, and not under way", "batch", "end", "copy", "--batch", batches[1])
    refused("is not known", "batch", "end", "copy", "--batch", "2026-01-01T00:00:07Z")
    ok("batch", "fail", "copy")
    assert shown("batch", "init", "copy")["batch"] == batches[0]


def test_a_killed_batch_ends_no_more_and_a_rerun_of_it_begins_anew(project: Path) -> None:
    first = ready_to_end(project)
    ok("instance", "kill", "load", "--instance", str(first["batch"]))
    refused("no batch is under way", "batch", "end", "load")
    refused("0 of 2", "batch", "init", "load")
    ok("instance", "rerun", "load", "--instance", str(first["batch"]))
    again = shown("batch", "init", "load")
    assert (again["batch"], taken(again)) == (first["batch"], taken(first))
    assert {step["status"] for step in again["steps"]} == {"PENDING"}
    assert staging(again) != staging(first)
    assert not list(staging(again).iterdir())


def ready_to_end(project: Path) -> dict[str, object]:
    """A batch of which all is done but its end."""
    come(project, 1)
    ok("feed", "notify", "rates")
    found = shown("batch", "init", "load")
    work("extract", "clean", "store")
    (staging(found) / "part-0.csv").write_text("a\n")
    return found


@on_each
def test_a_batch_that_is_killed_while_it_is_published_publishes_nothing(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = ready_to_end(project)
    publish = calls._publish_files

    def kill_before(*arguments: object) -> object:
        ok("instance", "kill", "load", "--instance", str(found["batch"]))
        return publish(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(calls, "_publish_files", kill_before)
    refused("it is KILLED: somebody has ended this attempt", "batch", "end", "load")
    assert not list((project / "data/loaded").rglob("*.csv"))
    assert shown("batch", "list", "--state", "SUCCEEDED")["total"] == 0


def test_an_end_that_broke_off_behind_a_publication_is_repeated(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = ready_to_end(project)
    with monkeypatch.context() as patch:
        patch.setattr(calls.HeldInstance, "record_published", broken)
        assert run("batch", "end", "load").exit_code == 1
    assert not staging(found).exists()
    (done,) = shown("batch", "end", "load")["published"]
    assert (Path(urlsplit(done["url"]).path) / "part-0.csv").read_text() == "a\n"
    assert shown("batch", "list")["batches"][0]["status"] == "SUCCEEDED"


def test_an_output_with_nothing_but_hidden_files_has_none(project: Path) -> None:
    place = staging(ready_to_end(project))
    (place / "part-0.csv").rename(place / "_part-0.csv")
    for hidden in ("_SUCCESS", ".part-0.csv.crc", "_temporary/part-0.csv"):
        (place / hidden).parent.mkdir(exist_ok=True)
        (place / hidden).write_text("a\n")
    said = refused("its output 'loaded' has no files, not counting hidden ones. Put them below", "batch", "end", "load")
    assert str(place) in said
    (place / "_part-0.csv").rename(place / "part-0.csv")
    ok("batch", "end", "load")


class Killed(BaseException):
    """What ends a call where it is, as if its process had been killed."""


def killed(*_: object, **__: object) -> None:
    raise Killed


def lose(patch: pytest.MonkeyPatch, *arguments: str, at: str | None = None) -> None:
    """Give a call that is killed between its effect and its answer."""
    answer = {"init": "InitBatch", "end": "EndedBatch"}.get(arguments[0], "CalledBatch")
    with patch.context() as context:
        context.setattr(calls, at or answer, killed)
        with pytest.raises(Killed):
            run("batch", *arguments)


@on_each
@pytest.mark.parametrize("at", ["stage_outputs", "InitBatch", ""])
def test_an_init_given_again_with_its_key_takes_nothing_and_has_the_first_answer(
    project: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    come(project, 1, 2)
    ok("feed", "notify", "rates")
    init = ("init", "load", "--max", "1", "--key", "k-1")
    if at:
        lose(monkeypatch, *init, at=at)
    be("ann", monkeypatch)  # who a server without tokens takes for the author
    asked, headers = {"process": "load", "max": 1}, {"Idempotency-Key": "k-1"}
    with serve(open_database(load_settings().state or "")) as client, ThreadPoolExecutor(8) as pool:
        told = pool.map(lambda _: client.post("/api/v1/batch/init", json=asked, headers=headers), range(8))
        ((status, text),) = {(each.status_code, each.text) for each in told}
    first = json.loads(text)
    assert status == 201
    (staging(first) / "part-0.csv").write_text("a\n")
    come(project, 3)
    before = rows(project)
    assert [shown("batch", *init), shown("batch", *init, "--dry-run")] == [first, {**first, "dry_run": True}]
    sentence = f"the key 'k-1' has taken batch {first['batch']} of process 'load' on here: attempt 1, work elsewhere"
    refused(f"{sentence} by ann, is RUNNING. Give the next one another key.", "batch", "init", "copy", "--key", "k-1")
    assert rows(project) == before
    assert (first["attempt"], taken(first)[0][1]) == (1, 1)
    work("extract", "clean", "store")
    ok("batch", "end", "load")
    refused(f"{sentence} by ann, is SUCCEEDED. Give the next one another key.", "batch", *init)
    assert len(shown("feed", "events", "loaded")["events"]) == 1


@on_each
def test_a_call_whose_answer_was_lost_says_what_it_has_done_and_meets_no_other_attempt(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    come(project, 1)
    ok("feed", "notify", "rates")
    found = shown("batch", "init", "load")
    named = ("load", "--batch", str(found["batch"]), "--attempt", "1")

    def again(sentence: str, verb: str, *rest: str) -> None:
        before = rows(project)
        refused(sentence, "batch", verb, *named, *rest)
        assert rows(project) == before

    lose(monkeypatch, "step-start", *named, "extract")
    again("step 'extract' is already under way", "step-start", "extract")
    lose(monkeypatch, "step-fail", *named, "extract")
    again("step 'extract' is not under way, it is FAILED", "step-fail", "extract")
    ok("batch", "step-start", *named, "extract")
    lose(monkeypatch, "step-end", *named, "extract")
    again("step 'extract' is not under way, it is SUCCEEDED", "step-end", "extract")
    lose(monkeypatch, "fail", *named, "--reason", "no luck")
    how = "attempt 1, work elsewhere by ann, is FAILED (no luck)"
    again(f"batch {found['batch']} is FAILED, and not under way; {how}", "fail")
    found = shown("batch", "init", "load")
    for verb, *rest in (("fail",), ("end",), ("step-start", "clean")):
        again(f"is RUNNING, and under way in attempt 2; {how}", verb, *rest)
    refused("no batch is under way in attempt 1", "batch", "fail", "load", "--attempt", "1")
    refused("attempt 3 has not begun", "batch", "fail", *named[:-1], "3")
    work("clean", "store")
    (staging(found) / "part-0.csv").write_text("a\n")
    named = (*named[:-1], "2")
    lose(monkeypatch, "end", *named)
    again("is SUCCEEDED, and not under way; attempt 2, work elsewhere by ann, is SUCCEEDED", "end")
    assert len(shown("feed", "events", "loaded")["events"]) == 1


def broken(*_: object, **__: object) -> None:
    raise StorageError(store="file:///data", path="loaded", reason="no luck", next_step="Try again.")


def test_a_batch_whose_outputs_cannot_be_staged_has_failed_and_comes_again(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    come(project, 1)
    ok("feed", "notify", "rates")
    with monkeypatch.context() as patch:
        patch.setattr("feed_assets.external_work.calls.stage_outputs", broken)
        refused("no luck", "batch", "init", "load")
    (batch,) = shown("batch", "list")["batches"]
    assert (batch["status"], "no luck" in batch["reason"]) == ("FAILED", True)
    assert shown("batch", "init", "load")["batch"] == batch["batch"]


@of("external_work.attempts._missing: why")
def test_a_batch_needs_the_instances_of_its_windows(project: Path, paste: Pasting) -> None:
    come(project, 1)
    before = rows(project)
    paste(refused("input 'prices' lacks 1 of 1 instances of feed 'prices'", "batch", "init", "price"), "why")
    assert rows(project) == before


def test_a_dry_run_of_a_call_changes_nothing(project: Path) -> None:
    come(project, 1)
    ok("feed", "notify", "rates")

    def dry(*arguments: str) -> None:
        tables = schema.metadata.tables.values()
        before = rows(project, tables)
        assert shown("batch", *arguments, "--dry-run")["dry_run"] is True
        assert rows(project, tables) == before

    dry("init", "load")
    found = shown("batch", "init", "load")
    dry("step-start", "load", "extract")
    ok("batch", "step-start", "load", "extract")
    dry("step-end", "load", "extract")
    dry("step-fail", "load", "extract")
    ok("batch", "step-end", "load", "extract")
    work("clean", "store")
    (staging(found) / "part-0.csv").write_text("a\n")
    dry("fail", "load")
    dry("end", "load")


def neighbours(*arguments: str) -> list[tuple[str, str, str, str]]:
    found = shown("instance", "dependency", *arguments)["dependencies"]
    return [(each["tag"], each["name"], each["nominal_time"], each["by"]) for each in found]


@on_each
def test_of_what_comes_and_of_batches_there_are_only_those_that_there_are(project: Path) -> None:
    batch, now = loaded(project, 1, 2), "2026-03-01T06:00:01Z"
    (rates,) = shown("instance", "listing", "rates")["instances"]
    for feed, time in (("orders", now), ("orders", "2026-03-01T06:00:02Z"), ("rates", rates["nominal_time"])):
        assert neighbours("feed", feed, time) == [("Input", "load", batch, feed)]
    assert neighbours("feed", "loaded", batch) == [("Output", "load", batch, "loaded")]
    assert neighbours("feed", "loaded", now) == neighbours("feed", "prices", "2026-03-01T00:00Z") == []
    seconds = ("2026-03-01T06:00:01Z", "2026-03-01T06:00:02Z")
    assert sorted(neighbours("process", "load", batch)) == sorted(
        [
            ("Input", "rates", rates["nominal_time"], "rates"),
            *(("Input", "orders", time, "orders") for time in seconds),
            ("Output", "loaded", batch, "loaded"),
        ]
    )
    assert "process load on" not in ok("why", "loaded", now, "--kind", "feed", "--all").stdout
    start = ("--start", "2026-03-01T00:00Z", "--end", "2026-03-02T00:00Z")
    summary = shown("entity", "summary", "feed", *start)["entities"]
    times = {each["name"]: [one["nominal_time"] for one in each["instances"]] for each in summary}
    assert (times["orders"], times["rejected"]) == ([*reversed(seconds)], [])


def walked(*arguments: str) -> set[tuple[str, str, str | None]]:
    nodes = shown("lineage", "show", *arguments)["nodes"]
    return {(each["kind"], each["name"], each["state"]) for each in nodes}


@on_each
def test_lineage_leads_through_a_batch_both_ways(project: Path) -> None:
    """The load has frozen two orders, and taken the news of the rates, which it does not read."""
    batch, _ = loaded(project, 1, 2), come(project, 3)
    work = {("attempt", "load", "SUCCEEDED"), ("event", "loaded", "PRODUCED")}
    given = {("event", "orders", "ARRIVED"), ("event", "rates", "SIGNALLED")}
    (rates,) = shown("instance", "listing", "rates")["instances"]
    second = "2026-03-01T06:00:02Z"
    author = {each for each in walked("loaded", batch) if each[0] == "author"}
    assert len(author) == 1
    assert walked("loaded", batch) == walked("process", "load", batch) == work | given | author
    assert walked("rates", rates["nominal_time"], "--down") == work | author | {("event", "rates", "SIGNALLED")}
    assert walked("orders", second, "--down") == work | author | {("event", "orders", "ARRIVED")}
    third = walked("orders", "2026-03-01T06:00:03Z", "--down")
    assert third == author | {("event", "orders", "ARRIVED")}
    read = [each for each in shown("lineage", "show", "loaded", batch)["edges"] if each["kind"] == "read"]
    assert sorted(each["name"] for each in read) == ["orders", "orders", "rates"]


@on_each
def test_a_trigger_from_now_begins_with_its_declaration(project: Path) -> None:
    entities = project / "entities/all.yaml"
    entities.write_text(entities.read_text() + FROM_NOW)
    ok("feed", "notify", "d")
    ok("apply", "--yes")
    ok("feed", "notify", "d")
    assert ok("queue", "verify").exit_code == 0
    assert taken(shown("batch", "init", "p")) == [("d", 1, 2, 2, None, None)]


@on_each
def test_batches_are_listed_by_process_feed_state_and_time_a_page_at_a_time(project: Path) -> None:
    assert shown("batch", "list") == {
        "version": 2,
        "batches": [],
        "total": 0,
        "more_than_total": False,
        "has_more": False,
    }
    first, second = loaded(project, 1), loaded(project, 2)
    copied = str(shown("batch", "init", "copy")["batch"])

    def listed(*arguments: str) -> list[tuple[str, str, int]]:
        found = shown("batch", "list", *arguments)["batches"]
        return sorted((each["process"], each["batch"], each["events"]) for each in found)

    whole = [("copy", copied, 2), ("load", first, 2), ("load", second, 2)]
    assert listed() == sorted(whole)
    assert listed("load", "--start", second) == whole[2:]
    assert listed("load", "--end", second) == whole[1:2]
    assert listed("--feed", "loaded") == listed("--state", "running") == whole[:1]
    assert listed("load", "--num-results", "1", "--offset", "1") == whole[1:2]
    assert "1 of 3 batches" in ok("batch", "list", "--num-results", "1").stderr
    refused("makes no batches", "batch", "list", "count")


@of("external_work.attempts._require_schedule: entity resume", "external_work.calls._take: queue show")
def test_a_suspended_process_takes_no_batch(project: Path, paste: Pasting) -> None:
    come(project, 1)
    paste(refused("1 of 2", "batch", "init", "load"), "queue show")
    ok("entity", "suspend", "process", "load")
    paste(refused("it is suspended, so no batch is taken", "batch", "init", "load"), "entity resume")


@of("external_work.attempts._require_schedule: entity schedule")
def test_a_process_that_is_not_scheduled_takes_no_batch(project: Path, paste: Pasting) -> None:
    settings = project / "feed_assets.yaml"
    settings.write_text(settings.read_text().replace("automatic", "explicit"))
    paste(refused("it is submitted, so no batch is taken", "batch", "init", "load"), "entity schedule")
    refused("0 of 2", "batch", "init", "load")


@of(
    "external_work.attempts.BatchAtWork.start: batch step-start",
    "external_work.attempts.BatchAtWork.finish: batch step-end",
    "external_work.attempts.BatchAtWork.give_up: batch step-fail",
    "external_work.attempts.BatchAtWork.end: batch end",
    "external_work.attempts.BatchAtWork.fail: batch fail",
    "external_work.attempts.init_command: batch init",
    "external_work.attempts._require_free: batch fail",
    "external_work.attempts._require_free: instance kill",
)
def test_each_refusal_names_the_call_whose_turn_it_is(project: Path, paste: Pasting) -> None:
    come(project, 1)
    ok("feed", "notify", "rates")
    paste(refused("no batch is under way", "batch", "end", "load"), "batch init")
    paste(refused("has not been done", "batch", "end", "load"), "batch step-start")
    paste(refused("is still under way", "batch", "end", "load"), "batch step-fail")
    paste(refused("has failed", "batch", "end", "load"), "batch step-start")
    paste(refused("is already under way", "batch", "step-start", "load", "extract"), "batch step-end")
    work("clean")
    ok("batch", "step-start", "load", "store")
    ok("batch", "step-fail", "load", "store")
    paste(refused("has failed", "batch", "end", "load"), "batch fail")
    said = ok("why", "load", str(shown("batch", "list")["batches"][0]["batch"])).stdout
    assert "the next program that takes a batch takes it again, with the same events" in said
    paste(said, "batch init")
    work("clean", "store")
    paste(refused("is already under way", "batch", "init", "load"), "batch fail")
    found = shown("batch", "init", "load")
    (staging(found) / "part-0.csv").write_text("a\n")
    paste(refused("has ended already", "batch", "step-start", "load", "extract"), "batch end")
    come(project, 2)
    ok("feed", "notify", "rates")
    ok("batch", "init", "load")
    paste(refused("is already under way", "batch", "init", "load"), "instance kill")


def test_a_batch_is_told_to_a_receiver_of_openlineage_with_the_orders_that_came(project: Path) -> None:
    file = project / "lineage.ndjson"
    with (project / "feed_assets.yaml").open("a") as settings:
        settings.write(f'\nnotify: {{catalogue: {{url: "openlineage+file://{file}"}}}}\n')
    ok("notify", "send")
    loaded(project, 1)
    ok("notify", "send")
    events = [check_event(json.loads(line)) for line in file.read_text().splitlines()]
    runs = [each for each in events if "run" in each]
    assert [(each["job"]["name"], each["eventType"]) for each in runs] == [
        ("here.load", "START"),
        ("here.load", "COMPLETE"),
    ]
    (read,), (written, *_) = runs[1]["inputs"], runs[1]["outputs"]
    assert read["inputFacets"]["subset"]["inputCondition"]["locations"] == [
        f"file://{project}/data/orders/20260301/060001"
    ]
    assert written["name"] == f"{project}/data/loaded"
    came = [each["dataset"]["name"] for each in events if "dataset" in each]
    assert came == [f"{project}/data/orders", "here.rates"]
