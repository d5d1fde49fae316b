"""Errors of requests that cannot be answered or carried out in the current state."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from feed_assets.command_lines import command_line
from feed_assets.entities.errors import DefinitionsError
from feed_assets.errors import Fault, FeedAssetsError, LifecycleError
from feed_assets.log.records import FeedInstanceStatus
from feed_assets.timing.dates import render_datetime


class VersionNotFoundError(DefinitionsError):
    """An entity has no such version, or had none at that time."""

    fault = Fault.MISSING

    def __init__(self, *, kind: str, name: str, wanted: str, known: str) -> None:
        super().__init__(
            location=f"{kind} {name!r}",
            reason=f"there is no version {wanted}; {known}",
            next_step=f"Choose a version from its history: {command_line('entity', 'history', kind, name)}",
        )


class InstanceQueryError(FeedAssetsError):
    """A range, filter, order or page of instances is invalid."""

    fault = Fault.ASKED

    def __init__(self, *, subject: str, reason: str, next_step: str, fault: Fault = Fault.ASKED) -> None:  # noqa: ARG002 - a fact
        super().__init__(f"{subject}: {reason}. {next_step}")


class ListenRefusedError(FeedAssetsError):
    """Nothing can be served at an address."""

    def __init__(self, *, address: str, reason: str, next_step: str = "Choose another address.") -> None:
        super().__init__(f"{address}: nothing can be served here: {reason}. {next_step}")


class ArrivalRefusedError(FeedAssetsError):
    """A notice reports an instance that is not there, or that its sender may not report. Nothing was recorded."""

    def __init__(
        self, *, feed: str, cluster: str | None, nominal_time: datetime | None, reason: str, next_step: str
    ) -> None:
        place = f" on {cluster}" if cluster else ""
        at = f" at {render_datetime(nominal_time)}" if nominal_time is not None else ""
        super().__init__(f"feed {feed!r}{place}{at}: {reason}. {next_step}")


class BundleRefusedError(FeedAssetsError):
    """A bundle cannot be read, made or imported here. Nothing was changed."""

    def __init__(self, *, file: str, reasons: Sequence[str], next_step: str, fault: Fault = Fault.STATE) -> None:  # noqa: ARG002 - a fact
        self.reasons = tuple(reasons)
        super().__init__(f"{file}: {'; '.join(reasons)}. {next_step}")


class VerbRefusedError(FeedAssetsError):
    """A verb cannot act on an entity in its current state. Nothing was changed."""

    def __init__(self, *, subject: str, reason: str, next_step: str, fault: Fault = Fault.STATE) -> None:  # noqa: ARG002 - a fact
        self.subject = subject
        self.reason = reason
        self.next_step = next_step
        super().__init__(f"{subject}: {reason}. {next_step}")


class EntityExistsError(VerbRefusedError):
    """Another definition of that name is already declared; `files` have the refused one."""

    def __init__(self, *, kind: str, name: str, place: str, files: Sequence[str]) -> None:
        super().__init__(
            subject=f"{kind} {name!r}",
            reason=f"it is already declared, with a different content, in {place}",
            next_step=f"Change it: {command_line('apply', *files)}",
        )


class EntityReferencedError(VerbRefusedError):
    """Other entities refer to the one to be removed; `referrers` are their labels."""

    def __init__(self, *, kind: str, name: str, referrers: Sequence[str]) -> None:
        self.referrers = tuple(referrers)
        super().__init__(
            subject=f"{kind} {name!r}",
            reason=f"it cannot be removed, {', '.join(referrers)} {'refers' if len(referrers) == 1 else 'refer'} to it",
            next_step="Delete or change those first.",
        )


class JobOwnedError(VerbRefusedError):
    """A job of an extension has made an entity, and only the verbs of jobs change it."""

    def __init__(self, *, kind: str, name: str, job: str) -> None:
        super().__init__(
            subject=f"{kind} {name!r}",
            reason=f"it belongs to job {job!r} of an extension, and goes with the job",
            next_step=f"Change the job: {command_line('extension', 'job', 'update', job)}",
        )


class NotSchedulableError(VerbRefusedError):
    """This kind of entity has no schedule, or no engine here can do its work."""


class NotScheduledError(VerbRefusedError):
    """An entity is not scheduled on any cluster."""

    def __init__(self, *, kind: str, name: str) -> None:
        super().__init__(
            subject=f"{kind} {name!r}",
            reason="it is not scheduled",
            next_step=f"Schedule it first: {command_line('entity', 'schedule', kind, name)}",
        )


class SafeModeError(VerbRefusedError):
    """Safe mode is on and forbids an operation, or is off and the operation needs it."""


class PlanOutdatedError(VerbRefusedError):
    """Definitions, schedules or releases have changed since the plan was made."""

    def __init__(self, *, digest: str) -> None:
        super().__init__(
            subject=f"plan {digest[:12]}",
            reason="it is outdated: files, definitions, schedules or releases have changed since",
            next_step="Nothing was changed. Plan again, review the plan and apply it.",
        )


class ArrivalsFileError(FeedAssetsError):
    """A line of an arrivals file is invalid."""

    def __init__(self, *, file: str, line: int, reason: str) -> None:
        super().__init__(f"{file}:{line}: {reason}. Columns are feed, cluster, instance, at and, optionally, content.")


class EventsFileError(FeedAssetsError):
    """A line of a file of events is invalid."""

    def __init__(self, *, file: str, line: int, reason: str) -> None:
        of_feed = "at and feed, and may have cluster, instance, content, payload, marking and again"
        super().__init__(f"{file}:{line}: {reason}. A line has {of_feed}; or it has at, process and do.")


class NewEntityError(FeedAssetsError):
    """The given options do not describe a new entity."""

    fault = Fault.ASKED

    def __init__(self, *, what: str, reason: str, next_step: str) -> None:
        super().__init__(f"{what}: {reason}. {next_step}")


class ProjectNameError(FeedAssetsError):
    """No Python package can have the name of a new project."""

    def __init__(self, *, name: str) -> None:
        super().__init__(
            f"a project cannot have the name {name!r}: no Python package can have it. "
            "Choose a name of letters, digits, - and _ that begins with a letter, with --name."
        )


class FolderNotEmptyError(FeedAssetsError):
    """The folder of a new project is not empty. Nothing was written."""

    def __init__(self, *, folder: Path, found: Sequence[str]) -> None:
        reason = f"it is not empty ({', '.join(found)})" if found else "it is a file"
        super().__init__(
            f"no project was made in {folder}: {reason}. Choose a new folder, or keep its files and add those that are "
            f"missing: {command_line('init', str(folder), add=True)}"
        )


class InstanceNotThereError(FeedAssetsError):
    """An instance of a feed cannot be read, because it is missing, partial, empty or evicted: `status` says which."""

    fault = Fault.MISSING

    def __init__(
        self, *, feed: str, cluster: str, nominal_time: datetime, status: FeedInstanceStatus, reason: str
    ) -> None:
        why = command_line("why", feed, nominal_time, kind="feed", cluster=cluster)
        super().__init__(
            f"feed {feed!r} on {cluster} at {render_datetime(nominal_time)} cannot be read, it is {status.value}: "
            f"{reason}\nOnce that is settled, read it again; the state of things tells: {why}"
        )


class NotAskedError(LifecycleError):
    """A service was not called, because it has failed and its next try is not due."""

    def __init__(self, *, endpoint: str, reason: str) -> None:
        super().__init__(f"{endpoint} does not answer: {reason}")
