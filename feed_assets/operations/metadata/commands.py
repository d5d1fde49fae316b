"""What can be asked about what runs have reported."""

from typing import TYPE_CHECKING, Annotated

from feed_assets.operation import Param, operation
from feed_assets.parameters import End, Process, Start

if TYPE_CHECKING:
    from feed_assets.operations.context import OperationContext
    from feed_assets.state.facts import Fact

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
    from feed_assets.lifecycle.metadata.run_words import PROGRAM
    from feed_assets.operations.instances.query_fields import PAGE
    from feed_assets.operations.instances.ranges import decide_range
    from feed_assets.state.facts import Facts

    sequences = [record.sequence for record in context.processes_of(process)]
    first, stop = decide_range(sequences, start=start, end=end, results=PAGE, now=context.as_of)
    with context.read() as connection:
        return tuple(Facts(connection).between(process, PROGRAM, first, stop, name))
