"""Walk the paths below a key of a storage without directories."""

from collections.abc import Iterator
from functools import partial

from feed_assets.storage.object.client import ObjectClient, each
from feed_assets.storage.paths import CONTROL_FOLDER
from feed_assets.storage.port import Choose, FolderNames

_BATCH = 64
_NO_NAMES = frozenset({"", ".", "..", CONTROL_FOLDER})


def walk_keys(client: ObjectClient, key: str, depth: int, choose: Choose) -> Iterator[FolderNames]:
    """Yield the chosen paths `depth` levels below a key, folder by folder; the folders are relative to the key.

    Several folders are listed at the same time.
    """
    folders = [""]
    for level in range(1, depth + 1):
        is_last = level == depth
        below: list[str] = []
        for start in range(0, len(folders), _BATCH):
            batch = folders[start : start + _BATCH]
            keys = [f"{key}/{folder}".strip("/") for folder in batch]
            listed = each(partial(_list_names, client, is_last), keys)
            for folder, names in zip(batch, listed, strict=True):
                known = set(names)
                prefix = f"{folder}/" if folder else ""
                chosen = [name for name in choose(folder, names) if name in known]
                if is_last:
                    yield FolderNames(prefix, chosen)
                else:
                    below.extend(prefix + name for name in chosen)
        folders = below


def _list_names(client: ObjectClient, with_files: bool, key: str) -> list[str]:
    """Return the names of folders (and objects) directly below a key, without the hidden folder."""
    found = client.children(key)
    names = dict.fromkeys([*found.folders, *(found.files if with_files else ())])
    return [name for name in names if name not in _NO_NAMES and "/" not in name]
