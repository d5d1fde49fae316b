"""The system calls one by one, with what the kernel offers and with what every system has."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from feed_assets.storage.local import calls as local_calls
from feed_assets.storage.local.calls import LocalCalls, find_mounts, is_network, touches_mount

CALLS = LocalCalls()
pytestmark = pytest.mark.usefixtures("system")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "file").write_bytes(b"1")
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "a/link").symlink_to("b")
    handle = CALLS.open_root(str(tmp_path))
    yield handle
    CALLS.close(handle)


def is_same(handle: int, path: Path) -> bool:
    """Whether a handle is of a directory; it is closed, and was not to be inherited."""
    assert not os.get_inheritable(handle)
    found = os.fstat(handle)
    CALLS.close(handle)
    return os.path.samestat(found, path.stat())


def error_of(call: Callable[..., object], *arguments: object) -> tuple[int | None, str | None, object]:
    with pytest.raises(OSError) as caught:
        call(*arguments)
    return caught.value.errno, caught.value.strerror, caught.value.filename


def test_folders_are_opened_below_another(folder: int, tmp_path: Path) -> None:
    for path in ("", "a", "a/b"):
        assert is_same(CALLS.open_folder(folder, path), tmp_path / path)
    with CALLS.opened(folder, "a") as opened:
        assert CALLS.list_folder(opened) in (["b", "link"], ["link", "b"])
    with pytest.raises(OSError):
        os.fstat(opened)


def test_the_root_of_all_may_be_named_by_nothing() -> None:
    assert is_same(CALLS.open_root(""), Path("/"))


@pytest.mark.parametrize("path", ["link", "a/link", "link/b", "file", "file/x"])
def test_no_link_and_no_file_is_opened_as_a_folder(folder: int, path: str) -> None:
    number, _, name = error_of(CALLS.open_folder, folder, path)
    assert number in (errno.ELOOP, errno.ENOTDIR)
    assert name in (path, path.split("/")[0], path.split("/")[-1])


def test_what_is_missing_is_told_with_its_name(folder: int) -> None:
    assert error_of(CALLS.open_folder, folder, "none") == (errno.ENOENT, os.strerror(errno.ENOENT), "none")


def test_another_filesystem_is_told_with_the_path() -> None:
    root = CALLS.open_root("/")
    try:
        assert error_of(CALLS.open_folder, root, "proc/self") == (errno.EXDEV, os.strerror(errno.EXDEV), "proc/self")
    finally:
        CALLS.close(root)


@pytest.mark.parametrize("path", ["a", "none", "a/b", "file", "a/b/none"])
def test_opening_leaves_no_handle_behind(folder: int, path: str) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    with suppress(OSError):
        CALLS.close(CALLS.open_folder(folder, path))
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_what_stands_at_a_name_is_found_without_following_it(folder: int, tmp_path: Path) -> None:
    assert CALLS.find(folder, "link") == (tmp_path / "link").lstat()
    assert CALLS.find(folder, "none") is None
    with CALLS.scan_folder(folder) as entries:
        assert sorted(entry.name for entry in entries) == ["a", "file", "link"]


def test_a_folder_is_made_like_another_as_far_as_this_user_may(
    folder: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").chmod(0o2715)
    like = (tmp_path / "a").stat()
    CALLS.make_folder(folder, "made", like)
    assert (tmp_path / "made").stat().st_mode == like.st_mode
    CALLS.make_folder(folder, "plain", None)
    assert (tmp_path / "plain").is_dir()
    CALLS.make_folder(folder, "plain", like)
    assert (tmp_path / "plain").stat().st_mode != like.st_mode

    asked: dict[str, tuple[int, ...]] = {}

    def refuse(handle: int, *owner: int) -> None:
        asked[Path(f"/proc/self/fd/{handle}").readlink().name] = owner
        raise PermissionError(errno.EPERM, "not allowed")

    monkeypatch.setattr(os, "fchown", refuse)
    CALLS.make_folder(folder, "mine", like)
    assert asked == {}
    for number, (user, group) in enumerate([(1, 0), (0, 1)]):
        other = os.stat_result((like.st_mode, 0, 0, 0, like.st_uid + user, like.st_gid + group, 0, 0, 0, 0))
        CALLS.make_folder(folder, f"other-{number}", other)
        assert asked.pop(f"other-{number}") == (like.st_uid + user, like.st_gid + group)
        assert (tmp_path / f"other-{number}").stat().st_mode == like.st_mode
    monkeypatch.setattr(os, "fchmod", refuse)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    CALLS.make_folder(folder, "last", like)
    assert asked == {"last": (like.st_mode & 0o7777,)}
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


@pytest.mark.parametrize("name", ["file", "link"])
def test_a_folder_is_not_made_where_something_else_stands(folder: int, name: str) -> None:
    assert error_of(CALLS.make_folder, folder, name, None)[0] == errno.EEXIST


def test_a_move_is_to_another_folder_and_name_and_onto_nothing(folder: int, tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"2")
    with CALLS.opened(folder, "a") as inner:
        CALLS.move(folder, "file", inner, "moved")
        assert (tmp_path / "a/moved").read_bytes() == b"1"
        for name in ("moved", "b", "link"):
            found = error_of(CALLS.move, folder, "other", inner, name)
            assert found[:2] == (errno.EEXIST, os.strerror(errno.EEXIST))
            assert found[2] in ("other", name)
        assert error_of(CALLS.move, folder, "none", inner, "x")[0] == errno.ENOENT
    assert (tmp_path / "other").read_bytes() == b"2"


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EIO])
def test_a_move_does_without_what_a_filesystem_cannot(
    folder: int, tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_calls, "load_function", lambda _: lambda *_: -1)
    monkeypatch.setattr("ctypes.get_errno", lambda: number)
    if number == errno.EIO:
        assert error_of(CALLS.move, folder, "file", folder, "moved") == (number, os.strerror(number), "file")
    else:
        CALLS.move(folder, "file", folder, "moved")
        assert (tmp_path / "moved").read_bytes() == b"1"


def test_files_are_replaced_written_and_read_by_their_names_alone(
    folder: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda handle: flushed.append(os.fstat(handle).st_size))
    monkeypatch.chdir("/")
    with CALLS.opened(folder, "a") as inner:
        CALLS.write_file(inner, "new", b"12")
        CALLS.write_file(inner, "new", b"123")
        assert flushed == [2, 3]
        CALLS.write_file(inner, "newer", b"1234")
        CALLS.replace(inner, "newer", "new")
        assert CALLS.read_file(inner, "new") == (tmp_path / "a/new").read_bytes() == b"1234"
        assert not (tmp_path / "a/newer").exists()
        assert (tmp_path / "a/new").stat().st_mode & 0o777 == 0o666 & ~_umask()
        (tmp_path / "a/alias").symlink_to("new")
        assert error_of(CALLS.read_file, inner, "alias")[0] == errno.ELOOP
        assert error_of(CALLS.write_file, inner, "alias", b"")[0] == errno.ELOOP
    assert (tmp_path / "a/new").read_bytes() == b"1234"
    assert CALLS.read_file(folder, "file") == b"1"


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_files_and_folders_are_removed_each_by_its_own_call(
    folder: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(IsADirectoryError):
        CALLS.remove_file(folder, "a")
    assert error_of(CALLS.remove_folder, folder, "file")[0] == errno.ENOTDIR
    assert error_of(CALLS.remove_folder, folder, "a")[0] == errno.ENOTEMPTY
    with CALLS.opened(folder, "a") as inner:
        CALLS.remove_file(inner, "link")
        CALLS.remove_folder(inner, "b")
    CALLS.remove_file(folder, "link")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "file"]

    def refuse(name: str, *, dir_fd: int) -> None:
        raise PermissionError(errno.EPERM, "not allowed", name)

    monkeypatch.setattr(os, "unlink", refuse)
    assert error_of(CALLS.remove_file, folder, "a") == (errno.EISDIR, os.strerror(errno.EISDIR), "a")
    for name in ("file", "none"):
        assert error_of(CALLS.remove_file, folder, name) == (errno.EPERM, "not allowed", name)


def test_a_folder_or_all_of_its_filesystem_is_brought_to_disk(folder: int, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[object] = []
    monkeypatch.setattr(os, "fsync", done.append)
    monkeypatch.setattr(os, "sync", lambda: done.append("all"))
    CALLS.flush_folder(folder)
    assert done == [folder]
    has_call = local_calls.load_function("syncfs") is not None
    CALLS.flush_all(folder)
    assert done == ([folder] if has_call else [folder, "all"])
    monkeypatch.setattr(
        local_calls, "load_function", lambda name: (lambda handle: -(handle == folder)) if name == "syncfs" else None
    )
    monkeypatch.setattr("ctypes.get_errno", lambda: errno.EIO)
    assert error_of(CALLS.flush_all, folder) == (errno.EIO, os.strerror(errno.EIO), str(folder))


@pytest.mark.parametrize(("numbers", "tries"), [([errno.EAGAIN, errno.EINTR], 3), ([errno.EAGAIN] * 99, 20)])
def test_an_opening_that_is_disturbed_is_tried_again_but_not_for_ever(
    folder: int, tmp_path: Path, numbers: list[int], tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bytes] = []

    def openat2(number: int, handle: int, path: bytes, how: int, size: int) -> int:
        asked.append(path)
        return -1 if len(asked) <= len(numbers) else os.open(path, os.O_RDONLY, dir_fd=handle)

    monkeypatch.setattr(local_calls, "_load_openat2", lambda: openat2)
    monkeypatch.setattr("ctypes.get_errno", lambda: numbers[len(asked) - 1])
    if tries < len(numbers):
        assert error_of(CALLS.open_folder, folder, "a/b") == (errno.EAGAIN, os.strerror(errno.EAGAIN), "a/b")
    else:
        assert is_same(CALLS.open_folder(folder, "a/b"), tmp_path / "a/b")
    assert asked == [b"a/b"] * tries


MOUNTS = r"""
21 1 0:5 / / rw - ext4 /dev/vda rw
36 35 98:0 / {root}/b rw,noatime master:1 - ext3 /dev/root rw
37 35 98:0 / {root}/a\040b\134c rw - tmpfs none rw
38 35 98:0 / {root} rw - tmpfs none rw
39 35 98:0 / {root}x/c rw - tmpfs none rw
40 35 98:0 / {root}/b rw - tmpfs none rw
41 35 98:0 / {root}/\303\274/y rw - tmpfs none rw
""".replace("\\\\", "\\").lstrip()


def test_mounts_below_a_folder_are_found_by_their_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "mountinfo"
    root = tmp_path / "rootX"
    root.mkdir()
    (tmp_path / "alias").symlink_to(root)
    table.write_bytes(
        MOUNTS.replace("{root}", str(root)).encode() + f"9 9 9 / {root}/\xff\r rw - x x rw\n".encode("latin-1")
    )
    monkeypatch.setattr(local_calls, "_MOUNTS", str(table))
    for spelled in (str(root), f"{root}/", str(tmp_path / "alias")):
        assert [point for point in find_mounts(spelled) if point.isascii()] == ["a b\\c", "b"]
        assert "\udcff\r" in find_mounts(spelled)
    assert str(root)[1:] in find_mounts("/")
    assert find_mounts("") == find_mounts("/")
    assert "" not in find_mounts("/")
    monkeypatch.setattr(local_calls, "_MOUNTS", str(tmp_path / "none"))
    assert find_mounts(str(root)) == ()


def test_a_path_touches_what_is_mounted_on_it_below_and_above() -> None:
    mounts = ("a/b", "c")
    paths = ("a", "a/b", "a/b/c", "a/bc", "ab", "c", "c/d", "d", "b")
    assert [touches_mount(path, mounts) for path in paths] == [True, True, True, False, False, True, True, False, False]
    assert not touches_mount("a", ())


def test_a_filesystem_of_the_network_is_known_by_its_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path.resolve()
    table = tmp_path / "mountinfo"
    kinds = {"/": "ext4", f"{root}/far": "nfs4", f"{root}/far/near": "tmpfs", f"{root}/a\\040b": "fuse.sshfs"}
    table.write_text(
        "".join(
            f"{n} 1 0:{n} / {point} rw shared:{n} - {kind} none rw\n" for n, (point, kind) in enumerate(kinds.items())
        )
    )
    monkeypatch.setattr(local_calls, "_MOUNTS", str(table))
    local_calls.is_network.cache_clear()
    places = ("", "far", "far/data/none", "far/near", "far/nearer", "farther", "a b/c")
    try:
        assert [is_network(f"{root}/{place}") for place in places] == [False, True, True, False, True, False, True]
        assert not is_network("")
        local_calls.is_network.cache_clear()
        monkeypatch.setattr(local_calls, "_MOUNTS", str(tmp_path / "none"))
        assert not is_network(f"{root}/far")
    finally:
        local_calls.is_network.cache_clear()
