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


class FeedAssetsError(Exception):
    """Base of everything this project raises on purpose; its text is meant for a person."""


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
