import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from feed_assets.orchestration.errors import WebserverError
from feed_assets.orchestration.webserver import reload_locations

OURS = {"repositoriesOrError": {"nodes": [{"location": {"name": "here"}, "sensors": [{"name": "arrival_primary"}]}]}}
THEIRS = {"repositoriesOrError": {"nodes": [{"location": {"name": "there"}, "sensors": [{"name": "other"}]}]}}


@contextmanager
def answering(*answers: object) -> Iterator[tuple[str, list[dict[str, object]]]]:
    """A webserver that gives answers in their order, and what it was asked."""
    left, asked = list(answers), []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            content = json.dumps(left.pop(0)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Nothing is logged."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/", asked
        finally:
            server.shutdown()
            thread.join()


def loaded(kind: str, message: str = "") -> object:
    entry = {"__typename": "WorkspaceLocationEntry", "locationOrLoadError": {"__typename": kind, "message": message}}
    return {"data": {"reloadRepositoryLocation": entry}}


def test_locations_of_ours_are_loaded_anew() -> None:
    with answering({"data": OURS}, loaded("RepositoryLocation")) as (url, asked):
        assert reload_locations(url) == ("here",)
    assert asked[1]["variables"] == {"name": "here"}


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ([{"data": THEIRS}], "it shows no location of feed-assets. Reload the location there by hand."),
        ([{"data": {}}], "it shows no location of feed-assets. Reload the location there by hand."),
        ([{"errors": ["no such field"]}], "it refused: ['no such field']."),
        ([{"data": OURS}, loaded("PythonError", "oh\nno")], "location 'here' was not loaded: oh."),
        ([["nonsense"]], "it refused: None."),
    ],
)
def test_what_goes_wrong_is_said_with_the_next_step(answers: list[object], message: str) -> None:
    with answering(*answers) as (url, _), pytest.raises(WebserverError) as refused:
        reload_locations(url)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://127.0.0.1:1", "it does not answer: "),
        ("ftp://here", "it is not an http address. Write http://host:port."),
    ],
)
def test_an_address_that_leads_nowhere_is_named(url: str, message: str) -> None:
    with pytest.raises(WebserverError, match=f"webserver {url}: {message}"):
        reload_locations(url)
