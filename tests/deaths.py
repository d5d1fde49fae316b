"""Processes that die before their n-th change, of whatever kind, as by `kill -9`."""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from sqlalchemy import Engine, event

from feed_assets.storage.table.metastore import Metastore

_CHANGING = frozenset({"os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.link"})
_WRITING = ("INSERT", "UPDATE", "DELETE")


def die_before(number: int) -> Callable[[object], None]:
    """Let this process die before its n-th change of files, of the state, or of a metastore, from now on.

    What is returned counts a change of another kind.
    """
    seen = 0

    def step(_: object) -> None:
        nonlocal seen
        seen += 1
        if seen == number:
            os.kill(os.getpid(), signal.SIGKILL)

    request = Metastore._request

    def watched(metastore: Metastore, call: Any) -> Any:
        step(call)
        return request(metastore, call)

    def on_statement(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        if statement.startswith(_WRITING):
            step(statement)

    Metastore._request = watched  # type: ignore[method-assign]
    event.listen(Engine, "before_cursor_execute", on_statement)
    event.listen(Engine, "commit", step)
    sys.addaudithook(lambda name, _: step(name) if name in _CHANGING else None)
    return step
