"""Files of the local filesystem below open directories: walking, writing, copying them in the kernel."""
# System calls on text and descriptors: half of them have no pathlib form, and this is a hot path.
# ruff: noqa: PTH115

import ctypes
import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
_CLONE = 0x40049409
"""The ioctl FICLONE: two files share their blocks until one of them is written."""
NO_LINK = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.EACCES, errno.ENOSYS})
"""What a filesystem answers that lets no file stand in two places."""
_NO_SPLICE = frozenset({errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF, errno.EPERM})
_STEP = 1 << 30
_RANGE_WRITE = 2


def iter_files(folder: int, prefix: str = "") -> Iterator[tuple[str, os.stat_result]]:
    """Every regular file below an open directory, in no order; links are passed over."""
    for name in os.listdir(folder):
        seen = os.stat(name, dir_fd=folder, follow_symlinks=False)
        kind = stat.S_IFMT(seen.st_mode)
        if kind == stat.S_IFREG:
            yield prefix + name, seen
        elif kind == stat.S_IFDIR:
            below = os.open(name, _FOLDER, dir_fd=folder)
            try:
                yield from iter_files(below, f"{prefix}{name}/")
            finally:
                os.close(below)


def iter_names(folder: int, prefix: str = "") -> Iterator[str]:
    """`iter_files` without a look at each."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False):
                yield prefix + entry.name
            elif entry.is_dir(follow_symlinks=False):
                below = os.open(entry.name, _FOLDER, dir_fd=folder)
                try:
                    yield from iter_names(below, f"{prefix}{entry.name}/")
                finally:
                    os.close(below)


def is_at(descriptor: int, path: str) -> bool:
    """Whether an open file is the one at an absolute path, and no link is on the way; False where nothing tells."""
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}") == path
    except OSError:
        return False


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write all bytes, however many calls it takes."""
    count = os.write(descriptor, data)
    while count < len(data):
        count += os.write(descriptor, memoryview(data)[count:])


def write_file(path: str, data: bytes) -> None:
    """Write a file anew; who has it open sees that."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        write_all(descriptor, data)
    finally:
        os.close(descriptor)


def start_writing(descriptor: int, offset: int, length: int) -> None:
    """Let the system begin to bring a stretch to disk, without waiting for it, where it can be asked to."""
    begin = _load_sync_file_range()
    if begin is not None:
        begin(descriptor, offset, length, _RANGE_WRITE)


@cache
def _load_sync_file_range() -> Callable[[int, int, int, int], int] | None:
    function = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if function is not None:
        function.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
        function.restype = ctypes.c_int
    return function


def splice_file(source: int, target: int, offset: int, length: int) -> int:
    """Let the kernel copy a stretch to the same place of another file; how many bytes it did, 0 if it cannot."""
    done = 0
    while done < length:
        try:
            count = os.copy_file_range(source, target, min(length - done, _STEP), offset + done, offset + done)
        except OSError as exc:
            if done == 0 and exc.errno in _NO_SPLICE:
                return 0
            raise
        if count == 0:
            break
        done += count
    return done


def clone_file(folder: int, to_folder: int, file: str) -> None:
    """Let a file stand in another directory, too: as a link, as a file that shares its blocks, or as a copy."""
    try:
        os.link(file, file, src_dir_fd=folder, dst_dir_fd=to_folder, follow_symlinks=False)
        return
    except OSError as exc:
        if exc.errno not in NO_LINK:
            raise
    source = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=folder)
    try:
        seen = os.fstat(source)
        target = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=to_folder)
        try:
            try:
                fcntl.ioctl(target, _CLONE, source)
            except OSError:
                _copy(source, target, seen.st_size)
            with suppress(PermissionError):
                os.fchmod(target, stat.S_IMODE(seen.st_mode))
            os.utime(target, ns=(seen.st_mtime_ns, seen.st_mtime_ns))
        finally:
            os.close(target)
    finally:
        os.close(source)


def link_tree(folder: int, to_folder: int) -> None:
    """Let every regular file below an open directory stand below another, too, in directories with the same rights."""
    with os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name
            if entry.is_dir(follow_symlinks=False):
                os.mkdir(name, dir_fd=to_folder)
                with _opened(folder, name) as below, _opened(to_folder, name) as to_below:
                    link_tree(below, to_below)
            elif entry.is_file(follow_symlinks=False):
                os.link(name, name, src_dir_fd=folder, dst_dir_fd=to_folder, follow_symlinks=False)
    take_rights(folder, to_folder)


def take_rights(folder: int, to_folder: int) -> None:
    """Give a directory the owner and the permissions of another, as far as this user may; its owner can always enter
    and change it.
    """
    seen, now = os.fstat(folder), os.fstat(to_folder)
    if (seen.st_uid, seen.st_gid) != (now.st_uid, now.st_gid):
        with suppress(PermissionError):
            os.fchown(to_folder, seen.st_uid, seen.st_gid)
    if seen.st_mode != now.st_mode:
        os.fchmod(to_folder, stat.S_IMODE(seen.st_mode) | stat.S_IRWXU)


def take_all_rights(folder: int, to_folder: int) -> None:
    """`take_rights` for a directory and all below it, where the other has a directory of the same name."""
    take_rights(folder, to_folder)
    with os.scandir(to_folder) as entries:
        names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    for name in names:
        with ExitStack() as stack:
            try:
                below = stack.enter_context(_opened(folder, name))
            except (FileNotFoundError, NotADirectoryError):
                continue
            take_all_rights(below, stack.enter_context(_opened(to_folder, name)))


@contextmanager
def _opened(folder: int, name: str) -> Iterator[int]:
    opened = os.open(name, _FOLDER, dir_fd=folder)
    try:
        yield opened
    finally:
        os.close(opened)


def _copy(source: int, target: int, size: int) -> None:
    if splice_file(source, target, 0, size) == size:
        return
    os.lseek(source, 0, os.SEEK_SET)
    os.lseek(target, 0, os.SEEK_SET)
    while data := os.read(source, 1 << 20):
        write_all(target, data)


def parents(file: str) -> list[str]:
    """The folders above a file, the lowest first.

    >>> parents("a/b/c.csv")
    ['a/b', 'a']
    """
    parts = file.split("/")[:-1]
    return ["/".join(parts[:count]) for count in range(len(parts), 0, -1)]
