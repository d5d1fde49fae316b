"""Errors in starting or doing the work of a process."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from feed_assets.entities.flow_names import describe_process
from feed_assets.errors import FeedAssetsError, find_similar
from feed_assets.timing.dates import render_datetime


class EngineError(FeedAssetsError):
    """The work of a process could not be started or failed."""


class UnknownEngineError(EngineError):
    """No engine has this name."""

    def __init__(self, *, name: str, known: tuple[str, ...]) -> None:
        super().__init__(f"{name!r} is not an engine. Use one of {', '.join(known)} as workflow.engine.")


class WorkflowNotFoundError(EngineError):
    """A workflow path does not lead to code that can be run."""

    def __init__(self, *, process: str, path: str, reason: str, next_step: str) -> None:
        self.reason = reason
        self.next_step = next_step
        super().__init__(f"process {process!r}: workflow {path!r} cannot be run: {reason}. {next_step}")


class WorkflowSignatureError(EngineError):
    """User code does not fit the inputs and outputs of its process; detected before anything runs."""

    def __init__(self, *, process: str, path: str, reason: str, next_step: str) -> None:
        self.reason = reason
        self.next_step = next_step
        super().__init__(f"process {process!r}: workflow {path!r} does not match the process: {reason}. {next_step}")


class InputReadError(EngineError):
    """Spark cannot open an input."""

    def __init__(self, *, name: str, feed: str, reason: str, next_step: str) -> None:
        super().__init__(f"input {name!r} (feed {feed!r}) cannot be read: {reason}. {next_step}")


class OutputMismatchError(EngineError):
    """A result does not have the form that the output's feed declares."""

    def __init__(self, *, subject: str, reason: str, next_step: str) -> None:
        self.subject = subject
        self.reason = reason
        self.next_step = next_step
        super().__init__(f"{subject}: {reason}. {next_step}")


class EventRefusedError(EngineError):
    """What a function says about the event of an output cannot be kept, or it makes no such output."""

    def __init__(self, *, process: str, output: str, reason: str, next_step: str) -> None:
        super().__init__(f"process {process!r}: the event of output {output!r} cannot say this: {reason}. {next_step}")


class UnknownFeedError(EngineError):
    """A function asks for the newest event of a feed that is not declared on its cluster."""

    def __init__(self, *, process: str, cluster: str, feed: str, known: Sequence[str]) -> None:
        self.suggestions = tuple(find_similar(feed, known, n=2))
        named = " or ".join(map(repr, self.suggestions))
        hint = f"Did you mean {named}?" if named else "Name a feed that is declared there."
        super().__init__(f"process {process!r}: there is no feed {feed!r} on {cluster}. {hint}")


class WorkflowFailedError(EngineError):
    """User code or Spark raised an exception, or an external application failed."""

    def __init__(
        self, *, process: str, nominal_time: str, path: str, reason: str, last_lines: tuple[str, ...] = ()
    ) -> None:
        self.reason = reason
        tail = "".join(f"\n  {line}" for line in last_lines)
        super().__init__(
            f"process {process!r}, instance {nominal_time}: workflow {path!r} failed: {reason}. "
            f"Nothing was published; correct the cause and run the instance again.{tail}"
        )


class EarlierUnreadError(EngineError):
    """An instance reads what is new since the one before it, which has not been read."""

    def __init__(self, *, process: str, nominal_time: datetime, earlier: datetime) -> None:
        super().__init__(
            f"{describe_process(process)} at {render_datetime(nominal_time)} reads what is new since the instance of "
            f"{render_datetime(earlier)}, which has not succeeded. Run that one first."
        )


class ServiceError(EngineError):
    """An external service that is needed is unreachable or refuses; `service` says what and where it is."""

    def __init__(self, *, service: str, reason: str, next_step: str) -> None:
        self.service = service
        self.reason = reason
        self.next_step = next_step
        super().__init__(f"{service}: {reason}. {next_step}")


class ServiceAwayError(ServiceError):
    """It cannot be reached."""


class ExportRefusedError(EngineError):
    """The rows of an instance do not fit the table that they are exported to; `table` says which and where it is."""

    def __init__(self, *, table: str, reason: str, next_step: str) -> None:
        super().__init__(f"nothing is exported to the table {table}: {reason}. {next_step}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeFault:
    """A fault: its reason and the next step, and the line of the file if it has one.

    It `is_certain` unless code of another machine, or another reader of the code, may know better.
    """

    reason: str
    next_step: str
    file: Path | None = None
    line: int | None = None
    is_certain: bool = True
