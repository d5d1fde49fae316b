"""What users need to test their entities and their work, in temporary storage.

`simulate` replays days of a location in seconds. The decisions are those of the sensors; the work is replaced by work
that only takes time. It needs neither Dagster nor Spark nor pytest. In a project of `open_project` the work really
runs, in this process, on Dagster and Spark.
"""

from typing import TYPE_CHECKING, Any

from feed_assets.simulate.parts import Arrival, LogLine, SimulatedEvent
from feed_assets.testing.simulated import SimulatedLocation, simulate

if TYPE_CHECKING:
    from feed_assets.testing.projects import Project, ProjectRun, open_project

__all__ = [
    "Arrival",
    "LogLine",
    "Project",
    "ProjectRun",
    "SimulatedEvent",
    "SimulatedLocation",
    "open_project",
    "simulate",
]


def __getattr__(name: str) -> Any:
    """Return a name whose module imports Dagster."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from feed_assets.testing import projects

    return getattr(projects, name)
