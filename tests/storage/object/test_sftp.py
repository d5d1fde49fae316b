"""An sftp server that falls silent: requests fail in time, and work again when it is back."""

import socket
from collections.abc import Iterator
from contextlib import suppress
from threading import Event, Thread

import pytest

from feed_assets.storage.errors import StorageError
from feed_assets.storage.object import fsspec_client
from feed_assets.storage.records import Availability
from feed_assets.storage.registry import open_store
from tests.object_servers import ObjectServer
from tests.storage.conftest import sftp_server

__all__ = ["sftp_server"]

pytestmark = pytest.mark.server


class Relay:
    """A port that leads to another one, until it is told to be silent."""

    def __init__(self, port: int) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._target = ("127.0.0.1", port)
        self.port = self._listening.getsockname()[1]
        self.speaks = Event()
        self.speaks.set()
        Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                pair = self._listening.accept()[0], socket.create_connection(self._target)
                for source, sink in (pair, pair[::-1]):
                    Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError), source, sink:
            while data := source.recv(1 << 16):
                self.speaks.wait(30)
                sink.sendall(data)

    def close(self) -> None:
        self._listening.close()


@pytest.fixture
def relay(sftp_server: ObjectServer) -> Iterator[Relay]:
    relay = Relay(int(str(sftp_server.options["port"])))
    yield relay
    relay.speaks.set()
    relay.close()


def test_a_request_that_is_not_answered_fails_and_the_next_connects_anew(
    relay: Relay, sftp_server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fsspec_client, "ANSWER_SECONDS", 0.5)
    store = open_store(sftp_server.url, {**sftp_server.options, "port": relay.port})
    store.check_root()
    relay.speaks.clear()
    with pytest.raises(StorageError, match=r"it has not answered within 0\.5 seconds"):
        store.look(["2013/11"], None)
    relay.speaks.set()
    (look,) = store.look(["2013/11"], None)
    assert look.availability is Availability.MISSING
