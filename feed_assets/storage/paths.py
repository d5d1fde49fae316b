"""Rules for paths below a store's root: allowed paths, content paths, and the store's own hidden folder.

All adapters use the same layout of the hidden folder: `.feed-assets/staging/<token>/<name of the path>/data`.
"""

import hashlib
import re
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from pathlib import PurePosixPath

from feed_assets.entities.locations.overlaps import HIDDEN_FOLDER
from feed_assets.storage.errors import PathRefusedError

CONTROL_FOLDER = HIDDEN_FOLDER
MANIFEST_NAME = ".feed-assets.manifest.json"
PUBLISHING_NAME = ".feed-assets.publishing.json"
SINGLE_FILE = ".feed-assets.file"
"""The name in a copy of an instance that is not a directory but a single file."""

# "a/../b", "./a", "x/.feed-assets/y", "nul\0"
_REFUSED = re.compile(r"(?:^|/)(?:\.\.?|\.feed-assets)(?:/|$)|\0")
# "run-1.2_attempt-3"
_TOKEN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")


@lru_cache(maxsize=1024)
def parse_path(store: str, path: str) -> str:
    """Return a path without leading, trailing and doubled slashes.

    Raises `PathRefusedError` if the path is empty, leaves the root or leads into the hidden folder.

    >>> parse_path("file:///data", "/weather//2013/")
    'weather/2013'
    >>> parse_path("file:///data", "weather/../../etc")
    Traceback (most recent call last):
    ...
    feed_assets.storage.errors.PathRefusedError: file:///data: 'weather/../../etc': the path contains '..'. Name a \
directory below the storage root of the cluster.
    """
    if (found := _REFUSED.search(path)) is not None:
        raise PathRefusedError(store=store, path=path, reason=f"the path contains {found.group().strip('/')!r}")
    if "//" in path:
        path = re.sub("/{2,}", "/", path)
    if not (plain := path.strip("/")):
        raise PathRefusedError(store=store, path=path, reason="the path is empty, or the storage root itself")
    return plain


def parse_token(store: str, token: str) -> str:
    """Return a staging token unchanged. Raises `PathRefusedError` unless it is one plain name."""
    if _TOKEN.fullmatch(token) is None:
        raise PathRefusedError(
            store=store, path=token, reason="a staging token is one name of letters, digits, '.', '_' and '-'"
        )
    return token


def parse_flag(store: str, flag: str | None) -> str | None:
    """Return the availability flag as a path relative to the instance; None if no flag is configured."""
    return parse_path(store, flag) if flag else None


@lru_cache(maxsize=1024)
def path_name(path: str) -> str:
    """Return a short name for a path in the hidden folder, in characters that all filesystems and Spark accept."""
    return hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()[:24]


def is_content_name(name: str) -> bool:
    """Return whether a file or folder with this name is content, by the rule of Spark's readers.

    >>> [name for name in ("part-0.csv", "_col=1", "_SUCCESS", ".part-0.crc", "_temporary") if is_content_name(name)]
    ['part-0.csv', '_col=1']
    """
    return not (name.startswith(".") or (name.startswith("_") and "=" not in name))


def is_content(file: str, flag: str | None) -> bool:
    """Return whether a file is content, by its path relative to the instance."""
    if file == flag:
        return False
    rooted = f"/{file}"
    if "/." not in rooted and "/_" not in rooted:
        return True
    return all(is_content_name(part) for part in PurePosixPath(file).parts)


def parents_below(store: str, base: str, paths: Iterable[str]) -> list[str]:
    """Return the parents of paths that are strictly below a base, or below the root if it is "", deepest first."""
    below = f"{parse_path(store, base)}/" if base.strip("/") else ""
    found: set[str] = set()
    for path in paths:
        with suppress(PathRefusedError):
            parent = parse_path(store, path).rpartition("/")[0]
            while parent and parent.startswith(below) and parent not in found:
                found.add(parent)
                parent = parent.rpartition("/")[0]
    return sorted(found, key=lambda parent: (-parent.count("/"), parent))
