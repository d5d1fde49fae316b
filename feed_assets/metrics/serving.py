"""Serve metrics over HTTP at `/metrics`, collected anew for each request, one request after the other."""

import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Lock, Thread
from wsgiref.simple_server import WSGIRequestHandler, make_server
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from prometheus_client import make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from feed_assets.context.errors import ListenRefusedError
from feed_assets.errors import FeedAssetsError
from feed_assets.masking import mask
from feed_assets.metrics.expositions import build_registry
from feed_assets.metrics.records import Metrics

PATH = "/metrics"

_IDLE_SECONDS = 30
_TEXT = (("Content-Type", "text/plain; charset=utf-8"),)


class _Handler(WSGIRequestHandler):
    """Logs no requests, and leaves a client that sends nothing."""

    timeout = _IDLE_SECONDS

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@contextmanager
def serving_metrics(
    collect: Callable[[], Metrics], host: str, port: int, on_failure: Callable[[str], None]
) -> Iterator[str]:
    """Serve metrics while the block runs; yields their URL. Port 0 is any free port.

    A request whose collection fails is answered with 503 and the sentence of the error, and `on_failure` is called with
    it.

    Raises:
        ListenRefusedError: the host is unknown, or the port is taken or forbidden.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]

        class _Server(ThreadingWSGIServer):
            address_family = family

        server = make_server(str(address[0]), port, _build_app(collect, on_failure), _Server, _Handler)
    except OSError as exc:
        raise ListenRefusedError(address=_render(host, port), reason=exc.strerror or str(exc)) from exc
    thread = Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield f"http://{_render(host, server.server_port)}{PATH}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _build_app(collect: Callable[[], Metrics], on_failure: Callable[[str], None]) -> WSGIApplication:
    lock = Lock()

    def collect_alone() -> Metrics:
        with lock:
            return collect()

    exposition = make_wsgi_app(build_registry(collect_alone))

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] != PATH:
            start_response("404 Not Found", [*_TEXT])
            return [f"Metrics are at {PATH}.\n".encode()]
        try:
            found: Iterable[bytes] = exposition(environ, start_response)
        except FeedAssetsError as exc:
            on_failure(str(exc))
            start_response("503 Service Unavailable", [*_TEXT])
            return [f"{mask(str(exc))}\n".encode()]
        return found

    return answer


def _render(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
