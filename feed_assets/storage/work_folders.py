"""The folders for work below a cluster's local storage: where they are, and whether their rights are right."""

import stat
from pathlib import Path

_LOCAL = "file://"


def find_local_folder(storage: str, folder: str) -> Path | None:
    """Where a folder below a storage is on this machine; None if it is elsewhere.

    >>> find_local_folder("file:///data", "/apps/staging").as_posix(), find_local_folder("s3://bucket", "staging")
    ('/data/apps/staging', None)
    """
    if folder.startswith(_LOCAL):
        return Path(folder.removeprefix(_LOCAL))
    if "://" in folder or not storage.startswith(_LOCAL):
        return None
    return Path(storage.removeprefix(_LOCAL)) / folder.lstrip("/")


def find_folder_fault(folder: Path, mode: int) -> str | None:
    """Why a folder cannot serve; None if it exists with exactly these rights.

    >>> find_folder_fault(Path("/nowhere"), 0o777)
    'it does not exist'
    """
    try:
        found = folder.stat()
    except (FileNotFoundError, NotADirectoryError):
        return "it does not exist"
    except OSError as exc:
        return f"it cannot be looked at: {exc.strerror}"
    if not stat.S_ISDIR(found.st_mode):
        return "it is not a directory"
    rights = stat.S_IMODE(found.st_mode)
    return None if rights == mode else f"its permissions are {rights:o}, and must be {mode:o}"


def make_folder(folder: Path, mode: int) -> None:
    """Make a folder in one that exists, with exactly these rights; one that is there is left alone.

    Raises:
        OSError: it cannot be made.
    """
    try:
        folder.mkdir()
    except FileExistsError:
        return
    folder.chmod(mode)
