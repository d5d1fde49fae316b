"""What can be asked about registrations: the instances of feeds on files as partitions of a table of a catalog."""

from typing import TYPE_CHECKING

from feed_assets.operation import WORKS_LONG, Does, later, operation
from feed_assets.parameters import End, Feed, OnlyCluster, Start

if TYPE_CHECKING:
    from feed_assets.context.operation import ChangeContext, OperationContext
    from feed_assets.registration import verifying

later(globals())

GROUPS = {"registration": "Compare the table of a catalog in which a FEED registers its instances, and repair it."}
_TABLE = "cluster, table, instance=nominal_time, reason, repaired"


@operation("registration verify", table=_TABLE, rows="differences", long=True)
def verify(
    context: "OperationContext", *, feed: Feed, cluster: OnlyCluster = None, start: Start = None, end: End = None
) -> "verifying.VerifiedRegistrations":
    """Compare the table of a feed with the record, and name what differs. Changes nothing.

    Each AVAILABLE instance is a partition with its files, and no other is. If something differs, the exit code is 1.
    """
    return verifying.verify_registrations(
        context, verifying.RegistrationQuery(feed=feed, cluster=cluster, start=start, end=end)
    )


@operation(
    "registration repair",
    does=Does.ACTS,
    table=_TABLE,
    rows="differences",
    long=True,
    no_route=WORKS_LONG,
)
def repair(
    context: "ChangeContext", *, feed: Feed, cluster: OnlyCluster = None, start: Start = None, end: End = None
) -> "verifying.VerifiedRegistrations":
    """Let the table of a feed have what the record has, where `verify` finds a difference.

    Partitions that do not point into a place of the feed stay as they are. If something is left, the exit code is 1.
    """
    query = verifying.RegistrationQuery(feed=feed, cluster=cluster, start=start, end=end)
    return verifying.repair_registrations(context, query)
