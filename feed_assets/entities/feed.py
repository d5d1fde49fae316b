"""What a feed is: a periodic data set on one or more clusters, with the policies for its instances."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from feed_assets.entities.common import Entity, EntityModel, Kind, Locations, Notification, Retention, Sla, Validity
from feed_assets.entities.fields import FilledText, FrequencyField, Labels, Name, PropertyName, Text, Version, ZoneName
from feed_assets.entities.maps import EMPTY, Map
from feed_assets.timing.dates import parse_timezone
from feed_assets.timing.sequence import InstanceSequence


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


class FeedCluster(EntityModel):
    """A feed on one cluster. `sla` and `locations` stand in the place of the feed's own, as a whole.

    `partition` is the slice of an instance that is replicated (it may hold `${cluster.…}`); `delay` is how long after
    the nominal time replication from this source begins.
    """

    type: ClusterRole | None = None
    validity: Validity
    retention: Retention | None = None
    sla: Sla | None = None
    locations: Locations | None = None
    partition: FilledText | None = None
    delay: FrequencyField | None = None
    version: Version = 0


class Feed(Entity):
    """A data set in instances, one every `frequency`.

    Instances exist from their nominal time on. `columns` (in YAML `schema`) is Spark DDL; `options` go to Spark's
    reader and writer. An instance is available when its directory holds `availability_flag`, or without one when it
    holds data. `partitions` names the directory levels below an instance.

    >>> Feed(name="clicks", frequency="hours(1)", locations={"data": "/clicks/${YEAR}/${MONTH}/${DAY}/${HOUR}"},
    ...      clusters={"primary": {"validity": {"start": "2015-01-01T00:00Z"}}}).frequency.render()
    'hours(1)'
    """

    kind: ClassVar[Kind] = Kind.FEED

    frequency: FrequencyField
    timezone: ZoneName = "UTC"
    format: FeedFormat = FeedFormat.PARQUET
    columns: Annotated[FilledText | None, Field(alias="schema")] = None
    options: Map[PropertyName, Text] = EMPTY
    availability_flag: FilledText | None = None
    late_arrival: LateArrival | None = None
    sla: Sla | None = None
    locations: Locations
    partitions: tuple[Name, ...] = ()
    clusters: Annotated[Map[Name, FeedCluster], Field(min_length=1)]
    groups: Labels = ()
    notification: Notification | None = None

    def locations_on(self, cluster: str) -> Locations:
        """The locations that are in force on a cluster."""
        return self.clusters[cluster].locations or self.locations

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
