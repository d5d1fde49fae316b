"""Walk, read, write and link files of the local filesystem below open directories."""
# System calls on text and descriptors: half of them have no pathlib form, and this is a hot path.
# ruff: noqa: PTH115

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from feed_assets.storage.copy_port import CHUNK
from feed_assets.storage.listing import Entry
from feed_assets.storage.paths import is_content_name

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
_FIRST = 1 << 16
"""Most files are smaller, and a small buffer is allocated faster."""
_BLOCK = 1 << 12
"""No smaller file has a hole that is worth a system call."""
HOLE = memoryview(bytes(CHUNK))
"""Zeros that stand for a hole: `read_chunks` yields parts of it, and `write_chunks` leaves them out."""
_CLONE = 0x40049409
"""The ioctl FICLONE: two files share their blocks until one of them is written."""
NO_LINK = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.EACCES, errno.ENOSYS})
"""The error numbers of a filesystem that refuses a hard link."""


Wants = Callable[[str, str], bool]
"""Called with a folder, relative to a walk ("" or ending with a slash), and a name in it; returns whether the name is
wanted."""
Follow = Callable[[str], os.stat_result | None]
"""Called with the relative path of a symbolic link; returns the status of its target, None to skip it, or raises."""


def iter_files(
    folder: int,
    *,
    wants: Wants | None = None,
    follow: Follow | None = None,
    skip: Callable[[str], None] | None = None,
    prefix: str = "",
) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the regular files below an open directory, in no order. All reads of instances use this walk.

    Args:
        folder: the directory.
        wants: decides whether to continue with a name; without it every name is wanted.
        follow: finds the target of a symbolic link; without it links are skipped.
        skip: called with the path of everything that is no file, directory or link: a pipe, a socket, a device.
        prefix: the beginning of all paths, "" or ending with a slash.

    Raises:
        FileNotFoundError: something was removed during the walk.
    """
    for name in os.listdir(folder):  # with a status of each, it takes two thirds of the time of `os.scandir`
        if wants is not None and not wants(prefix, name):
            continue
        path = prefix + name
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        kind = stat.S_IFMT(found.st_mode)
        if kind == stat.S_IFDIR:
            below = os.open(name, _FOLDER, dir_fd=folder)
            try:
                yield from iter_files(below, wants=wants, follow=follow, skip=skip, prefix=f"{path}/")
            finally:
                os.close(below)
            continue
        if kind == stat.S_IFREG:
            yield path, found
        elif kind == stat.S_IFLNK and follow is not None:
            target = follow(path)
            if target is not None and stat.S_ISREG(target.st_mode):
                yield path, target
            elif target is not None and skip is not None:
                skip(path)
        elif kind != stat.S_IFLNK and skip is not None:
            skip(path)


def is_wanted_content(prefix: str, name: str) -> bool:  # noqa: ARG001 - its folder does not matter
    """Return whether readers read a file or folder of this name; see `is_content_name`."""
    return name[0] not in "._" or is_content_name(name)


def entry_of(path: str, seen: os.stat_result) -> Entry:
    """Return the entry of a file from its status."""
    modified, changed = seen.st_mtime_ns, seen.st_ctime_ns
    version = "%x.%x.%x" % (seen.st_ino, modified, changed)  # noqa: UP031 - twice as fast as any other way, per file
    return Entry(path, seen.st_size, version, changed, modified, seen.st_mode & 0o7777)


@contextmanager
def opened(path: str, flags: int, folder: int | None = None) -> Iterator[int]:
    """Open a file or a directory, and close it at the end."""
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o666, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def is_at(descriptor: int, path: str) -> bool:
    """Return whether an open file is the one at an absolute path, without a link in the path; False if unknown."""
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}") == path
    except OSError:
        return False


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write all bytes, in as many calls as it takes."""
    count = os.write(descriptor, data)
    while count < len(data):
        count += os.write(descriptor, memoryview(data)[count:])


def write_file(path: str, data: bytes) -> None:
    """Overwrite a file in place; processes that have it open see the new content."""
    with opened(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as descriptor:
        write_all(descriptor, data)


def read_chunks(descriptor: int) -> Iterator[bytes | memoryview]:
    """Read an open file to its end. A hole of a sparse file is not read: it comes as views of `HOLE`."""
    data = os.read(descriptor, _FIRST)
    if len(data) > _BLOCK and (seen := os.fstat(descriptor)).st_blocks * 512 < seen.st_size:
        yield from _read_extents(descriptor, seen.st_size)
        data = os.read(descriptor, CHUNK)  # what was added meanwhile
    while data:
        yield data
        data = os.read(descriptor, CHUNK)


def _read_extents(descriptor: int, size: int) -> Iterator[bytes | memoryview]:
    """Read the first `size` bytes of an open file, hole by hole and extent by extent."""
    position = 0
    while position < size:
        try:
            start = min(os.lseek(descriptor, position, os.SEEK_DATA), size)
        except OSError as exc:
            if exc.errno != errno.ENXIO:
                raise
            start = size  # the last hole reaches to the end
        while position < start:
            hole = HOLE[: start - position]
            yield hole
            position += len(hole)
        end = min(os.lseek(descriptor, start, os.SEEK_HOLE), size) if start < size else size
        os.lseek(descriptor, start, os.SEEK_SET)
        while position < end:
            data = os.read(descriptor, min(CHUNK, end - position))
            if not data:
                return
            yield data
            position += len(data)


def write_chunks(descriptor: int, chunks: Iterable[bytes | memoryview]) -> int:
    """Write chunks into an empty file; views of `HOLE` become holes. Return the size of the file."""
    size, is_hole = 0, False
    for chunk in chunks:
        is_hole = isinstance(chunk, memoryview) and chunk.obj is HOLE.obj
        if is_hole:
            os.lseek(descriptor, len(chunk), os.SEEK_CUR)
        else:
            write_all(descriptor, chunk)
        size += len(chunk)
    if is_hole:
        os.ftruncate(descriptor, size)
    return size


def clone_file(folder: int, to_folder: int, file: str) -> None:
    """Add a file to another directory: as a link, as a file that shares its blocks, or as a copy."""
    try:
        link_file(folder, to_folder, file)
        return
    except OSError as exc:
        if exc.errno not in NO_LINK:
            raise
    with opened(file, os.O_RDONLY | os.O_NOFOLLOW, folder) as source:
        seen = os.fstat(source)
        with opened(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, to_folder) as target:
            try:
                fcntl.ioctl(target, _CLONE, source)
            except OSError:
                write_chunks(target, read_chunks(source))
            with suppress(PermissionError):
                os.fchmod(target, stat.S_IMODE(seen.st_mode))
            os.utime(target, ns=(seen.st_mtime_ns, seen.st_mtime_ns))


def link_file(folder: int, to_folder: int, file: str) -> None:
    """Add a file to another directory as a link."""
    os.link(file, file, src_dir_fd=folder, dst_dir_fd=to_folder, follow_symlinks=False)


def copy_tree(folder: int, to_folder: int, add: Callable[[int, int, str], None]) -> None:
    """Add all regular files below an open directory to another; directories get the same owner and permissions."""
    with os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name
            if entry.is_dir(follow_symlinks=False):
                os.mkdir(name, dir_fd=to_folder)
                with opened(name, _FOLDER, folder) as below, opened(name, _FOLDER, to_folder) as to_below:
                    copy_tree(below, to_below, add)
            elif entry.is_file(follow_symlinks=False):
                add(folder, to_folder, name)
    take_rights(folder, to_folder)


def take_rights(folder: int, to_folder: int) -> None:
    """Give a directory the owner and the permissions of another, as far as this user is allowed.

    Its owner can always enter and change it.
    """
    seen, now = os.fstat(folder), os.fstat(to_folder)
    if (seen.st_uid, seen.st_gid) != (now.st_uid, now.st_gid):
        with suppress(PermissionError):
            os.fchown(to_folder, seen.st_uid, seen.st_gid)
    if seen.st_mode != now.st_mode:
        os.fchmod(to_folder, stat.S_IMODE(seen.st_mode) | stat.S_IRWXU)


def take_all_rights(folder: int, to_folder: int) -> None:
    """Apply `take_rights` to a directory and to all directories below it that the other one also has."""
    take_rights(folder, to_folder)
    with os.scandir(to_folder) as entries:
        names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    for name in names:
        with ExitStack() as stack:
            try:
                below = stack.enter_context(opened(name, _FOLDER, folder))
            except (FileNotFoundError, NotADirectoryError):
                continue
            take_all_rights(below, stack.enter_context(opened(name, _FOLDER, to_folder)))


def parents(file: str) -> list[str]:
    """Return the folders above a file, the deepest first.

    >>> parents("a/b/c.csv")
    ['a/b', 'a']
    """
    parts = file.split("/")[:-1]
    return ["/".join(parts[:count]) for count in range(len(parts), 0, -1)]
