"""The tree of all exceptions.

FeedAssetsError
├── TimingError               text that is not a frequency, date, time zone, expression or path template
│   ├── FrequencyError
│   ├── DateTimeError
│   ├── TimeZoneError
│   ├── InstanceError         a time that is not an instance of its sequence, or is outside the calendar
│   ├── ExpressionError       carries the position in the text
│   │   └── UnknownNameError  an unknown variable, function or input; carries the known names
│   ├── WindowError           two expressions that do not form a window
│   ├── TemplateError
│   └── TableAddressError
├── SettingsError             a setting is missing or wrong; names the sources that were tried
├── AccessRefusedError        who asks may not do it; nothing was changed
├── NoAnswerError             a service or filesystem did not answer in time
├── DefinitionsError          entity files that cannot be used; carries the issues
│   ├── LocationUnreadableError   the location of the files does not exist or cannot be read
│   ├── EntityNotFoundError       no entity of that kind and name is declared
│   ├── VersionNotFoundError      an entity has no such version, or none at that time
│   ├── DuplicateEntityError      two entities of one kind have the same name
│   ├── DefinitionStoreError      the store of definitions cannot make a change, or refuses it
│   │   ├── FileRefusedError          a file name that is outside the folder of the definitions, or invalid
│   │   ├── DefinitionsChangedError   the same files were changed concurrently
│   │   ├── EditedHereError           a file was edited where a front declares what it has
│   │   ├── MassDeletionError         many entities have disappeared from the files at once
│   │   ├── ForeignDefinitionsError   the database records the definitions of another project
│   │   ├── RenamedInFilesError       an entity seems to be renamed in the files, not deleted
│   │   └── ReplacedDefinitionsError  another place has replaced this one as the declaration of the entities
│   ├── ColumnsError              a schema that is not a list of names and types
│   ├── PatternError              a pattern of made-up texts that is not supported
│   ├── TranslationError          a translator of assets fails, or changes what follows from the entities
│   ├── AssetKeyClashError        two feeds or processes have the same asset key
│   └── NoAssetError              a feed or process that has no asset in what has been built
├── WrongUsageError           what a call was given does not fit together
│   └── AmbiguousNameError        entities of several kinds have a name that was given without a kind
├── MetadataRefusedError      metadata of an entity cannot be written or asked for; nothing was changed
├── BundleRefusedError        a bundle cannot be read, made or imported here; nothing was changed
├── VerbRefusedError          a command on an entity is refused in the current state; nothing was changed
│   ├── EntityExistsError         another definition with that name is declared
│   ├── EntityReferencedError     other entities refer to the entity to remove
│   ├── JobOwnedError             a job of an extension has made the entity, and it goes with the job
│   ├── NotSchedulableError       a kind of entity without a schedule, or an unsupported engine
│   ├── NotScheduledError
│   ├── PlanOutdatedError         the definitions or the state changed after the plan was made
│   └── SafeModeError
├── ArrivalRefusedError       a reported arrival is wrong: no data have arrived, or a process writes them
├── ListenRefusedError        nothing can be served at an address
├── NoSiteError               no colo applies to what is asked of a front
├── SitesError                servers of colos refuse what a front asks, or none has done it
├── RequestRefusedError       a request to a server is refused with a status of its own
├── InstanceQueryError        an invalid range, filter, order or page of instances
├── InstanceNotThereError     an instance that is to be read is missing, partial, empty or evicted; says why
├── ProducerError             the asset that produces a feed is unknown, or has other partitions
├── StrayPartitionsError      that asset was materialized for partitions that are no instances
├── ChecksAwaitedError        the checks of that asset do not end
├── OutdatedLocationError     files have changed since the location was loaded
├── AssetClashError           two assets have one key
├── NameClashError            two asset checks, jobs, schedules or sensors have one name
├── FeedOutputError           an asset returns a value that the IO manager of feeds would have to write
├── ArrivalsFileError         a file of arrivals for a simulation cannot be used
├── EventsFileError           a file of events for a simulation cannot be used
├── ProjectNameError          no Python package can have the name of a new project
├── FolderNotEmptyError       the folder of a new project has files
├── NewEntityError            the given options do not form an entity
├── WebserverError            Dagster's webserver does not answer, or refuses
├── RunsNotStoppedError       runs of killed instances could not be stopped
├── StorageError              a filesystem refused, or contains unexpected data
│   ├── StorageAwayError      it cannot be reached, or does not answer in time
│   ├── StorageFullError      no space left, or a quota is used up
│   ├── PathRefusedError      a path that is outside the storage root, or invalid
│   ├── InstanceNotFoundError
│   ├── InstanceChangingError the instance keeps changing, or another publication has overtaken this one
│   ├── StagingLostError      the staging to publish was discarded, swept or never made
│   ├── ManifestError         a manifest file that cannot be read
│   ├── ForeignContentError   the place of an instance holds content that no record and no manifest knows
│   ├── PlaceOccupiedError    something else is in the place of an exact copy, which replaces nothing
│   ├── TableRefusedError     a table is missing, differs from its feed, or has other writers
│   └── StoreUnknownError     no adapter for the URL, or its packages are not installed
├── StateError                the state database refused
│   ├── StateUnreachableError it cannot be reached, or stays locked
│   ├── StateSchemaError      it has the tables of another release
│   ├── LeaseHeldError        another worker holds the lease of the instance
│   ├── FencedOutError        the lease was taken over; the worker must not publish anything
│   ├── ChunkTakenError       another worker holds this chunk of a sweep, or has finished it
│   └── SweepDamagedError     a stored sweep differs from its plan
├── LifecycleError            an instance cannot take its next step
│   ├── InputsMissingError
│   ├── NotNeededError        another run has made an instance before this one had its lease
│   ├── TryRefusedError       what an instance does would not stay in a scratch place, or it has nothing to do
│   ├── InputChangedError     a current instance changed while it was read, and again when it was read anew
│   ├── NothingToCompareError the feed that has the values of a column has no instance yet
│   ├── RerunOutdatedError    a digest is not that of the plan of a rerun any more; nothing was changed
│   ├── OutputOutsideValidityError
│   ├── StepRefusedError      a step would run outside of its attempt, or twice in it
│   ├── NotAskedError         a service was not called, because its next try is not due
│   ├── DataRemovedError      an instance is less than what was read of it
│   ├── ReleaseError          the releases of a process cannot be changed as requested
│   ├── NeighbourLeftOutError a process would write over data of an entity that is left out of the plan
│   ├── FeedsUnsweptError     paths of several feeds of a sweep could not be removed
│   ├── FeedsUnrestoredError  paths of some feeds of a sweep could not be restored
│   ├── BatchEndedError       a batch has no events any more, because its process was deleted since it was cut
│   ├── BatchRefusedError     a call about a batch of work elsewhere comes out of turn; nothing was moved
│   ├── QualityError          rows that a process has written are not as good as their feed demands
│   ├── QueueChangeError      nothing can be decided about an event of a queue, because of where it is
│   ├── SweepRefusedError     a sweep is refused in the current state; nothing was moved
│   ├── NoProcessInstanceError    a partition of a feed that its process does not have
│   └── PartitionKeyError     a partition key that is not an instance
├── DeliveryError             a receiver of messages cannot be used
│   ├── ReceiverError         a receiver of the settings is wrong, or lacks something
│   └── UnknownReceiverError  no receiver of this name is declared
├── CopyError                 an instance cannot be copied; the target is unchanged
│   ├── SourceNotAvailableError   the source has no complete instance
│   ├── SourceEmptiedError        a source without files would empty its target
│   ├── NothingSelectedError      the filters match no file of a source that has files
│   ├── SourceChangingError       the source changed during every attempt
│   ├── SourceDamagedError        a file of the source differs from its manifest
│   ├── CopyDamagedError          the bytes read back differ from the bytes read at the source
│   ├── TargetDamagedError        a file that stays at the target differs from its manifest
│   ├── FilesFailedError          files of the source could not be read; the others are kept for the next attempt
│   ├── ReplicaLostError          the content of the target at the start of the copy is gone
│   ├── CopyIncompleteError       parts of the copy are missing
│   ├── MirrorEmptiedError        the source of a mirror has no files, but its target has some
│   ├── RemovalLimitError         a run of a mirror would remove more files than it may without confirmation
│   ├── ForeignTargetError        a mirror would replace or remove files that no mirror has written
│   ├── TargetRefusedError        the target of a mirror cannot be replaced as a whole
│   └── MirrorFailedError         some of several directories could not be mirrored
└── EngineError               the work of a process could not be started, or failed
    ├── UnknownEngineError
    ├── WorkflowNotFoundError
    ├── WorkflowSignatureError    user code that does not fit the inputs and outputs of its process
    ├── InputReadError
    ├── OutputMismatchError
    ├── EventRefusedError         what a function says about the event of an output cannot be kept
    ├── EarlierUnreadError        an instance reads what is new since one that has not been read
    ├── ExportRefusedError        rows do not fit the table that they are exported to
    ├── UnknownFeedError          a function asks for the newest event of a feed that is not declared
    ├── WorkflowFailedError       user code or Spark raised, or an external application ended with a failure
    └── ServiceError              Spark, a catalog, a database, Java or a server cannot be reached, or refuses
        └── ServiceAwayError      it cannot be reached

The whole tree is drawn here. Each class is defined in the `errors.py` of the package that raises it, and its base in a
lower package. An exception is built from facts and writes its own message: where, what, why, next step.
"""

import errno
from collections.abc import Callable, Iterable
from difflib import SequenceMatcher, get_close_matches
from enum import StrEnum
from socket import gaierror
from typing import Self

from feed_assets.masking import mask, text_of

_LEAST_PREFIX = 4
_PREFIX_WEIGHT = 0.4

MOST_CHARACTERS = 1_000
"""The length of a message at most, wherever it is shown or recorded."""


class Fault(StrEnum):
    """What has to be another before the same call can succeed."""

    MISSING = "what is named is not there"
    ASKED = "what is asked"
    CONTENT = "the content of files"
    STATE = "the present state"
    RIGHTS = "who asks"


class FeedAssetsError(Exception):
    """Base of all exceptions that this project raises on purpose; the text is for people.

    It keeps the facts from which it was built as attributes; a class declares those that somebody reads. It can be
    pickled, whatever they are. The text is without secrets, the facts are as they are.
    """

    approval: str | None = None
    """The property with which a rerun of the instance may do what was refused, as name=value; None if nothing may."""
    fault: Fault = Fault.STATE
    """What this error blames."""

    def __new__(cls, *texts: object, **facts: object) -> Self:
        error = super().__new__(cls, *texts)
        error.__dict__.update(facts)
        return error

    def __str__(self) -> str:
        return mask(super().__str__())

    def __reduce__(self) -> "tuple[Callable[..., FeedAssetsError], tuple[object, ...]]":
        return _rebuild, (type(self), self.args, self.__dict__)


class LifecycleError(FeedAssetsError):
    """An instance cannot take its next step."""


class WrongUsageError(FeedAssetsError):
    """What a call was given does not fit together; the text says what does."""

    fault = Fault.ASKED


def _rebuild(kind: type[FeedAssetsError], arguments: tuple[object, ...], facts: dict[str, object]) -> FeedAssetsError:
    error = kind.__new__(kind, *arguments)
    error.__dict__.update(facts)
    return error


class SystemFault(StrEnum):
    """What an `OSError` means for whoever gave the command."""

    AWAY = "away"
    REFUSED = "refused"
    FULL = "full"
    NO_FILE = "no file"
    OTHER = "other"


_FAULTS = {
    SystemFault.AWAY: (
        errno.ECONNABORTED,
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.ENOTCONN,
        errno.ESTALE,
        errno.ETIMEDOUT,
    ),
    SystemFault.REFUSED: (errno.EACCES, errno.EPERM, errno.EROFS),
    SystemFault.FULL: (errno.ENOSPC, errno.EDQUOT),
    SystemFault.NO_FILE: (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG),
}


def system_fault_of(error: OSError) -> SystemFault:
    """Return what an error of the system means. Libraries raise some of them without a number.

    >>> system_fault_of(ConnectionError("nobody there")).value, system_fault_of(OSError(28, "No space left")).value
    ('away', 'full')
    """
    if isinstance(error, ConnectionError | TimeoutError | gaierror):
        return SystemFault.AWAY
    if isinstance(error, PermissionError):
        return SystemFault.REFUSED
    return next((fault for fault, numbers in _FAULTS.items() if error.errno in numbers), SystemFault.OTHER)


class SettingsError(FeedAssetsError):
    """A setting is missing or wrong; `tried` lists the sources that were read, the strongest first."""

    def __init__(self, *, setting: str, reason: str, tried: tuple[str, ...], next_step: str) -> None:
        self.reason, self.next_step = reason, next_step
        places = f" Tried in this order: {', '.join(tried)}." if tried else ""
        super().__init__(f"setting {setting!r}: {reason}. {next_step}{places}")


class NoAnswerError(FeedAssetsError):
    """A service or filesystem did not answer in time."""

    def __init__(self, *, endpoint: str, seconds: float) -> None:
        self.reason = f"it has not answered within {seconds:g} seconds"
        self.next_step = "Check that it runs and can be reached; if it needs longer, raise the setting tick_patience."
        super().__init__(f"{endpoint} {self.reason.removeprefix('it ')}. {self.next_step}")


def render_some(texts: tuple[str, ...], most: int = 5) -> str:
    """Return the first `most` texts as a list for a message, and the number of the others."""
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more


def find_similar(word: str, known: Iterable[str], n: int = 3, cutoff: float = 0.6) -> list[str]:
    """Return at most `n` names that are most like a word, the nearest first. A name that begins as the word does, but
    for its last letter, is nearer than its other letters make it.

    >>> find_similar("retries", ["properties", "retry"], n=1)
    ['retry']
    """
    known = [*known]
    found = dict.fromkeys(get_close_matches(word, known, n, cutoff), 0.0)
    for name in known:
        length = max(_LEAST_PREFIX, min(len(word), len(name)) - 1)
        if name[:length] == word[:length]:
            found[name] = _PREFIX_WEIGHT
    scores = {name: weight + (1 - weight) * SequenceMatcher(a=name, b=word).ratio() for name, weight in found.items()}
    return sorted(scores, key=lambda name: -scores[name])[:n]


def describe_error(error: BaseException) -> str:
    """Return the message of an error in one line, without secrets and at most `MOST_CHARACTERS` long; errors that are
    not ours with their class.

    >>> describe_error(ValueError("no such\\n  place"))
    'ValueError: no such place'
    """
    text = " ".join(text_of(error).split())
    if not isinstance(error, FeedAssetsError):
        text = f"{type(error).__name__}: {text}".rstrip(": ")
    return shorten(text)


def shorten(text: str, most: int = MOST_CHARACTERS) -> str:
    """Return a text without secrets and with at most so many characters. A part of a secret would not be known as one,
    so whatever is shown is cut here.

    >>> shorten("x" * 5_000) == "x" * 999 + "…", shorten("sftp://me:abc@host", 17)
    (True, 'sftp://me:***@ho…')
    """
    text = mask(text)
    return text if len(text) <= most else f"{text[: most - 1]}…"
