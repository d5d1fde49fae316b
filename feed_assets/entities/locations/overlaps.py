"""Overlaps of locations, also of mirrors, where removing the data of a feed would remove other data. Each place of data
has one identity, however its URL or path is written.

On Linux a folder that is mounted a second time, for example by `mount --bind`, is the same place as the first time.
"""

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Self, TypeAlias

from feed_assets.entities.bundle import AnyEntity, Bundle
from feed_assets.entities.cluster import STORAGE_SCHEMES, Cluster
from feed_assets.entities.common import LocationKind
from feed_assets.entities.copies.mirror import url_of
from feed_assets.entities.feed import Feed
from feed_assets.entities.maps import EMPTY
from feed_assets.entities.process import Process
from feed_assets.errors import NoAnswerError
from feed_assets.issues import FieldPath, Finding, split_error
from feed_assets.patience import Patience
from feed_assets.timing.errors import TableAddressError, TemplateError
from feed_assets.timing.overlaps import PathOverlap, iter_overlaps, plain_scheme
from feed_assets.timing.templates import WHOLE_TABLE, PathTemplate, parse_path_template, parse_table_address

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

    `identities` are the local folders that were looked at, each with the path that identifies it.

    >>> places = Places()
    >>> places.canonical("file://localhost/data/./a/../${YEAR}"), places.canonical("s3://Bucket//a/${YEAR}/")
    ('file:///data/${YEAR}', 's3://bucket/a/${YEAR}')
    """

    def __init__(self) -> None:
        self._mounts = MountTable.of_this_process()
        self._resolved: dict[str, str] = {}
        self.identities: dict[str, str] = {}
        self._answering: set[str] = set()

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
        if folder not in self.identities:
            self.identities[folder] = self._mounts.canonical(self._resolve(folder, follow))
        return self.identities[folder]

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


class FixedPlace(StrEnum):
    """A location without dates: an inbox, the target of a mirror, or the root of a cluster's storage."""

    INBOX = "inbox"
    MIRROR = "mirror"
    STORAGE = "storage"


LocationKey: TypeAlias = tuple[str, str, LocationKind | FixedPlace | None]
"""(feed, cluster, kind of location); None is the archive. The first is the process of a mirror, or again the cluster of
a storage.
"""

_METASTORE_PORT = ":9083"


Overlaps: TypeAlias = Mapping[LocationKey, str]
"""The overlapping locations, each with the other location as a clause for a message."""
NO_OVERLAPS: Overlaps = EMPTY


def find_overlaps(
    bundle: Bundle,
    cluster: str | None = None,
    *,
    left_out: Sequence[AnyEntity] = (),
    places: Places | None = None,
) -> Overlaps:
    """Compare the locations of all feeds, or of the feeds on one cluster, with one another and with fixed places.

    `left_out` are further entities, which are protected, too. Refused templates are not compared. `places` are those
    of this machine at present.
    """
    found = list(iter_locations(bundle, cluster, left_out=left_out, places=places))
    return describe_overlaps([key for key, _ in found], iter_overlaps([text for _, text in found]))


def describe_overlaps(
    places: Sequence[LocationKey], found: Iterable[PathOverlap], describe: Callable[[LocationKey], str] | None = None
) -> Overlaps:
    """Describe overlaps of locations, which are numbered by their position in `places`.

    `describe` returns the name of another entity's location; by default it is that of `describe_location`.

    Locations inside the data of their own feed are removed with the data. Other overlaps are reported for both feeds.
    """
    reasons: dict[LocationKey, str] = {}
    for overlap in sorted(found, key=lambda overlap: places[overlap.outer][2] is not LocationKind.DATA):
        _add_reasons(reasons, overlap, places[overlap.outer], places[overlap.inner], describe or describe_location)
    return reasons


def iter_locations(
    bundle: Bundle, only: str | None = None, *, left_out: Sequence[AnyEntity] = (), places: Places | None = None
) -> Iterator[tuple[LocationKey, str]]:
    """Yield the locations and inboxes of all feeds, the targets of mirrors and the roots of storages, or those on one
    cluster.

    Entities `left_out` of the bundle count like the others. Each location comes as a canonical URL, with its variables.
    """
    entities, places = (*bundle.entities, *left_out), places or Places()
    clusters: dict[str, list[Cluster]] = defaultdict(list)
    for entity in entities:
        if isinstance(entity, Cluster) and only in (None, entity.name):
            clusters[entity.name].append(entity)
            yield (entity.name, entity.name, FixedPlace.STORAGE), places.canonical(entity.storage)
    for entity in entities:
        if isinstance(entity, Feed):
            for name in entity.clusters:
                for cluster in clusters.get(name, ()):
                    for kind, found in _iter_on(entity, cluster, places):
                        yield (entity.name, name, kind), found
                    if entity.inbox is not None and (path := _find_path(cluster, entity.inbox.directory)) is not None:
                        yield (entity.name, name, FixedPlace.INBOX), places.canonical(path)
        elif isinstance(entity, Process):
            for place in iter_mirror_locations(lambda name: next(iter(clusters.get(name, ())), None), entity):
                if place.is_target and place.url is not None:
                    yield (entity.name, place.own, FixedPlace.MIRROR), places.canonical(place.url)


def _iter_on(feed: Feed, cluster: Cluster, places: Places) -> Iterator[tuple[LocationKind | None, str]]:
    for kind, text in iter_texts(feed, cluster.name):
        found = _find_path(cluster, text)
        if found is not None:
            yield kind, places.canonical(found)
    table = feed.table_on(cluster.name)
    if table is not None:
        for found in _iter_partitions(cluster, table):
            yield LocationKind.DATA, found


def iter_texts(feed: Feed, cluster: str) -> Iterator[tuple[LocationKind | None, str]]:
    """Yield the templates of a feed's locations on a cluster, and that of its archive, whose kind is None."""
    locations, retention = feed.locations_on(cluster), feed.clusters[cluster].retention
    for kind in LocationKind if locations else ():
        if locations is not None and (text := locations.find(kind)) is not None:
            yield kind, text
    if retention is not None and retention.archive_to is not None:
        yield None, retention.archive_to


def _find_path(cluster: Cluster, text: str) -> str | None:
    try:
        return url_of(cluster.storage, cluster.fill(parse_path_template(text)).text)
    except TemplateError:
        return None


def _iter_partitions(cluster: Cluster, text: str) -> Iterator[str]:
    """Yield the partition of a table by each of its metastores.

    Its keys are sorted by name, because their order does not distinguish tables.
    """
    try:
        address = parse_table_address(text)
        keys = "/".join(f"{key.lower()}={value.text}" for key, value in sorted(address.partition, key=_key_of))
        partition = cluster.fill(parse_path_template(keys or WHOLE_TABLE)).text
    except (TableAddressError, TemplateError):
        return
    yield from (f"{table}/{partition}" for table in iter_tables(cluster, address.name))


def iter_tables(cluster: Cluster, name: str) -> Iterator[str]:
    """Yield the URL of a table, `database.table`, by each address of the cluster's catalog; alike for equal tables."""
    for host in cluster.metastores or ("",):
        yield f"thrift://{host.removesuffix(_METASTORE_PORT)}/{name}".lower()


def _key_of(item: tuple[str, PathTemplate]) -> str:
    return item[0].lower()


def _add_reasons(
    reasons: dict[LocationKey, str],
    overlap: PathOverlap,
    outer: LocationKey,
    inner: LocationKey,
    describe: Callable[[LocationKey], str],
) -> None:
    at = "at" if overlap.is_same_place else "inside"
    if outer[2] is inner[2] is FixedPlace.INBOX:  # several may have one directory, or one below another
        return
    if outer[:2] != inner[:2] or isinstance(inner[2], FixedPlace):
        other = describe(inner)
        reasons.setdefault(inner, f"it is {at} {describe(outer)}")
        reasons.setdefault(outer, f"it is at {other}" if overlap.is_same_place else f"{other} is inside it")
    elif None in (outer[2], inner[2]):
        reasons.setdefault(inner, f"it is {at} the {outer[2] or 'archive'} of the feed")
        reasons.setdefault(outer, f"the {inner[2] or 'archive'} of the feed is {at} it")
    elif outer[2] is LocationKind.DATA:
        reasons.setdefault(inner, f"it is {at} the data of the feed, and is removed with them")
    elif not overlap.is_same_place:
        reasons.setdefault(outer, f"the {inner[2]} of the feed is inside it")
    elif inner[2] is not LocationKind.DATA and overlap.outer > overlap.inner:
        reasons.setdefault(outer, f"it is at the {inner[2]} of the feed, and is removed with it")


def describe_location(place: LocationKey) -> str:
    """Return the name of a location in messages."""
    name, cluster, kind = place
    match kind:
        case FixedPlace.INBOX:
            return f"the inbox of feed {name!r} on {cluster}"
        case FixedPlace.STORAGE:
            return f"the storage of cluster {name!r}"
        case FixedPlace.MIRROR:
            return f"the target of mirror {name!r} on {cluster}"
        case _:
            return f"the {kind or 'archive'} of feed {name!r} on {cluster}"


_REFUSED = re.compile(r"(?:^|/)(\.\.?|\.feed-assets)(?:/|$)")  # "a/../b", "./a"


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorLocation:
    """One side of the directory at `position` of a mirror: its `url`, or the `fault` because of which it has none.

    `own` is the cluster of the process, `cluster` that of the side; `text` is the directory as declared at `path`.
    """

    process: str
    own: str
    cluster: str
    position: int
    is_target: bool
    path: FieldPath
    text: str
    url: str | None = None
    fault: Finding | None = None


def iter_mirror_locations(find_cluster: Callable[[str], Cluster | None], process: Process) -> Iterator[MirrorLocation]:
    """Yield both sides of each directory of a mirror, on each cluster of its process; nothing for other processes.

    Sides on clusters that `find_cluster` does not find are left out.
    """
    mirror = process.workflow.mirror
    if mirror is None:
        return
    for own in process.clusters:
        of_sides = [find_cluster(name) for name in mirror.clusters(own)]
        for position, pair in enumerate(mirror.directories()):
            is_one = mirror.source.directory is not None
            source: FieldPath = ("source", "directory") if is_one else ("source", "directories", position)
            sides: tuple[FieldPath, FieldPath] = (source, ("target", "directory"))
            for cluster, text, side in zip(of_sides, pair, sides, strict=True):
                if cluster is None:
                    continue
                url, fault = _locate(cluster, text)
                yield MirrorLocation(
                    process=process.name,
                    own=own,
                    cluster=cluster.name,
                    position=position,
                    is_target=side[0] == "target",
                    path=("workflow", "mirror", *side),
                    text=text,
                    url=url,
                    fault=fault,
                )


def _locate(cluster: Cluster, text: str) -> tuple[str | None, Finding | None]:
    """Return the URL of a directory, or why it cannot be located."""
    try:
        template = cluster.fill(parse_path_template(text))
    except TemplateError as exc:
        return None, split_error(exc)
    fault = _find_fault(cluster, template)
    return (None, fault) if fault else (url_of(cluster.storage, template.text), None)


def _find_fault(cluster: Cluster, template: PathTemplate) -> Finding | None:
    scheme, found, rest = template.text.partition("://")
    path = rest.partition("/")[2] if found else template.text
    if template.variables:
        remedy = "Declare a feed with replication for it."
        return Finding(message="its path has dates, so it is the location of a feed", remedy=remedy)
    if found and scheme not in STORAGE_SCHEMES:
        remedy = f"Use one of {', '.join(STORAGE_SCHEMES)}."
        return Finding(message=f"{scheme!r} storage is not supported", remedy=remedy)
    if (refused := _REFUSED.search(path)) is not None:
        return Finding(message=f"its path contains {refused[1]!r}", remedy="Write the path of a directory in full.")
    if not path.strip("/") or template.text.rstrip("/") == cluster.storage.rstrip("/"):
        return Finding(message="it is the root of a storage", remedy="Name a directory below it.")
    return None
