"""What a feed is: a periodic data set on one or more clusters, with the policies for its instances."""

from enum import StrEnum
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from feed_assets.entities.common import (
    Entity,
    EntityModel,
    Kind,
    Locations,
    Notification,
    Properties,
    Retention,
    Sla,
    Validity,
)
from feed_assets.entities.fields import (
    FilledText,
    FrequencyField,
    Labels,
    Name,
    PropertyName,
    Text,
    Version,
    ZoneName,
    refuse,
)
from feed_assets.entities.maps import EMPTY, Map
from feed_assets.entities.replication import Replication
from feed_assets.entities.transfers import Export, Import
from feed_assets.timing.dates import parse_timezone
from feed_assets.timing.errors import FrequencyError
from feed_assets.timing.frequency import Frequency, parse_frequency
from feed_assets.timing.sequence import InstanceSequence

AGE_BASED_DELETE = "AgeBasedDelete"
LIMIT_PROPERTY = "retention.policy.agebaseddelete.limit"
KEEP_BEYOND_VALIDITY = "falcon.retention.keep.instances.beyond.validity"


class FeedFormat(StrEnum):
    """The file formats of instances, as Spark calls them."""

    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"
    ORC = "orc"
    TEXT = "text"


class ClusterRole(StrEnum):
    """The part of a cluster in replication; a cluster without a role takes none."""

    SOURCE = "source"
    TARGET = "target"


class LateArrival(EntityModel):
    """Until when, counted from the nominal time, data that come late are still processed."""

    cut_off: FrequencyField


class RetentionStage(EntityModel):
    """Retention in the form of a stage: a policy by name, with its own frequency, queue and priority.

    The one policy is `AgeBasedDelete`, also where none is named, with the limit in the property
    `retention.policy.agebaseddelete.limit`.
    """

    policy: FilledText | None = None
    frequency: FrequencyField | None = None
    queue: FilledText | None = None
    priority: FilledText | None = None
    properties: Properties = EMPTY

    def find_limit(self) -> Frequency | None:
        """The limit that the properties give; None if there is none, or it is no frequency.

        >>> RetentionStage(properties={LIMIT_PROPERTY: "days(3)"}).find_limit().render()
        'days(3)'
        """
        try:
            return parse_frequency(self.properties.get(LIMIT_PROPERTY, ""))
        except FrequencyError:
            return None


class Lifecycle(EntityModel):
    """The stages in the life of instances; there is one."""

    retention_stage: RetentionStage | None = None


class SchemaSource(EntityModel):
    """Where a schema is described, for people."""

    location: Text
    provider: Text


class FeedCluster(EntityModel):
    """A feed on one cluster. `sla`, `lifecycle`, and `locations` or `table` stand in the place of the feed's own, each
    as a whole.

    `partition` is the slice of an instance that is replicated (it may hold `${cluster.…}`); `delay` is how long after
    the nominal time replication from this source begins.
    """

    type: ClusterRole | None = None
    validity: Validity
    retention: Retention | None = None
    sla: Sla | None = None
    locations: Locations | None = None
    table: FilledText | None = None
    lifecycle: Lifecycle | None = None
    import_: Annotated[Import | None, Field(alias="import")] = None
    export: Export | None = None
    partition: FilledText | None = None
    delay: FrequencyField | None = None
    version: Version = 0


class Feed(Entity):
    """A data set in instances, one every `frequency`.

    Instances exist from their nominal time on. `columns` (in YAML `schema`) is Spark DDL; `options` go to Spark's
    reader and writer. An instance is available when its directory holds `availability_flag`, or without one when it
    holds data. `partitions` names the directory levels below an instance, `replication` how it is copied from its
    source clusters to its target clusters. A feed lies at `locations` or in a `table`
    of the clusters' catalogs, `catalog:database:table#key=value;key=value`.

    >>> Feed(name="clicks", frequency="hours(1)", locations={"data": "/clicks/${YEAR}/${MONTH}/${DAY}/${HOUR}"},
    ...      clusters={"primary": {"validity": {"start": "2015-01-01T00:00Z"}}}).frequency.render()
    'hours(1)'
    """

    kind: ClassVar[Kind] = Kind.FEED

    frequency: FrequencyField
    timezone: ZoneName = "UTC"
    format: FeedFormat = FeedFormat.PARQUET
    columns: Annotated[FilledText | None, Field(alias="schema")] = None
    schema_source: SchemaSource | None = None
    options: Map[PropertyName, Text] = EMPTY
    availability_flag: FilledText | None = None
    late_arrival: LateArrival | None = None
    sla: Sla | None = None
    locations: Locations | None = None
    table: FilledText | None = None
    lifecycle: Lifecycle | None = None
    replication: Replication | None = None
    partitions: tuple[Name, ...] = ()
    clusters: Annotated[Map[Name, FeedCluster], Field(min_length=1)]
    groups: Labels = ()
    notification: Notification | None = None

    @model_validator(mode="after")
    def _lies_somewhere(self) -> Self:
        parts: list[tuple[str, Feed | FeedCluster]] = [("", self)]
        parts += [(f"clusters.{name}.", entry) for name, entry in self.clusters.items()]
        for where, part in parts:
            if part.locations is not None and part.table is not None:
                raise refuse("locations", f"both {where}locations and {where}table are written", "Remove one of them.")
        return self

    def locations_on(self, cluster: str) -> Locations | None:
        """The locations that are in force on a cluster; None where the feed is a table, or lies nowhere."""
        entry = self.clusters[cluster]
        return None if entry.table is not None else entry.locations or self.locations

    def data_on(self, cluster: str) -> str | None:
        """The template of the data on a cluster; None where the feed is a table, or lies nowhere."""
        locations = self.locations_on(cluster)
        return locations.data if locations else None

    def table_on(self, cluster: str) -> str | None:
        """The table that is in force on a cluster; None where the feed lies at locations."""
        entry = self.clusters[cluster]
        return entry.table if entry.table is not None else None if entry.locations else self.table

    def lifecycle_on(self, cluster: str) -> Lifecycle | None:
        """The lifecycle that is in force on a cluster."""
        return self.clusters[cluster].lifecycle or self.lifecycle

    def retention_stage_on(self, cluster: str) -> RetentionStage | None:
        """The retention stage that is in force on a cluster: its own, else the feed's."""
        own = self.clusters[cluster].lifecycle
        if own is not None and own.retention_stage is not None:
            return own.retention_stage
        return self.lifecycle.retention_stage if self.lifecycle else None

    def retention_limit_on(self, cluster: str) -> Frequency | None:
        """How long instances are kept on a cluster: the limit of the retention stage, else of the retention."""
        stage, retention = self.retention_stage_on(cluster), self.clusters[cluster].retention
        return stage.find_limit() if stage is not None else retention.limit if retention else None

    def retention_ends_on(self, cluster: str) -> bool:
        """Whether retention stops with the validity on a cluster: as it says, or as Falcon's property does."""
        retention = self.clusters[cluster].retention
        says_so = self.properties.get(KEEP_BEYOND_VALIDITY, "").strip().lower() == "true"
        return says_so or (retention is not None and not retention.after_validity)

    def sla_on(self, cluster: str) -> Sla | None:
        """The SLA that is in force on a cluster."""
        return self.clusters[cluster].sla or self.sla

    def sequence_on(self, cluster: str) -> InstanceSequence:
        """The instances on a cluster."""
        validity = self.clusters[cluster].validity
        return InstanceSequence(
            start=validity.start,
            frequency=self.frequency,
            timezone=parse_timezone(self.timezone),
            end=None if validity.is_endless else validity.end,
        )
