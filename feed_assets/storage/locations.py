"""Falcon's rules for where a location lies: below the cluster's storage, below a home directory, or elsewhere."""

import re

# "s3://bucket/path", "hdfs://host:8020/path"
_URI = re.compile(r"(?P<root>[A-Za-z][A-Za-z0-9+.-]*://[^/]*)(?P<path>/.*)?", re.DOTALL)


def resolve_location(storage_url: str, location: str, user: str) -> str:
    """Return the URI of a feed location.

    A full URI stands for itself, an absolute path lies below the storage URL, a relative one below `/user/<user>`
    there. Doubled and trailing slashes of the path are removed. Variables of the template are left alone.
    Source: Falcon's `FileSystemStorage.getUriTemplate`.

    >>> resolve_location("hdfs://nn:8020/", "/data/clicks//", "ann")
    'hdfs://nn:8020/data/clicks'
    >>> resolve_location("hdfs://nn:8020", "clicks", "ann")
    'hdfs://nn:8020/user/ann/clicks'
    >>> resolve_location("hdfs://nn:8020", "s3://bucket/clicks/", "ann")
    's3://bucket/clicks'
    """
    if (uri := _URI.fullmatch(location)) is not None:
        return uri["root"] + _plain(uri["path"] or "")
    path = location if location.startswith("/") else f"/user/{user}/{location}"
    return storage_url.rstrip("/") + _plain(path)


def find_relative_path(storage_url: str, uri: str) -> str | None:
    """Return the path of a URI below a storage URL; None if it lies elsewhere and needs a store of its own.

    >>> find_relative_path("s3://bucket/primary", "s3://bucket/primary/clicks/2013")
    'clicks/2013'
    >>> find_relative_path("s3://bucket/primary", "s3://bucket/primary-old/clicks") is None
    True
    """
    root = storage_url.rstrip("/") + "/"
    return uri.removeprefix(root) if uri.startswith(root) and uri != root else None


def _plain(path: str) -> str:
    return re.sub("/{2,}", "/", path).rstrip("/")
