"""Which of many instances are worth a listing of their own on an object store."""

from collections.abc import Sequence

from fsspec import AbstractFileSystem

from feed_assets.storage.object_tree import child_names, each, list_objects

_WORTH_LISTING_PARENT = 4


def find_present(fs: AbstractFileSystem, root: str, paths: Sequence[str]) -> dict[str, None]:
    """The paths that are worth a listing of their own: a folder of which several are asked is listed before."""
    groups: dict[str, list[str]] = {}
    for path in paths:
        groups.setdefault(path.rpartition("/")[0], []).append(path)
    parents = [parent for parent, group in groups.items() if len(group) >= _WORTH_LISTING_PARENT]
    listed = each(lambda parent: child_names(fs, f"{root}/{parent}".rstrip("/")), parents)
    children = dict(zip(parents, listed, strict=True))
    if parents and all(names is None for names in listed):
        list_objects(fs, f"{root}/{groups[parents[0]][0]}")  # raises if it is the bucket that is missing
    present: dict[str, None] = {}
    for parent, group in groups.items():
        names = children.get(parent, set())
        for path in group:
            if parent not in children or (names and path.rpartition("/")[2] in names):
                present[path] = None
    return present
