"""Feeds: a feed is a periodic data set on one or more clusters, with the policies for its instances."""

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Self
from zoneinfo import ZoneInfo

from pydantic import ConfigDict, Field, model_validator

from feed_assets.entities.cluster import Cluster
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
from feed_assets.entities.content.quality import Quality
from feed_assets.entities.copies.options import Columns, Existing
from feed_assets.entities.datasource import Export, ExportTarget, Import, ImportSource
from feed_assets.entities.fields import (
    AssetKeyParts,
    FilledText,
    FineFrequencyField,
    FrequencyField,
    Groups,
    Name,
    PropertyName,
    Text,
    Version,
    ZoneName,
    refuse,
)
from feed_assets.entities.maps import EMPTY, Map
from feed_assets.entities.replication import Replication
from feed_assets.timing.dates import parse_timezone
from feed_assets.timing.errors import FrequencyError
from feed_assets.timing.sequence import Frequency, InstanceSequence, Unit, find_longest, parse_frequency

AGE_BASED_DELETE = "AgeBasedDelete"
LIMIT_PROPERTY = "retention.policy.agebaseddelete.limit"
CATALOG_TABLE_PROPERTY = "catalog.table"
KEEP_BEYOND_VALIDITY = "falcon.retention.keep.instances.beyond.validity"


_BARE_VARIABLE = re.compile(r"(?<!\$)\{(YEAR|MONTH|DAY|HOUR|MINUTE|SECOND)\}")  # {YEAR}


def _with_dollars(text: str | None) -> str | None:
    """Return a text with its variables as paths have them; None if there is none."""
    return None if text is None else _BARE_VARIABLE.sub(r"${\1}", text)


class FeedFormat(StrEnum):
    """The file formats of instances, by their names in Spark."""

    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"
    ORC = "orc"
    TEXT = "text"


class Instances(StrEnum):
    """How instances come into being: one every `frequency`, or whenever somebody makes one; or there is one for ever.

    An instance that comes as it comes has the second of its coming as its time. Nobody expects it, so none is missing.
    The `current` instance has the start of the validity as its time; whatever stands in its place later is a version.
    """

    ON_SCHEDULE = "on-schedule"
    AS_THEY_COME = "as-they-come"
    CURRENT = "current"


class ClusterRole(StrEnum):
    """The role of a cluster in replication; a cluster without a role takes no part."""

    SOURCE = "source"
    TARGET = "target"


class LateArrival(EntityModel):
    """The cut-off, counted from the nominal time, after which late data are no longer processed."""

    cut_off: FrequencyField


class RetentionStage(EntityModel):
    """Retention in the form of a lifecycle stage: a policy by name, with its own frequency, queue and priority.

    The only policy is `AgeBasedDelete`, which is also the default. Its limit is the property
    `retention.policy.agebaseddelete.limit`.
    """

    policy: FilledText | None = None
    frequency: FrequencyField | None = None
    queue: FilledText | None = None
    priority: FilledText | None = None
    properties: Properties = EMPTY

    def find_limit(self) -> Frequency | None:
        """Return the limit in the properties; None if there is none, or if it is not a frequency.

        >>> RetentionStage(properties={LIMIT_PROPERTY: "days(3)"}).find_limit().render()
        'days(3)'
        """
        try:
            return parse_frequency(self.properties.get(LIMIT_PROPERTY, ""))
        except FrequencyError:
            return None


class Lifecycle(EntityModel):
    """The lifecycle stages of instances; there is one."""

    retention_stage: RetentionStage | None = None


class SchemaSource(EntityModel):
    """The place where a schema is described, for people."""

    location: Text
    provider: Text


class ProducedBy(EntityModel):
    """The asset of another Dagster code, by its key, whose materializations are the arrivals of a feed's instances.

    >>> ProducedBy(asset="team/orders").asset
    ('team', 'orders')
    """

    asset: AssetKeyParts


class Duplicates(StrEnum):
    """What happens to a file whose bytes an inbox has had under another name: it is left there, or taken as well."""

    REFUSE = "refuse"
    TAKE = "take"


class Inbox(EntityModel):
    """A directory into which others put files, which go from there into instances of the feed.

    Files count whose names match `pattern`, as in a shell; those in folders below, and hidden ones, do not. A file is
    taken once nobody has written it for the time of `settle`. With `leave` it stays there, and each version is taken
    once.

    >>> Inbox(directory="/in/orders").pattern
    '*'
    """

    directory: FilledText
    pattern: FilledText = "*"
    settle: FineFrequencyField = Frequency(unit=Unit.MINUTES, count=1)
    duplicates: Duplicates = Duplicates.REFUSE
    leave: bool = False


class FeedCluster(EntityModel):
    """A feed on one cluster.

    `sla`, `lifecycle`, and `locations` or `table` each replace the feed's own as a whole. `partition` is the slice of
    an instance that is replicated (it may contain `${cluster.…}`). `delay` is the time between the nominal time and the
    start of replication from this source. `produced_by` names who makes the instances, instead of polls for them.
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
    produced_by: ProducedBy | None = None
    version: Version = 0

    def tables(self) -> Iterator[tuple[tuple[str, str], ImportSource | ExportTarget]]:
        """Yield what is imported from and exported to, each with its path."""
        if self.import_ is not None:
            yield ("import", "source"), self.import_.source
        if self.export is not None:
            yield ("export", "target"), self.export.target


_FREQUENCIES = {
    Instances.AS_THEY_COME: Frequency(unit=Unit.SECONDS, count=1),
    Instances.CURRENT: Frequency(unit=Unit.MINUTES, count=5),
}
"""The frequencies of feeds that need not write one."""


def _frequency_is_optional(schema: dict[str, Any]) -> None:
    """Let a schema do without a frequency where instances are not on schedule."""
    schema["required"].remove("frequency")
    schema["anyOf"] = [{"required": [key]} for key in ("frequency", "instances", "signal", "asset")]


class Feed(Entity):
    """A data set in instances, one every `frequency`, or `instances: as-they-come`, or `current`: one that changes.

    Instances exist from their nominal time on. `ddl` (in YAML `schema`) is Spark DDL; `columns` decides about others
    that processes write; `options` go to Spark's
    reader and writer. An instance is available when its directory contains `availability_flag`; without a flag, when it
    contains data. `partitions` names the directory levels below an instance. `replication` is the policy of copies from
    source clusters to target clusters. `existing` decides about foreign content in the place of an instance that is
    published. `preview` decides whether Dagster shows rows of instances; None leaves it to the settings. `quality` is
    what the rows that processes write must be like.
    A feed has `locations`, or a `table` of the clusters' catalogs,
    `catalog:database:table#key=value;key=value`. Instances at locations are also partitions of its `catalog_table`.

    Instances that come as they come are known by a notice, by looks at the location every `watch`, or are made of the
    files in an `inbox`. A `signal` has no
    data: each of its instances is news, such as an approval. The instances of an `asset` are its materializations in
    Dagster, whatever they hold. Both come as they come.
    The place of a current instance is looked at every `watch`, else every `frequency`.

    >>> Feed(name="clicks", frequency="hours(1)", locations={"data": "/clicks/${YEAR}/${MONTH}/${DAY}/${HOUR}"},
    ...      clusters={"primary": {"validity": {"start": "2015-01-01T00:00Z"}}}).frequency.render()
    'hours(1)'
    """

    kind: ClassVar[Kind] = Kind.FEED
    model_config = ConfigDict(json_schema_extra=_frequency_is_optional)

    instances: Instances = Instances.ON_SCHEDULE
    frequency: FineFrequencyField
    signal: bool = False
    asset: AssetKeyParts | None = None
    watch: FrequencyField | None = None
    inbox: Inbox | None = None
    timezone: ZoneName = "UTC"
    path_timezone: ZoneName | None = None
    format: FeedFormat = FeedFormat.PARQUET
    ddl: Annotated[FilledText | None, Field(alias="schema")] = None
    columns: Columns = Columns.REFUSE
    schema_source: SchemaSource | None = None
    options: Map[PropertyName, Text] = EMPTY
    availability_flag: FilledText | None = None
    late_arrival: LateArrival | None = None
    sla: Sla | None = None
    locations: Locations | None = None
    table: FilledText | None = None
    catalog_table: FilledText | None = None
    lifecycle: Lifecycle | None = None
    replication: Replication | None = None
    partitions: tuple[Name, ...] = ()
    clusters: Annotated[Map[Name, FeedCluster], Field(min_length=1)]
    groups: Groups = ()
    existing: Existing = Existing.REFUSE
    preview: bool | None = None
    quality: Quality | None = None
    notification: Notification | None = None

    @model_validator(mode="before")
    @classmethod
    def _default_instances(cls, content: object) -> object:
        """Complete what follows from a signal or an asset, and the frequency of instances that are not on schedule."""
        if not isinstance(content, Mapping):
            return content
        has_data = not (content.get("signal") or content.get("asset"))
        defaults: dict[str, str] = {} if has_data else {"instances": Instances.AS_THEY_COME}
        written = content.get("instances") or defaults.get("instances")
        for kind, frequency in _FREQUENCIES.items():
            if kind == written:
                defaults["frequency"] = frequency.render()
        return {**content, **{key: value for key, value in defaults.items() if content.get(key) is None}}

    @model_validator(mode="after")
    def _check_locations(self) -> Self:
        for path, part in self.parts():
            if part.locations is not None and part.table is not None:
                where = "".join(f"{key}." for key in path)
                raise refuse("locations", f"both {where}locations and {where}table are written", "Remove one of them.")
        return self

    def parts(self) -> "Iterator[tuple[tuple[str, ...], Feed | FeedCluster]]":
        """Yield the feed, and its entry for each cluster, whose values replace the feed's; with their paths."""
        yield (), self
        for name, entry in self.clusters.items():
            yield ("clusters", name), entry

    @property
    def has_data(self) -> bool:
        """Whether instances are data, and not only the news that something happened."""
        return not self.signal and self.asset is None

    @property
    def is_expected(self) -> bool:
        """Whether instances are due at their nominal time."""
        return self.instances is not Instances.AS_THEY_COME

    @property
    def is_current(self) -> bool:
        """Whether there is one instance for ever, in whose place one version follows another."""
        return self.instances is Instances.CURRENT

    def locations_on(self, cluster: str) -> Locations | None:
        """Return the locations in force on a cluster; None if the feed is a table, or has no location."""
        entry = self.clusters[cluster]
        return None if entry.table is not None else entry.locations or self.locations

    def data_on(self, cluster: str) -> str | None:
        """Return the template of the data on a cluster; None if the feed is a table, or has no location."""
        locations = self.locations_on(cluster)
        return locations.data if locations else None

    def lies_on(self, cluster: str) -> bool:
        """Return whether the instances have a place on a cluster, or need none."""
        return not self.has_data or self.data_on(cluster) is not None or self.table_on(cluster) is not None

    def table_on(self, cluster: str) -> str | None:
        """Return the table in force on a cluster; None if the feed has locations."""
        entry = self.clusters[cluster]
        return entry.table if entry.table is not None else None if entry.locations else self.table

    def catalog_table_on(self, cluster: Cluster) -> str | None:
        """Return the table of a cluster's catalog in which instances are registered as partitions: the feed's own, that
        of Falcon's property, whose variables have no `$`, or the cluster's, where the feed can have one. None if there
        is none.

        >>> Feed(name="a", frequency="days(1)", locations={"data": "/a/${YEAR}"}, clusters={"c": {"validity": {
        ...      "start": "2015-01-01T00:00Z"}}}, properties={"catalog.table": "catalog:web:a#y={YEAR}"}
        ...      ).catalog_table_on(Cluster(name="c", storage="file:///d", catalog="thrift://h:9083"))
        'catalog:web:a#y=${YEAR}'
        """
        own = self.catalog_table or _with_dollars(self.properties.get(CATALOG_TABLE_PROPERTY))
        if cluster.catalog is None or self.data_on(cluster.name) is None:
            return None
        can_be_there = self.format is FeedFormat.PARQUET or not cluster.is_lake
        if own is None and can_be_there and self.has_data and not self.is_current:
            form = _with_dollars(cluster.catalog_table)
            return None if form is None else form.replace("{feed}", self.name.replace("-", "_"))
        return own

    def import_on(self, cluster: str) -> Import | None:
        """Return the import that writes the instances on a cluster: on sources, of feeds whose instances have times."""
        entry = self.clusters[cluster]
        is_dated = self.is_expected and not self.is_current and self.has_data and self.lies_on(cluster)
        return entry.import_ if is_dated and entry.type is ClusterRole.SOURCE else None

    def export_on(self, cluster: str) -> Export | None:
        """Return the export of the instances on a cluster that have data there."""
        return self.clusters[cluster].export if self.has_data and self.lies_on(cluster) else None

    def retention_stage_on(self, cluster: str) -> RetentionStage | None:
        """Return the retention stage in force on a cluster: its own, else the feed's."""
        own = self.clusters[cluster].lifecycle
        if own is not None and own.retention_stage is not None:
            return own.retention_stage
        return self.lifecycle.retention_stage if self.lifecycle else None

    def retention_limit_on(self, cluster: str) -> Frequency | None:
        """Return how long instances are kept on a cluster: the limit of the retention stage, else of the retention."""
        stage, retention = self.retention_stage_on(cluster), self.clusters[cluster].retention
        return stage.find_limit() if stage is not None else retention.limit if retention else None

    def retention_ends_on(self, cluster: str) -> bool:
        """Return whether retention stops with the validity on a cluster, by its own setting or by Falcon's property."""
        retention = self.clusters[cluster].retention
        says_so = self.properties.get(KEEP_BEYOND_VALIDITY, "").strip().lower() == "true"
        return says_so or (retention is not None and not retention.after_validity)

    @property
    def path_zone(self) -> ZoneInfo:
        """The time zone of the times in its paths."""
        return parse_timezone(self.path_timezone or self.timezone)

    def sla_on(self, cluster: str) -> Sla | None:
        """Return the SLA in force on a cluster."""
        return self.clusters[cluster].sla or self.sla

    def sequence_on(self, cluster: str) -> InstanceSequence:
        """Return the instances on a cluster. Of a current feed there is one: the next is farther than any time."""
        validity = self.clusters[cluster].validity
        if self.is_current:
            return validity.sequence(find_longest(validity.start), "UTC")
        return validity.sequence(self.frequency, self.timezone)


def find_sources(feed: Feed) -> tuple[str, ...]:
    """Return the clusters that a feed is copied from, in the order of declaration."""
    return _find_role(feed, ClusterRole.SOURCE)


def find_targets(feed: Feed) -> tuple[str, ...]:
    """Return the clusters that a feed is copied to, in the order of declaration."""
    return _find_role(feed, ClusterRole.TARGET)


def iter_pairs(feed: Feed) -> Iterator[tuple[str, str]]:
    """Yield every source with every target."""
    return ((source, target) for target in find_targets(feed) for source in find_sources(feed))


def flow_sequence(feed: Feed, source: str, target: str) -> InstanceSequence | None:
    """Return the instances that are copied; None if there are none.

    These are the target's instances from the later start until before the earlier end. With a delay, the last instances
    are those whose copies still begin before that end.

    Differs from Falcon: a copy has the nominal time of the copied instance, not one that is later by the delay.
    """
    of_target, of_source = feed.sequence_on(target), feed.sequence_on(source)
    first = of_target.ceil(of_source.start)
    if first is None or are_validities_apart(feed, source, target):
        return None
    ends = [each.end for each in (of_source, of_target) if each.end is not None]
    end = min(ends) - flow_delay(feed, source) if ends else None
    if end is not None and end <= first:
        return None
    frequency = find_longest(first) if feed.is_current else feed.frequency
    return InstanceSequence(start=first, frequency=frequency, timezone=of_target.timezone, end=end)


def flow_delay(feed: Feed, source: str) -> timedelta:
    """Return the time between the nominal time and the start of a copy."""
    delay = feed.clusters[source].delay
    return delay.as_duration() if delay is not None else timedelta(0)


def are_validities_apart(feed: Feed, source: str, target: str) -> bool:
    """Return whether the validities of source and target do not even touch, which Falcon refuses.

    They do not touch if the later start plus the source's delay is after the earlier end.
    """
    delay = flow_delay(feed, source)
    one, other = feed.clusters[source].validity, feed.clusters[target].validity
    try:
        return one.start + delay > other.end or other.start + delay > one.end
    except OverflowError:
        return True


def _find_role(feed: Feed, role: ClusterRole) -> tuple[str, ...]:
    return tuple(name for name, entry in feed.clusters.items() if entry.type is role)
