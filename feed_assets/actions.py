"""Record what commands and ticks do: one line of JSON for each action, through the logger `feed_assets.actions`.

The lines go where the setting `actions` says, and to whatever handlers a program adds to that logger. Nothing here
raises: a record that cannot be written, such as on a full disk, is lost, and the action goes on.
"""

import json
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from logging.handlers import RotatingFileHandler
from pathlib import Path

from feed_assets.masking import mask_values
from feed_assets.settings import Actions, Settings

LOGGER = "feed_assets.actions"
FILE_NAME = "actions.jsonl"
MOST_BYTES = 10_000_000
"""The size of a file; then it gets the suffix `.1`, and older ones the next number."""
OLDER_FILES = 5
_SQLITE = "sqlite:///"

_logger = logging.getLogger(LOGGER)


class ActionStatus(StrEnum):
    """How an action has ended."""

    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """Something that was done: its name, what it concerned, how it ended, and after how many seconds.

    `dimensions` without a value are left out. `reason` says why it failed.
    """

    name: str
    dimensions: Mapping[str, str | None]
    status: ActionStatus
    seconds: float
    reason: str = ""

    def render(self, ended_at: datetime, namespace: str | None = None) -> str:
        """Return its line, without secrets and without an end of line.

        >>> action = Action(name="why", dimensions={"kind": "feed"}, status=ActionStatus.SUCCEEDED, seconds=0.25)
        >>> action.render(datetime(2013, 11, 3, tzinfo=UTC))  # doctest: +NORMALIZE_WHITESPACE
        '{"at": "2013-11-03T00:00:00.000+00:00", "action": "why", "dimensions": {"kind": "feed"},
         "status": "SUCCEEDED", "seconds": 0.25}'
        """
        dimensions = {**self.dimensions, "namespace": namespace}
        keys: dict[str, object] = {
            "at": ended_at.isoformat(timespec="milliseconds"),
            "action": self.name,
            "dimensions": {name: value for name, value in dimensions.items() if value},
            "status": self.status.value,
            "seconds": round(self.seconds, 3),
        }
        if self.reason:
            keys["reason"] = self.reason
        return json.dumps(mask_values(keys))


def record_action(action: Action) -> None:
    """Send the record of an action that has ended now; costs next to nothing if nobody wants it."""
    if _logger.isEnabledFor(logging.INFO):
        _logger.info("%s", action.name, extra={"action": action})


def find_destination(settings: Settings, environ: Mapping[str, str]) -> Path | Actions:
    """Return where records go: a file, standard error, or nowhere (`off`).

    Without a setting, that is a file in the folder of the state: that of the SQLite file, or DAGSTER_HOME.
    """
    match settings.actions:
        case None:
            folder = _state_folder(settings.state, environ)
            return Actions.OFF if folder is None or not folder.is_dir() else folder / FILE_NAME
        case Actions.OFF | Actions.STDERR:
            return Actions(settings.actions)
        case file:
            return settings.root / file


def _state_folder(state: str | None, environ: Mapping[str, str]) -> Path | None:
    if state is not None and state.startswith(_SQLITE):
        return Path(state.removeprefix(_SQLITE).partition("?")[0]).parent
    home = environ.get("DAGSTER_HOME")
    return Path(home) if home else None


def send_actions(settings: Settings, environ: Mapping[str, str]) -> None:
    """Send the records of this process where the settings say, from now on, and nowhere else."""
    destination, namespace = find_destination(settings, environ), settings.namespace
    present = [handler for handler in _logger.handlers if isinstance(handler, _Sending)]
    if [(handler.destination, handler.namespace) for handler in present] == [(destination, namespace)]:
        return
    close_actions()
    match destination:
        case Actions.OFF:
            return
        case Actions.STDERR:
            _logger.addHandler(_ToStandardError(namespace))
        case file:
            _logger.addHandler(_ToFile(file, namespace))
    _logger.setLevel(logging.INFO)
    _logger.propagate = False


def close_actions() -> None:
    """Send the records of this process nowhere from now on, and close what they went to."""
    for handler in [each for each in _logger.handlers if isinstance(each, _Sending)]:
        _logger.removeHandler(handler)
        handler.close()


class _AsLine(logging.Formatter):
    def __init__(self, namespace: str | None) -> None:
        super().__init__()
        self._namespace = namespace

    def format(self, record: logging.LogRecord) -> str:
        action: Action | None = getattr(record, "action", None)
        ended_at = datetime.fromtimestamp(record.created, UTC)
        return super().format(record) if action is None else action.render(ended_at, self._namespace)


class _Sending(logging.Handler):
    """A handler of ours; whatever fails in it is the loss of a record."""

    destination: Path | Actions
    namespace: str | None

    def handleError(self, record: logging.LogRecord) -> None:
        """Do nothing."""


class _ToStandardError(_Sending, logging.StreamHandler):  # type: ignore[type-arg]
    destination = Actions.STDERR

    def __init__(self, namespace: str | None) -> None:
        super().__init__()
        self.namespace = namespace
        self.setFormatter(_AsLine(namespace))


class _ToFile(_Sending, RotatingFileHandler):
    """A file of limited size to which several processes write; each follows when another has renamed it."""

    def __init__(self, file: Path, namespace: str | None) -> None:
        super().__init__(file, maxBytes=MOST_BYTES, backupCount=OLDER_FILES, encoding="utf-8", delay=True)
        self.destination, self.namespace = file, namespace
        self.setFormatter(_AsLine(namespace))

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002
        """Forget the file with what could not be written to it; the next record opens it anew."""
        stream, self.stream = self.stream, None
        if stream is not None:
            with suppress(OSError):
                stream.close()

    def shouldRollover(self, record: logging.LogRecord) -> bool:
        if self.stream is not None and not self._is_current(self.stream.fileno()):
            self.stream.close()
            self.stream = None
        return bool(super().shouldRollover(record))

    def _is_current(self, opened: int) -> bool:
        try:
            return os.path.samestat(Path(self.baseFilename).stat(), os.fstat(opened))
        except FileNotFoundError:
            return False
