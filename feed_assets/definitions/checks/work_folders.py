"""The folders of a cluster as live checks see them: on this machine, or on HDFS."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from feed_assets.entities.cluster import Cluster, is_hdfs
from feed_assets.storage.registry import OWN_OPTIONS, open_store

_LOCAL = "file://"


class HdfsFolder:
    """A folder of HDFS, with the calls of `Path` that these checks make."""

    def __init__(self, url: str, options: Mapping[str, object]) -> None:
        from feed_assets.storage.hdfs.client import HdfsClient

        self._url = url
        self._client = HdfsClient(url, {name: value for name, value in options.items() if name not in OWN_OPTIONS})

    def __str__(self) -> str:
        return self._url

    def exists(self) -> bool:
        return self._client.status("") is not None

    def stat(self) -> os.stat_result:
        if (found := self._client.status("")) is None:
            raise FileNotFoundError(self._url)
        kind = stat.S_IFDIR if found.isdir else stat.S_IFREG
        return os.stat_result((kind | found.permission, *[0] * 9))

    def mkdir(self) -> None:
        self._client.make_folder("", parents=False)

    def chmod(self, mode: int) -> None:
        self._client.set_permission("", mode)


def find_folder(cluster: Cluster, folder: str) -> Path | HdfsFolder | None:
    """Return a folder of this machine or of HDFS by its name below the storage; None if it is elsewhere."""
    url = folder if "://" in folder else f"{cluster.storage.rstrip('/')}/{folder.lstrip('/')}"
    if is_hdfs(url):
        open_store(url, cluster.storage_options)  # which refuses options and a missing package
        return HdfsFolder(url, cluster.storage_options)
    return _find_local_folder(cluster.storage, folder)


def _find_local_folder(storage: str, folder: str) -> Path | None:
    """Return the local path of a folder below a storage; None if it is not on this machine.

    >>> _find_local_folder("file:///data", "/apps/staging").as_posix(), _find_local_folder("s3://bucket", "staging")
    ('/data/apps/staging', None)
    """
    if folder.startswith(_LOCAL):
        return Path(folder.removeprefix(_LOCAL))
    if "://" in folder or not storage.startswith(_LOCAL):
        return None
    return Path(storage.removeprefix(_LOCAL)) / folder.lstrip("/")


def find_folder_fault(folder: Path | HdfsFolder, mode: int) -> str | None:
    """Return why a folder cannot be used; None if it exists with exactly these permissions.

    >>> find_folder_fault(Path("/nowhere"), 0o777)
    'it does not exist'
    """
    try:
        found = folder.stat()
    except (FileNotFoundError, NotADirectoryError):
        return "it does not exist"
    except OSError as exc:
        return f"it cannot be read: {exc.strerror or exc}"
    if not stat.S_ISDIR(found.st_mode):
        return "it is not a directory"
    rights = stat.S_IMODE(found.st_mode)
    return None if rights == mode else f"its permissions are {rights:o}, and must be {mode:o}"
