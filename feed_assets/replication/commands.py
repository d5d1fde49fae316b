"""What can be asked about copies of feeds, and their repair."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

from feed_assets.context.consolidation import PAGE
from feed_assets.operation import WORKS_LONG, Does, Param, later, operation
from feed_assets.replication.queries import AuditQuery, CopyQuery

if TYPE_CHECKING:
    from feed_assets.context.operation import ChangeContext, OperationContext
    from feed_assets.replication import auditing, repairing
    from feed_assets.replication import status as copy_status

later(globals())

GROUPS = {
    "replication": """Inspect, verify and repair the copies of a FEED.

    FEED is the name of a feed, or feed@source, the name of its copies from one source.
    """
}
_FLOWS = (
    "source, target, copies=counts:counts, newest copy=newest, newest at source=newest_source, lag:lag, "
    "bytes, files, seconds:.12g"
)
_COPIES = (
    "source, target, instance=nominal_time, status, sync, copied=figures.copied_at, bytes=figures.bytes, "
    "files=figures.files, seconds=figures.seconds, a second=figures.bandwidth:size, resumed=figures.resumed, "
    "verification=figures.verification, source digest=copied_digest:digest, target digest=target_digest:digest, "
    "attempts, reason"
)
_REPAIRED = (
    "source=copy.source, target=copy.target, instance=copy.nominal_time, verdict=copy.verdict, outcome, bytes, files, "
    "removed, seconds, reason=remark"
)
_FIGURES = ("bytes", "files", "seconds")
_SPARE = (*_FIGURES, "newest at source", "a second", "resumed", "source digest", "target digest", "attempts")

Page = Annotated[int, Param("How many copies of each flow are shown.", option="num-results", least=1)]


@operation("replication status", above=("flows", _FLOWS), table=_COPIES, rows="instances", spare=_SPARE)
def status(
    context: "OperationContext", *, query: CopyQuery, page: Page = PAGE, progress: Callable[..., None]
) -> "copy_status.ReplicationStatus":
    """Show the copies from the record: bytes, files, time, and whether the source has changed since.

    Starts with a line for each flow: the number of all copies by state, the newest copied instance, and how far it is
    behind the newest instance of the source. The newest copies follow, or with --start the oldest.
    """
    return copy_status.find_status(context, query, page=page, progress=progress)


@operation(
    "replication verify",
    table="source, target, instance, verdict, status, reason",
    rows="ranges",
    example="flights --deep --start 2013-11-01T04:00Z",
    long=True,
)
def verify(context: "OperationContext", *, query: AuditQuery, progress: Callable[..., None]) -> "auditing.Verified":
    """Compare copies with their manifests and their sources. Changes nothing.

    Reports copies that are missing, rotten, extra at the target, or behind their source. Evicted instances are not
    missing. The exit code is 1 if something was found, or could not be checked.
    """
    return auditing.verify(context, query, progress=progress)


@operation(
    "replication repair",
    does=Does.ACTS,
    table=_REPAIRED,
    rows="copies",
    spare=(*_FIGURES, "removed"),
    long=True,
    no_route=WORKS_LONG,
)
def repair(context: "ChangeContext", *, query: AuditQuery, progress: Callable[..., None]) -> "repairing.Repaired":
    """Repair what `verify` finds: only what is missing, rotten, extra or behind.

    It copies without Spark, by the rules of every copy: leased, verified, published as a whole and reported to Dagster.
    Instances that others work on, that are suspended, or that the source no longer has are reported and left alone.
    Then, or if a copy fails, the exit code is 1. A repeat does the rest.
    """
    return repairing.repair(context, query, progress=progress)
