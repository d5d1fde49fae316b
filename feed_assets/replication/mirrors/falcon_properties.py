"""The properties of Falcon's mirroring extensions, translated to fields of a definition."""

from collections.abc import Callable, Mapping
from typing import Any

from feed_assets.context.errors import MirrorTemplateError
from feed_assets.loading.messages import closest

_MEGABYTES = "MB"
_NOBODY = "NA"
_PRESERVED = {"preserveTimes": "times", "preservePermission": "permissions"}
_NOT_PRESERVED = (
    "preserveBlockSize",
    "preserveReplicationNumber",
    "preserveUser",
    "preserveGroup",
    "preserveChecksumType",
    "preserveAcl",
    "preserveXattr",
)
_NOT_HERE = (*_NOT_PRESERVED, "tdeEncryptionEnabled", "sourceSnapshotRetentionPolicy", "targetSnapshotRetentionPolicy")
"""Properties without meaning here: encrypted files are read like others; Falcon has only the policy `delete`."""

Place = tuple[str, ...]


def _same(text: str) -> Any:
    return text


def _flag(text: str) -> Any:
    return text.strip().lower() == "true"


def _directories(text: str) -> Any:
    return [part.strip() for part in text.split(",") if part.strip()]


_CLUSTER, _RETRY, _MIRROR = ("cluster",), ("retry",), ("workflow", "mirror")
_PLACES: Mapping[str, tuple[Place, Callable[[str], Any]]] = {
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
KNOWN = (*_PLACES, *_PRESERVED, *_NOT_HERE)
"""All known names."""


def read_properties(properties: Mapping[str, str]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Translate properties to values of a definition, with notes about those without meaning here. The cluster, start
    and end of the process are under `cluster`, `start` and `end`.

    Raises:
        MirrorTemplateError: none of the extensions has a property of that name.

    >>> read_properties({"targetDir": "/b", "distcpMapBandwidth": "10"})[0]["workflow"]["mirror"]
    {'target': {'directory': '/b'}, 'task_bandwidth': '10MB'}
    """
    values: dict[str, Any] = {}
    notes = []
    for name, text in properties.items():
        if name in _PLACES:
            place, read = _PLACES[name]
            put(values, place, read(text))
        elif name in _PRESERVED:
            if _flag(text):
                mirror = values.setdefault("workflow", {}).setdefault("mirror", {})
                mirror.setdefault("preserve", []).append(_PRESERVED[name])
        elif name in _NOT_HERE:
            if text.strip().lower() not in ("", "false", "delete"):
                notes.append(f"{name}={text} is left out: it has no meaning here")
        else:
            close = closest(name, KNOWN)
            raise MirrorTemplateError(
                reason=f"{name!r} is not a property of Falcon's extensions for mirroring",
                next_step=f"Did you mean {close!r}?" if close else "See docs/mirroring.md.",
            )
    if values.get("notification", {}).get("to") == [_NOBODY]:
        del values["notification"]
    return values, tuple(notes)


def put(values: dict[str, Any], place: Place, value: object) -> None:
    """Put a value at its place in nested maps."""
    for key in place[:-1]:
        values = values.setdefault(key, {})
    values[place[-1]] = value
