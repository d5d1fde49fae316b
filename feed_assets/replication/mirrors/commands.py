"""What can be asked about mirrors, and new ones."""

from typing import TYPE_CHECKING, Annotated

from feed_assets.operation import WRITES_FILES, Param, operation
from feed_assets.parameters import Force, Process, ProcessCluster, Target
from feed_assets.replication.mirrors.queries import MirrorRequest

if TYPE_CHECKING:
    from feed_assets.context.operation import OperationContext
    from feed_assets.definitions.templates import Template
    from feed_assets.replication.mirrors.templates import MirrorPlans, MirrorSnapshotList

GROUPS = {
    "mirror": """Manage mirrors: directories without dates that are kept equal to others.

    PROCESS is a process with the engine directory-mirror.
    """
}
_DIRECTORIES = "source, target, copies=copies|-:count, bytes|-:,, removes=removals|-:count, of=standing|-:,"

Removals = Annotated[int | None, Param("Assume that a run may remove this many files.", least=0)]
Files = Annotated[int, Param("How many files are shown.", least=0)]


@operation(
    "mirror plan",
    above=("directories", _DIRECTORIES),
    table="change, bytes, file, source",
    rows="changes",
    spare=("source",),
)
def plan(
    context: "OperationContext",
    *,
    process: Process,
    cluster: ProcessCluster = None,
    removals: Removals = None,
    limit: Files = 20,
) -> "MirrorPlans":
    """Show what a run of PROCESS would do now: bytes and files to copy, and files to remove.

    Writes nothing. The exit code is 1 if a run would fail.
    """
    from feed_assets.replication.mirrors.templates import plan_mirrors

    return plan_mirrors(context, process, cluster, removals, limit=limit)


@operation(
    "mirror snapshots",
    none="there is no snapshot",
    table="side, snapshot, files, bytes, content, directory",
    rows="rows",
    spare=("directory",),
)
def list_snapshots(
    context: "OperationContext", *, process: Process, cluster: ProcessCluster = None
) -> "MirrorSnapshotList":
    """List the snapshots of PROCESS, of source and target, and where older content can be read."""
    from feed_assets.replication.mirrors.templates import list_snapshots

    return list_snapshots(context, process, cluster)


@operation(
    "mirror new",
    text="lines",
    example="models --source primary:/models --target backup:/models",
    no_route=WRITES_FILES,
)
def new(*, request: MirrorRequest, to: Target = None, force: Force = False) -> "Template":
    """Write a mirror NAME, with a comment for each option, and validate it together with the declared entities.

    Falcon's properties of hdfs-mirroring and hdfs-snapshot-mirroring, such as sourceDir and removeDeletedFiles, are
    translated; options take precedence.
    """
    from feed_assets.clock import open_clock
    from feed_assets.definitions.checks.declared_definitions import load_declared
    from feed_assets.definitions.templates import write_template
    from feed_assets.replication.mirrors.templates import make_mirror
    from feed_assets.settings import load_settings

    settings = load_settings()
    template = make_mirror(request, load_declared(settings), open_clock(settings).now(), is_forced=force)
    return template if to is None else write_template(template, to, what="mirror", is_forced=force)
