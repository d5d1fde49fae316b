"""Listing and triage of feed instances against Falcon's, on a local store."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from feed_assets.context.consolidation import PAGE
from feed_assets.context.errors import InstanceQueryError
from feed_assets.context.operation import resolve_subject
from feed_assets.entities.common import Kind
from feed_assets.entities.errors import EntityNotFoundError
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process
from feed_assets.instances.lists.feed_listings import ListedInstance, list_feed
from feed_assets.instances.lists.ranges import decide_range
from feed_assets.lineage.instance_views import find_triage
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.records import FeedInstance, FeedInstanceStatus, ProcessInstanceStatus
from feed_assets.storage.local.store import LocalStore
from feed_assets.storage.records import Availability
from feed_assets.timing.dates import parse_datetime, parse_timezone, render_datetime
from feed_assets.timing.sequence import InstanceSequence, parse_frequency
from tests.context.contexts import about, context_of, put, row
from tests.instances.harness import START, LifecycleHarness, feed, process

Case = dict[str, Any]
TABLE = "feed_listing.json"
MOMENT = timedelta(minutes=1)
"""Falcon's end is in the range, ours is not."""
LATER = parse_datetime("2018-01-01T00:00Z")


def run_status(case: Case) -> None:
    with tempfile.TemporaryDirectory() as root:
        if "directory" in case:
            instance = Path(root, "instance")
            instance.mkdir()
            for name, size in case["directory"].items():
                (instance / name).write_bytes(b"x" * size)
        (look,) = LocalStore(root).look(["instance"], case.get("availability_flag"))
    assert look.availability == case["expected"]
    if "expected_size" in case:  # a missing instance has no size; Falcon renders that as -1
        assert (-1 if look.availability is Availability.MISSING else look.bytes) == case["expected_size"]


def feed_of(written: Mapping[str, str]) -> Feed:
    """The feed of a case. Raises `LookupError` if it is a table."""
    content = {
        "name": "clicks",
        "frequency": written["frequency"],
        "timezone": written["timezone"],
        "availability_flag": written.get("availability_flag"),
        "locations": {"data": written["path"]},
        "clusters": {"primary": {"validity": {"start": written["start"], "end": written["end"]}}},
    }
    return Feed.model_validate(content)


@contextmanager
def lifecycle(*entities: Feed | Process) -> Iterator[LifecycleHarness]:
    with tempfile.TemporaryDirectory() as root:
        made = LifecycleHarness.of(Path(root), *entities)
        yield made
        made.database.close()


def listing_of(case: Case, start: datetime, end: datetime) -> tuple[ListedInstance, ...]:
    """What the storage of a case holds for a range."""
    with lifecycle(feed_of(case["feed"])) as made:
        for path, files in case["directories"].items():
            folder = Path(made.root, "primary", path.strip("/"))
            folder.mkdir(parents=True)
            for name, size in files.items():
                with (folder / name).open("wb") as file:
                    file.truncate(size)
        return list_feed(
            context_of(made, LATER),
            resolve_subject(context_of(made, LATER), "clicks"),
            start=start,
            end=end + MOMENT,
            look=True,
        ).instances


def run_listing(case: Case) -> None:
    listed = listing_of(case, parse_datetime(case["start"]), parse_datetime(case["end"]))
    found = [
        {
            "instance": render_datetime(each.nominal_time),
            "status": each.status.value,
            "size": -1 if each.bytes is None else each.bytes,
        }
        for each in listed
    ]
    assert found == [{key: each[key] for key in ("instance", "status", "size")} for each in case["expected"]]
    assert all(each.url.endswith(one["uri"]) for each, one in zip(listed, case["expected"], strict=True))


def run_single_status(case: Case) -> None:
    time = parse_datetime(case["instance"])
    (listed,) = listing_of(case, time, time)
    assert listed.status == case["expected"]


def run_request_range(case: Case) -> None:
    sequence = InstanceSequence(
        start=parse_datetime(case["validity"]["start"]),
        frequency=parse_frequency(case["frequency"]),
        timezone=parse_timezone("UTC"),
        end=parse_datetime(case["validity"]["end"]),
    )
    start, end = (parse_datetime(case[key]) if key in case else None for key in ("start", "end"))

    def answer() -> list[str]:
        found = decide_range([sequence], start=start, end=end, results=PAGE, now=parse_datetime(case["now"]))
        return [render_datetime(time) for time in found]

    if case["expected"] == "error":
        with pytest.raises(InstanceQueryError):
            answer()
    else:
        assert answer() == case["expected"]


def run_triage(case: Case) -> None:
    entities: list[Feed | Process] = []
    for written in case["world"].values():
        start = parse_datetime(written["start"])
        if "input" not in written:
            entities.append(feed(written["name"], written["frequency"], start=start))
            continue
        content = {
            "name": written["name"],
            "frequency": written["frequency"],
            "clusters": {"primary": {"validity": {"start": start, "end": written["end"]}}},
            "inputs": {f"from-{key}": written[key] for key in ("input", "input2") if key in written},
            "outputs": {"to": written["output"]},
            "workflow": {"path": "jobs:run"},
        }
        entities.append(Process.model_validate(content))
    kind, name, time = case["of"]
    with lifecycle(*entities) as made:
        waiting = [each for each in entities if isinstance(each, Process)]
        put(
            made,
            *(
                row(each.name, each.clusters["primary"].validity.start, ProcessInstanceStatus.WAITING)
                for each in waiting
            ),
        )
        if case["data"] != "none":
            raise LookupError(case["data"])
        (graph,) = about(
            find_triage, context_of(made, parse_datetime(time)), name, parse_datetime(time), kind=Kind(kind)
        ).items
    labels = [(each["name"], each["nominal_time"]) for each in graph.vertices]
    vertices = [[*label, each["status"]] for label, each in zip(labels, graph.vertices, strict=True)]
    assert sorted(vertices) == sorted(case["expected"]["vertices"])
    edges = [["@".join(labels[each[end]]) for end in ("source", "target")] for each in graph.edges]
    assert sorted(edges) == sorted(case["expected"]["edges"])


def run_request_rule(case: Case) -> None:
    """Only feeds have a listing."""
    kind = Kind(case["entity_type"])
    with lifecycle(process("clicks") if kind is Kind.PROCESS else feed("clicks")) as made:
        if case["expected"] == "error":
            with pytest.raises(EntityNotFoundError):
                about(list_feed, context_of(made, LATER), "clicks", kind=Kind.FEED)
        else:
            about(list_feed, context_of(made, LATER), "clicks", kind=Kind.FEED)


def run_triage_step(case: Case) -> None:
    """Whether the graph goes on from an instance of a feed to its producer, or of a process to its inputs."""
    name = {"feed": "counts", "process": "count"}[case["entity"]]
    reader = process("count", inputs={"clicks": "now(0,0)"}, outputs={"counts": "now(0,0)"})
    with lifecycle(feed("clicks"), feed("counts"), reader) as made:
        if case["entity"] == "process":
            put(made, row("count", START, ProcessInstanceStatus(case["status"])))
        else:
            status = FeedInstanceStatus(case["status"])
            counted = FeedInstance(
                feed="counts", cluster="primary", nominal_time=START, status=status, updated_at=START
            )
            with made.database.begin() as connection:
                FeedInstances(connection).put([counted])
        (graph,) = about(find_triage, context_of(made, START), name, START, kind=Kind(case["entity"])).items
    goes_on = case.get("expected_search_producer", case.get("expected_search_inputs"))
    assert isinstance(goes_on, bool)
    producer = (
        [("count", "UNSCHEDULED"), ("clicks", "MISSING")] if case["entity"] == "feed" else [("clicks", "MISSING")]
    )
    assert [(each["name"], each["status"]) for each in graph.vertices] == [(name, case["status"]), *goes_on * producer]


RUNNERS = {
    "status": run_status,
    "listing": run_listing,
    "single_status": run_single_status,
    "request_range": run_request_range,
    "triage": run_triage,
    "request_rule": run_request_rule,
    "triage_step": run_triage_step,
}


def test_each_case_of_the_table_holds_or_is_listed_with_a_reason(case: Case, judge: Callable[[Case], None]) -> None:
    judge(case)


def test_the_list_of_differences_names_only_what_is_in_the_table(unknown_differences: set[str]) -> None:
    assert unknown_differences == set()
