"""A bucket in which others write and where nothing may be written: whoever is killed, each version that a look has
listed is in one instance and one batch, or reported.
"""

import hashlib
import http.client
import multiprocessing
import random
import re
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TypeAlias
from urllib.parse import parse_qs, urlsplit

import pytest

from feed_assets.clock import FrozenClock
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process
from feed_assets.instances.inbox import ingest
from feed_assets.instances.inbox.ingest import apply_inboxes
from feed_assets.instances.inbox.store import ListedVersions, VersionStatus
from feed_assets.log.events import EventLog
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import ProcessInstanceStatus
from feed_assets.storage.pool import StorePool
from feed_assets.storage.registry import open_store
from feed_assets.timing.dates import NEVER
from feed_assets.triggers.apply_triggers import apply_triggers
from feed_assets.triggers.queue.batches import Batches
from tests.drills import drill_seed, sized
from tests.instances.harness import START, LifecycleHarness, validity
from tests.instances.inbox.test_inboxes import orders
from tests.object_servers import BUCKET, ObjectServer, s3_client

FILES, NEW_VERSIONS, KILLS = sized(40, 10_000), sized(20, 1_000), sized(2, 50)
FILES_AT_ONCE = sized(10, 200)
KILLED_AFTER = sized((0.05, 0.5), (0.5, 9.0))
"""Seconds from the first listing of a program to its end."""
PAUSE = sized(0.2, 0.4)
"""Seconds between new versions, from the first listing on."""
DONE = "/done"
Version: TypeAlias = tuple[str, str]
"""The name of a file, and its ETag."""

_CONTENTS = re.compile(r"<Contents>.*?<Key>orders/([^<]*)</Key>.*?<ETag>(?:&quot;|\")?(\w+).*?</Contents>", re.DOTALL)


@dataclass(slots=True)
class Seen:
    """What went through a proxy: refused requests, the newest listing, and all that a look which was `done` had."""

    refused: list[str] = field(default_factory=list)
    listing: set[Version] = field(default_factory=set)
    listed: set[Version] = field(default_factory=set)
    done: set[Version] = field(default_factory=set)
    has_listed: threading.Event = field(default_factory=threading.Event)


@contextmanager
def read_only(server: ObjectServer) -> Iterator[tuple[Mapping[str, object], Seen]]:
    """The options of an S3 server that answers readers and refuses writers, as a policy of a bucket does."""
    seen, behind = Seen(), str(server.options["endpoint_url"]).removeprefix("http://")

    class Proxy(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1

        def do_GET(self) -> None:
            asked = urlsplit(self.path)
            if asked.path == DONE:
                seen.done |= seen.listing
                self._answer(200, {}, b"")
                return
            connection = http.client.HTTPConnection(behind)
            try:
                connection.request(self.command, self.path, headers=dict(self.headers))
                answer = connection.getresponse()
                data = answer.read()
            finally:
                connection.close()
            query = parse_qs(asked.query)
            if query.get("prefix") == ["orders/"] and answer.status == 200:
                found = set(_CONTENTS.findall(data.decode()))
                seen.listing = found if "continuation-token" not in query else seen.listing | found
                seen.listed |= found
                if "<NextContinuationToken>" not in data.decode():
                    seen.has_listed.set()
            self._answer(answer.status, dict(answer.getheaders()), data)

        do_HEAD = do_GET

        def _refuse(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            seen.refused.append(f"{self.command} {self.path}")
            self._answer(403, {}, b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>")

        do_PUT = do_POST = do_DELETE = _refuse

        def _answer(self, status: int, headers: Mapping[str, str], data: bytes) -> None:
            self.send_response(status)
            for name, value in headers.items():
                if name.lower() in ("etag", "last-modified", "content-range", "content-type"):
                    self.send_header(name, value)
            lengths = [value for name, value in headers.items() if name.lower() == "content-length"]
            self.send_header("Content-Length", lengths[0] if self.command == "HEAD" and lengths else str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        def handle(self) -> None:
            with suppress(ConnectionError):  # whoever asked was killed
                super().handle()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as proxy:
        thread = threading.Thread(target=proxy.serve_forever)
        thread.start()
        try:
            yield {**server.options, "endpoint_url": f"http://127.0.0.1:{proxy.server_address[1]}"}, seen
        finally:
            proxy.shutdown()
            thread.join()


def open_harness(root: Path, state: str, options: Mapping[str, object]) -> LifecycleHarness:
    """A feed whose files stay in the bucket, and a process that takes its instances in batches."""
    inbox = {"directory": f"s3://{BUCKET}/orders", "pattern": "*", "settle": "seconds(1)", "leave": True}
    load = Process.model_validate(
        {
            "name": "load",
            "clusters": {"primary": validity(START, None)},
            "trigger": {},
            "inputs": {"orders": {"feed": "orders", "take": "new"}},
            "outputs": {"loaded": {"feed": "loaded", "instance": "now(0,0)"}},
            "workflow": {"engine": "python", "path": "jobs:run"},
        }
    )
    loaded = Feed(
        name="loaded",
        instances="as-they-come",
        format="csv",
        locations={"data": "/loaded/${YEAR}-${MONTH}-${DAY}/${HOUR}${MINUTE}${SECOND}"},
        clusters={"primary": validity(START, None)},
    )
    lifecycle = LifecycleHarness.of(root, orders(**inbox), loaded, load, state=state)
    lifecycle.stores = StorePool(lambda url, given: open_store(url, dict(options) if "s3:" in url else given))
    return lifecycle


def work(root: Path, state: str, options: Mapping[str, object], ends: bool) -> None:
    """Tick until somebody kills this, or until nothing is left."""
    ingest.MOST_FILES = FILES_AT_ONCE
    lifecycle = open_harness(root, state, options)
    while not (ends and is_over(lifecycle)):
        as_of = datetime.now(UTC)
        tick = lifecycle.open_tick(as_of, real_clock=FrozenClock(as_of + timedelta(hours=1)))
        apply_inboxes(tick)
        urllib.request.urlopen(f"{options['endpoint_url']}{DONE}")
        apply_triggers(tick)
        end_batches(lifecycle)
        time.sleep(0.05)


def end_batches(lifecycle: LifecycleHarness) -> None:
    """Let the batch succeed that is ready, so that the next tick cuts another one."""
    with lifecycle.database.begin() as connection:
        instances = ProcessInstances(connection)
        keys = [each.key for each in instances.unended("load", "primary")]
        ended = ProcessInstanceStatus.SUCCEEDED
        instances.transition_many(keys, {ProcessInstanceStatus.READY}, status=ended, retry_at=NEVER, updated_at=START)


def batched(lifecycle: LifecycleHarness) -> Counter[int]:
    """How many batches have each event."""
    with lifecycle.database.read() as connection:
        batches = ProcessInstances(connection).find_between("load", "primary", START, NEVER)
        taken = [Batches(connection).events_of(batch.key) for batch in batches]
    return Counter(event.seq for shares in taken for each in shares for event in each.events)


def is_over(lifecycle: LifecycleHarness) -> bool:
    with lifecycle.database.read() as connection:
        known = ListedVersions(connection, "orders", "primary").known()
        last = EventLog(connection).last_seq()
    is_taken = len(known) == FILES and {each.status for each in known} == {VersionStatus.TAKEN}
    return is_taken and len(batched(lifecycle)) == last


def etag(content: str) -> str:
    return hashlib.md5(content.encode(), usedforsecurity=False).hexdigest()


@pytest.mark.sample
@pytest.mark.server
@pytest.mark.timeout(sized(120, 7200))
def test_whoever_is_killed_each_version_that_a_look_has_listed_is_in_one_batch_or_reported(
    tmp_path: Path, state_url: str, s3_server: ObjectServer
) -> None:
    chance, client = random.Random(drill_seed()), s3_client(s3_server.options)
    versions = {name: [f"{name} v1"] for name in (f"{number}.csv" for number in range(FILES))}

    def write(name: str) -> None:
        client.put_object(Bucket=BUCKET, Key=f"orders/{name}", Body=versions[name][-1].encode())

    for name in versions:
        write(name)
    killed = 0
    with read_only(s3_server) as (options, seen):
        programs = multiprocessing.get_context("spawn")

        def overwrite() -> None:
            seen.has_listed.wait()
            for name in chance.choices(list(versions), k=NEW_VERSIONS):
                versions[name].append(f"{name} v{len(versions[name]) + 1}")
                write(name)
                time.sleep(chance.uniform(0, 2 * PAUSE))

        writer = threading.Thread(target=overwrite)
        writer.start()
        for _ in range(KILLS):
            seen.has_listed.clear()
            program = programs.Process(target=work, args=(tmp_path, state_url, options, False))
            program.start()
            while not seen.has_listed.wait(0.5):
                assert program.is_alive()
            time.sleep(chance.uniform(*KILLED_AFTER))
            assert program.exitcode is None
            program.kill()
            program.join()
            seen.listing, killed = set(), killed + 1
        writer.join()
        program = programs.Process(target=work, args=(tmp_path, state_url, options, True))
        program.start()
        program.join()
        assert program.exitcode == 0
    check(open_harness(tmp_path, state_url, options), versions, seen, killed)
    client.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": f"orders/{name}"} for name in versions][:1000]})


def check(lifecycle: LifecycleHarness, versions: Mapping[str, list[str]], seen: Seen, killed: int) -> None:
    assert seen.refused == []
    events = lifecycle.events("orders")
    with lifecycle.database.read() as connection:
        reported = ListedVersions(connection, "orders", "primary").missed(0, 1 << 62)
    assert batched(lifecycle) == Counter(event.seq for event in events)
    contents = Counter(
        (path.name, etag(path.read_text()))
        for event in events
        for path in lifecycle.folder("orders", event.nominal_time).glob("[0-9]*.csv")
    )
    missed = Counter((each.name, each.version.partition(" ")[0]) for each in reported)
    found = contents + missed
    assert set(found.values()) == {1}, [each for each, count in found.items() if count > 1]
    written = {(name, etag(text)) for name, texts in versions.items() for text in texts}
    assert found.keys() <= written
    assert not seen.done - found.keys()
    assert {(name, etag(texts[-1])) for name, texts in versions.items()} <= contents.keys()
    of_killed = len(seen.listed - found.keys())
    said = f"{len(written):,} versions: {len(contents):,} in {len(events)} instances, {len(missed)} reported"
    print(f"{lifecycle.database.dialect}, {killed} kills, {said}, {of_killed} seen by looks that were killed alone")
