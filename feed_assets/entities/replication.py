"""How a feed is copied from its sources to its targets."""

from typing import Annotated

from pydantic import Field

from feed_assets.entities.common import EntityModel
from feed_assets.entities.copying import PreserveField, RemovedFiles, Verification
from feed_assets.entities.fields import Count, FilledText, FrequencyField, SizeField
from feed_assets.entities.process import CatchUp, Order, Retry, RetryPolicy
from feed_assets.timing.frequency import Frequency, Unit

RETRY = Retry(policy=RetryPolicy.EXP_BACKOFF, delay=Frequency(unit=Unit.MINUTES, count=5), attempts=3)
"""How replication is tried again where nothing is declared; Falcon's `feed.retry.*`."""
LATE_POLICY, LATE_DELAY = RetryPolicy.EXP_BACKOFF, Frequency(unit=Unit.HOURS, count=3)
"""When sources are looked at for late data; Falcon's `feed.late.*`."""

MOST_PARALLEL, MOST_TASKS = 12, 1000
"""How many copies of a flow, and tasks of a copy, there can be at once."""


class Replication(EntityModel):
    """The policy of copies. What is not written is as Falcon's property of the feed says, if it has one, and else has
    the default.

    `parallel` (1), `order` (FIFO), `timeout` (6 × frequency, at least 30 minutes), `retry` (3 times, from 5 minutes
    on) and `catch_up` are as those of a process. `verification` (`transferred`) says what is read back,
    `removed_files` (`by-manifest`) what becomes of what the source has not (any more). `max_tasks` (5) copy at once;
    `bandwidth` is for all of them, `task_bandwidth` for each, both a second and without limit where nothing is said.
    `overwrite` copies every file again, `ignore_errors` goes on with the others where a file cannot be read, and
    publishes nothing. `include` and `exclude` are globs on paths below the instance; `hidden` also copies what readers
    pass over (`_metadata`, `.crc`).

    Differs from Falcon: `removeDeletedFiles` is true there, `mapBandwidth` 100 MB a second; `skipChecksum` skips what
    `verification: none` skips, and what is copied is always checked on its way; `preserveUser` and the like are not
    done.

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
