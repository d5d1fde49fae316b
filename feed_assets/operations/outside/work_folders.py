"""Find, check and create the work folders below a cluster's local storage."""

import stat
from pathlib import Path

_LOCAL = "file://"


def find_local_folder(storage: str, folder: str) -> Path | None:
    """Return the local path of a folder below a storage; None if it is not on this machine.

    >>> find_local_folder("file:///data", "/apps/staging").as_posix(), find_local_folder("s3://bucket", "staging")
    ('/data/apps/staging', None)
    """
    if folder.startswith(_LOCAL):
        return Path(folder.removeprefix(_LOCAL))
    if "://" in folder or not storage.startswith(_LOCAL):
        return None
    return Path(storage.removeprefix(_LOCAL)) / folder.lstrip("/")


def find_folder_fault(folder: Path, mode: int) -> str | None:
    """Return why a folder cannot be used; None if it exists with exactly these permissions.

    >>> find_folder_fault(Path("/nowhere"), 0o777)
    'it does not exist'
    """
    try:
        found = folder.stat()
    except (FileNotFoundError, NotADirectoryError):
        return "it does not exist"
    except OSError as exc:
        return f"it cannot be read: {exc.strerror}"
    if not stat.S_ISDIR(found.st_mode):
        return "it is not a directory"
    rights = stat.S_IMODE(found.st_mode)
    return None if rights == mode else f"its permissions are {rights:o}, and must be {mode:o}"


def make_folder(folder: Path, mode: int) -> None:
    """Create a folder in an existing one, with exactly these permissions; leave an existing folder unchanged.

    Raises:
        OSError: it cannot be created.
    """
    try:
        folder.mkdir()
    except FileExistsError:
        return
    folder.chmod(mode)
