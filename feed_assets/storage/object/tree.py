"""Read objects below a key of a storage without directories: fresh listings, walks, small documents, copies."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

from feed_assets.storage.checksums import checksum_of
from feed_assets.storage.listing import Entry
from feed_assets.storage.object.client import ObjectClient, ObjectListing, each
from feed_assets.storage.paths import CONTROL_FOLDER
from feed_assets.storage.port import Choose, FolderNames

_WORTH_LISTING_PARENT = 4
_BATCH = 64
_NO_NAMES = frozenset({"", ".", "..", CONTROL_FOLDER})


def list_objects(client: ObjectClient, key: str) -> ObjectListing:
    """List all objects below a key; if there are none, list the object at the key itself as ""."""
    below = client.list(key)
    if below.exists:
        return below
    itself = client.find(key)
    return below if itself is None else ObjectListing(exists=True, files={"": itself})


def find_present(client: ObjectClient, paths: Sequence[str]) -> dict[str, None]:
    """Return the paths that may exist and need a listing each; a folder with several of the paths is listed first."""
    groups: dict[str, list[str]] = {}
    for path in paths:
        groups.setdefault(path.rpartition("/")[0], []).append(path)
    parents = [parent for parent, group in groups.items() if len(group) >= _WORTH_LISTING_PARENT]
    children = dict(zip(parents, each(client.children, parents), strict=True))
    present: dict[str, None] = {}
    for parent, group in groups.items():
        names = {name for found in children.get(parent, ()) for name in found}
        present.update({path: None for path in group if parent not in children or path.rpartition("/")[2] in names})
    return present


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


def remove_below(client: ObjectClient, key: str) -> None:
    """Remove all objects below a key."""
    client.remove([f"{key}/{path}" for path in client.list(key).files])


def read_object(client: ObjectClient, key: str) -> bytes | None:
    """Return the bytes of one small object; None if it does not exist."""
    try:
        return client.get(key)
    except FileNotFoundError:
        return None


def read_document(client: ObjectClient, key: str) -> dict[str, Any] | None:
    """Return the JSON of one small object; None if it does not exist."""
    text = read_object(client, key)
    return None if text is None else cast(dict[str, Any], json.loads(text))


def key_of(prefix: str, name: str) -> str:
    """Return the key of an object below a prefix; "" names the object at the prefix itself."""
    return f"{prefix}/{name}" if name else prefix


class CopyDiffersError(OSError):
    """The written bytes differ from the read bytes: the storage is faulty, or the object has changed since."""


def copy_exactly(client: ObjectClient, names: Sequence[str], origin: str, there: Mapping[str, Entry], to: str) -> None:
    """Copy the objects listed in `there` unless they are already copied, and compare each copy.

    Raises `CopyDiffersError`, and `FileNotFoundError` if one is gone.
    """

    def is_copied(name: str) -> bool:
        return _is_same(client, origin, there.get(name), to, copied.get(name))

    def copy(name: str) -> None:
        client.copy(key_of(origin, name), key_of(to, name), there[name].size)

    def check(name: str) -> None:
        if not is_copied(name):
            raise CopyDiffersError(f"the copy of {name!r} is not what was copied")

    copied = list_objects(client, to).files
    each(copy, [name for name in names if not is_copied(name)])
    copied = list_objects(client, to).files
    each(check, names)


def _is_same(client: ObjectClient, origin: str, file: Entry | None, to: str, copy: Entry | None) -> bool:
    """Return whether a copy has the content of an object: by equal storage checksums, else by reading both."""
    if file is None or copy is None or file.size != copy.size:
        return False
    if file.checksum and file.checksum == copy.checksum:
        return True
    one, other = (checksum_of(client.chunks(key_of(at, file.path))) for at in (origin, to))
    return one == other
