"""Metrics over HTTP: what Prometheus asks, and what it is answered."""

import gzip
from collections.abc import Callable, Mapping
from http.client import HTTPConnection, HTTPResponse
from threading import Lock, Thread
from urllib.parse import urlsplit

import pytest

from feed_assets.context.errors import ListenRefusedError
from feed_assets.context.operation import OperationContext
from feed_assets.metrics.collecting import collect_metrics
from feed_assets.metrics.records import Metrics
from feed_assets.metrics.serving import serving_metrics
from feed_assets.sql.errors import StateUnreachableError

LOOPBACK = "127.0.0.1"


def ask(url: str, path: str | None = None, headers: Mapping[str, str] = {}) -> tuple[HTTPResponse, bytes]:
    parts = urlsplit(url)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    connection.request("GET", path or parts.path, headers=dict(headers))
    response = connection.getresponse()
    content = response.read()
    connection.close()
    return response, content


def fail_never(message: str) -> None:
    raise AssertionError(message)


@pytest.fixture
def collect(told: OperationContext) -> Callable[[], Metrics]:
    return lambda: collect_metrics(told)


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("*/*", "text/plain; version=0.0.4"),
        ("application/openmetrics-text;version=1.0.0,text/plain;q=0.5", "application/openmetrics-text; version=1.0.0"),
    ],
)
def test_the_form_is_the_one_that_is_accepted(collect: Callable[[], Metrics], accept: str, form: str) -> None:
    with serving_metrics(collect, LOOPBACK, 0, fail_never) as url:
        response, content = ask(url, headers={"Accept": accept, "Accept-Encoding": "gzip"})
    assert response.status == 200
    assert response.headers["Content-Type"].startswith(form)
    assert b'feed_assets_missing_instances{cluster="primary",entity="clicks"} 2.0' in gzip.decompress(content)


def test_other_paths_name_the_right_one(collect: Callable[[], Metrics]) -> None:
    with serving_metrics(collect, LOOPBACK, 0, fail_never) as url:
        response, content = ask(url, "/")
    assert (response.status, content) == (404, b"Metrics are at /metrics.\n")


def test_a_scrape_that_fails_is_answered_and_the_next_one_is_tried_again(collect: Callable[[], Metrics]) -> None:
    obstacles = [StateUnreachableError(database="postgresql://state", reason="it is down", next_step="Start it.")]
    told: list[str] = []

    def collect_later() -> Metrics:
        if obstacles:
            raise obstacles.pop()
        return collect()

    with serving_metrics(collect_later, LOOPBACK, 0, told.append) as url:
        response, content = ask(url)
        assert (response.status, told) == (503, [content.decode().rstrip("\n")])
        assert b"it is down" in content
        assert ask(url, "/")[1] == b"Metrics are at /metrics.\n"
        assert ask(url)[0].status == 200


def test_one_scrape_is_made_at_a_time(collect: Callable[[], Metrics]) -> None:
    alone, statuses = Lock(), list[int]()

    def collect_alone() -> Metrics:
        assert alone.acquire(blocking=False)
        try:
            return collect()
        finally:
            alone.release()

    with serving_metrics(collect_alone, LOOPBACK, 0, fail_never) as url:
        threads = [Thread(target=lambda: statuses.append(ask(url)[0].status)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert statuses == [200] * 4


def test_a_taken_port_and_an_unknown_host_are_refused(collect: Callable[[], Metrics]) -> None:
    with serving_metrics(collect, LOOPBACK, 0, fail_never) as url:
        port = urlsplit(url).port or 0
        with pytest.raises(ListenRefusedError, match=r"127\.0\.0\.1:\d+: nothing can be served here: .*in use"):
            serving_metrics(collect, LOOPBACK, port, fail_never).__enter__()
    with pytest.raises(ListenRefusedError, match=r"no\.invalid:1: nothing can be served here"):
        serving_metrics(collect, "no.invalid", 1, fail_never).__enter__()


def test_an_end_frees_the_port(collect: Callable[[], Metrics]) -> None:
    with serving_metrics(collect, LOOPBACK, 0, fail_never) as url:
        port = urlsplit(url).port or 0
    with serving_metrics(collect, LOOPBACK, port, fail_never) as again:
        assert again == url
