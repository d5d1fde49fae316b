"""What BDRE's six calls do with jobs and queues, against batches of work elsewhere.

Its jobs are processes here. Each of their sub-processes with a queue is an input, and each that is run is a step. A row
of a queue is a pending event. A job without a queue is started by a signal.
"""

import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from feed_assets.context.errors import InstanceQueryError
from feed_assets.definitions.bundles.archive import export_bundle, read_archive
from feed_assets.definitions.bundles.importing import import_bundle
from feed_assets.definitions.verbs.changes import submit
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process
from feed_assets.errors import FeedAssetsError
from feed_assets.external_work.calls import call_step, end_batch
from feed_assets.external_work.queries import AtWork
from feed_assets.instances.inbox.asking import take_from_inboxes
from feed_assets.instances.inbox.inbox_files import FileStatus
from feed_assets.instances.lists.feed_listings import list_files
from feed_assets.instances.steps.records import StepStatus
from feed_assets.loading.entity_files import EntityFile
from feed_assets.loading.yaml_writer import render_yaml
from feed_assets.log.records import ProcessInstanceStatus, ProcessKey
from feed_assets.triggers.queues import show_batch
from tests.conformance.what_comes import ON, Flow, flow, signal
from tests.context.contexts import about, context_of
from tests.definitions.verbs.harness import CLUSTER, EntityHarness, file_of
from tests.instances.harness import START, LifecycleHarness, validity

Case = dict[str, Any]
TABLE = "bdre.json"

PRODUCER, CONSUMER = "P1", "P2"
MADE = Feed(
    name="made",
    instances="as-they-come",
    locations={"data": "/made/${YEAR}${MONTH}${DAY}${HOUR}${MINUTE}${SECOND}"},
    clusters=ON,
)


def job(
    name: str, steps: Sequence[str] | Mapping[str, Any] = (), sources: Mapping[str, str] = {}, **more: Any
) -> Process:
    """A job: its steps one after another, and its sub-processes with queues, each with the feed of its enqueuer."""
    chain = dict(steps) if isinstance(steps, Mapping) else {step: {} for step in steps}
    before: str | None = None
    for step, said in chain.items():
        chain[step] = {**said, **({"after": [before]} if before else {})}
        before = step
    return Process(
        name=name,
        clusters=ON,
        inputs={sub: {"feed": source, "take": "new"} for sub, source in sources.items()},
        workflow={"engine": "external", "steps": chain},
        **more,
    )


@contextmanager
def two_jobs() -> Iterator[Flow]:
    """P1 makes what the sub-processes T1 and T2 of P2 take; somebody wants it to run."""
    made = {"made": {"feed": "made", "instance": "now(0,0)"}}
    producer = job(PRODUCER, ["S1", "S2"], trigger={"when": "start"}, outputs=made)
    consumer = job(CONSUMER, ["T1", "T2"], {"T1": "made", "T2": "made"}, trigger={})
    with flow(signal("start"), MADE, producer, consumer) as found:
        found.come("start")
        yield found


def run_sequence(case: Case) -> None:
    expect = case["expect"]
    with two_jobs() as found:
        made = found.init(PRODUCER, 1)
        if case["given"].get("state") is None:
            assert (made.status, expect["P1 execution"]) == (ProcessInstanceStatus.RUNNING, "RUNNING")
            steps = [(each.step, each.status) for each in made.steps]
            assert steps == [(each["sub"], StepStatus.PENDING) for each in expect["queue"]]
            assert [each.input for each in made.inputs] == ["start"]
            assert {output.nominal_time for output in made.outputs} == {made.batch}
            return
        found.work(PRODUCER, "S1", "S2")
        assert found.halt(PRODUCER, made, "parentProcessFirst").status is ProcessInstanceStatus.SUCCEEDED
        found.tick()
        if case["given"]["state"] == "BDRE-02":
            queue = [(each.input, each.nominal_time, each.marking, each.feed) for each in found.pending(CONSUMER)]
            assert queue == [(each["sub"], made.batch, each["marking"], "made") for each in expect["queue"]]
            assert len(found.pending(CONSUMER, "T1")) == expect["rows of T1"]
            assert {step.status for step in made.steps} == {StepStatus.PENDING}
            return
        failed = found.init(CONSUMER, 1)
        found.work(CONSUMER, "T1")
        found.work(CONSUMER, "T2", status=StepStatus.FAILED)
        found.term(CONSUMER)
        again = found.init(CONSUMER, 1)
        assert (again.batch, again.inputs) == (failed.batch, failed.inputs)
        found.work(CONSUMER, *(each.step for each in again.steps if each.status is StepStatus.PENDING))
        assert found.halt(CONSUMER, again, "parentProcessSecond").status is ProcessInstanceStatus.SUCCEEDED
        assert len(found.pending(CONSUMER, "T1")) == expect["rows of T1 in queue"]


SAID = {
    "No batch matching the batch-cut-pattern has been found for sub process yet": "lacks an event marked *_END*",
    "Parent Process is already running": "is already under way",
    "sub process in running state": "is still under way",
    "sub process in failed state": "has failed",
    "process not under execution": "no batch is under way",
}
"""What is said here instead."""


@contextmanager
def refused(error: str) -> Iterator[None]:
    with pytest.raises(FeedAssetsError, match=re.escape(SAID[error])):
        yield


def most_of(case: Case) -> int:
    """The `max_batch` of the call."""
    return int(re.search(r"(\d)\)$", case["steps"][0]["call"])[1])  # type: ignore[index]


def enqueue(case: Case) -> None:
    given, expect = case["given"], case["expect"]
    match given:
        case {"sub T": "enqueuers 10,20"}:
            sources = {f"T{number}": f"of-{number}" for number in re.findall(r"\d+", given["sub T"])}
            rows = [f"of-{row.split()[-1]}" for row in given["queue"]]
        case _:
            sources, rows = {"T": "of-1"}, ["of-1"] * len(given.get("queue", ["b1"]))
    batch = {"until": "*_END*"} if "pattern _END" in given["sub T"] else {}
    most = None if batch else most_of(case)  # here the pattern alone ends a batch, and a number beside it is refused
    with flow(*map(signal, set(sources.values())), job("P2", (), sources, trigger={"batch": batch})) as found:
        for row in rows:
            found.come(row)
        found.tick()
        if "error" in expect:
            with refused(expect["error"]):
                found.init("P2", most)
            return
        taken = found.taken(ProcessKey("P2", "primary", found.init("P2", most).batch))
        assert [f"b{each.event}" for each in taken] == expect["target set on"]
        assert [f"b{each.event}" for each in found.pending("P2")] == expect.get("untouched", [])


def guard(case: Case) -> None:
    errors = case["expect"]["error"]
    with two_jobs() as found:
        made = found.init(PRODUCER)
        if isinstance(errors, str):
            with refused(errors):
                found.init(PRODUCER)
            return
        found.work(PRODUCER, "S1")
        call_step(found.later(), AtWork(process=PRODUCER), "S2", StepStatus.RUNNING)
        with refused(errors[0]):
            found.halt(PRODUCER, made)
        call_step(found.later(), AtWork(process=PRODUCER), "S2", StepStatus.FAILED)
        with refused(errors[1]):
            found.halt(PRODUCER, made)
        found.work(PRODUCER, "S2")
        found.halt(PRODUCER, made)
        with refused(errors[2]):
            end_batch(found.later().by("ann"), AtWork(process=PRODUCER))


def recover(case: Case) -> None:
    steps = {"A": {}, "B": {"recoverable": False}, "C": {}}
    with flow(signal("d"), job("P", steps, {"d": "d"}, trigger={})) as found:
        found.come("d")
        found.init("P")
        found.work("P", "A", "B")
        if case["given"].get("last execution") == "SUCCESS":
            found.work("P", "C")
            end_batch(found.later().by("ann"), AtWork(process="P"))
            found.come("d")
        else:
            found.work("P", "C", status=StepStatus.FAILED)
            found.term("P")
        again = found.init("P")
        kept = [each.step for each in again.steps if each.status is StepStatus.KEPT]
        assert (again.next_step if kept else None) == case["expect"]["last-recoverable-sp-id"]


def sum_up(case: Case) -> None:
    """The smallest and largest number and marking of what a batch has taken."""
    rows, expect = case["given"]["rows of T"], case["expect"]
    with flow(signal("d"), job("P", (), {"d": "d"}, trigger={})) as found:
        for _, marking in rows:
            found.come("d", marking=marking)
        (taken,) = found.init("P").inputs
        assert (taken.min_event, taken.max_event) == (1, len(rows))
        assert (taken.min_marking, taken.max_marking) == (expect["min-marking"], expect["max-marking"])


def find_lineage(case: Case) -> None:
    with two_jobs() as found:
        assert case["expect"] == {"error": "Invalid Target BatchId"}
        with pytest.raises(InstanceQueryError, match="no batch has this time"):
            about(show_batch, found.later(), CONSUMER, found.now)


def fail_producer(case: Case) -> None:
    assert case["expect"] == {"queue of T1,T2": "unchanged"}
    with two_jobs() as found:
        made = found.init(PRODUCER)
        found.work(PRODUCER, "S1", "S2")
        found.halt(PRODUCER, made)
        found.come("start")
        found.tick()
        before = found.pending(CONSUMER)
        found.init(PRODUCER)
        assert found.term(PRODUCER).status is ProcessInstanceStatus.FAILED
        found.tick()
        assert len(before) == 2
        assert found.pending(CONSUMER) == before


class Register:
    """Registers files: a server is a cluster with an inbox, to which its files come one by one."""

    def __init__(self, root: Path) -> None:
        on = {name: validity(START, None) for name in ("server-1", "server-2")}
        feed = Feed(
            name="files",
            instances="as-they-come",
            inbox={"directory": "/in", "settle": "seconds(1)"},
            locations={"data": "/files/${YEAR}${MONTH}${DAY}${HOUR}${MINUTE}${SECOND}"},
            clusters=on,
        )
        self.root = root
        self.lifecycle = LifecycleHarness.of(root, feed, clusters=tuple(on))
        self.context = context_of(self.lifecycle, START + timedelta(days=30))

    def __call__(self, server: str, path: str, content: str) -> FileStatus:
        file = self.root / server.replace(" ", "-") / "in" / path.strip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
        os.utime(file, (0, 0))
        results = take_from_inboxes(self.context.by("ann"), "files")
        (status,) = [each.status for result in results for each in result.files]
        return status


def register_files(case: Case) -> None:
    with tempfile.TemporaryDirectory() as root:
        register = Register(Path(root))
        if "FILE" in case["given"]:
            for server, path, content in case["given"]["FILE"]:
                register(server, path, content)
            answers = {FileStatus.KNOWN: "File Already exists exception", FileStatus.TAKEN: "ok"}
            calls = [re.findall(r"(server \d),(/\w+),(\w+)", each["call"])[0] for each in case["steps"]]
            known = {"h": "hash h"}
            results = [answers[register(server, path, known.get(hash_, hash_))] for server, path, hash_ in calls]
            assert results == case["expect"]["results"]
        else:
            for number in range(max(case["given"]["FILE batches"])):
                register("server 1", "/a", str(number))
            first, last = map(int, re.findall(r"\d+", case["steps"][0]["call"]))
            listed = list_files(register.context, "files", cluster="server-1", first_event=first, last_event=last)
            assert [file.event for file in listed.files] == case["expect"]["batches"]
        register.lifecycle.database.close()


def import_job(case: Case) -> None:
    """A job of a bundle replaces the one here that has its id: with its steps, their order, and its properties."""
    assert case["given"]["import"] == "J(code X) with steps s1',s3"
    here = job("J", ["s1", "s2"], {"d": "d"}, properties={"p": "old"}, trigger={})
    brought = job("J", {"s1": {"recoverable": False}, "s3": {}}, {"d": "d"}, properties={"q": "new"}, trigger={})
    with tempfile.TemporaryDirectory() as folder:
        project = EntityHarness.at(Path(folder))
        declared = (render_yaml(each).encode() for each in (signal("d"), here))
        submit(project.context(), [file_of(CLUSTER), *(EntityFile(name="a.yaml", content=text) for text in declared)])
        bundle = read_archive(export_bundle(project.context(), []).content, "all.zip")
        texts = {**bundle.texts, "entities/process/J.yaml": render_yaml(brought).encode()}
        done = import_bundle(project.context(), replace(bundle, texts=texts), "all.zip")
        found = project.context().load().bundle.bundle.find(("process", "J"))
        project.database.close()
    assert [each.outcome.value for each in done.entities] == ["unchanged", "unchanged", "changed"]
    assert isinstance(found, Process)
    steps = {name: (step.recoverable, step.after) for name, step in found.workflow.steps.items()}
    assert steps == {"s1": (False, ()), "s3": (True, ("s1",))}
    assert dict(found.properties) == {"q": "new"}


RUNNERS = {
    "files": register_files,
    "import": import_job,
    "sequence": run_sequence,
    "enqueue": enqueue,
    "guard": guard,
    "recover": recover,
    "outputs": sum_up,
    "lineage": find_lineage,
    "invariant": fail_producer,
}


def test_each_case_of_the_table_holds_or_is_listed_with_a_reason(case: Case, judge: Callable[[Case], None]) -> None:
    judge(case)


def test_the_list_of_differences_names_only_what_is_in_the_table(unknown_differences: set[str]) -> None:
    assert unknown_differences == set()
