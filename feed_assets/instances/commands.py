"""What can be asked about what runs have reported."""

from typing import TYPE_CHECKING, Annotated

from feed_assets.operation import Param, operation
from feed_assets.parameters import End, Process, Start

if TYPE_CHECKING:
    from feed_assets.catalog.facts import Fact
    from feed_assets.context.operation import OperationContext

GROUPS = {"facts": "Show what runs have reported."}

FactName = Annotated[str | None, Param("Only facts of this name.")]


@operation(
    "facts history",
    table="instance=nominal_time, cluster, attempt, name, value, at=recorded_at:seconds",
    rows="facts",
    example="daily-delays --start 2013-11 --name flights",
)
def facts_history(
    context: "OperationContext", *, process: Process, start: Start = None, end: End = None, name: FactName = None
) -> "tuple[Fact, ...]":
    """Show the facts that runs of PROCESS have reported, newest instance first."""
    from feed_assets.catalog.facts import Facts
    from feed_assets.catalog.run_metadata import PROGRAM
    from feed_assets.context.consolidation import PAGE
    from feed_assets.instances.lists.ranges import decide_range

    sequences = [record.sequence for record in context.processes_of(process)]
    first, stop = decide_range(sequences, start=start, end=end, results=PAGE, now=context.as_of)
    with context.read() as connection:
        return tuple(Facts(connection).between(process, PROGRAM, first, stop, name))
