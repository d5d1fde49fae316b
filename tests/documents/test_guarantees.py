"""Checks the numbers of docs/guarantees.md against the code, and that no code does what its pages say is not done."""

import re
from datetime import timedelta
from pathlib import Path

from feed_assets.context import bulkheads
from feed_assets.entities.process import RetryPolicy
from feed_assets.instances import leasing
from feed_assets.instances.arrival import polling, stored_data
from feed_assets.instances.gates import readiness, reconciliation, requests
from feed_assets.instances.gates.staging_sweep import ABANDONED_AFTER
from feed_assets.instances.inbox import ingest
from feed_assets.instances.late.lateness import FEED_DELAY, FEED_POLICY
from feed_assets.log import watermarks
from feed_assets.log.instances.tables import manifests, process_instances
from feed_assets.log.tables import feed_events
from feed_assets.orchestration import names
from feed_assets.orchestration.location import dead_runs, reloading
from feed_assets.orchestration.runs import remaining
from feed_assets.orchestration.sensors import building as sensors
from feed_assets.orchestration.sensors import log_events, overdue_notices, ticks
from feed_assets.sql import database
from feed_assets.storage.paths import CONTROL_FOLDER, PUBLISHING_NAME
from tests.documents.markdown import ROOT, tables_of

PAGES = ("guarantees", "ticks", "failures", "releases", "late-data")
PAGE = " ".join(word for name in PAGES for word in (ROOT / f"docs/{name}.md").read_text("utf-8").split())
ACTING = [
    file
    for folder in ("external_work", "instances", "orchestration", "rebuild", "replication", "retention")
    for file in (ROOT / "feed_assets" / folder).rglob("*.py")
]


def written_in(files: list[Path], pattern: str) -> set[str]:
    return {found for file in files for found in re.findall(pattern, file.read_text("utf-8"))}


def test_the_numbers_are_those_of_the_code() -> None:
    (numbers,) = [table for table in tables_of("docs/guarantees.md") if table.section == "Numbers"]
    kinds = written_in(ACTING, r"(?:kind=|done, )FeedEventKind\.([A-Z]+)")
    assert dict(numbers.rows) == {
        "duration of a lease in seconds": f"{leasing.TTL.total_seconds():.0f}",
        "deaths of workers in a row that fail an instance": str(reconciliation.MOST_DEATHS),
        "seconds until a request without a run is repeated": f"{reconciliation.REQUEST_PATIENCE.total_seconds():.0f}",
        "seconds after which a run without lease and log counts as dead": f"{dead_runs.SILENCE.total_seconds():.0f}",
        "minimum seconds between ticks": str(sensors.ARRIVAL_SECONDS),
        "seconds after which a tick begins no new batch": f"{reloading.SECONDS_A_TICK:.0f}",
        "run requests a tick": str(ticks.REQUESTS_A_TICK),
        "events reported to Dagster a tick": str(ticks.EVENTS_A_TICK),
        "reported events looked at again a tick": str(log_events.LOOKED_A_TICK),
        "unfinished instances explained in Dagster a tick": str(overdue_notices.EXPLAINED_A_TICK),
        "polls of missing instances a tick": str(polling.POLLS_A_TICK),
        "instances of a feed or process that come before its past": str(watermarks.NEWEST),
        "instances of its past a tick": str(watermarks.PAST_A_TICK),
        "minutes before the newest instance from which a watched location is looked at": str(
            int(stored_data.OVERLAP / timedelta(minutes=1))
        ),
        "files that are taken from an inbox into one instance": str(ingest.MOST_FILES),
        "bytes of the largest file that a tick takes from an inbox": str(ingest.LARGEST_IN_TICKS),
        "instances a run": str(requests.INSTANCES_A_RUN),
        "minutes of work for which a run is planned": str(requests.RUN_TIME // timedelta(minutes=1)),
        "attempts that tell how long an instance takes": str(requests.MEASURED),
        "seconds of work for which a run gives way": f"{remaining.SHORTEST_REST:.0f}",
        "instances of a process created in one transaction": str(readiness.INSTANCES_A_STEP),
        "minutes up to which a created instance is on time": f"{readiness.ON_TIME.seconds // 60}",
        "seconds that writers of the state wait": str(database.LOCK_WAIT_SECONDS),
        "minimum seconds between checks for late data": str(sensors.OTHER_SECONDS),
        "kinds of events that are written": " ".join(sorted(kinds)),
    }


def test_pauses_between_looks_are_those_of_the_code() -> None:
    assert bulkheads.AGE_PER_PAUSE == 50
    assert (bulkheads.SHORTEST_PAUSE.total_seconds(), polling.LONGEST_PAUSE.total_seconds()) == (1, 6 * 3600)
    assert "a fiftieth of its age, between 1 second and 6 hours" in PAGE


def test_what_fails_in_retention_is_tried_again_when_the_page_says() -> None:
    assert timedelta(minutes=10) == bulkheads.LONGEST_PAUSE
    assert "It is tried again after 10 minutes" in (ROOT / "docs/retention.md").read_text("utf-8")


def test_what_late_data_are_shown_as_is_what_the_page_says() -> None:
    assert f"tag `{names.TAG_LATE}`" in PAGE
    assert f"metadata `{names.META_LATE_DATA}`" in PAGE
    assert f"`{manifests.name}`" in PAGE
    assert (RetryPolicy.EXP_BACKOFF, timedelta(hours=3)) == (FEED_POLICY, FEED_DELAY)


def test_what_keeps_instances_is_told_as_the_page_says() -> None:
    for name in (names.META_WHY, names.META_STATUS, process_instances.name, process_instances.c.notice_digest.name):
        assert f"`{name}`" in PAGE


def test_names_of_files_and_tables_are_those_of_the_code() -> None:
    for name in (CONTROL_FOLDER, PUBLISHING_NAME, feed_events.name):
        assert f"`{name}" in PAGE


def test_what_nothing_does_yet_is_done_by_nothing() -> None:
    assert "removes it after 7 days" in PAGE
    assert timedelta(days=7) == ABANDONED_AFTER
    assert "How outputs were written is not recorded" in PAGE
    told = [file for file in ACTING if file.name != "called_batches.py"]  # which says where a program writes
    assert written_in(told, r"[\"'](output \{)") == set()


def test_the_samples_of_dagster_homes_have_what_is_relied_on() -> None:
    for file in (ROOT / "examples/dagster_home").glob("*/dagster.yaml"):
        content = file.read_text("utf-8")
        assert "run_monitoring: {enabled: true" in content
        assert "default_limit: 1" in content
