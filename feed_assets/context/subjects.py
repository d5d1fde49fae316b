"""What a person names, resolved once: a feed, process or flow, where it is, and which instance of it is meant."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from feed_assets.context.consolidation import Lifecycle
from feed_assets.context.operation import OperationContext
from feed_assets.entities.common import Kind
from feed_assets.entities.errors import AmbiguousNameError
from feed_assets.entities.flow_names import is_flow
from feed_assets.plan.records import FeedRecord, ProcessRecord
from feed_assets.timing.instance_texts import parse_instance, zone_of_keys

LIFECYCLES = {
    Kind.PROCESS: (Lifecycle.EXECUTION,),
    Kind.FEED: (Lifecycle.REPLICATION, Lifecycle.EVICTION),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A feed, or a process or flow (`kind` PROCESS), with its records on all its clusters, by cluster.

    `clusters` are those that are asked for, none for all; the subject need not be on them. `nominal_time` is None if no
    single instance is meant. `lifecycles` are the requested ones; if empty, each operation has a default.
    """

    kind: Kind
    name: str
    records: tuple[FeedRecord | ProcessRecord, ...]
    clusters: tuple[str, ...] = ()
    nominal_time: datetime | None = None
    lifecycles: frozenset[Lifecycle] = frozenset()

    @property
    def on(self) -> tuple[str, ...]:
        """The clusters where it is, by name."""
        return tuple(record.cluster for record in self.records)

    @property
    def asked(self) -> tuple[str, ...]:
        """The clusters to ask: those that are named, else all where it is."""
        return self.clusters or self.on

    @property
    def instance(self) -> datetime:
        """The nominal time of the instance that is meant."""
        assert self.nominal_time is not None
        return self.nominal_time

    def parse(self, text: str) -> datetime:
        """Parse the nominal time of an instance, in the time zone of the entity unless it is a UTC time.

        Raises:
            DateTimeError: the text is not a time.
        """
        return parse_instance(text, zone_of_keys(self.records[0].sequence))


def resolve_subject(
    context: OperationContext,
    name: str,
    instance: str | datetime | None = None,
    *,
    kind: Kind | None = None,
    preferred: Kind | None = None,
    clusters: Iterable[str] = (),
    lifecycles: Iterable[str] = (),
) -> Subject:
    """Resolve the name of a feed, process or flow. Where a feed and a process share it, the kind or a lifecycle of one
    of them tells which is meant, else it is the `preferred` one.

    Raises:
        EntityNotFoundError: nothing of that name and kind is declared.
        DefinitionsError: it is declared, but has errors.
        AmbiguousNameError: nothing tells whether the feed or the process is meant.
        DateTimeError: the instance is not a time.
    """
    wanted = frozenset(map(Lifecycle, lifecycles))
    kinds = context.kinds_of(name, Kind.PROCESS if is_flow(name) else kind)
    chosen = [each for each in kinds if wanted and wanted.issubset(LIFECYCLES[each])] or kinds
    if len(chosen) > 1 and preferred is None:
        raise AmbiguousNameError(name=name, kinds=kinds)
    of_kind = next((each for each in chosen if each is preferred), chosen[0])
    records = context.records(of_kind)
    found = Subject(
        kind=of_kind,
        name=name,
        records=tuple(records[name, cluster] for cluster in context.clusters_of(of_kind, name)),
        clusters=tuple(clusters),
        lifecycles=wanted,
    )
    if instance is None:
        return found
    return replace(found, nominal_time=found.parse(instance) if isinstance(instance, str) else instance)
