"""Tables, buckets and inboxes that are not there, refuse or do not answer: each fails alone, and is told once."""

import os
import re
import socket
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from textwrap import dedent
from threading import Thread

import pytest
from dagster import DagsterInstance

from feed_assets.context.bulkheads import TickFailures, TickStep
from feed_assets.instances.late.store import LATE_DATA, LateChecks
from feed_assets.log.messages.outbox import Outbox
from feed_assets.log.messages.records import render_payload
from feed_assets.orchestration.sensors.deadlines import run_late_tick
from feed_assets.patience import Patience
from feed_assets.receivers import Topic
from tests.object_servers import BUCKET, run_s3, s3_client
from tests.orchestration.dagster_home import Home
from tests.orchestration.hand_ticked import NOON, LocationHarness
from tests.orchestration.small import ENTITIES, START, key, land
from tests.orchestration.test_poisons import arrived, checks
from tests.orchestration.test_retention import execute
from tests.storage.hanging import hanging
from tests.tables import Catalog

VALID = "validity: {start: 2026-01-01T00:00Z, end: 2026-01-02T00:00Z}"
HOURLY = """
    ---
    kind: feed
    name: {name}
    frequency: hours(1)
    late_arrival: {{cut_off: hours(6)}}
    {place}
    clusters: {{here: {{type: source, {valid}, retention: {{limit: hours(6)}}}}}}
"""
COMING = """
    ---
    kind: feed
    name: {name}
    instances: as-they-come
    {way}
    locations: {{data: "{url}/${{YEAR}}-${{MONTH}}-${{DAY}}/${{HOUR}}${{MINUTE}}${{SECOND}}"}}
    clusters: {{here: {{type: source, {valid}}}}}
"""
KEYS = "ds=${YEAR}-${MONTH}-${DAY};hour=${HOUR}"
HOUR = "${YEAR}-${MONTH}-${DAY}/${HOUR}"


class Denying(BaseHTTPRequestHandler):
    """An S3 server on which this user may do nothing."""

    def do_GET(self) -> None:
        body = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
        self.send_response(403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base
        pass


@pytest.fixture(params=["missing", "denied"])
def endpoint(request: pytest.FixtureRequest) -> Iterator[str]:
    """An S3 server that has not the bucket `away`, or denies access to all."""
    if request.param == "missing":
        with run_s3() as server:
            yield str(server.options["endpoint_url"])
        return
    with ThreadingHTTPServer(("127.0.0.1", 0), Denying) as denying:
        Thread(target=denying.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{denying.server_address[1]}"
        denying.shutdown()


@pytest.fixture
def hole() -> Iterator[str]:
    """A server that accepts and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def on_s3(data: Path, endpoint: str, more: str = "") -> str:
    """The usual feeds in a folder; the storage of their cluster is a bucket."""
    options = f'{{endpoint_url: "{endpoint}", key: anybody, secret: "${{env:PATH}}", region: us-east-1}}'
    storage = f'storage: "s3://{BUCKET}"\n    storage_options: {options}{more}'
    usual = ENTITIES.replace("storage: file://${DATA_ROOT}", storage)
    for name in ("numbers", "sums"):
        usual = usual.replace(f'"/{name}/', f'"file://{data}/{name}/')
    return usual


def inbox(name: str, url: str, directory: str) -> str:
    return COMING.format(
        name=name, url=url, way=f'inbox: {{directory: "{directory}", settle: seconds(1)}}', valid=VALID
    )


def settled(folder: Path) -> str:
    """A directory with a file that nobody writes any more."""
    folder.mkdir(parents=True)
    (folder / "a.csv").write_text("1")
    os.utime(folder / "a.csv", (1_600_000_000, 1_600_000_000))
    return f"file://{folder}"


def failing(harness: LocationHarness) -> set[tuple[TickStep, str]]:
    with harness.runtime.database(harness.instance).read() as connection:
        return {(each.step, each.subject) for each in TickFailures(connection).all()}


@pytest.mark.server
def test_tables_and_buckets_that_are_not_there_stop_only_their_own_feeds(
    tmp_path: Path, instance: DagsterInstance, metastore_port: int, endpoint: str
) -> None:
    home, catalog, name = Home(folder=tmp_path), Catalog(metastore_port), f"refused_{endpoint.rpartition(':')[2]}"
    catalog.make_database(name, tmp_path / "warehouse")
    table = catalog.make_table(name, "clicks", tmp_path / "clicks", [("ds", "string"), ("hour", "string")])
    folder = tmp_path / "clicks" / "three"
    folder.mkdir(parents=True)
    (folder / "part").write_text("1")
    catalog.add_partition(table, ["2026-01-01", "03"], f"file:{folder}")
    places = {
        "a-none": f'table: "catalog:{name}:none#{KEYS}"',
        "b-nowhere": f'table: "catalog:{name}_x:none#{KEYS}"',
        "c-bucket": f'locations: {{data: "s3://away/c/{HOUR}"}}',
        "d-clicks": f'table: "catalog:{name}:clicks#{KEYS}"',
    }
    entities = on_s3(home.data, endpoint, f"\n    catalog: thrift://127.0.0.1:{metastore_port}")
    entities += "".join(HOURLY.format(name=feed, place=place, valid=VALID) for feed, place in places.items())
    entities += COMING.format(name="e-watched", url="s3://away/e", way="watch: minutes(1)", valid=VALID)
    entities += inbox("f-emptied", f"file://{home.data}/f", "s3://away/in")
    entities += inbox("g-filled", "s3://away/g", settled(tmp_path / "in-g"))
    entities += inbox("h-inbox", f"file://{home.data}/h", settled(tmp_path / "in-h"))
    harness = LocationHarness(home, instance, entities)
    told = []
    for hour in range(3, 6):
        land(home.data, hour, 1)
        harness.at(NOON + timedelta(hours=hour))
        result = harness.tick()
        assert ("numbers", key(hour)) in arrived(result)
        assert result.run_requests
        told += checks(result)
        if hour == 3:
            assert {feed for feed, _ in arrived(result)} == {"numbers", "d-clicks", "h-inbox"}
    (check,) = told
    text = str(check.metadata["failures"].value)
    for feed in ("a-none", "b-nowhere", "c-bucket"):
        assert len(re.findall(f"feed {feed} on here cannot be polled", text)) == 1, text
    for unit in ("watches of e-watched", "inboxes of f-emptied", "inboxes of g-filled"):
        assert f"{unit} on here fails" in text
    assert "d-clicks" not in text
    with harness.runtime.database(instance).read() as connection:
        messages = Outbox(connection).read(0, 9, Topic.HEALTH)
    texts = [str(render_payload(each.payload)["failing"]) for each in messages]
    assert [(text.count("cannot be polled"), text.count("fails since")) for text in texts] == [(3, 0), (3, 4)]
    assert "d-clicks" not in "".join(texts)

    harness.at(NOON + timedelta(days=2))
    assert execute(harness).success
    assert {unit for step, unit in failing(harness) if step is TickStep.RETENTION} == {
        "a-none",
        "b-nowhere",
        "c-bucket",
    }

    catalog.make_table(name, "none", tmp_path / "none", [("ds", "string"), ("hour", "string")])
    harness.at(NOON + timedelta(days=2, hours=12))
    (check,) = checks(harness.tick())
    assert "a-none" not in str(check.metadata["failures"].value).replace(f"{name}_x", "")


@pytest.mark.server
def test_a_table_whose_data_do_not_answer_fails_alone_as_soon_as_its_metastore_answers_without_it(
    tmp_path: Path, instance: DagsterInstance, metastore_port: int
) -> None:
    home, catalog, name = Home(folder=tmp_path), Catalog(metastore_port), "half_silent"
    catalog.make_database(name, tmp_path / "warehouse")
    for table in ("far", "near"):
        made = catalog.make_table(name, table, tmp_path / "warehouse" / table, [("ds", "string"), ("hour", "string")])
        folder = tmp_path / table / "three"
        folder.mkdir(parents=True)
        (folder / "part").write_text("1")
        catalog.add_partition(made, ["2026-01-01", "03"], f"file:{folder}")
    places = {table: f'table: "catalog:{name}:{table}#{KEYS}"' for table in ("far", "near")}
    metastore = f"thrift://127.0.0.1:{metastore_port}"
    entities = ENTITIES.replace(
        "storage: file://${DATA_ROOT}", f"storage: file://${{DATA_ROOT}}\n    catalog: {metastore}"
    )
    entities += "".join(HOURLY.format(name=feed, place=place, valid=VALID) for feed, place in places.items())
    harness = LocationHarness(home, instance, entities)
    harness.runtime.patience = Patience(2.0)
    with hanging(tmp_path / "far"):
        told = checks(harness.tick())
        assert failing(harness) == {(TickStep.STORAGE, metastore)}
        harness.at(NOON + timedelta(hours=1))
        result = harness.tick()
        told += checks(result)
        assert arrived(result) == [("near", key(3))]
        assert failing(harness) == {(TickStep.STORAGE, f"{metastore}/{name}/far")}
        land(home.data, 3, 1)
        harness.at(NOON + timedelta(hours=1, seconds=2))
        result = harness.tick()
        told += checks(result)
        assert len(told) == 2
        assert "near" not in str(told[1].metadata["failures"].value)
    for hour in range(3, 9):  # the calls that have hung end by and by
        harness.at(NOON + timedelta(hours=hour))
        if ("far", key(3)) in arrived(harness.tick()):
            break
    else:
        raise AssertionError(failing(harness))
    assert failing(harness) == set()


def test_an_inbox_to_a_storage_that_does_not_answer_is_left_alone_and_the_others_are_emptied(
    tmp_path: Path, instance: DagsterInstance, hole: str
) -> None:
    home = Home(folder=tmp_path)
    entities = on_s3(home.data, hole)
    entities += inbox("filled", "s3://away/a", settled(tmp_path / "in-a"))
    entities += inbox("inbox", f"file://{home.data}/b", settled(tmp_path / "in-b"))
    harness = LocationHarness(home, instance, entities)
    harness.runtime.patience = Patience(1.0)
    land(home.data, 3, 1)
    result = harness.tick()
    assert {feed for feed, _ in arrived(result)} == {"numbers", "inbox"}
    assert failing(harness) == {(TickStep.STORAGE, hole)}
    (check,) = checks(result)
    assert f"storage of {hole} fails" in str(check.metadata["failures"].value)
    harness.at(NOON + timedelta(minutes=1))
    assert not checks(harness.tick())
    assert (tmp_path / "in-a" / "a.csv").exists()


def test_late_checks_of_a_storage_that_does_not_answer_put_off_no_others(
    tmp_path: Path, instance: DagsterInstance, hole: str
) -> None:
    home = Home(folder=tmp_path)
    with run_s3() as server:
        client, answering = s3_client(server.options), str(server.options["endpoint_url"])
        client.create_bucket(Bucket="away")
        client.put_object(Bucket="away", Key="lost/2026-01-01/03/part", Body=b"1")
        feeds = {"lost": f"s3://away/lost/{HOUR}", "kept": f"file://{home.data}/kept/{HOUR}"}
        places = {feed: f'locations: {{data: "{url}"}}' for feed, url in feeds.items()}
        late = "".join(HOURLY.format(name=feed, place=place, valid=VALID) for feed, place in places.items())
        harness = LocationHarness(home, instance, on_s3(home.data, answering) + late)
        land(home.data, 3, 1, feed="kept")
        harness.at(START + timedelta(hours=3, minutes=30))
        assert {feed for feed, _ in arrived(harness.tick())} == {"kept", "lost"}
    (home.folder / "entities" / "all.yaml").write_text(dedent(on_s3(home.data, hole) + late))
    harness.reopen()
    harness.runtime.patience = Patience(1.0)
    harness.at(START + timedelta(hours=5, minutes=30))
    (home.data / "kept" / f"{START:%Y-%m-%d}" / "03" / "more.csv").write_text("n\n1\n")
    said = run_late_tick(harness.runtime, harness.layout, "here", instance)
    with harness.runtime.database(instance).read() as connection:
        due = LateChecks(connection).due(LATE_DATA, "here", harness.runtime.clock.now(), 10)
        reasons = [each.reason for each in TickFailures(connection).all()]
    assert due == []
    assert all("has not answered within 1 seconds" in reason for reason in reasons), reasons
    assert failing(harness) == {(TickStep.STORAGE, hole), (TickStep.LATE_DATA, "lost")}, said
