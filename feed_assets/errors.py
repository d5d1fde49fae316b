"""Every exception of the project, one tree.

FeedAssetsError
├── TimingError               text that is not a frequency, date, time zone, expression or path template
│   ├── FrequencyError
│   ├── DateTimeError
│   ├── TimeZoneError
│   ├── InstanceError         a time that is no instance of its sequence, or outside the calendar
│   ├── ExpressionError       carries the position in the text
│   │   └── UnknownNameError  a variable, function or input that nobody knows; carries the known ones
│   ├── WindowError           two expressions that make no window together
│   ├── TemplateError
│   └── TableAddressError
├── SettingsError             a setting is missing or wrong; names every place that was tried
├── DefinitionsError          entity files that cannot be used; carries the issues
│   ├── LocationUnreadableError   the place of the files does not exist or cannot be read
│   ├── EntityNotFoundError       no entity of that kind and name is declared
│   ├── VersionNotFoundError      an entity has no such version, or none at that time
│   ├── DuplicateEntityError      two entities of one kind have one name
│   ├── DefinitionStoreError      the store of definitions cannot make a change, or says why it must not
│   │   ├── FileRefusedError          a name that leaves the folder of the definitions, or is none
│   │   └── DefinitionsChangedError   somebody else changed the same files meanwhile
│   └── ColumnsError              a schema that is no list of names and types
├── VerbRefusedError          what was asked about an entity cannot be done as things stand; nothing was changed
│   ├── EntityExistsError         another definition of that name is declared
│   ├── EntityReferencedError     others name what should be removed
│   ├── NotSchedulableError       a kind of entity that has no schedule, or work that nothing here can do
│   ├── NotScheduledError
│   ├── PlanOutdatedError         a plan that is applied to another world than it was made for
│   └── SafeModeError
├── ArrivalRefusedError       somebody says that an instance has arrived, and it has not, or is not theirs
├── InstanceQueryError        a range, filter, order or page of instances that makes no question
├── ArrivalsFileError         a file of arrivals for a simulation that cannot be used
├── WebserverError            Dagster's webserver does not answer, or refuses
├── RunsNotStoppedError       runs of instances that were killed and that go on
├── StorageError              a filesystem refused, or holds something we do not understand
│   ├── PathRefusedError      a path that leaves the storage root, or is none
│   ├── InstanceNotFoundError
│   ├── InstanceChangingError it did not hold still, or another publication overtook ours
│   ├── StagingLostError      what should be published was discarded, swept or never made
│   ├── ManifestError         a manifest file that cannot be read
│   └── StoreUnknownError     no adapter for the URL, or its packages are not installed
├── StateError                the state database refused
│   ├── LeaseHeldError        somebody else works on this instance
│   └── FencedOutError        our lease was taken over; nothing of ours may become visible
├── LifecycleError            an instance cannot take its next step
│   ├── InputsMissingError
│   ├── OutputOutsideValidityError
│   ├── ReleaseError          the releases of a process cannot go on as asked
│   └── PartitionKeyError     a partition key that is no instance
└── EngineError               the work of a process could not be started or failed
    ├── UnknownEngineError
    ├── WorkflowNotFoundError
    ├── WorkflowSignatureError    user code that does not fit the inputs and outputs of its process
    ├── InputReadError
    ├── OutputMismatchError
    ├── WorkflowFailedError       user code or Spark raised, or an external application ended with a failure
    ├── ConnectServerError        a Spark Connect server did not start
    └── ServiceError              Spark, a catalog, a database or Java cannot be reached, or refuses

An exception is built from facts and writes its own sentence: where, what, why, next step.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from difflib import get_close_matches
from typing import Protocol


class FeedAssetsError(Exception):
    """Base of everything this project raises on purpose; its text is meant for a person."""


class TimingError(FeedAssetsError):
    """Text that is not a frequency, date, time zone, expression or path template, or a time that does not fit."""


class FrequencyError(TimingError):
    """Text that is not `unit(count)`."""

    def __init__(self, *, text: str, reason: str) -> None:
        self.text = text
        self.reason = reason
        super().__init__(
            f"{text!r} is not a frequency: {reason}. "
            "Write minutes(n), hours(n), days(n) or months(n) with n of at least 1, for example hours(1)."
        )


class DateTimeError(TimingError):
    """Text that is not a date and time in entity syntax."""

    def __init__(self, *, text: str, reason: str) -> None:
        self.text = text
        self.reason = reason
        super().__init__(
            f"{text!r} is not a date and time: {reason}. "
            "Write it in UTC as yyyy-MM-ddTHH:mmZ, for example 2015-02-28T06:30Z."
        )


class TimeZoneError(TimingError):
    """A name that the time zone database does not know."""

    def __init__(self, *, name: str, suggestions: tuple[str, ...] = ()) -> None:
        self.name = name
        self.suggestions = suggestions
        hint = "Use a name such as UTC or America/New_York."
        if suggestions:
            hint = f"Did you mean {' or '.join(suggestions)}?"
        super().__init__(f"{name!r} is not a time zone that the time zone database knows. {hint}")


class InstanceError(TimingError):
    """A time that is no instance of its sequence, or an instance outside the calendar."""

    def __init__(self, *, subject: str, reason: str, next_step: str) -> None:
        self.subject = subject
        self.reason = reason
        super().__init__(f"{subject}: {reason}. {next_step}")


class ExpressionError(TimingError):
    """Text that is not an expression; carries the position (counted from 0) and where known what was meant."""

    def __init__(self, *, text: str, position: int, reason: str, suggestions: tuple[str, ...] = ()) -> None:
        self.text = text
        self.position = position
        self.reason = reason
        self.suggestions = suggestions
        hint = f" Did you mean {' or '.join(suggestions)}?" if suggestions else ""
        super().__init__(f"expression {text!r}, character {position + 1}: {reason}.{hint}")


class UnknownNameError(ExpressionError):
    """A variable, function or input in an expression that is not known."""

    def __init__(self, *, text: str, position: int, name: str, kind: str, known: tuple[str, ...]) -> None:
        self.name = name
        self.kind = kind
        self.known = known
        close = tuple(get_close_matches(name, known, n=1))
        reason = f"{name} is not a known {kind} (known: {', '.join(known) or 'none'})"
        super().__init__(text=text, position=position, reason=reason, suggestions=close)


class WindowError(TimingError):
    """Two expressions that make no window together."""

    def __init__(self, *, start: str, end: str, reason: str, next_step: str) -> None:
        self.start = start
        self.end = end
        self.reason = reason
        super().__init__(f"window from {start} to {end}: {reason}. {next_step}")


class TemplateError(TimingError):
    """Text that is not a path template, or a template that cannot be used in this way."""

    def __init__(self, *, text: str, reason: str, next_step: str) -> None:
        self.text = text
        self.reason = reason
        super().__init__(f"template {text!r}: {reason}. {next_step}")


class TableAddressError(TimingError):
    """Text that is not the address of a table in a catalog."""

    def __init__(self, *, text: str, reason: str) -> None:
        self.text = text
        self.reason = reason
        super().__init__(
            f"table {text!r}: {reason}. Write catalog:database:table#key=value, "
            "for example catalog:sales:clicks#ds=${YEAR}-${MONTH}-${DAY}."
        )


class SettingsError(FeedAssetsError):
    """A setting is missing or wrong; `tried` are the places that were looked at, the strongest first."""

    def __init__(self, *, setting: str, reason: str, tried: tuple[str, ...], next_step: str) -> None:
        self.setting = setting
        self.reason = reason
        self.tried = tried
        places = f" Tried, the first one wins: {', '.join(tried)}." if tried else ""
        super().__init__(f"setting {setting!r}: {reason}.{places} {next_step}")


class DescribedIssue(Protocol):
    """An issue, as far as an exception needs it."""

    def render(self) -> str:
        """The whole issue on one line."""
        ...


class DefinitionsError(FeedAssetsError):
    """Entity files that cannot be used; `issues` are those that were found in them, if any."""

    def __init__(
        self,
        *,
        location: str,
        issues: Sequence[DescribedIssue] = (),
        reason: str | None = None,
        next_step: str = "Correct what is named here.",
    ) -> None:
        self.location = location
        self.issues = tuple(issues)
        self.reason = reason or f"{len(self.issues)} {'issue was' if len(self.issues) == 1 else 'issues were'} found"
        details = "".join(f"\n  {issue.render()}" for issue in self.issues)
        super().__init__(f"{location}: {self.reason}. {next_step}{details}")


class LocationUnreadableError(DefinitionsError):
    """The place of the entity files does not exist or cannot be read."""


class EntityNotFoundError(DefinitionsError):
    """No entity of that kind and name is declared."""

    def __init__(self, *, kind: str, name: str, suggestions: tuple[str, ...] = ()) -> None:
        self.kind = kind
        self.name = name
        self.suggestions = suggestions
        hint = f"Did you mean {' or '.join(map(repr, suggestions))}?" if suggestions else f"Declare a {kind} {name!r}."
        super().__init__(location="the definitions", reason=f"there is no {kind} {name!r}", next_step=hint)


class VersionNotFoundError(DefinitionsError):
    """An entity has no such version, or none at that time."""

    def __init__(self, *, kind: str, name: str, wanted: str, known: str) -> None:
        self.kind = kind
        self.name = name
        super().__init__(
            location=f"{kind} {name!r}",
            reason=f"there is no version {wanted}; {known}",
            next_step="Choose one that its history lists.",
        )


class DuplicateEntityError(DefinitionsError):
    """Two entities of one kind have one name."""

    def __init__(self, *, kind: str, name: str) -> None:
        self.kind = kind
        self.name = name
        super().__init__(
            location="the definitions",
            reason=f"there are two entities of kind {kind!r} with the name {name!r}",
            next_step="Rename one of them.",
        )


class DefinitionStoreError(DefinitionsError):
    """The store of definitions cannot make a change, or says why it must not; nothing was changed."""


class FileRefusedError(DefinitionStoreError):
    """A name of a file that leaves the folder of the definitions, or is none."""

    def __init__(self, *, location: str, file: str, reason: str) -> None:
        self.file = file
        super().__init__(
            location=location,
            reason=f"the file {file!r} is refused: {reason}",
            next_step="Name a .yaml, .yml or .xml file below the folder of the definitions.",
        )


class DefinitionsChangedError(DefinitionStoreError):
    """Files of definitions were edited by other means while a change was being made; nothing was changed."""

    def __init__(self, *, location: str, files: tuple[str, ...]) -> None:
        self.files = files
        super().__init__(
            location=location,
            reason=f"{_listed(files)} changed while the change was being made",
            next_step="Look at what is there now, and try again.",
        )


class InstanceQueryError(FeedAssetsError):
    """A range, filter, order or page of instances that makes no question."""

    def __init__(self, *, subject: str, reason: str, next_step: str) -> None:
        self.subject = subject
        self.reason = reason
        super().__init__(f"{subject}: {reason}. {next_step}")


class ArrivalRefusedError(FeedAssetsError):
    """Somebody says that an instance has arrived, and it has not, or it is not theirs to say; nothing was recorded."""

    def __init__(self, *, feed: str, cluster: str | None, nominal_time: datetime, reason: str, next_step: str) -> None:
        self.feed = feed
        self.cluster = cluster
        self.nominal_time = nominal_time
        self.reason = reason
        place = f" on {cluster}" if cluster else ""
        super().__init__(f"feed {feed!r}{place} at {nominal_time:%Y-%m-%dT%H:%MZ}: {reason}. {next_step}")


class VerbRefusedError(FeedAssetsError):
    """What was asked about an entity cannot be done as things stand; nothing was changed."""

    def __init__(self, *, subject: str, reason: str, next_step: str) -> None:
        self.subject = subject
        self.reason = reason
        self.next_step = next_step
        super().__init__(f"{subject}: {reason}. {next_step}")


class EntityExistsError(VerbRefusedError):
    """Another definition of that name is declared."""

    def __init__(self, *, kind: str, name: str, place: str) -> None:
        self.kind = kind
        self.name = name
        super().__init__(
            subject=f"{kind} {name!r}",
            reason=f"it is declared already, and differently, in {place}",
            next_step="Use update to change it, or delete it first.",
        )


class EntityReferencedError(VerbRefusedError):
    """Others name what should be removed; `referrers` are their labels."""

    def __init__(self, *, kind: str, name: str, referrers: Sequence[str]) -> None:
        self.kind = kind
        self.name = name
        self.referrers = tuple(referrers)
        super().__init__(
            subject=f"{kind} {name!r}",
            reason=f"it cannot be removed, {', '.join(referrers)} {'refers' if len(referrers) == 1 else 'refer'} to it",
            next_step="Delete or change those first.",
        )


class NotSchedulableError(VerbRefusedError):
    """A kind of entity that has no schedule, or work that nothing here can do."""


class NotScheduledError(VerbRefusedError):
    """An entity that is not scheduled anywhere."""

    def __init__(self, *, kind: str, name: str) -> None:
        self.kind = kind
        self.name = name
        super().__init__(subject=f"{kind} {name!r}", reason="it is not scheduled", next_step="Schedule it first.")


class SafeModeError(VerbRefusedError):
    """Safe mode is on and forbids an operation, or is off and the operation needs it."""


class PlanOutdatedError(VerbRefusedError):
    """A plan that is applied to another world than it was made for."""

    def __init__(self, *, digest: str) -> None:
        self.digest = digest
        super().__init__(
            subject=f"plan {digest[:12]}",
            reason="it is outdated: files, definitions, schedules or releases have changed since",
            next_step="Nothing was changed. Plan again, look at what it says, and apply that.",
        )


class WebserverError(FeedAssetsError):
    """Dagster's webserver does not answer, or refuses."""

    def __init__(self, *, url: str, reason: str, next_step: str) -> None:
        self.url = url
        super().__init__(f"webserver {url}: {reason}. {next_step}")


class RunsNotStoppedError(FeedAssetsError):
    """Runs of instances that were killed, and that Dagster did not end; `runs` are their ids."""

    def __init__(self, *, runs: tuple[str, ...], reason: str) -> None:
        self.runs = runs
        super().__init__(
            f"the instances are killed, but their runs go on ({', '.join(runs) or 'unknown'}): {reason}. "
            "End them in Dagster; nothing that they make is recorded as a success of an instance any more."
        )


class StorageError(FeedAssetsError):
    """A filesystem refused, or holds something we do not understand."""

    def __init__(self, *, store: str, path: str, reason: str, next_step: str) -> None:
        self.store = store
        self.path = path
        self.reason = reason
        where = f"{store}: {path!r}" if path else store
        super().__init__(f"{where}: {reason}. {next_step}")


class PathRefusedError(StorageError):
    """A path that leaves the storage root, or is none."""

    def __init__(self, *, store: str, path: str, reason: str) -> None:
        super().__init__(
            store=store, path=path, reason=reason, next_step="Name a directory below the storage root of the cluster."
        )


class InstanceNotFoundError(StorageError):
    """An instance, or a file of one, that is not there."""

    def __init__(self, *, store: str, path: str) -> None:
        super().__init__(
            store=store,
            path=path,
            reason="nothing is there",
            next_step="Look again when it has arrived or has been produced.",
        )


class InstanceChangingError(StorageError):
    """An instance that did not hold still while it was read, or that another publication has overtaken."""

    def __init__(self, *, store: str, path: str, reason: str) -> None:
        super().__init__(
            store=store,
            path=path,
            reason=reason,
            next_step="Try again later; if no publisher is alive, recover the instance first.",
        )


class StagingLostError(StorageError):
    """A staging that was discarded or swept, or never made."""

    def __init__(self, *, store: str, path: str, token: str) -> None:
        self.token = token
        super().__init__(
            store=store,
            path=path,
            reason=f"the staging {token!r} does not exist",
            next_step="Stage the instance again, write it and publish it.",
        )


class ManifestError(StorageError):
    """A manifest file that cannot be read."""

    def __init__(self, *, store: str, path: str, reason: str) -> None:
        super().__init__(
            store=store,
            path=path,
            reason=f"its manifest file cannot be read: {reason}",
            next_step="Publish the instance again, or remove the manifest file if the data are good.",
        )


class StoreUnknownError(StorageError):
    """A storage URL that no adapter opens, or one whose packages are not installed."""

    def __init__(self, *, url: str, reason: str, next_step: str) -> None:
        super().__init__(store=url, path="", reason=reason, next_step=next_step)


class StateError(FeedAssetsError):
    """The state database refused, or holds something we do not understand."""

    def __init__(self, *, reason: str, next_step: str, database: str | None = None) -> None:
        self.database = database
        self.reason = reason
        where = f"state database {database}" if database else "state database"
        super().__init__(f"{where}: {reason}. {next_step}")


class LeaseHeldError(StateError):
    """Somebody else works on this instance."""

    def __init__(
        self, *, database: str, entity: str, cluster: str, nominal_time: datetime, holder: str, expires_at: datetime
    ) -> None:
        self.entity = entity
        self.cluster = cluster
        self.nominal_time = nominal_time
        self.holder = holder
        self.expires_at = expires_at
        super().__init__(
            database=database,
            reason=(
                f"{entity!r} on {cluster!r} at {nominal_time.isoformat()} is being worked on by {holder!r}, "
                f"whose lease runs until {expires_at.isoformat()}"
            ),
            next_step="Wait for it to finish, or end it and wait until its lease has expired.",
        )


class FencedOutError(StateError):
    """Our lease was taken over, released or has expired; nothing of ours may become visible."""

    def __init__(
        self, *, database: str, entity: str, cluster: str, nominal_time: datetime, token: int, reason: str
    ) -> None:
        self.entity = entity
        self.cluster = cluster
        self.nominal_time = nominal_time
        self.token = token
        super().__init__(
            database=database,
            reason=f"the lease {token} on {entity!r} on {cluster!r} at {nominal_time.isoformat()} {reason}",
            next_step="What this attempt has made is discarded; whoever holds the instance now goes on.",
        )


class EngineError(FeedAssetsError):
    """The work of a process could not be started or failed."""


class UnknownEngineError(EngineError):
    """An engine name that no engine has."""

    def __init__(self, *, name: str, known: tuple[str, ...]) -> None:
        self.name = name
        super().__init__(f"{name!r} is not an engine. Use one of {', '.join(known)} as workflow.engine.")


class WorkflowNotFoundError(EngineError):
    """A workflow path that leads to no code that can be run."""

    def __init__(self, *, process: str, path: str, reason: str, next_step: str) -> None:
        self.process = process
        self.path = path
        super().__init__(f"process {process!r}: workflow {path!r} cannot be run: {reason}. {next_step}")


class WorkflowSignatureError(EngineError):
    """User code that does not fit the inputs and outputs of its process; found before anything runs."""

    def __init__(self, *, process: str, path: str, reason: str, next_step: str) -> None:
        self.process = process
        self.path = path
        super().__init__(f"process {process!r}: workflow {path!r} does not fit the process: {reason}. {next_step}")


class InputReadError(EngineError):
    """An input that Spark cannot open."""

    def __init__(self, *, name: str, feed: str, reason: str, next_step: str) -> None:
        self.name = name
        self.feed = feed
        super().__init__(f"input {name!r} (feed {feed!r}) cannot be read: {reason}. {next_step}")


class OutputMismatchError(EngineError):
    """A result that does not have the form that the output's feed declares."""

    def __init__(self, *, subject: str, reason: str, next_step: str) -> None:
        self.subject = subject
        super().__init__(f"{subject}: {reason}. {next_step}")


class WorkflowFailedError(EngineError):
    """User code or Spark raised, or an external application ended with a failure."""

    def __init__(
        self, *, process: str, nominal_time: str, path: str, reason: str, last_lines: tuple[str, ...] = ()
    ) -> None:
        self.process = process
        self.nominal_time = nominal_time
        self.last_lines = last_lines
        tail = "".join(f"\n  {line}" for line in last_lines)
        super().__init__(
            f"process {process!r}, instance {nominal_time}: workflow {path!r} failed: {reason}. "
            f"Nothing was published; correct the cause and run the instance again.{tail}"
        )


class ConnectServerError(EngineError):
    """A Spark Connect server that did not start."""

    def __init__(self, *, url: str, reason: str, log_file: str, last_lines: tuple[str, ...] = ()) -> None:
        self.url = url
        self.last_lines = last_lines
        tail = "".join(f"\n  {line}" for line in last_lines)
        super().__init__(f"the Spark Connect server at {url} did not start: {reason}. Its log is {log_file}.{tail}")


class ServiceError(EngineError):
    """Something outside that engines need cannot be reached, or refuses; `service` is what it is and where."""

    def __init__(self, *, service: str, reason: str, next_step: str) -> None:
        self.service = service
        self.reason = reason
        self.next_step = next_step
        super().__init__(f"{service}: {reason}. {next_step}")


class ColumnsError(DefinitionsError):
    """A feed's schema that cannot be taken apart."""

    def __init__(self, *, text: str, reason: str) -> None:
        self.text = text
        super().__init__(
            location=f"schema {text!r}",
            reason=reason,
            next_step="Write columns as Spark does: `name type, name type`.",
        )


class ArrivalsFileError(FeedAssetsError):
    """A line of a file of arrivals that says nothing a simulation can do."""

    def __init__(self, *, file: str, line: int, reason: str) -> None:
        self.file = file
        self.line = line
        self.reason = reason
        super().__init__(f"{file}:{line}: {reason}. Columns are feed, cluster, instance, at and, if need be, content.")


class LifecycleError(FeedAssetsError):
    """An instance cannot take its next step."""


class InputsMissingError(LifecycleError):
    """Mandatory input instances are missing; `missing` has their URLs by input (none where unresolved)."""

    def __init__(self, *, process: str, nominal_time: datetime, missing: Mapping[str, tuple[str, ...]]) -> None:
        self.process = process
        self.nominal_time = nominal_time
        self.missing = missing
        parts = [
            f"{name} lacks {_listed(urls)}" if urls else f"{name} cannot be resolved yet"
            for name, urls in missing.items()
        ]
        super().__init__(
            f"process {process!r} at {nominal_time:%Y-%m-%dT%H:%MZ} has not all its mandatory inputs: "
            f"{'; '.join(parts)}. Land the data (with its availability flag, where the feed has one) "
            "and run the instance again."
        )


class OutputOutsideValidityError(LifecycleError):
    """A process instance would write outside the validity of the feed."""

    def __init__(self, *, process: str, output: str, feed: str, nominal_time: datetime) -> None:
        self.process = process
        self.output = output
        self.feed = feed
        super().__init__(
            f"process {process!r} at {nominal_time:%Y-%m-%dT%H:%MZ}: output {output!r} is outside the validity of feed "
            f"{feed!r}. Widen the feed's validity, or shorten the process's."
        )


class ReleaseError(LifecycleError):
    """The releases of a process cannot go on as asked."""

    def __init__(self, *, process: str, cluster: str, reason: str) -> None:
        self.process = process
        self.cluster = cluster
        self.reason = reason
        super().__init__(
            f"process {process!r} on {cluster!r}: no new release: {reason}. "
            "Look at what is declared with `feed-assets entity definition`."
        )


class PartitionKeyError(LifecycleError):
    """A partition key that is no instance of a feed or process."""

    def __init__(self, *, key: str, start: datetime, frequency: object, reason: str) -> None:
        self.key = key
        super().__init__(
            f"partition {key!r} is no instance of {frequency} from {start:%Y-%m-%dT%H:%MZ}: {reason}. "
            "Choose a partition that the asset's page lists."
        )


def _listed(texts: tuple[str, ...], most: int = 5) -> str:
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more
