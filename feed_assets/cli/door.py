"""The door through which an operation meets its project and whoever asks: of a command, or of a request to a server.

A command reads the settings, opens the state and the definitions, and prints. A request finds them open, has its files
in its body, and its answer is kept.
"""

import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from feed_assets.access.principals import Principal
from feed_assets.access.rights import Rights, limited_by
from feed_assets.settings import Settings

if TYPE_CHECKING:
    from feed_assets.context.operation import OperationContext
    from feed_assets.definitions.store import DefinitionStore
    from feed_assets.operation import Operation
    from feed_assets.sql.database import Database


@dataclass(slots=True)
class Screen:
    """What is said while a request is answered, and the terminal on which it will be shown, if it is one."""

    width: int | None = None
    """The columns of the terminal; None if it is none."""
    has_colours: bool = False
    out: list[str] = field(default_factory=list)
    err: list[str] = field(default_factory=list)
    takes_results: bool = False
    """Whether a result is kept as it is, for a page, and not printed."""
    result: object = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a call: the result, what was said besides, the exit code of the command, and the error, if any."""

    out: str
    err: str
    exit_code: int
    error: Exception | None = None


AskSites: TypeAlias = Callable[["Door", "Operation", Mapping[str, Any]], Outcome]
"""Calls an operation, given its parameters by name as texts, also at the servers of colos."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """The door of a request."""

    settings: Settings
    database: "Database"
    principal: Principal
    open_context: "Callable[[], OperationContext]"
    open_store: "Callable[[], DefinitionStore]"
    screen: Screen
    rights: Rights | None = None
    """What who asks may do; None if nothing is refused."""
    ask_sites: AskSites | None = None
    """Of a front: what is called in the place of an operation."""

    @property
    def author(self) -> str:
        """The author of what is done through it."""
        return self.principal.author


CONSOLE = "application/vnd.feed-assets.console+json"
"""The media type of an answer as a terminal shows it: `out`, `err` and `exit_code`."""
PROBLEM = "application/problem+json"
"""The media type of a problem document, of RFC 9457."""
TERMINAL = "Feed-Assets-Terminal"
"""The header that describes the terminal: `columns=80;colours=yes`."""
FILE = "Feed-Assets-File"
"""The header with the name of the file that is the body, as in a URL; it is a label, never a path."""

_door: ContextVar[Door | None] = ContextVar("door", default=None)


def find_door() -> Door | None:
    """Return the door of the request that is being answered; None in a command."""
    return _door.get()


@contextmanager
def at(door: Door) -> Iterator[None]:
    """Let what is called in the block be asked through a door."""
    token = _door.set(door)
    try:
        with limited_by(door.rights):
            yield
    finally:
        _door.reset(token)


def find_width() -> int | None:
    """Return the number of columns of the terminal on which results are shown; None if it is none."""
    if (door := find_door()) is not None:
        return door.screen.width
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
