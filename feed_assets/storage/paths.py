"""Paths below a store's root: which are allowed, which name content, and where the store keeps its own files.

The layout of the hidden folder is one for all adapters: `.feed-assets/staging/<token>/<name of the path>/data`.
"""

import hashlib
import re
from functools import lru_cache
from pathlib import PurePosixPath

from feed_assets.storage.errors import PathRefusedError

CONTROL_FOLDER = ".feed-assets"
MANIFEST_NAME = ".feed-assets.manifest.json"
PUBLISHING_NAME = ".feed-assets.publishing.json"

# "a/../b", "./a", "x/.feed-assets/y", "nul\0"
_REFUSED = re.compile(r"(?:^|/)(?:\.\.?|\.feed-assets)(?:/|$)|\0")
# "run-1.2_attempt-3"
_TOKEN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")


@lru_cache(maxsize=1024)
def parse_path(store: str, path: str) -> str:
    """Return a path without leading, trailing and doubled slashes; `PathRefusedError` if it is none of ours.

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
    """Return a staging token unchanged; `PathRefusedError` unless it is one plain name."""
    if _TOKEN.fullmatch(token) is None:
        raise PathRefusedError(
            store=store, path=token, reason="a staging token is one name of letters, digits, '.', '_' and '-'"
        )
    return token


def parse_flag(store: str, flag: str | None) -> str | None:
    """Return the availability flag as a path relative to the instance; None where no flag is configured."""
    return parse_path(store, flag) if flag else None


@lru_cache(maxsize=1024)
def path_name(path: str) -> str:
    """A short name for a path in the hidden folder, of characters that every filesystem and Spark can hold."""
    return hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()[:24]


def is_content_name(name: str) -> bool:
    """Whether a file or folder of this name holds content, by the rule of Spark's readers.

    >>> [name for name in ("part-0.csv", "_col=1", "_SUCCESS", ".part-0.crc", "_temporary") if is_content_name(name)]
    ['part-0.csv', '_col=1']
    """
    return not (name.startswith(".") or (name.startswith("_") and "=" not in name))


def is_content(file: str, flag: str | None) -> bool:
    """Whether a file, by its path relative to the instance, is content."""
    if file == flag:
        return False
    rooted = f"/{file}"
    if "/." not in rooted and "/_" not in rooted:
        return True
    return all(is_content_name(part) for part in PurePosixPath(file).parts)
