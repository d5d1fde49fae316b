"""The policy of replication: how a feed is copied from its sources to its targets; and Falcon's properties for it."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Annotated

from pydantic import Field

from feed_assets.entities.common import EntityModel
from feed_assets.entities.copies.options import PRESERVED, PreserveField, RemovedFiles, Verification
from feed_assets.entities.fields import Count, FilledText, FrequencyField, Size, SizeField
from feed_assets.entities.process import CatchUp, Order, Retry, RetryPolicy
from feed_assets.timing.errors import FrequencyError
from feed_assets.timing.sequence import Frequency, Unit, parse_frequency

RETRY = Retry(policy=RetryPolicy.EXP_BACKOFF, delay=Frequency(unit=Unit.MINUTES, count=5), attempts=3)
"""The default retry policy of replication; Falcon's `feed.retry.*`."""
LATE_POLICY, LATE_DELAY = RetryPolicy.EXP_BACKOFF, Frequency(unit=Unit.HOURS, count=3)
"""The default schedule of late-data checks at sources; Falcon's `feed.late.*`."""

MOST_PARALLEL, MOST_TASKS = 12, 1000
"""The maximum of concurrent copies of a flow, and of concurrent tasks of a copy."""


class Replication(EntityModel):
    """The policy of copies. A field left out takes the value of Falcon's property of the feed, else the default.

    `parallel` (1), `order` (FIFO), `timeout` (6 × frequency, at least 30 minutes), `retry` (3 times, from 5 minutes on)
    and `catch_up` are as in a process. `verification` (`transferred`) names the files that are read back.
    `removed_files` (`by-manifest`) is the treatment of files that the source no longer has. `max_tasks` (5) tasks copy
    at once; `bandwidth` is for all of them, `task_bandwidth` for each, both per second; the default is no limit.
    `overwrite` copies every file again. `ignore_errors` continues with the other files if a file cannot be read, and
    publishes nothing. `include` and `exclude` are globs on paths below the instance; `hidden` also copies files that
    readers ignore (`_metadata`, `.crc`). `allow_empty` publishes an empty replica if they match no file of a source
    that has files.

    Differs from Falcon: `removeDeletedFiles` is true there, `mapBandwidth` 100 MB a second; `skipChecksum` skips what
    `verification: none` skips, and copied bytes are always checked in transit.

    >>> Replication(bandwidth="100MB", preserve=["times"]).bandwidth.bytes
    100000000
    """

    parallel: Annotated[Count, Field(ge=1, le=MOST_PARALLEL)] | None = None
    order: Order | None = None
    catch_up: CatchUp = CatchUp.ALL
    timeout: FrequencyField | None = None
    retry: Retry | None = None
    verification: Verification | None = None
    removed_files: RemovedFiles | None = None
    overwrite: bool | None = None
    ignore_errors: bool | None = None
    preserve: PreserveField | None = None
    max_tasks: Annotated[Count, Field(ge=1, le=MOST_TASKS)] | None = None
    bandwidth: SizeField | None = None
    task_bandwidth: SizeField | None = None
    include: tuple[FilledText, ...] = ()
    exclude: tuple[FilledText, ...] = ()
    hidden: bool = False
    allow_empty: bool = False


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
        **dict.fromkeys(PRESERVED, "preserve"),
    }
)
"""Falcon's properties and the equivalent fields."""

WITHOUT_EFFECT: Mapping[str, str] = MappingProxyType(
    {
        "preserveChecksumType": "feed-assets always uses BLAKE3",
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


def complete_replication(written: Replication | None, properties: Mapping[str, str]) -> Replication:
    """Fill the gaps of the policy from Falcon's properties; ignore unreadable values.

    >>> complete_replication(None, {"parallel": "4", "order": "RANDOM", "mapBandwidth": "2"}).task_bandwidth.render()
    '2MB'
    """
    policy = written or Replication()
    readers = (_READERS | _FLAGS).items()
    said = {PROPERTIES[name]: read(properties[name]) for name, read in readers if name in properties}
    if any(name in properties for name in PRESERVED):
        said["preserve"] = frozenset(kept for name, kept in PRESERVED.items() if _flag(properties.get(name, "")))
    return policy.model_copy(
        update={name: value for name, value in said.items() if value is not None and getattr(policy, name) is None}
    )


def unkept_properties(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return Falcon's properties that ask a copy to preserve what copies do not preserve here."""
    return tuple(name for name in WITHOUT_EFFECT if name.startswith(_PRESERVING) and _flag(properties.get(name, "")))


def unreadable_properties(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return Falcon's properties for copies whose values cannot be read."""
    return tuple(name for name, read in _READERS.items() if name in properties and read(properties[name]) is None)


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
        said |= {name: kept in policy.preserve for name, kept in PRESERVED.items()}
    return {name: _render(value) for name, value in said.items() if value is not None}


def _render(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _whole(most: int) -> Callable[[str], int | None]:
    def read(text: str) -> int | None:
        written = text.strip()
        number = int(written) if written.isdecimal() and len(written) <= _LONGEST else 0
        return number if 1 <= number <= most else None

    return read


def _rate(text: str) -> Size | None:
    megabytes = _whole(_MOST_MEGABYTES)(text)
    return None if megabytes is None else Size(megabytes * _MEGABYTE)


def _member(text: str) -> Order | None:
    return Order(text.strip().upper()) if text.strip().upper() in list(Order) else None


def _frequency(text: str) -> Frequency | None:
    try:
        return parse_frequency(text)
    except FrequencyError:
        return None


def _flag(text: str) -> bool:
    return text.strip().lower() == "true"


_READERS: dict[str, Callable[[str], object]] = {
    "parallel": _whole(MOST_PARALLEL),
    "order": _member,
    "timeout": _frequency,
    "maxMaps": _whole(MOST_TASKS),
    "mapBandwidth": _rate,
}
"""What reads each of Falcon's properties; it returns None for what it cannot read."""
_FLAGS: dict[str, Callable[[str], object]] = {
    "overwrite": _flag,
    "ignoreErrors": _flag,
    "skipChecksum": lambda text: Verification.NONE if _flag(text) else None,
    "removeDeletedFiles": lambda text: RemovedFiles.REMOVE if _flag(text) else RemovedFiles.KEEP,
}
"""The same for those that are true or, with any other text, false."""
