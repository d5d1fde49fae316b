"""Locations of the directories of mirrors, as far as the declarations determine them."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from feed_assets.entities.cluster import STORAGE_SCHEMES, Cluster
from feed_assets.entities.copies.mirror import url_of
from feed_assets.entities.process import Process
from feed_assets.issues import FieldPath, Finding, split_error
from feed_assets.timing.errors import TemplateError
from feed_assets.timing.templates import PathTemplate, parse_path_template

_REFUSED = re.compile(r"(?:^|/)(\.\.?|\.feed-assets)(?:/|$)")  # "a/../b", "./a"


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorLocation:
    """One side of the directory at `position` of a mirror: its `url`, or the `fault` because of which it has none.

    `own` is the cluster of the process, `cluster` that of the side; `text` is the directory as declared at `path`.
    """

    process: str
    own: str
    cluster: str
    position: int
    is_target: bool
    path: FieldPath
    text: str
    url: str | None = None
    fault: Finding | None = None


def iter_mirror_locations(find_cluster: Callable[[str], Cluster | None], process: Process) -> Iterator[MirrorLocation]:
    """Yield both sides of each directory of a mirror, on each cluster of its process; nothing for other processes.

    Sides on clusters that `find_cluster` does not find are left out.
    """
    mirror = process.workflow.mirror
    if mirror is None:
        return
    for own in process.clusters:
        of_sides = [find_cluster(name) for name in mirror.clusters(own)]
        for position, pair in enumerate(mirror.directories()):
            is_one = mirror.source.directory is not None
            source: FieldPath = ("source", "directory") if is_one else ("source", "directories", position)
            sides: tuple[FieldPath, FieldPath] = (source, ("target", "directory"))
            for cluster, text, side in zip(of_sides, pair, sides, strict=True):
                if cluster is None:
                    continue
                url, fault = _locate(cluster, text)
                yield MirrorLocation(
                    process=process.name,
                    own=own,
                    cluster=cluster.name,
                    position=position,
                    is_target=side[0] == "target",
                    path=("workflow", "mirror", *side),
                    text=text,
                    url=url,
                    fault=fault,
                )


def _locate(cluster: Cluster, text: str) -> tuple[str | None, Finding | None]:
    """Return the URL of a directory, or why it cannot be located."""
    try:
        template = parse_path_template(text).with_cluster(
            name=cluster.name, colo=cluster.colo, properties=cluster.properties
        )
    except TemplateError as exc:
        return None, split_error(exc)
    fault = _find_fault(cluster, template)
    return (None, fault) if fault else (url_of(cluster.storage, template.text), None)


def _find_fault(cluster: Cluster, template: PathTemplate) -> Finding | None:
    scheme, found, rest = template.text.partition("://")
    path = rest.partition("/")[2] if found else template.text
    if template.variables:
        remedy = "Declare a feed with replication for it."
        return Finding(message="its path has dates, so it is the location of a feed", remedy=remedy)
    if found and scheme not in STORAGE_SCHEMES:
        remedy = f"Use one of {', '.join(STORAGE_SCHEMES)}."
        return Finding(message=f"{scheme!r} storage is not supported", remedy=remedy)
    if (refused := _REFUSED.search(path)) is not None:
        return Finding(message=f"its path contains {refused[1]!r}", remedy="Write the path of a directory in full.")
    if not path.strip("/") or template.text.rstrip("/") == cluster.storage.rstrip("/"):
        return Finding(message="it is the root of a storage", remedy="Name a directory below it.")
    return None
