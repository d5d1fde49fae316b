"""Give each place of data one identity, however its URL or path is written.

On Linux a folder that is mounted a second time, for example by `mount --bind`, is the same place as the first time.
"""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self, TypeAlias

from feed_assets.errors import NoAnswerError
from feed_assets.patience import Patience
from feed_assets.timing.overlaps import plain_scheme

HIDDEN_FOLDER = ".feed-assets"
_VARIABLE = "${"
_LOCAL = "file"
_HERE = frozenset({"", "localhost"})
_MOUNTS = Path("/proc/self/mountinfo")
_ESCAPED = re.compile(r"\\([0-7]{3})")  # \040
_MOUNT_FIELDS = 5
_PATIENCE = Patience(20.0)
"""A folder whose filesystem does not answer, such as a mount of a server that is down, is taken as it is written.

A mount that has answered once is no longer waited for, because a thread for each folder would cost more than it asks.
"""


class Places:
    """The places of data as this machine sees them now. Looks at each folder once, so make one for each comparison.

    >>> places = Places()
    >>> places.canonical("file://localhost/data/./a/../${YEAR}"), places.canonical("s3://Bucket//a/${YEAR}/")
    ('file:///data/${YEAR}', 's3://bucket/a/${YEAR}')
    """

    def __init__(self) -> None:
        self._mounts = MountTable.of_this_process()
        self._resolved: dict[str, str] = {}
        self._identities: dict[str, str] = {}
        self._answering: set[str] = set()

    @property
    def identities(self) -> Mapping[str, str]:
        """The local folders that were looked at, each with the path that identifies it."""
        return self._identities

    def confirm(self, identities: Mapping[str, str]) -> bool:
        """Return whether local folders are still what they were when somebody looked at them; True if a filesystem does
        not answer.
        """

        def are_the_same() -> bool:
            return all(self._identify(folder, _follow) == identity for folder, identity in identities.items())

        answer = _PATIENCE.ask({"folders": are_the_same})["folders"].value
        return isinstance(answer, NoAnswerError) or answer is True

    def canonical(self, text: str) -> str:
        """Return the URL of a place as one text: no `.`, `..`, doubled slashes or capital letters in the host.

        `text` is a URL or an absolute local path, with or without time variables. Of a local place, symbolic links and
        mounts before the first variable are resolved; nothing has to exist, and no other storage is contacted.
        """
        scheme, separator, rest = text.partition("://")
        if not separator:
            scheme, rest = _LOCAL, f"/{text}"
        host, _, path = rest.partition("/")
        scheme = plain_scheme(scheme.lower())
        host = _plain_host(scheme, host)
        segments = [segment for segment in path.split("/") if segment not in ("", ".")]
        if scheme == _LOCAL and host in _HERE:
            host = ""
            fixed = next((number for number, segment in enumerate(segments) if _VARIABLE in segment), len(segments))
            folder = self._identify("".join(f"/{segment}" for segment in segments[:fixed]), self._follow_patiently)
            segments = [*folder.split("/")[1:], *segments[fixed:]]
        return f"{scheme}://{host}/{'/'.join(_without_steps_up(segments))}"

    def is_hidden(self, text: str) -> bool:
        """Return whether a place lies in a folder in which feed-assets keeps its own files, such as its trash."""
        return HIDDEN_FOLDER in self.canonical(text).split("/")

    def _identify(self, folder: str, follow: "Follow") -> str:
        if folder not in self._identities:
            self._identities[folder] = self._mounts.canonical(self._resolve(folder, follow))
        return self._identities[folder]

    def _resolve(self, path: str, follow: "Follow") -> str:
        """Return the folder to which a path leads, as the system follows it: `..` after a link is above its target.

        "" is the uppermost folder.
        """
        folder, segments = "", path.split("/")[1:]
        for number, segment in enumerate(segments):
            if segment == "..":
                folder = folder.rpartition("/")[0]
                continue
            place = f"{folder}/{segment}"
            if place not in self._resolved:
                followed = follow(place)
                if followed is None:
                    return "/".join([place, *segments[number + 1 :]])
                self._resolved[place] = followed
            folder = self._resolved[place]
        return folder

    def _follow_patiently(self, place: str) -> str | None:
        point = self._mounts.find_point(place)
        if point in self._answering:
            is_link: bool | Exception = os.path.islink(place)  # noqa: PTH114
        else:
            is_link = _PATIENCE.ask({point: partial(os.path.islink, place)})[point].value
            if isinstance(is_link, Exception):
                return None
            self._answering.add(point)
        if not is_link:
            return place
        target = _PATIENCE.ask({place: partial(_follow, place)})[place].value  # may lead to another mount
        return target if isinstance(target, str) else None


Follow: TypeAlias = Callable[[str], str | None]
"""Returns where a path leads if it is a symbolic link, else the path; None if its filesystem does not answer."""


def _follow(place: str) -> str:
    is_link = os.path.islink(place)  # noqa: PTH114 - false for names that no filesystem takes
    return os.path.realpath(place).rstrip("/") if is_link else place


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """The folder `root` of the filesystem on a `device`, mounted at `point`; both are "" for the uppermost folder."""

    number: str
    parent: str
    device: str
    root: str
    point: str


class MountTable:
    """The mounts of a process, in their order.

    >>> table = MountTable([
    ...     Mount(number="1", parent="0", device="8:1", root="", point=""),
    ...     Mount(number="2", parent="1", device="8:1", root="/data/a", point="/mnt"),
    ... ])
    >>> table.canonical("/mnt/2015"), table.canonical("/srv")
    ('/data/a/2015', '/srv')
    """

    def __init__(self, mounts: list[Mount]) -> None:
        self._at = {(mount.parent, mount.point): mount for mount in mounts}
        numbers = {mount.number for mount in mounts}
        self._first = next((each for each in mounts if not each.point and each.parent not in numbers), None)
        by_device: dict[str, list[Mount]] = {}
        for mount in mounts:
            by_device.setdefault(mount.device, []).append(mount)
        self._repeated = {device: found for device, found in by_device.items() if len(found) > 1}

    @classmethod
    def of_this_process(cls) -> Self:
        """Read the mounts from the system; none where it does not list them."""
        try:
            lines = os.fsdecode(_MOUNTS.read_bytes()).split("\n")
        except OSError:
            return cls([])
        return cls([_parse(line) for line in lines if line])

    def canonical(self, path: str) -> str:
        """Return the path of a folder through the mount that shows the most of its filesystem, the first of several.

        Symbolic links in `path` must have been resolved.
        """
        mount = self._mount_of(path)
        if mount is None or mount.device not in self._repeated:
            return path
        inside = mount.root + path[len(mount.point) :]
        for other in sorted(self._repeated[mount.device], key=lambda each: len(each.root)):
            if inside == other.root or inside.startswith(f"{other.root}/"):
                found = other.point + inside[len(other.root) :]
                if self._mount_of(found) is other:
                    return found
        return path

    def find_point(self, path: str) -> str:
        """Return the folder at which the filesystem of a path is mounted; `/` if the mounts are not known."""
        mount = self._mount_of(path)
        return "/" if mount is None else mount.point or "/"

    def _mount_of(self, path: str) -> Mount | None:
        """Return the mount of a path: that of the folder above, unless something is mounted on the folder itself."""
        mount, end = self._first, 0
        while mount is not None:
            while (above := self._at.get((mount.number, path[:end]))) is not None:
                mount = above
            if end == len(path):
                break
            end = path.find("/", end + 1)
            end = len(path) if end < 0 else end
        return mount


def _parse(line: str) -> Mount:
    """Parse a line of the kernel's list: `26 1 8:1 /a /mnt rw - ext4 /dev/sda1 rw`."""
    number, parent, device, *folders = line.split(" ")[:_MOUNT_FIELDS]
    root, point = (_ESCAPED.sub(lambda found: chr(int(found[1], 8)), folder).rstrip("/") for folder in folders)
    return Mount(number=number, parent=parent, device=device, root=root, point=point)


def _plain_host(scheme: str, host: str) -> str:
    """Return a host or bucket in one spelling: without capitals, password and port of SFTP, and service of Azure.

    >>> _plain_host("sftp", "me:secret@Host:22"), _plain_host("abfs", "box@one.dfs.core.windows.net")
    ('me@host', 'box@one')
    """
    match scheme:
        case "memory":
            return host
        case "sftp":
            user, at, name = host.rpartition("@")
            return f"{user.partition(':')[0]}{at}{name.lower().removesuffix(':22')}"
        case "abfs":
            container, at, account = host.lower().partition("@")
            return f"{container}{at}{account.partition('.')[0]}"
        case _:
            return host.lower()


def _without_steps_up(segments: list[str]) -> list[str]:
    found: list[str] = []
    for segment in segments:
        found = found[:-1] if segment == ".." else [*found, segment]
    return found
