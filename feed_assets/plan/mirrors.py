"""The compiler of mirrors: the stores and paths of their directories, and the options of each copy."""

from feed_assets.entities.bundle import Bundle
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.copying import RemovedFiles
from feed_assets.entities.mirror import Mirror
from feed_assets.plan.copy_options import CopyOptions, OnError
from feed_assets.plan.mirror_records import Directory, MirrorRecord
from feed_assets.plan.places import locate

_HIDDEN = ".*"
"""Excludes hidden files, so that they are neither copied nor removed."""


def compile_mirror(bundle: Bundle, mirror: Mirror, own: str) -> MirrorRecord:
    """Return the mirror of a process on the cluster `own`.

    Raises:
        EntityNotFoundError: the bundle lacks the cluster of a side.
    """
    source, target = (bundle.get_cluster(name) for name in mirror.clusters(own))
    return MirrorRecord(
        directories=tuple((_place(source, read), _place(target, written)) for read, written in mirror.directories()),
        options=_options(mirror),
        share=mirror.limits.share,
        files=mirror.limits.files,
        allow_emptying=mirror.allow_emptying,
        snapshots=mirror.snapshots,
    )


def _place(cluster: Cluster, directory: str) -> Directory:
    store, template = locate(cluster, directory)
    return Directory(store=store, path="/".join(part for part in template.text.split("/") if part))


def _options(mirror: Mirror) -> CopyOptions:
    """Return the options of each copy. Whether a source may be empty is decided earlier."""
    return CopyOptions(
        verification=mirror.verification,
        on_error=OnError.PUBLISH if mirror.ignore_errors else OnError.STOP,
        include=mirror.include,
        exclude=mirror.exclude if mirror.hidden else (*mirror.exclude, _HIDDEN),
        hidden=mirror.hidden,
        overwrite=mirror.overwrite,
        removed_files=RemovedFiles.REMOVE if mirror.removes else RemovedFiles.KEEP,
        allow_emptying=True,
        allow_empty=mirror.allow_emptying,
        preserve=mirror.preserve,
        bandwidth=mirror.bandwidth.bytes if mirror.bandwidth else None,
        task_bandwidth=mirror.task_bandwidth.bytes if mirror.task_bandwidth else None,
        max_tasks=mirror.max_tasks,
        by_name=True,
    )
