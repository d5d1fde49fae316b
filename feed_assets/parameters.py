"""Parameters that operations share, each written once."""

from datetime import datetime
from typing import Annotated

from feed_assets.entities.common import Kind
from feed_assets.loading.entity_files import EntityFile
from feed_assets.operation import Param

SCHEDULABLE = (Kind.FEED, Kind.PROCESS)

Start = Annotated[datetime | None, Param("From this nominal time on; by default one page of instances before the end.")]
End = Annotated[datetime | None, Param("Before this nominal time; by default now.")]
Offset = Annotated[int, Param("How many to skip; by default 0.", least=0)]
Results = Annotated[int, Param("How many instances a page has.", option="num-results", least=1)]
Newest = Annotated[
    int | None, Param("Only so many of the newest instances; default: all.", option="num-results", least=1)
]
OnlyCluster = Annotated[str | None, Param("Only this cluster; by default all.", of=(Kind.CLUSTER,))]
ProcessCluster = Annotated[
    str | None, Param("The cluster; not needed if the process is on one only.", of=(Kind.CLUSTER,))
]
Clusters = Annotated[
    tuple[str, ...], Param("Only these clusters, separated by commas.", of=(Kind.CLUSTER,), commas=True)
]
OnlyKind = Annotated[Kind | None, Param("Only feeds, or only processes.", of=SCHEDULABLE)]
OnlyName = Annotated[str | None, Param("Only this feed or process.", of=SCHEDULABLE)]
KindFirst = Annotated[Kind | None, Param("The kind, if several have the name.", argument=True, of=SCHEDULABLE)]
"""`[KIND]` before NAME: needed only if a feed and a process have the name."""
Name = Annotated[str, Param("The feed or process.", argument=True, of=SCHEDULABLE)]
AnyKindFirst = Annotated[Kind | None, Param("The kind, if several have the name.", argument=True)]
AnyName = Annotated[str, Param("The entity.", argument=True)]
Names = Annotated[tuple[str, ...], Param("The entities; before them KIND, if needed.", argument=True, proposes="names")]
"""`[KIND] NAMES...`, together with `kind: KindFirst = None`."""
Feed = Annotated[str, Param("The feed.", argument=True, of=(Kind.FEED,))]
Process = Annotated[str, Param("The process.", argument=True, of=(Kind.PROCESS,))]
_FILES = Param("Files, folders or URLs; - is standard input.", argument=True, file=True)
Files = Annotated[tuple[EntityFile, ...], _FILES]
MaybeFiles = Annotated[tuple[EntityFile, ...] | None, _FILES]
Instance = Annotated[datetime, Param("The nominal time.", argument=True)]
MaybeInstance = Annotated[datetime | None, Param("The nominal time.", argument=True)]
Limit = Annotated[int, Param("How many, newest first.", least=1)]
Target = Annotated[str | None, Param("The file to write; without it the text is printed.", metavar="FILE")]
Force = Annotated[bool, Param("Replace a file or a definition that differs.")]
