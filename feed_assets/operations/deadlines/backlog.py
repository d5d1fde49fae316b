"""`sla backlog`: how many minutes the instances of each process are behind, all together."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from feed_assets.entities.common import Kind
from feed_assets.json_form import NominalTime
from feed_assets.operations.context import OperationContext
from feed_assets.state.sla_misses import SlaMisses
from feed_assets.state.sla_records import OpenCount, SlaLevel

_SECONDS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """The backlog of a process on a cluster: the `minutes` from the nominal times of all `instances` that have missed
    their end until now. Nothing is missed: 0.
    """

    process: str
    cluster: str
    minutes: int
    instances: int
    oldest: NominalTime | None


def find_backlog(
    context: OperationContext, name: str | None = None, clusters: Collection[str] = ()
) -> tuple[Backlog, ...]:
    """Return the backlog of each process with an SLA, or of one, on each cluster or on some.

    Raises:
        EntityNotFoundError: no such process is declared.
    """
    if name is not None:
        context.clusters_of(Kind.PROCESS, name)
    wanted = sorted(
        key
        for key, record in context.plan.processes.items()
        if record.sla is not None and name in (None, key[0]) and (not clusters or key[1] in clusters)
    )
    with context.read() as connection:
        found = backlogs_of(SlaMisses(connection).open_counts(context.as_of, clusters))
    return tuple(
        found.get(key) or Backlog(process=key[0], cluster=key[1], minutes=0, instances=0, oldest=None) for key in wanted
    )


def backlogs_of(counts: Sequence[OpenCount]) -> dict[tuple[str, str], Backlog]:
    """Return the backlog of each process and cluster with instances that have missed their end; others are left out.

    For metrics, too: the same number.
    """
    return {
        (each.name, each.cluster): Backlog(
            process=each.name,
            cluster=each.cluster,
            minutes=each.nominal_seconds // _SECONDS,
            instances=each.instances,
            oldest=each.oldest,
        )
        for each in counts
        if each.kind == Kind.PROCESS and each.level is SlaLevel.HIGH
    }
