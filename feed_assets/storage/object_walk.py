"""Walking and measuring what is below a key of a filesystem without directories."""

from collections.abc import Iterator
from functools import partial

from fsspec import AbstractFileSystem

from feed_assets.storage.object_tree import each
from feed_assets.storage.paths import CONTROL_FOLDER
from feed_assets.storage.port import Choose, FolderNames

_BATCH = 64
_NO_NAMES = frozenset({"", ".", "..", CONTROL_FOLDER})


def walk_keys(fs: AbstractFileSystem, key: str, depth: int, choose: Choose) -> Iterator[FolderNames]:
    """The chosen paths `depth` levels below a key, folder by folder; the folders are relative to the key.

    Some folders are listed at the same time.
    """
    folders = [""]
    for level in range(1, depth + 1):
        is_last = level == depth
        below: list[str] = []
        for start in range(0, len(folders), _BATCH):
            batch = folders[start : start + _BATCH]
            keys = [f"{key}/{folder}".rstrip("/") for folder in batch]
            listed = each(partial(_list_names, fs, is_last), keys)
            for folder, names in zip(batch, listed, strict=True):
                known = set(names)
                prefix = f"{folder}/" if folder else ""
                chosen = [name for name in choose(folder, names) if name in known]
                if is_last:
                    yield FolderNames(prefix, chosen)
                else:
                    below.extend(prefix + name for name in chosen)
        folders = below


def _list_names(fs: AbstractFileSystem, with_files: bool, key: str) -> list[str]:
    """The names of folders (and objects) directly below a key; the hidden folder is none of them."""
    try:
        found = fs.ls(key, detail=True)
    except (FileNotFoundError, NotADirectoryError):
        return []
    names: dict[str, None] = {}
    for info in found:
        whole = str(info["name"]).rstrip("/")
        if not whole.startswith(f"{key}/") or not (with_files or info["type"] == "directory"):
            continue  # what is listed of an object is the object itself
        name = whole.removeprefix(f"{key}/")
        if name not in _NO_NAMES and "/" not in name:
            names[name] = None
    return list(names)
