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
├── MirrorTemplateError       what is given makes no mirror
├── WebserverError            Dagster's webserver does not answer, or refuses
├── RunsNotStoppedError       runs of instances that were killed and that go on
├── StorageError              a filesystem refused, or holds something we do not understand
│   ├── PathRefusedError      a path that leaves the storage root, or is none
│   ├── InstanceNotFoundError
│   ├── InstanceChangingError it did not hold still, or another publication overtook ours
│   ├── StagingLostError      what should be published was discarded, swept or never made
│   ├── ManifestError         a manifest file that cannot be read
│   ├── TableRefusedError     a table that is not there, or not as a feed says, or that others write
│   └── StoreUnknownError     no adapter for the URL, or its packages are not installed
├── StateError                the state database refused
│   ├── LeaseHeldError        somebody else works on this instance
│   ├── FencedOutError        our lease was taken over; nothing of ours may become visible
│   ├── ChunkTakenError       somebody else works on this part of a sweep, or has ended it
│   └── SweepDamagedError     a stored sweep is not what was planned
├── LifecycleError            an instance cannot take its next step
│   ├── InputsMissingError
│   ├── OutputOutsideValidityError
│   ├── ReleaseError          the releases of a process cannot go on as asked
│   ├── SweepRefusedError     a sweep cannot do what is asked as it stands; nothing was moved
│   ├── ReplicationError      an instance cannot be copied; what stands at the target was not touched
│   │   ├── SourceNotAvailableError   there is no whole instance at the source
│   │   ├── SourceEmptiedError        a source without files would empty its target
│   │   ├── SourceChangingError       it changed during every try
│   │   ├── SourceDamagedError        a file of it is not what its manifest says
│   │   ├── CopyDamagedError          what was read back is not what had been read
│   │   ├── TargetDamagedError        what should stay at the target is not what its manifest says
│   │   ├── FilesFailedError          files of the source could not be read; the others wait for the next try
│   │   ├── ReplicaLostError          what stood at the target when the copy began is gone
│   │   ├── CopyIncompleteError       parts of the copy have not been done
│   │   ├── CopyForbiddenError        what a worker raises of a copy that its process has forbidden
│   │   ├── CopyWorkerLostError       a process that made copies has ended before they were done
│   │   ├── MirrorEmptiedError        a source without files has a mirror with some
│   │   ├── RemovalLimitError         a run of a mirror would remove more than it may without asking
│   │   ├── TargetRefusedError        what stands at the target of a mirror cannot be replaced as a whole
│   │   └── MirrorFailedError         some of several directories could not be mirrored
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

The tree is drawn whole here; a class stands in the `errors.py` of the room that raises it, its base in a room below.
An exception is built from facts and writes its own sentence: where, what, why, next step.
"""

from collections.abc import Callable


class FeedAssetsError(Exception):
    """Base of everything this project raises on purpose; its text is meant for a person.

    It can be sent to another process, whatever facts it was built from.
    """

    def __reduce__(self) -> "tuple[Callable[..., FeedAssetsError], tuple[object, ...]]":
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(kind: type[FeedAssetsError], arguments: tuple[object, ...], facts: dict[str, object]) -> FeedAssetsError:
    error = kind.__new__(kind, *arguments)
    error.__dict__.update(facts)
    return error


class SettingsError(FeedAssetsError):
    """A setting is missing or wrong; `tried` are the places that were looked at, the strongest first."""

    def __init__(self, *, setting: str, reason: str, tried: tuple[str, ...], next_step: str) -> None:
        self.setting = setting
        self.reason = reason
        self.tried = tried
        places = f" Tried, the first one wins: {', '.join(tried)}." if tried else ""
        super().__init__(f"setting {setting!r}: {reason}.{places} {next_step}")


def render_some(texts: tuple[str, ...], most: int = 5) -> str:
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more
