"""Which batch a program means. It stands by itself since commands read it without what works on batches."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from feed_assets.operation import Param
from feed_assets.parameters import Process, ProcessCluster


@dataclass(frozen=True, slots=True, kw_only=True)
class AtWork:
    """The batch of a process that is under way; `nominal_time` names it if there are several, `attempt` the attempt."""

    process: Process
    nominal_time: Annotated[datetime | None, Param("The batch, if several are under way.", option="batch")] = None
    attempt: Annotated[int | None, Param("Only this attempt at it: a call given again meets no other.", least=1)] = None
    cluster: ProcessCluster = None
