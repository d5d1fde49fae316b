"""A week of work in minutes: the buttons of Dagster, an outage, a daemon that is down, corrections and losses, on
PostgreSQL, S3, a webserver and the real daemon. Each part prints its figures; all parts are played, then judged.

An instance is a minute instead of a day, and takes about a second. Feeds and processes of a part end with its letter.
"""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError
from dagster import DagsterInstance, RunsFilter
from sqlalchemy import text

from feed_assets.clock import SystemClock
from feed_assets.sql.database import Database
from feed_assets.timing.dates import render_datetime
from tests.connect_server import ConnectServer
from tests.object_servers import BUCKET, s3_client
from tests.orchestration.dagster_home import Home, home_on_postgresql, state_of
from tests.orchestration.told import arrival_ticks, location_check
from tests.servers import free_port

pytestmark = [pytest.mark.drill, pytest.mark.daemon, pytest.mark.spark, pytest.mark.server, pytest.mark.timeout(2400)]

MINUTE = timedelta(minutes=1)
START = SystemClock().now().astimezone(UTC).replace(second=0, microsecond=0) - 70 * MINUTE
FAR = START + 60 * MINUTE
OUTAGE_SECONDS = 120.0
SILENCE_SECONDS = 130.0
"""From two minutes without a tick on, `why` says so."""
DAYS = {"a": 57, "b": 10, "c": 3, "e": 3, "g": 51}
TODAY = DAYS["g"] - 1
WORK_OF_G = 6.0
RETRY_AFTER = 60.0

CLUSTERS = """
{kind: cluster, name: here, storage: "file://${DATA_ROOT}", spark: {remote: "${SPARK}"}}
---
kind: cluster
name: there
storage: s3://%s
storage_options: {endpoint_url: "${S3}", key: anybody, secret: "${env:S3_SECRET}", region: us-east-1}
spark: {remote: "${SPARK}"}
"""
FEED = """
---
{kind: feed, name: %(name)s, frequency: minutes(1), format: csv, schema: "n bigint", availability_flag: _SUCCESS,
 locations: {data: "/%(name)s/${YEAR}-${MONTH}-${DAY}-${HOUR}-${MINUTE}"}, clusters: {%(clusters)s}%(more)s}
"""
PROCESS = """
---
{kind: process, name: work-%(part)s, frequency: minutes(1), clusters: {here: {%(validity)s}}, timeout: months(60),
 inputs: {raw: {feed: raw-%(part)s, start: "now(0,0)", end: "now(0,0)"}},
 outputs: {made: {feed: made-%(part)s, instance: "now(0,0)"}},
 workflow: {engine: python, path: "jobs_of_test:work"}%(more)s}
"""
JOBS = f"""
    import time
    from pathlib import Path

    from pyspark.sql import functions as f

    PROJECT = Path(__file__).parent
    SECONDS = {{"work-a": 0.5, "work-b": 0.1, "work-e": 0.0, "work-g": {WORK_OF_G}}}

    def work(raw, context):
        failed = PROJECT / "failed"
        if context.process == "work-g" and f"{{context.nominal_time:%H%M}}" == "{START + TODAY * MINUTE:%H%M}":
            if not failed.exists():
                failed.touch()
                raise RuntimeError("the first time")
        else:
            time.sleep(SECONDS[context.process])
        factor = int((PROJECT / "factor").read_text())
        return raw.agg((f.sum("n") * factor).alias("n"))
"""


def validity(count: int, start: datetime = START) -> str:
    return f"validity: {{start: {render_datetime(start)}, end: {render_datetime(start + count * MINUTE)}}}"


def entities() -> str:
    """The declaration of the week."""
    found = CLUSTERS % BUCKET
    copied = ", replication: {timeout: months(60)}"
    for part, count in DAYS.items():
        source = f"here: {{type: source, {validity(count)}}}"
        both = f"{source}, there: {{type: target, {validity(count)}}}"
        if part == "c":
            found += FEED % {"name": "raw-c", "clusters": both, "more": copied}
            continue
        found += FEED % {"name": f"raw-{part}", "clusters": source, "more": ""}
        clusters, more = (both, copied) if part == "e" else (f"here: {{{validity(count)}}}", "")
        found += FEED % {"name": f"made-{part}", "clusters": clusters, "more": more}
        retry = ", retry: {policy: periodic, delay: minutes(1), attempts: 3}" if part == "g" else ""
        found += PROCESS % {"part": part, "validity": validity(count), "more": retry}
    return found + FEED % {"name": "far", "clusters": f"there: {{type: source, {validity(1, FAR)}}}", "more": ""}


@dataclass(slots=True)
class Week:
    """What is played, and what came of it."""

    home: Home
    instance: DagsterInstance
    state: Database
    bucket: Any
    storage: "subprocess.Popen[bytes]"
    port: int
    wrong: list[str] = field(default_factory=list)

    def judge(self, is_right: bool, figures: str) -> None:
        """Note figures, and whether they are as they shall be."""
        self.wrong += [] if is_right else [figures]
        print("ok   " if is_right else "WRONG", figures, flush=True)

    def rows(self, query: str, **values: object) -> list[tuple[Any, ...]]:
        with self.state.read() as connection:
            return [tuple(row) for row in connection.execute(text(query), values)]

    def counts(self, part: str) -> dict[str, int]:
        """How many instances of the process of a part have each status."""
        query = "SELECT status, count(*) FROM fa_process_instances WHERE process = :process GROUP BY status"
        return dict(self.rows(query, process=f"work-{part}"))  # type: ignore[arg-type]

    def is_settled(self, part: str) -> bool:
        counts = self.counts(part)
        return bool(counts) and not {"WAITING", "READY", "RUNNING"} & set(counts)

    def land(self, part: str, *minutes: int) -> None:
        """Let instances arrive, and say so."""
        for minute in minutes:
            at = START + minute * MINUTE
            folder = self.home.data / f"raw-{part}" / f"{at:%Y-%m-%d-%H-%M}"
            folder.mkdir(parents=True)
            (folder / "part.csv").write_text(f"n\n{minute}\n")
            (folder / "_SUCCESS").touch()
        first, last = START + min(minutes) * MINUTE, START + (max(minutes) + 1) * MINUTE
        span = ("--start", render_datetime(first), "--end", render_datetime(last))
        self.say("feed", "notify", f"raw-{part}", *span, "--cluster", "here")

    def say(self, *words: str) -> tuple[str, float]:
        """What a command says, and its seconds."""
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "feed_assets", *words],
            cwd=self.home.folder,
            env=self.home.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout + done.stderr, time.monotonic() - began

    def ask(self, query: str, **variables: object) -> dict[str, Any]:
        """What the webserver answers, as to its UI."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        url = f"http://127.0.0.1:{self.port}/graphql"
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            found: dict[str, Any] = json.load(answer)
        assert "errors" not in found, found
        return dict(found["data"])

    def is_green(self) -> bool:
        check = location_check(self.instance)
        return check is not None and check.passed

    def health_messages(self) -> int:
        return int(self.rows("SELECT count(*) FROM fa_outbox WHERE topic = 'health'")[0][0])

    def has_seen(self) -> bool:
        """Whether what came during the outage is copied, and what came behind it is seen."""
        query = "SELECT feed FROM fa_feed_instances WHERE cluster = 'there' AND status = 'AVAILABLE'"
        return len([feed for (feed,) in self.rows(query) if feed in ("raw-c", "far")]) == DAYS["c"] + 1

    def copied(self, minute: int) -> str:
        """What the copy of an instance of part e has."""
        prefix = f"made-e/{START + minute * MINUTE:%Y-%m-%d-%H-%M}/part"
        keys = [each["Key"] for each in self.bucket.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", [])]
        found = [self.bucket.get_object(Bucket=BUCKET, Key=key)["Body"].read().decode() for key in keys]
        return "".join(found).partition("\n")[2].strip()


def within(condition: Callable[[], bool], seconds: float) -> float | None:
    """The seconds until a condition holds; None if it does not in time."""
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        with suppress(OSError, BotoCoreError, ClientError):
            if condition():
                return time.monotonic() - began
        time.sleep(0.3)
    return None


def shown(seconds: float | None) -> str:
    return "never seen" if seconds is None else f"{seconds:.0f} s"


@contextmanager
def s3_process(folder: Path) -> Iterator[tuple["subprocess.Popen[bytes]", str]]:
    """An S3 server in a process of its own, which can be stopped and continued."""
    port = free_port()
    with (folder / "s3.log").open("wb") as log:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        yield process, f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        process.wait()


@contextmanager
def week(folder: Path) -> Iterator[Week]:
    """The project with all servers but the daemon."""
    spark_server = ConnectServer(log_file=folder / "connect.log", master="local[1]", root=folder)
    with home_on_postgresql(folder) as on_postgresql, s3_process(folder) as (storage, url), spark_server as spark:
        values = {"FEED_ASSETS_VARIABLES__SPARK": spark.url, "FEED_ASSETS_VARIABLES__S3": url, "S3_SECRET": "anything"}
        home = replace(on_postgresql, settings={**on_postgresql.settings, **values})
        home.prepare(entities(), JOBS)
        (home.folder / "factor").write_text("1")
        bucket = s3_client({"endpoint_url": url, "key": "anybody", "secret": "anything"})
        assert within(lambda: bool(bucket.create_bucket(Bucket=BUCKET)), 60) is not None
        port = free_port()
        served = ("dagster_webserver", "-h", "127.0.0.1", "-p", str(port), "-w", "workspace.yaml")
        web = home.background(*served, log="web.log")
        with home.instance() as instance, closing(state_of(home)) as state, web:
            state.migrate()
            yield Week(home=home, instance=instance, state=state, bucket=bucket, storage=storage, port=port)


def play_terminate(played: Week) -> None:
    """Part a begins: Terminate of the run of 57 at its 13th."""
    assert within(lambda: played.counts("a").get("SUCCEEDED", 0) >= 12, 300) is not None, played.home.log()[-3000:]
    (run, *_) = played.instance.get_runs(RunsFilter(tags={"feed_assets/process": "work-a"}))
    print(f"      the first tag of a run: {min(each for each in run.tags.items() if 'dagster' not in each[0])}")
    query = "mutation($id: String!) {terminateRun(runId: $id, terminatePolicy: SAFE_TERMINATE) {__typename}}"
    assert played.ask(query, id=run.run_id)["terminateRun"]["__typename"] == "TerminateRunSuccess"


def play_missing(played: Week) -> None:
    """Part b: Materialize missing of ten whose inputs are not there, and then are."""
    names = [f"{START + minute * MINUTE:%Y-%m-%d-%H:%M}" for minute in range(DAYS["b"])]
    query = """mutation($keys: [String!]!) {launchPartitionBackfill(backfillParams: {
        assetSelection: [{path: ["here", "made-b"]}], partitionNames: $keys})
        {__typename ... on LaunchBackfillSuccess {backfillId} ... on PythonError {message}}}"""
    launched = played.ask(query, keys=names)["launchPartitionBackfill"]
    tags = {"dagster/backfill": launched["backfillId"]}

    def is_over() -> bool:
        runs = played.instance.get_runs(RunsFilter(tags=tags))
        return bool(runs) and all(run.is_finished for run in runs)

    seconds = within(is_over, 240)
    failed = played.counts("b").get("FAILED", 0)
    said = f"(b) Materialize missing of 10: its run ended after {shown(seconds)}, {failed} FAILED"
    played.judge(seconds is not None and failed == 0, said)
    played.land("b", *range(DAYS["b"]))
    seconds = within(lambda: played.is_settled("b"), 180)
    counts = played.counts("b")
    played.judge(counts == {"SUCCEEDED": 10}, f"(b) when the inputs had come: {counts} after {shown(seconds)}")


def play_correction(played: Week) -> None:
    """Part e: a day is made again with other content."""
    assert within(lambda: played.copied(2) == "2", 300) is not None, played.counts("e")
    (played.home.folder / "factor").write_text("10")
    said, _ = played.say("instance", "rerun", "work-e", "--instance", render_datetime(START + 2 * MINUTE))
    query = "SELECT count(*) FROM fa_attempts WHERE process = 'work-e' AND status = 'SUCCEEDED' AND attempt > 1"
    assert within(lambda: played.rows(query)[0][0] > 0, 180) is not None, said
    at = time.time()
    seconds = within(lambda: played.copied(2) == "20", 180)
    ticks = len(arrival_ticks(played.instance, at, "replication_there"))
    said = f"(e) a corrected day: its copy was right {shown(seconds)} later, {ticks} ticks of replication"
    played.judge(seconds is not None and ticks <= 2, said)


def finish_terminate(played: Week) -> None:
    """Part a ends."""
    seconds = within(lambda: played.is_settled("a"), 300)
    counts = played.counts("a")
    said = f"(a) Terminate of 57 at the 13th: {counts}, {shown(seconds)} after part e"
    played.judge(counts == {"KILLED": 1, "SUCCEEDED": 56}, said)


def play_outage(played: Week) -> None:
    """Parts c and g: S3 hangs for two minutes, while today's instance waits behind fifty old ones elsewhere."""
    played.judge(within(played.is_green, 120) is not None, "(c) green before the outage")
    told = played.health_messages()
    began = time.monotonic()
    played.storage.send_signal(signal.SIGSTOP)
    played.land("c", *range(DAYS["c"]))
    played.land("g", TODAY)
    assert within(lambda: bool(_attempts(played)), 100) is not None, played.home.log()[-3000:]
    played.land("g", *range(TODAY))
    said, seconds = played.say("why", "raw-c@here", render_datetime(START), "--cluster", "there")
    print(f"      why while S3 hangs, {seconds:.1f} s: {said.splitlines()[:1]}")
    time.sleep(max(0.0, OUTAGE_SECONDS - (time.monotonic() - began)))
    was_red = not played.is_green()
    played.storage.send_signal(signal.SIGCONT)
    back = time.monotonic()
    for name in ("part.csv", "_SUCCESS"):
        played.bucket.put_object(Bucket=BUCKET, Key=f"far/{FAR:%Y-%m-%d-%H-%M}/{name}", Body=b"n\n1\n")
    green: float | None = None
    data: float | None = None
    while (now := time.monotonic() - back) < 300 and (green is None or data is None):
        green = now if green is None and played.is_green() else green
        data = now if data is None and played.has_seen() else data
        time.sleep(0.3)
    is_quick = was_red and green is not None and green <= 60
    played.judge(is_quick, f"(c) S3 hung for two minutes (red: {was_red}): green {shown(green)} after its return")
    is_quick = data is not None and data <= 60
    played.judge(is_quick, f"(c) copies made and new data seen {shown(data)} after its return")
    query = "SELECT sum(retries), sum(attempt) FROM fa_process_instances WHERE process = 'raw-c@here'"
    ((retries, attempts),) = played.rows(query)
    played.judge(int(retries) == 0, f"(c) {retries} retries spent, {attempts} attempts at 3 copies")
    within(lambda: played.health_messages() - told >= 2, 60)
    time.sleep(10)
    messages = played.health_messages() - told
    played.judge(messages == 2, f"(c) {messages} messages of topic health")


def _attempts(played: Week) -> list[float]:
    """The times at which attempts at today's instance of part g began; the first fails at once."""
    query = "SELECT started_at FROM fa_attempts WHERE process = 'work-g' AND nominal_time = :at ORDER BY attempt"
    at = int((START + TODAY * MINUTE).timestamp()) * 10**6
    return [micros / 1e6 for (micros,) in played.rows(query, at=at)]


def finish_today(played: Week) -> None:
    """Part g ends: today's instance is tried again."""
    within(lambda: len(_attempts(played)) > 1, 400)
    first, *again = _attempts(played)
    due = first + RETRY_AFTER
    lag = again[0] - due if again else None
    begun = [micros / 1e6 for (micros,) in played.rows("SELECT started_at FROM fa_attempts WHERE process = 'work-g'")]
    between = sum(due < each < (again[0] if again else time.time()) for each in begun)
    said = f"(g) a failed instance of today behind 50 old ones of {WORK_OF_G:g} s: began {shown(lag)} after its retry "
    played.judge(lag is not None and between <= 2, f"{said}was due; {between} old ones began between")


def play_silence(played: Week) -> None:
    """Part d: the daemon is down; who asks why one of the old instances is not done hears it first."""
    time.sleep(SILENCE_SECONDS)
    said, seconds = played.say("why", "work-g", render_datetime(START + (TODAY - 1) * MINUTE))
    first = next(iter(said.splitlines()), "")
    played.judge(first.startswith("no tick"), f"(d) daemon down: why took {seconds:.1f} s and begins {first!r}")


def play_loss(played: Week) -> None:
    """Part f: the bucket has lost everything, and a day passes on the clock."""
    before = played.health_messages()
    for each in played.bucket.list_objects_v2(Bucket=BUCKET).get("Contents", []):
        played.bucket.delete_object(Bucket=BUCKET, Key=each["Key"])
    now = SystemClock().now()
    later = {"ORIGIN": (now + timedelta(hours=25)).isoformat(), "REAL_START": now.isoformat(), "SPEED": "1"}
    clock = {f"FEED_ASSETS_DEMO__REPLAY__{name}": value for name, value in later.items()}
    tomorrow = replace(played.home, settings={**played.home.settings, **clock})

    def said() -> str:
        check = location_check(played.instance)
        return "" if check is None or check.passed else check.description or ""

    with tomorrow.daemon():
        told = within(lambda: f"s3://{BUCKET}" in said(), 180)
    played.judge(told is not None, f"(f) an emptied bucket, 25 hours later on the clock: told after {shown(told)}")
    print(f"      {played.health_messages() - before} messages of health; the check: {said()!r}")


def test_a_week_of_work(tmp_path: Path) -> None:
    began = time.monotonic()
    with week(tmp_path) as played:
        played.land("e", *range(DAYS["e"]))
        played.land("a", *range(DAYS["a"]))
        with played.home.daemon():
            play_terminate(played)
            play_missing(played)
            play_correction(played)
            finish_terminate(played)
            play_outage(played)
            finish_today(played)
        play_silence(played)
        play_loss(played)
    print(f"the week took {time.monotonic() - began:.0f} s on {os.cpu_count()} processors")
    assert not played.wrong
