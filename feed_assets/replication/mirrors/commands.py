"""What can be asked about mirrors, and new ones."""

from typing import TYPE_CHECKING, Annotated

from feed_assets.clock import open_clock
from feed_assets.operation import WRITES_FILES, Param, later, operation
from feed_assets.parameters import Force, Process, ProcessCluster, Target
from feed_assets.replication.mirrors.queries import MirrorRequest
from feed_assets.settings import load_settings

if TYPE_CHECKING:
    from feed_assets.context.operation import OperationContext
    from feed_assets.definitions import templates as template_files
    from feed_assets.definitions.checks import declared_definitions
    from feed_assets.replication.mirrors import templates

later(globals())

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
) -> "templates.MirrorPlans":
    """Show what a run of PROCESS would do now: bytes and files to copy, and files to remove.

    Writes nothing. The exit code is 1 if a run would fail.
    """
    return templates.plan_mirrors(context, process, cluster, removals, limit=limit)


@operation(
    "mirror snapshots",
    none="there is no snapshot",
    table="side, snapshot, files, bytes, content, directory",
    rows="rows",
    spare=("directory",),
)
def list_snapshots(
    context: "OperationContext", *, process: Process, cluster: ProcessCluster = None
) -> "templates.MirrorSnapshotList":
    """List the snapshots of PROCESS, of source and target, and where older content can be read."""
    return templates.list_snapshots(context, process, cluster)


@operation(
    "mirror new",
    text="lines",
    example="models --source primary:/models --target backup:/models",
    no_route=WRITES_FILES,
)
def new(*, request: MirrorRequest, to: Target = None, force: Force = False) -> "template_files.Template":
    """Write a mirror NAME, with a comment for each option, and validate it together with the declared entities.

    Falcon's properties of hdfs-mirroring and hdfs-snapshot-mirroring, such as sourceDir and removeDeletedFiles, are
    translated; options take precedence.
    """
    settings = load_settings()
    template = templates.make_mirror(
        request, declared_definitions.load_declared(settings), open_clock(settings).now(), is_forced=force
    )
    return template if to is None else template_files.write_template(template, to, what="mirror", is_forced=force)
