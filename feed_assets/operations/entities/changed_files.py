"""Find the processes whose workflow files have changed since their newest release pinned them."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from sqlalchemy import Connection

from feed_assets.entities.bundle import Bundle
from feed_assets.lifecycle.releases.pinning import find_pinned_files
from feed_assets.plan.differences import AffectedProcess, find_running
from feed_assets.plan.edges import Key
from feed_assets.plan.pinned_files import PinnedFile, ProjectFiles
from feed_assets.plan.release_fingerprint import parse_fingerprint
from feed_assets.state.records import EntityKey
from feed_assets.state.releases import Releases
from feed_assets.validation.rules_workflow import iter_workflows


def find_changed_files(connection: Connection, bundle: Bundle, root: Path) -> Mapping[Key, tuple[PinnedFile, ...]]:
    """Return the changed files, by process and cluster; only processes that have some."""
    releases, project = Releases(connection).all(), ProjectFiles(root=root)
    found: dict[Key, tuple[PinnedFile, ...]] = {}
    for process in bundle.processes:
        present = project.read(workflow for _, workflow in iter_workflows(process))
        for cluster in process.clusters if present is not None else ():
            newest = releases.get(EntityKey(process.name, cluster))
            digest = parse_fingerprint(newest[-1].fingerprint).files if newest else ""
            if present is None or digest in ("", present.digest):
                continue
            pinned = find_pinned_files(connection, digest)
            if pinned is not None and (files := present.unlike(pinned)):
                found[process.name, cluster] = files
    return found


def with_changed_files(
    affected: Iterable[AffectedProcess], changed: Mapping[Key, tuple[PinnedFile, ...]], before: Bundle, after: Bundle
) -> tuple[AffectedProcess, ...]:
    """Add to the affected processes those that only their files affect."""
    found = {each.key: each for each in affected}
    for key, files in changed.items():
        old, new = (find_running(bundle, *key) for bundle in (before, after))
        if old is not None and new is not None:
            each = found.get(key) or AffectedProcess(key=key, old=old, new=new, reasons=())
            found[key] = replace(each, files=tuple(file.path for file in files), is_alike=False, is_earlier=False)
    return tuple(found[key] for key in sorted(found))
