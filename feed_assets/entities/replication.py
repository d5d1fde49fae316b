"""The policy of replication: how a feed is copied from its sources to its targets."""

from typing import Annotated

from pydantic import Field

from feed_assets.entities.common import EntityModel
from feed_assets.entities.copying import PreserveField, RemovedFiles, Verification
from feed_assets.entities.fields import Count, FilledText, FrequencyField, SizeField
from feed_assets.entities.process import CatchUp, Order, Retry, RetryPolicy
from feed_assets.timing.frequency import Frequency, Unit

RETRY = Retry(policy=RetryPolicy.EXP_BACKOFF, delay=Frequency(unit=Unit.MINUTES, count=5), attempts=3)
"""The default retry policy of replication; Falcon's `feed.retry.*`."""
LATE_POLICY, LATE_DELAY = RetryPolicy.EXP_BACKOFF, Frequency(unit=Unit.HOURS, count=3)
"""The default schedule of late-data checks at sources; Falcon's `feed.late.*`."""

MOST_PARALLEL, MOST_TASKS = 12, 1000
"""The maximum of concurrent copies of a flow, and of concurrent tasks of a copy."""


class Replication(EntityModel):
    """The policy of copies. A field left out takes the value of Falcon's property of the feed, else the default.

    `parallel` (1), `order` (FIFO), `timeout` (6 × frequency, at least 30 minutes), `retry` (3 times, from 5 minutes on)
    and `catch_up` are as in a process. `verification` (`transferred`) names the files that are read back.
    `removed_files` (`by-manifest`) is the treatment of files that the source no longer has. `max_tasks` (5) tasks copy
    at once; `bandwidth` is for all of them, `task_bandwidth` for each, both per second; the default is no limit.
    `overwrite` copies every file again. `ignore_errors` continues with the other files if a file cannot be read, and
    publishes nothing. `include` and `exclude` are globs on paths below the instance; `hidden` also copies files that
    readers ignore (`_metadata`, `.crc`). `allow_empty` publishes an empty replica if they match no file of a source
    that has files.

    Differs from Falcon: `removeDeletedFiles` is true there, `mapBandwidth` 100 MB a second; `skipChecksum` skips what
    `verification: none` skips, and copied bytes are always checked in transit; `preserveUser` and similar properties
    have no effect.

    >>> Replication(bandwidth="100MB", preserve=["times"]).bandwidth.bytes
    100000000
    """

    parallel: Annotated[Count, Field(ge=1, le=MOST_PARALLEL)] | None = None
    order: Order | None = None
    catch_up: CatchUp = CatchUp.ALL
    timeout: FrequencyField | None = None
    retry: Retry | None = None
    verification: Verification | None = None
    removed_files: RemovedFiles | None = None
    overwrite: bool | None = None
    ignore_errors: bool | None = None
    preserve: PreserveField | None = None
    max_tasks: Annotated[Count, Field(ge=1, le=MOST_TASKS)] | None = None
    bandwidth: SizeField | None = None
    task_bandwidth: SizeField | None = None
    include: tuple[FilledText, ...] = ()
    exclude: tuple[FilledText, ...] = ()
    hidden: bool = False
    allow_empty: bool = False
