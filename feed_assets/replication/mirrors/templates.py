"""Template for the definition of a mirror, with all optional fields, from command options or Falcon's properties."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from feed_assets.context.errors import InstanceQueryError, NewEntityError
from feed_assets.context.operation import OperationContext
from feed_assets.definitions.templates import Template, make_template
from feed_assets.entities.bundle import AnyEntity, Bundle
from feed_assets.entities.common import Kind
from feed_assets.entities.copies.mirror import Mirror
from feed_assets.entities.copies.options import PRESERVED
from feed_assets.errors import WrongUsageError
from feed_assets.json_form import Hidden, shown
from feed_assets.loading.messages import closest
from feed_assets.loading.yaml_writer import render_yaml
from feed_assets.pages import tell_shown
from feed_assets.plan.copy_records import MirrorRecord
from feed_assets.plan.records import ProcessRecord
from feed_assets.releases.left_out import find_refused_writes
from feed_assets.replication.mirrors.queries import MirrorRequest
from feed_assets.timing.dates import render_datetime
from feed_assets.transfer.mirroring import Snapshot, SnapshotKeeper, count_standing, plan_mirror
from feed_assets.transfer.plans import CopyPlan, Side

_MEGABYTES = "MB"
_NOBODY = "NA"
_NOT_HERE = (
    "preserveChecksumType",
    "preserveXattr",
    "tdeEncryptionEnabled",
    "sourceSnapshotRetentionPolicy",
    "targetSnapshotRetentionPolicy",
)
"""Properties without meaning here: encrypted files are read like others; Falcon has only the policy `delete`."""

_Place = tuple[str, ...]


def _same(text: str) -> Any:
    return text


def _flag(text: str) -> Any:
    return text.strip().lower() == "true"


def _directories(text: str) -> Any:
    return [part.strip() for part in text.split(",") if part.strip()]


_CLUSTER, _RETRY, _MIRROR = ("cluster",), ("retry",), ("workflow", "mirror")
_PLACES: Mapping[str, tuple[_Place, Callable[[str], Any]]] = {
    "jobName": (("name",), _same),
    "jobClusterName": (_CLUSTER, _same),
    "jobValidityStart": (("start",), _same),
    "jobValidityEnd": (("end",), _same),
    "jobFrequency": (("frequency",), _same),
    "jobTimezone": (("timezone",), _same),
    "jobTags": (("tags",), _same),
    "jobRetryPolicy": ((*_RETRY, "policy"), _same),
    "jobRetryDelay": ((*_RETRY, "delay"), _same),
    "jobRetryAttempts": ((*_RETRY, "attempts"), _same),
    "jobRetryOnTimeout": ((*_RETRY, "on_timeout"), _flag),
    "jobAclOwner": (("acl", "owner"), _same),
    "jobAclGroup": (("acl", "group"), _same),
    "jobAclPermission": (("acl", "permission"), _same),
    "jobNotificationType": (("notification", "type"), _same),
    "jobNotificationReceivers": (("notification", "to"), _directories),
    "sourceDir": ((*_MIRROR, "source", "directories"), _directories),
    "sourceSnapshotDir": ((*_MIRROR, "source", "directories"), _directories),
    "sourceCluster": ((*_MIRROR, "source", "cluster"), _same),
    "targetDir": ((*_MIRROR, "target", "directory"), _same),
    "targetSnapshotDir": ((*_MIRROR, "target", "directory"), _same),
    "targetCluster": ((*_MIRROR, "target", "cluster"), _same),
    "distcpMaxMaps": ((*_MIRROR, "max_tasks"), _same),
    "distcpMapBandwidth": ((*_MIRROR, "task_bandwidth"), lambda text: f"{text.strip()}{_MEGABYTES}"),
    "overwrite": ((*_MIRROR, "overwrite"), _flag),
    "ignoreErrors": ((*_MIRROR, "ignore_errors"), _flag),
    "skipChecksum": ((*_MIRROR, "verification"), lambda text: "none" if _flag(text) else "transferred"),
    "removeDeletedFiles": ((*_MIRROR, "removed_files"), lambda text: "remove" if _flag(text) else "keep"),
    "sourceSnapshotRetentionNumber": ((*_MIRROR, "snapshots", "source_keep"), _same),
    "sourceSnapshotRetentionAgeLimit": ((*_MIRROR, "snapshots", "source_age"), _same),
    "targetSnapshotRetentionNumber": ((*_MIRROR, "snapshots", "target_keep"), _same),
    "targetSnapshotRetentionAgeLimit": ((*_MIRROR, "snapshots", "target_age"), _same),
}
KNOWN = (*_PLACES, *PRESERVED, *_NOT_HERE)
"""All known names."""


def read_properties(properties: Mapping[str, str]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Translate properties to values of a definition, with notes about those without meaning here. The cluster, start
    and end of the process are under `cluster`, `start` and `end`.

    Raises:
        NewEntityError: none of the extensions has a property of that name.

    >>> read_properties({"targetDir": "/b", "distcpMapBandwidth": "10"})[0]["workflow"]["mirror"]
    {'target': {'directory': '/b'}, 'task_bandwidth': '10MB'}
    """
    values: dict[str, Any] = {}
    notes = []
    for name, text in properties.items():
        if name in _PLACES:
            place, read = _PLACES[name]
            _put(values, place, read(text))
        elif name in PRESERVED:
            if _flag(text):
                mirror = values.setdefault("workflow", {}).setdefault("mirror", {})
                mirror.setdefault("preserve", []).append(PRESERVED[name].value)
        elif name in _NOT_HERE:
            if text.strip().lower() not in ("", "false", "delete"):
                notes.append(f"{name}={text} is left out: it has no meaning here")
        else:
            close = closest(name, KNOWN)
            raise NewEntityError(
                what="mirror",
                reason=f"{name!r} is not a property of Falcon's extensions for mirroring",
                next_step=f"Did you mean {close!r}?" if close else "See docs/mirroring.md.",
            )
    if values.get("notification", {}).get("to") == [_NOBODY]:
        del values["notification"]
    return values, tuple(notes)


def _put(values: dict[str, Any], place: _Place, value: object) -> None:
    for key in place[:-1]:
        values = values.setdefault(key, {})
    values[place[-1]] = value


COMMENTS: Mapping[str, str] = {
    "source": "what is read: directory, or several directories",
    "target": "what is written; no other declaration may use this location",
    "removed_files": "keep, or remove files that the source does not have (any more)",
    "limits": "a run that would remove more fails and changes nothing",
    "allow_emptying": "whether a source without files may empty the target",
    "snapshots": "every state has a name; how many always stay, and the maximum age of others; implies remove",
    "verification": "read back what was copied; whole: also unchanged files; none",
    "overwrite": "copy every file again",
    "ignore_errors": "publish the other files if one cannot be read",
    "preserve": "times, permissions; on HDFS also owner, group, acl, block-size, replicas",
    "max_tasks": "concurrent copies",
    "bandwidth": "limit per second for all copies together",
    "task_bandwidth": "limit per second for each copy",
    "include": "globs: only these files",
    "exclude": "globs: not these files",
    "hidden": "also files whose names begin with . or _",
}
_EXAMPLES: Mapping[str, str] = {
    "removed_files": "keep",
    "limits": "{share: 0.5, files: 10000}",
    "snapshots": "{source_keep: 3, target_keep: 7, source_age: days(7), target_age: days(7)}",
    "preserve": "[times, permissions]",
    "bandwidth": "100MB",
    "task_bandwidth": "20MB",
    "include": '["**.parquet"]',
    "exclude": '["tmp/**"]',
}
_DEFAULT_RETRY = {"policy": "periodic", "delay": "minutes(30)", "attempts": 3}
_SIDE = re.compile(r"(?:([A-Za-z][A-Za-z0-9-]*):(?!//))?(.+)")  # "primary:/models", "/models", "s3://bucket/models"
_KEY = re.compile(r"    ([a-z_]+):")


def make_mirror(request: MirrorRequest, declared: Bundle, as_of: datetime, *, is_forced: bool = False) -> Template:
    """Make the definition of a mirror, and validate it together with the declared entities.

    Raises:
        NewEntityError: the options do not say what to mirror; or the process is already declared, and `is_forced` is
            False.
        DefinitionsError: the definition has errors; carries the issues.
    """
    document, notes = make_document(request, as_of)
    return make_template(
        Kind.PROCESS, document, declared, render_template, what="mirror", notes=notes, is_forced=is_forced
    )


def render_template(process: AnyEntity) -> str:
    """Return the YAML of a mirror: its fields with comments, and its unused fields as comments."""
    lines, said, end = render_yaml(process).splitlines(), set(), 0
    inside = False
    for number, line in enumerate(lines):
        inside = line == "  mirror:" or (inside and line.startswith("    "))
        if not inside:
            continue
        end = number + 1
        if (found := _KEY.match(line)) and found[1] in COMMENTS:
            said.add(found[1])
            lines[number] = _commented(line, COMMENTS[found[1]])
    others = [
        _commented(f"    # {name}: {_example(name)}", comment) for name, comment in COMMENTS.items() if name not in said
    ]
    head = "# A mirror keeps a directory equal to another one; see docs/mirroring.md."
    return "\n".join([head, *lines[:end], *others, *lines[end:], ""])


def _commented(line: str, comment: str) -> str:
    return f"{line}  # {comment}"


def _example(name: str) -> str:
    if name in _EXAMPLES:
        return _EXAMPLES[name]
    default = Mirror.model_fields[name].get_default()
    return str(default).lower() if isinstance(default, bool) else str(default)


def make_document(request: MirrorRequest, as_of: datetime) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return what the definition of a mirror says, and notes about what was left out. It begins at midnight unless it
    is asked otherwise. Raises as `make_mirror`.
    """
    values, notes = read_properties({**(request.file or {}), **(request.properties or {})})
    mirror = values.setdefault("workflow", {}).setdefault("mirror", {})
    for text in request.sources:
        cluster, directory = _parse_side(text)
        own = mirror.setdefault("source", {}).get("cluster")
        if cluster is not None and own not in (None, cluster):
            raise NewEntityError(
                what="mirror",
                reason=f"the sources are on two clusters, {own} and {cluster}",
                next_step="Write a mirror for each.",
            )
        mirror["source"] |= {"cluster": cluster or own} if cluster or own else {}
        mirror["source"]["directories"] = [*mirror["source"].get("directories", []), directory]
    if request.target is not None:
        cluster, directory = _parse_side(request.target)
        mirror["target"] = {**({"cluster": cluster} if cluster else {}), "directory": directory}
    for side, option in (("source", "--source"), ("target", "--target")):
        if not mirror.get(side, {}).keys() & {"directory", "directories"}:
            raise NewEntityError(what="mirror", reason=f"it has no {side}", next_step=f"Give it with {option}.")
    if len(mirror["source"]["directories"]) == 1:
        mirror["source"]["directory"] = mirror["source"].pop("directories")[0]
    if request.removes:
        mirror["removed_files"] = "remove"
    if request.snapshots is not None:
        kept = request.snapshots.split(",")
        if len(kept) > 2 or not all(each.strip().isdecimal() and int(each) > 0 for each in kept):
            raise WrongUsageError(f"--snapshots {request.snapshots!r} is neither N nor N,M.")
        _put(mirror, ("snapshots", "source_keep"), int(kept[0]))
        _put(mirror, ("snapshots", "target_keep"), int(kept[-1]))
        mirror.pop("removed_files", None)
    return _process(request, values, as_of), notes


def _process(request: MirrorRequest, values: dict[str, Any], as_of: datetime) -> dict[str, Any]:
    mirror = values["workflow"]["mirror"]
    given = values.pop("cluster", None)
    cluster = request.cluster or given or mirror["target"].get("cluster") or mirror["source"].get("cluster")
    if cluster is None:
        raise NewEntityError(
            what="mirror",
            reason="it has no cluster",
            next_step="Give --cluster, or name the clusters of source and target.",
        )
    midnight = render_datetime(as_of.replace(hour=0, minute=0, second=0, microsecond=0))
    validity = {"start": values.pop("start", midnight)}
    if "end" in values:
        validity["end"] = values.pop("end")
    given = {"start": request.start, "end": request.end}
    validity |= {name: render_datetime(time.replace(second=0)) for name, time in given.items() if time}
    mirror = {"source": mirror.pop("source"), "target": mirror.pop("target"), **mirror}
    return {
        **values,
        "name": request.name or values.get("name"),
        "clusters": {cluster: {"validity": validity}},
        "order": "LAST_ONLY",
        "catch_up": "latest",
        "frequency": request.frequency.render() if request.frequency else values.get("frequency", "days(1)"),
        "workflow": {"engine": "directory-mirror", "mirror": mirror},
        "retry": {**_DEFAULT_RETRY, **values.get("retry", {})},
    }


def _parse_side(text: str) -> tuple[str | None, str]:
    found = _SIDE.fullmatch(text.strip())
    if found is None:
        raise NewEntityError(
            what="mirror", reason=f"{text!r} is not a directory", next_step="Write cluster:/directory, or a URL."
        )
    return found[1], found[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class MirroredFile:
    """A file to be copied."""

    path: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownMirror:
    """The preview for one directory; empty with a `refusal`, which gives the reason. `standing` is the number of files
    at the target, None if it was not counted.
    """

    source: str
    target: str
    refusal: str | None
    copies: tuple[MirroredFile, ...] | None = None
    bytes: int | None = None
    removals: tuple[str, ...] | None = None
    standing: int | None = None

    @classmethod
    def of(cls, source: str, target: str, plan: CopyPlan | None, refusal: Exception | None) -> "ShownMirror":
        shown = cls(source=source, target=target, refusal=None if refusal is None else str(refusal))
        if plan is None:
            return shown
        return replace(
            shown,
            copies=tuple(MirroredFile(path=file.path, bytes=file.size) for file in plan.transfers),
            bytes=plan.bytes,
            removals=tuple(plan.removed),
            standing=None if plan.is_unchanged else count_standing(plan),
        )

    @property
    def changes(self) -> tuple[tuple[str, ...], ...]:
        """What is done with a file, its bytes, its path and the source: first those to remove."""
        removed = (("remove", "", path, self.source) for path in self.removals or ())
        return (*removed, *(("copy", f"{each.bytes:,}", each.path, self.source) for each in self.copies or ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorPlans:
    """The preview of a mirror run, directory by directory. People see `limit` files of each."""

    process: str
    cluster: str
    directories: tuple[ShownMirror, ...]
    limit: Hidden[int]

    @shown
    def is_good(self) -> bool:
        """Whether a run would mirror every directory."""
        return not self.has_failed

    @property
    def has_failed(self) -> bool:
        """Whether a run would fail."""
        return bool(self.notes)

    @property
    def notes(self) -> tuple[str, ...]:
        """Why a run would fail."""
        return tuple(f"feed-assets: {each.refusal}" for each in self.directories if each.refusal is not None)

    @property
    def changes(self) -> tuple[tuple[str, ...], ...]:
        """The first files of each directory."""
        return tuple(change for each in self.directories for change in each.changes[: self.limit])

    @property
    def summary(self) -> str:
        """How many files are shown, if not all are."""
        total = sum(len(each.changes) for each in self.directories)
        return tell_shown(len(self.changes), total, "files", "--limit shows more")


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorSnapshotList:
    """The snapshots of a mirror by the URL of each target: those of the source first, each side newest first."""

    process: str
    cluster: str
    snapshots: Mapping[str, tuple[Snapshot, ...]]

    @property
    def rows(self) -> tuple[tuple[str | None, ...], ...]:
        """Side, name, files, bytes and content of each, and its directory."""
        found = [(each, url) for url, of_target in self.snapshots.items() for each in of_target]
        return tuple((it.shelf, it.name, f"{it.files:,}", f"{it.bytes:,}", it.content, url) for it, url in found)

    @property
    def notes(self) -> tuple[str, ...]:
        """The directories without any."""
        return tuple(f"{url}: there is no snapshot" for url, found in self.snapshots.items() if not found)


def plan_mirrors(
    context: OperationContext, process: str, cluster: str | None, approved: int | None, *, limit: int
) -> MirrorPlans:
    """Plan a run of a mirror now; nothing is written.

    Args:
        context: the definitions and the storages.
        process: a mirror.
        cluster: the cluster of the run; optional if there is only one.
        approved: how many files may be removed despite the limits.
        limit: how many files of each directory are for people.

    Raises:
        EntityNotFoundError: there is no such process.
        InstanceQueryError: the process is not a mirror, or not on that cluster.
    """
    record, mirror = _find(context, process, cluster)
    with context.database.read() as connection:
        refused = find_refused_writes(connection, context.timeline, record, [context.as_of]).get(context.as_of)
    planned = plan_mirror(context.stores, mirror, context.real_clock, approved)
    directories = tuple(
        ShownMirror.of(source.url, target.url, plan, refused or refusal)
        for (source, target), (plan, refusal) in zip(mirror.directories, planned, strict=True)
    )
    return MirrorPlans(process=record.process, cluster=record.cluster, directories=directories, limit=limit)


def list_snapshots(context: OperationContext, process: str, cluster: str | None) -> MirrorSnapshotList:
    """List the existing snapshots of a mirror, even if it no longer makes any. Raises as `plan_mirrors`."""
    record, mirror = _find(context, process, cluster)
    found = {
        target.url: tuple(SnapshotKeeper(context.stores, Side(store=target.store, path=target.path)).find_all())
        for _, target in mirror.directories
    }
    return MirrorSnapshotList(process=record.process, cluster=record.cluster, snapshots=found)


def _find(context: OperationContext, process: str, cluster: str | None) -> tuple[ProcessRecord, MirrorRecord]:
    record = context.only_process(process, cluster)
    if not isinstance(record.work, MirrorRecord):
        raise InstanceQueryError(
            subject=f"process {process!r}",
            reason=f"it is not a mirror; its engine is {record.engine}",
            next_step="Name a process with the engine directory-mirror.",
        )
    return record, record.work
