"""`replication verify`: both sides of the copies of a feed compared, by manifests or byte by byte.

What retention has evicted at the target is not missing, and what it has evicted at the source is not asked for there.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from threading import Lock

from feed_assets.clock import Clock
from feed_assets.entities.copying import RemovedFiles
from feed_assets.errors import FeedAssetsError, render_some
from feed_assets.lifecycle.replication.auditing import Audit, audit_copy
from feed_assets.operations.replication.cases import Case, TargetCases, find_cases
from feed_assets.operations.replication.scope import VERSION, CopyQuery, CopyScope, find_scope, source_of
from feed_assets.operations.scene import Scene
from feed_assets.state.records import FeedInstanceStatus
from feed_assets.storage.errors import InstanceNotFoundError
from feed_assets.storage.records import Availability
from feed_assets.timing.dates import render_datetime

THREADS = 8

OnProgress = Callable[[int, int], None]
"""Called with how many instances of a target are settled, and how many there are."""


class Verdict(StrEnum):
    """What a replica was found to be.

    MISSING: the source has it, or it was copied once, and it is not there. ROTTEN: files are lost, or not what their
    manifest says. EXTRA: there is what no copy has brought, a file or the whole instance. BEHIND: the source has
    changed since. UNRECORDED: it is there, and the record does not know. UNKNOWN: a storage refused.
    KEPT: the source has it no more. WAITING: the source does not have it yet. RUNNING: it is copied now.
    """

    MISSING = "missing"
    ROTTEN = "rotten"
    EXTRA = "extra"
    BEHIND = "behind"
    UNRECORDED = "unrecorded"
    UNKNOWN = "unknown"
    IN_SYNC = "in sync"
    KEPT = "kept"
    EVICTED = "evicted"
    WAITING = "waiting"
    RUNNING = "running"

    @property
    def is_finding(self) -> bool:
        """Whether something is not as it should be."""
        return self in _FINDINGS


_FINDINGS = frozenset(
    {Verdict.MISSING, Verdict.ROTTEN, Verdict.EXTRA, Verdict.BEHIND, Verdict.UNRECORDED, Verdict.UNKNOWN}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedCopy:
    """What one replica was found to be. `source` is None for an instance that nobody copies.

    `case` is what the record has of it and `audit` what storage has; None where nothing was asked.
    """

    source: str | None
    target: str
    nominal_time: datetime
    verdict: Verdict
    status: str | None = None
    reason: str = ""
    case: Case | None = None
    audit: Audit | None = None

    def to_json(self) -> dict[str, object]:
        """The JSON form; what does not apply is left out."""
        names = ("lost", "rotten", "extra", "behind", "removed")
        files = {name: list(getattr(self.audit, name)) for name in names} if self.audit else {}
        fields: dict[str, object] = {
            "source": self.source,
            "target": self.target,
            "instance": render_datetime(self.nominal_time),
            "verdict": self.verdict.value,
            "status": self.status,
            "reason": self.reason or None,
            "files": {name: paths for name, paths in files.items() if paths} or None,
        }
        return {name: value for name, value in fields.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What was found over the nominal times `[start, stop)`; `bytes` were read for it."""

    scope: CopyScope
    is_deep: bool
    copies: tuple[VerifiedCopy, ...]
    bytes: int

    @property
    def findings(self) -> tuple[VerifiedCopy, ...]:
        """Those that are not as they should be."""
        return tuple(each for each in self.copies if each.verdict.is_finding)

    @property
    def counts(self) -> Mapping[Verdict, int]:
        """How many there are of each verdict."""
        found = Counter(each.verdict for each in self.copies)
        return {verdict: found[verdict] for verdict in Verdict if found[verdict]}

    def render_summary(self) -> str:
        """One line: what was compared, and what was found."""
        found = ", ".join(f"{count} {verdict.value}" for verdict, count in self.counts.items()) or "nothing to compare"
        span = f"{render_datetime(self.scope.start)} to {render_datetime(self.scope.stop)}"
        read = f"; {self.bytes:,} bytes read" if self.is_deep else ""
        return f"feed {self.scope.feed!r}, {span}: {found}{read}"

    def to_json(self) -> dict[str, object]:
        """The JSON form, `version` 1."""
        return {
            "version": VERSION,
            "feed": self.scope.feed,
            "start": render_datetime(self.scope.start),
            "end": render_datetime(self.scope.stop),
            "deep": self.is_deep,
            "bytesRead": self.bytes,
            "counts": {verdict.value: count for verdict, count in self.counts.items()},
            "instances": [each.to_json() for each in self.copies],
        }


def verify(
    scene: Scene, query: CopyQuery, wall: Clock, *, deep: bool = False, progress: OnProgress | None = None
) -> Verified:
    """Compare the replicas of a range with their manifests and with their sources; by target, oldest first.

    Args:
        scene: the definitions and the record.
        query: which copies.
        wall: the time of day.
        deep: read every byte of the targets, and not only names and sizes.
        progress: told how far it has come.

    Raises:
        EntityNotFoundError: there is no such feed.
        InstanceQueryError: it is not copied, or not so, or the range makes no sense.
    """
    scope = find_scope(scene, query)
    cases = find_cases(scene, scope)
    meter = _Meter()
    found: list[VerifiedCopy] = []
    with ThreadPoolExecutor(THREADS, "verify") as pool:
        checked = pool.map(lambda each: list(_verify_one(scene, each, wall, deep, meter)), cases)
        for settled, copies in enumerate(checked, 1):
            found += copies
            if progress is not None:
                progress(settled, len(cases))
    return Verified(scope=scope, is_deep=deep, copies=tuple(found), bytes=meter.bytes)


class _Meter:
    """Adds up the bytes that threads read."""

    def __init__(self) -> None:
        self.bytes = 0
        self._mutex = Lock()

    def add(self, size: int) -> None:
        with self._mutex:
            self.bytes += size


def _verify_one(scene: Scene, target: TargetCases, wall: Clock, deep: bool, meter: _Meter) -> Iterator[VerifiedCopy]:
    """All copies of one instance at a target."""
    found = [verify_case(scene, case, wall, deep=deep, on_bytes=meter.add) for case in target.cases]
    if target.is_whole and all(_is_foreign(each) for each in found):
        extra = _find_extra(scene, target)
        found = [extra] if extra is not None else found
    yield from found


def _is_foreign(copy: VerifiedCopy) -> bool:
    """Whether nothing says that this copy has, or ever had, anything to do with what stands at the target."""
    return copy.verdict is Verdict.WAITING and copy.case is not None and not copy.case.is_known_source


def _find_extra(scene: Scene, target: TargetCases) -> VerifiedCopy | None:
    """An instance at a target that no source has or ever had."""
    record = target.record
    copy = VerifiedCopy(
        source=None,
        target=record.cluster,
        nominal_time=target.nominal_time,
        verdict=Verdict.EXTRA,
        reason="no source has it, or ever had",
    )
    try:
        (look,) = scene.stores.get(record.store).look([record.path(target.nominal_time)], None)
    except FeedAssetsError as exc:
        return replace(copy, verdict=Verdict.UNKNOWN, reason=str(exc))
    return None if look.availability is Availability.MISSING else copy


def verify_case(
    scene: Scene, case: Case, wall: Clock, *, deep: bool = False, on_bytes: Callable[[int], None] | None = None
) -> VerifiedCopy:
    """Compare one copy. A storage that refuses makes it UNKNOWN."""
    copy = VerifiedCopy(
        source=source_of(case.flow),
        target=case.flow.cluster,
        nominal_time=case.nominal_time,
        verdict=Verdict.UNKNOWN,
        status=case.status,
        case=case,
    )
    if case.is_evicted or case.is_running:
        return replace(copy, verdict=Verdict.EVICTED if case.is_evicted else Verdict.RUNNING)
    try:
        audit = audit_copy(
            scene.stores,
            case.source(scene),
            case.target,
            case.options,
            wall,
            deep=deep,
            is_new=case.at_target is None,
            others=case.others,
            on_bytes=on_bytes,
        )
    except InstanceNotFoundError as exc:  # gone since it was listed
        return replace(copy, verdict=Verdict.MISSING, reason=str(exc))
    except FeedAssetsError as exc:
        return replace(copy, reason=str(exc))
    verdict, reason = decide_verdict(case, audit)
    return replace(copy, verdict=verdict, reason=reason, audit=audit)


def decide_verdict(case: Case, audit: Audit) -> tuple[Verdict, str]:
    """What a replica is, and in what way."""
    if audit.replica is None and not audit.rotten:
        return _decide_without_replica(case, audit)
    wrong = _describe({"lost": audit.lost, "rotten": audit.rotten})
    extra = () if case.options.removed_files is RemovedFiles.KEEP else audit.extra
    if wrong:
        return Verdict.ROTTEN, "; ".join(filter(None, [wrong, _describe({"extra": extra})]))
    if extra:
        return Verdict.EXTRA, _describe({"extra": extra})
    if not audit.has_source:
        return Verdict.KEPT, audit.reason or "retention has evicted it at the source"
    if audit.behind or audit.removed:
        names = {"not as at the source": audit.behind, "not at the source any more": audit.removed}
        return Verdict.BEHIND, _describe(names)
    if not case.was_copied or case.at_target is None or case.at_target.status is FeedInstanceStatus.MISSING:
        return Verdict.UNRECORDED, "the record does not know of it"
    return Verdict.IN_SYNC, ""


def _decide_without_replica(case: Case, audit: Audit) -> tuple[Verdict, str]:
    there = "what stands there was not copied from this source" if audit.is_there else "nothing is there"
    if audit.has_source:
        return Verdict.MISSING, there
    if case.was_copied:
        return Verdict.MISSING, f"{there}, and the source has it no more"
    return Verdict.WAITING, audit.reason


def _describe(files: Mapping[str, tuple[str, ...]]) -> str:
    """How many files have something, and the names of some.

    >>> _describe({"lost": ("a", "b"), "rotten": ()})
    '2 lost (a, b)'
    """
    return ", ".join(f"{len(paths)} {what} ({render_some(paths, 3)})" for what, paths in files.items() if paths)
