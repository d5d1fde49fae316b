"""Falcon's properties for the replication of a feed, and the equivalent fields of `replication`."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from feed_assets.entities.copying import Preserve, RemovedFiles, Verification
from feed_assets.entities.process import Order
from feed_assets.entities.replication import (
    MOST_PARALLEL,
    MOST_TASKS,
    Replication,
)
from feed_assets.entities.sizes import Size
from feed_assets.timing.errors import FrequencyError
from feed_assets.timing.frequency import Frequency, parse_frequency

PROPERTIES: Mapping[str, str] = MappingProxyType(
    {
        "parallel": "parallel",
        "order": "order",
        "timeout": "timeout",
        "maxMaps": "max_tasks",
        "mapBandwidth": "task_bandwidth",
        "overwrite": "overwrite",
        "ignoreErrors": "ignore_errors",
        "skipChecksum": "verification",
        "removeDeletedFiles": "removed_files",
        "preserveTimes": "preserve",
        "preservePermission": "preserve",
    }
)
"""Falcon's properties and the equivalent fields."""

WITHOUT_EFFECT: Mapping[str, str] = MappingProxyType(
    {
        "preserveBlockSize": "blocks are those of the target's storage",
        "preserveReplicationNumber": "the target's storage decides the number of replicas of a block",
        "preserveUser": "copies belong to the user who makes them",
        "preserveGroup": "copies belong to the user who makes them",
        "preserveChecksumType": "feed-assets always uses BLAKE3",
        "preserveAcl": "access lists are not copied",
        "preserveXattr": "extended attributes are not copied",
        "tdeEncryptionEnabled": "encrypting storage is copied and verified like any other",
        "job.counter": "bytes, files and seconds of every copy are always recorded",
    }
)
"""Falcon's other properties for copies, and why they have no effect."""

_PRESERVING = "preserve"
_MEGABYTE = 1_000_000
_MOST_MEGABYTES = 1_000_000
_LONGEST = 9
_PRESERVED: Mapping[str, Preserve] = MappingProxyType(
    {"preserveTimes": Preserve.TIMES, "preservePermission": Preserve.PERMISSIONS}
)


def complete_replication(written: Replication | None, properties: Mapping[str, str]) -> Replication:
    """Fill the gaps of the policy from Falcon's properties; ignore unreadable values.

    >>> complete_replication(None, {"parallel": "4", "order": "RANDOM", "mapBandwidth": "2"}).task_bandwidth.render()
    '2MB'
    """
    policy = written or Replication()
    said: dict[str, object] = {
        "parallel": _whole(properties.get("parallel"), MOST_PARALLEL),
        "order": _member(properties.get("order")),
        "timeout": _frequency(properties.get("timeout")),
        "max_tasks": _whole(properties.get("maxMaps"), MOST_TASKS),
        "overwrite": _flag(properties.get("overwrite")),
        "ignore_errors": _flag(properties.get("ignoreErrors")),
    }
    if (megabytes := _whole(properties.get("mapBandwidth"), _MOST_MEGABYTES)) is not None:
        said["task_bandwidth"] = Size(megabytes * _MEGABYTE)
    if (removes := _flag(properties.get("removeDeletedFiles"))) is not None:
        said["removed_files"] = RemovedFiles.REMOVE if removes else RemovedFiles.KEEP
    if _flag(properties.get("skipChecksum")):
        said["verification"] = Verification.NONE
    if any(name in properties for name in _PRESERVED):
        said["preserve"] = frozenset(kept for name, kept in _PRESERVED.items() if _flag(properties.get(name)))
    return policy.model_copy(
        update={name: value for name, value in said.items() if value is not None and getattr(policy, name) is None}
    )


def unkept_properties(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return Falcon's properties that ask a copy to preserve what copies do not preserve here."""
    return tuple(name for name in WITHOUT_EFFECT if name.startswith(_PRESERVING) and _flag(properties.get(name)))


def unreadable_properties(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return Falcon's properties for copies whose values cannot be read."""
    readers: dict[str, Callable[[str], object]] = {
        "parallel": lambda text: _whole(text, MOST_PARALLEL),
        "order": _member,
        "timeout": _frequency,
        "maxMaps": lambda text: _whole(text, MOST_TASKS),
        "mapBandwidth": lambda text: _whole(text, _MOST_MEGABYTES),
    }
    return tuple(name for name, read in readers.items() if name in properties and read(properties[name]) is None)


def render_properties(policy: Replication) -> dict[str, str]:
    """Return a policy as Falcon's properties; fields without an equivalent are left out.

    >>> render_properties(Replication(max_tasks=3, task_bandwidth="2MB", bandwidth="5MB", removed_files="keep"))
    {'maxMaps': '3', 'mapBandwidth': '2', 'removeDeletedFiles': 'false'}
    """
    rate = policy.task_bandwidth.bytes if policy.task_bandwidth else None
    said: dict[str, object] = {
        "parallel": policy.parallel,
        "order": policy.order,
        "timeout": policy.timeout,
        "maxMaps": policy.max_tasks,
        "mapBandwidth": rate // _MEGABYTE if rate is not None and rate % _MEGABYTE == 0 else None,
        "overwrite": policy.overwrite,
        "ignoreErrors": policy.ignore_errors,
        "skipChecksum": {Verification.NONE: True, Verification.TRANSFERRED: False}.get(
            policy.verification or Verification.WHOLE
        ),
        "removeDeletedFiles": {RemovedFiles.REMOVE: True, RemovedFiles.KEEP: False}.get(
            policy.removed_files or RemovedFiles.BY_MANIFEST
        ),
    }
    if policy.preserve is not None:
        said |= {name: kept in policy.preserve for name, kept in _PRESERVED.items()}
    return {name: _render(value) for name, value in said.items() if value is not None}


def _render(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _whole(text: str | None, most: int) -> int | None:
    written = (text or "").strip()
    number = int(written) if written.isdecimal() and len(written) <= _LONGEST else 0
    return number if 1 <= number <= most else None


def _member(text: str | None) -> Order | None:
    return Order(text.strip().upper()) if text is not None and text.strip().upper() in list(Order) else None


def _frequency(text: str | None) -> Frequency | None:
    try:
        return parse_frequency(text or "")
    except FrequencyError:
        return None


def _flag(text: str | None) -> bool | None:
    return None if text is None else text.strip().lower() == "true"
