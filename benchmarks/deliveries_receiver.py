"""A receiver that takes every POST and forgets it. Prints its port."""

import socket
from threading import Thread

_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


def main() -> None:
    """Serve until killed."""
    server = socket.create_server(("127.0.0.1", 0), backlog=64)
    print(server.getsockname()[1], flush=True)
    while True:
        connection, _ = server.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        Thread(target=_serve, args=(connection,), daemon=True).start()


def _serve(connection: socket.socket) -> None:
    """Answer each request of a connection."""
    with connection, connection.makefile("rb") as stream:
        while line := stream.readline():
            size = 0
            while line.strip():
                name, _, value = line.partition(b":")
                size = int(value) if name.lower() == b"content-length" else size
                line = stream.readline()
            stream.read(size)
            connection.sendall(_ANSWER)


if __name__ == "__main__":
    main()
