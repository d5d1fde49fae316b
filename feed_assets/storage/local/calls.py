"""System calls that walk, move and remove directory trees, always by a name in an open directory, never by a text path.

A handle stays with its directory, even if another process renames the directory or replaces it by a link meanwhile.
`LocalCalls` is one object, so that a test can make any single call fail.
"""
# System calls on descriptors have no pathlib form.
# ruff: noqa: PTH123

import ctypes
import errno
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_OPENAT2 = 437  # the number is the same on every architecture that Python runs on
_BENEATH = 0x0F  # RESOLVE_NO_XDEV | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH
_RENAME_NOREPLACE = 1
_NOT_KNOWN = frozenset({errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM})
_NAMES = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()
_TRIES = 20
_MOUNTS = "/proc/self/mountinfo"
_NETWORK = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "glusterfs", "gpfs", "lustre", "nfs", "nfs4", "orangefs", "smb3", "smbfs"}
)
_OCTAL = re.compile(r"\\([0-7]{3})")  # "/mnt/a\040b"

OBSTACLES = {
    errno.ELOOP: "its path contains a symbolic link",
    errno.ENOTDIR: "its path contains a file or a symbolic link",
    errno.EXDEV: "another filesystem is mounted there",
    errno.EBUSY: "it is in use, or something is mounted on it",
    errno.EACCES: "this user lacks the permission",
    errno.EPERM: "the system does not allow it",
    errno.ENAMETOOLONG: "the path is too long",
}
"""The obstacles that concern one path only, by error number."""


class LocalCalls:
    """System calls relative to open directories. All raise `OSError`; those ending in `_folder` act on directories."""

    def open_root(self, root: str) -> int:
        """Open a directory by its absolute path; links in the path are followed."""
        return os.open(root or "/", _FOLDER)

    def open_folder(self, folder: int, path: str) -> int:
        """Open a directory below another one by a plain path; "" opens the directory itself.

        A link anywhere in the path raises ELOOP or ENOTDIR, a mount point raises EXDEV. Without openat2, a bind mount
        of the same filesystem is not noticed: see `find_mounts`.
        """
        opened = _open_beneath(folder, path or ".")
        return _open_in_steps(folder, path) if opened is None else opened

    def close(self, folder: int) -> None:
        os.close(folder)

    def scan_folder(self, folder: int) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
        return os.scandir(folder)

    def list_folder(self, folder: int) -> list[str]:
        return os.listdir(folder)

    def find(self, folder: int, name: str) -> os.stat_result | None:
        """Return the status of a name, of a link itself rather than its target; None if nothing exists."""
        try:
            return os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def make_folder(self, folder: int, name: str, like: os.stat_result | None) -> None:
        """Create a directory unless it exists, with permissions and owner of `like` as far as this user is allowed.

        Raises `FileExistsError` if something other than a directory exists.
        """
        try:
            os.mkdir(name, dir_fd=folder)
        except FileExistsError:
            found = self.find(folder, name)
            if found is None or not stat.S_ISDIR(found.st_mode):
                raise
            return
        if like is None:
            return
        made = self.open_folder(folder, name)
        try:
            now = os.fstat(made)
            with suppress(PermissionError):
                if (now.st_uid, now.st_gid) != (like.st_uid, like.st_gid):
                    os.fchown(made, like.st_uid, like.st_gid)
            with suppress(PermissionError):
                os.fchmod(made, stat.S_IMODE(like.st_mode))
        finally:
            os.close(made)

    def move(self, folder: int, name: str, to_folder: int, to_name: str) -> None:
        """Rename within one filesystem atomically. Raises `FileExistsError` if the destination exists."""
        if not _rename_onto_nothing(folder, name, to_folder, to_name):
            if self.find(to_folder, to_name) is not None:
                raise _error(errno.EEXIST, to_name)
            os.rename(name, to_name, src_dir_fd=folder, dst_dir_fd=to_folder)

    def replace(self, folder: int, name: str, to_name: str) -> None:
        """Rename a file in a directory and replace an existing one."""
        os.replace(name, to_name, src_dir_fd=folder, dst_dir_fd=folder)

    def write_file(self, folder: int, name: str, data: bytes) -> None:
        """Write a file and flush it to disk; the caller must flush its directory."""

        def opener(name: str, flags: int) -> int:
            return os.open(name, flags | os.O_NOFOLLOW, 0o666, dir_fd=folder)

        with open(name, "wb", buffering=0, opener=opener) as stream:
            stream.write(data)
            os.fsync(stream.fileno())

    def read_file(self, folder: int, name: str) -> bytes:
        """Read a regular file."""

        def opener(name: str, flags: int) -> int:
            return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)  # a pipe has no content

        with open(name, "rb", opener=opener) as stream:
            return stream.read()

    def remove_file(self, folder: int, name: str) -> None:
        """Remove a file or a link. Raises `IsADirectoryError` for a directory."""
        try:
            os.unlink(name, dir_fd=folder)
        except PermissionError:  # some systems raise this for a directory
            found = self.find(folder, name)
            if found is not None and stat.S_ISDIR(found.st_mode):
                raise _error(errno.EISDIR, name) from None
            raise

    def remove_folder(self, folder: int, name: str) -> None:
        """Remove an empty directory."""
        os.rmdir(name, dir_fd=folder)

    def flush_folder(self, folder: int) -> None:
        os.fsync(folder)

    def flush_all(self, folder: int) -> None:
        """Flush the whole filesystem of a directory to disk."""
        syncfs = load_function("syncfs")
        if syncfs is None:
            os.sync()
        elif syncfs(folder) != 0:
            raise _error(ctypes.get_errno(), str(folder))

    @contextmanager
    def opened_below(self, root: str, path: str) -> Iterator[int]:
        """Open a directory below a root, given by its absolute path, and close it at the end."""
        opened = self.open_root(root)
        try:
            with self.opened(opened, path) as folder:
                yield folder
        finally:
            self.close(opened)

    @contextmanager
    def opened(self, folder: int, path: str) -> Iterator[int]:
        """Open a directory as `open_folder` does, and close it at the end."""
        opened = self.open_folder(folder, path)
        try:
            yield opened
        finally:
            os.close(opened)


def _list_mounts() -> list[tuple[str, str]]:
    """Return all mount points with the kinds of their filesystems, in order; none if the system does not list them."""
    try:
        with open(_MOUNTS, encoding="utf-8", errors="surrogateescape", newline="\n") as stream:
            lines = [line.partition(" - ") for line in stream]
    except OSError:
        return []
    points = [_OCTAL.sub(lambda found: chr(int(found.group(1), 8)), fields.split(" ", 5)[4]) for fields, _, _ in lines]
    return list(zip(points, [rest.partition(" ")[0] for _, _, rest in lines], strict=True))


def find_mounts(root: str) -> tuple[str, ...]:
    """Return the mount points below a directory, relative to it; none if the system does not list them."""
    base = os.path.realpath(root or "/").rstrip("/") + "/"
    return tuple(
        sorted({point.removeprefix(base) for point, _ in _list_mounts() if point.startswith(base) and point != base})
    )


@cache
def is_network(root: str) -> bool:
    """Return whether a directory, or its future parent, is on a network filesystem; False if unknown."""
    place = os.path.realpath(root or "/")
    around = [each for each in _list_mounts() if f"{place}/".startswith(f"{each[0].rstrip('/')}/")]
    _, kind = max(reversed(around), key=lambda each: len(each[0]), default=("", ""))
    return kind in _NETWORK or kind.startswith("fuse")


def touches_mount(path: str, mounts: tuple[str, ...]) -> bool:
    """Return whether a mount point is at a path, below it or above it.

    >>> [touches_mount(path, ("a/b",)) for path in ("a", "a/b", "a/b/c", "a/bc", "c")]
    [True, True, True, False, False]
    """
    return any(f"{mount}/".startswith(f"{path}/") or path.startswith(f"{mount}/") for mount in mounts)


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_HOW = _How(_FOLDER, 0, _BENEATH)
_HOW_ADDRESS = ctypes.addressof(_HOW)
_HOW_SIZE = ctypes.sizeof(_HOW)


def _open_beneath(folder: int, path: str) -> int | None:
    """Open a path that contains no link and no mount point with openat2; return None if the system lacks openat2."""
    openat2 = _load_openat2()
    if openat2 is None:
        return None
    for _ in range(_TRIES):
        opened = openat2(_OPENAT2, folder, path.encode(*_NAMES), _HOW_ADDRESS, _HOW_SIZE)
        if opened >= 0:
            return opened
        if ctypes.get_errno() not in (errno.EAGAIN, errno.EINTR):  # something was renamed meanwhile
            break
    raise _error(ctypes.get_errno(), path)


def _open_in_steps(folder: int, path: str) -> int:
    """Open a path one directory at a time; every directory must be on the same filesystem."""
    current = os.open(".", _FOLDER, dir_fd=folder)
    try:
        device = os.fstat(current).st_dev
        for name in filter(None, path.split("/")):
            below = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=current)
            os.close(current)
            current = below
            if os.fstat(current).st_dev != device:
                raise _error(errno.EXDEV, path)
    except OSError:
        os.close(current)
        raise
    return current


def _rename_onto_nothing(folder: int, name: str, to_folder: int, to_name: str) -> bool:
    """Rename unless the destination exists; return False if the system or filesystem cannot do this.

    Raises `FileExistsError` if the destination exists.
    """
    renameat2 = load_function("renameat2")
    if renameat2 is None:
        return False
    if renameat2(folder, name.encode(*_NAMES), to_folder, to_name.encode(*_NAMES), _RENAME_NOREPLACE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP):
        return False
    raise _error(number, name)


def _error(number: int, path: str) -> OSError:
    """Return the exception for an error number; Python chooses the subclass of `OSError`."""
    return OSError(number, os.strerror(number), path)


@cache
def _load_openat2() -> Callable[..., int] | None:
    """Return the `syscall` function if the kernel has openat2 and permits it."""
    syscall: Callable[..., int] | None = load_function("syscall")
    if syscall is None:
        return None
    folder = os.open("/", _FOLDER)
    try:
        opened = syscall(_OPENAT2, folder, b".", _HOW_ADDRESS, _HOW_SIZE)
        if opened < 0 and ctypes.get_errno() in _NOT_KNOWN:
            return None
        if opened >= 0:
            os.close(opened)
    finally:
        os.close(folder)
    return syscall


_ARGUMENTS = {
    "syscall": (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t),
    "renameat2": (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint),
    "syncfs": (ctypes.c_int,),
}


@cache
def load_function(name: str) -> Callable[..., int] | None:
    """Return a function of the C library; None if it does not exist."""
    function = getattr(ctypes.CDLL(None, use_errno=True), name, None)
    if function is not None:
        function.argtypes = _ARGUMENTS[name]
        function.restype = ctypes.c_long if name == "syscall" else ctypes.c_int
    return function
