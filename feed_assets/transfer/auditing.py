"""Audit replicas: compare a target with its manifest and with the current content of its source.

An audit writes nothing, with one exception: an interrupted publication is finished by the first reader that finds it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from feed_assets.clock import Clock
from feed_assets.plan.copy_records import CopyOptions
from feed_assets.storage.checksums import checksum_of
from feed_assets.storage.errors import InstanceChangingError, InstanceNotFoundError, ManifestError
from feed_assets.storage.listing import nanoseconds
from feed_assets.storage.manifests import hidden_entries
from feed_assets.storage.paths import MANIFEST_NAME, is_content
from feed_assets.storage.pool import StorePool
from feed_assets.storage.records import Availability, ManifestEntry
from feed_assets.transfer.errors import NothingSelectedError, SourceEmptiedError, SourceNotAvailableError
from feed_assets.transfer.plans import (
    CopyFilter,
    CopyPlan,
    Replica,
    Side,
    copy_filter,
    copy_flags,
    parse_replica,
    plan_copy,
    replica_key,
    without_shortcuts,
)

_TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The faults of a replica, file by file.

    `is_there` says whether anything exists at the target. `digest` is that of the manifest. `replica` is the manifest's
    record of the source; None if nothing at the target was copied from that source. Compared with the manifest, files
    are `lost`, `rotten` (size or bytes differ) or `extra`. Compared with the source, files are `behind` (a copy would
    transfer them) or `removed` (a copy would remove them). `hopeless` are rotten files that the source no longer has
    and a copy would keep. `plan` is the repair; None if nothing can be copied, and then `reason` says why, unless no
    source was given; `source_state` is the state of a source without a complete instance. `read` is the number of bytes
    of the target that were read.
    """

    is_there: bool
    digest: str | None = None
    replica: Replica | None = None
    lost: tuple[str, ...] = ()
    rotten: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    hopeless: tuple[str, ...] = ()
    plan: CopyPlan | None = None
    reason: str = ""
    source_state: str = ""
    read: int = 0

    @property
    def distrusted(self) -> frozenset[str]:
        """The files for which a repair must not trust the manifest of the target."""
        return frozenset({*self.lost, *self.rotten, *self.extra}) - frozenset(self.hopeless)

    @property
    def has_source(self) -> bool:
        """Whether the source has a complete instance."""
        return self.plan is not None


def audit_copy(
    stores: StorePool,
    source: Side | None,
    target: Side,
    options: CopyOptions,
    clock: Clock,
    *,
    deep: bool = False,
    is_new: bool = False,
    others: Sequence[CopyFilter] = (),
) -> Audit:
    """Compare a replica with its manifest and its source.

    Args:
        stores: the pool that opens both sides.
        source: None if the source no longer exists; the target is then compared with its manifest only.
        target: the expected location of the replica.
        options: the options of the copy.
        clock: the real clock.
        deep: read every byte of the target, instead of names and sizes only.
        is_new: nothing was ever copied to this target, so a missing storage root does not mean an unmounted storage.
        others: the parts that other copies write to the same target; files in these parts are not `extra`.

    Raises:
        InstanceChangingError: the target changes during the audit.
        StorageError: a storage refused, or does not exist.
    """
    store = stores.get(target.store)
    if is_new and _is_nothing_there(stores, target):
        found = Audit(is_there=False)
        return found if source is None else _compare(stores, source, target, options, clock, found)
    for _ in range(_TRIES):
        mark = store.mark(target.path)
        found = _audit_target(stores, target, options, clock, deep, others)
        if store.mark(target.path) == mark:
            return found if source is None else _compare(stores, source, target, options, clock, found)
    raise InstanceChangingError(
        store=target.store.url, path=target.path, reason="others publish it again and again while it is looked at"
    )


def audit_publication(stores: StorePool, place: Side, clock: Clock) -> Audit:
    """Compare an instance with the manifest of its publication, reading every byte. Without a manifest, nothing is.

    Raises:
        StorageError: the storage refused, or does not exist.
    """
    return _audit_target(stores, place, CopyOptions(), clock, deep=True, others=(), is_copy=False)


def _is_nothing_there(stores: StorePool, target: Side) -> bool:
    (look,) = stores.get(target.store).look([target.path], None)
    return look.availability is Availability.MISSING


def _audit_target(
    stores: StorePool,
    target: Side,
    options: CopyOptions,
    clock: Clock,
    deep: bool,
    others: Sequence[CopyFilter],
    *,
    is_copy: bool = True,
) -> Audit:
    """Compare the target with its manifest."""
    store, part = stores.get(target.store), copy_filter(options)
    store.require_root()
    survey = store.survey(target.path, None, nanoseconds(clock.now()), everything=True)
    existing = {file.path: file.size for file in survey.files}
    try:
        manifest = store.published_manifest(target.path)
    except ManifestError:
        return Audit(is_there=True, rotten=(MANIFEST_NAME,))
    replica = parse_replica(manifest.extra.get(replica_key(part.name))) if manifest else None
    if manifest is None or (replica is None and is_copy):
        return Audit(is_there=survey.availability is not Availability.MISSING)
    entries = {entry.path: entry for entry in (*manifest.entries, *hidden_entries(manifest))}
    part_entries = {path: entry for path, entry in entries.items() if part.matches(path)}
    lost = {path for path in part_entries if path not in existing}
    lost |= {flag for flag in copy_flags(target, options) if flag not in existing and is_copy}
    rotten = {path for path, entry in part_entries.items() if path in existing and existing[path] != entry.size}
    read = 0
    if deep:
        unread = [entry for path, entry in part_entries.items() if entry.checksum and path not in lost | rotten]
        gone, damaged = _read(stores, target, unread)
        lost, rotten = lost | gone, rotten | damaged
        read = sum(entry.size for entry in unread if entry.path not in gone)
    extra = {
        path
        for path in existing
        if path not in entries
        and is_content(path, target.flag)
        and not path.endswith(f"/{target.flag}")
        and (part.matches(path) or not any(other.matches(path) for other in others))
    }
    return Audit(
        is_there=True,
        digest=manifest.digest,
        replica=replica,
        lost=tuple(sorted(lost)),
        rotten=tuple(sorted(rotten)),
        extra=tuple(sorted(extra)),
        read=read,
    )


def _read(stores: StorePool, target: Side, entries: Sequence[ManifestEntry]) -> tuple[set[str], set[str]]:
    """Read files to their end; return the lost ones and those whose bytes differ from the manifest."""
    lost: set[str] = set()
    rotten: set[str] = set()
    with stores.get(target.store).reading(target.path) as reading:
        for entry in entries:
            try:
                checksum = checksum_of(reading.chunks(entry.path), like=entry.checksum)
            except InstanceNotFoundError:
                lost.add(entry.path)
            else:
                if checksum != entry.checksum:
                    rotten.add(entry.path)
    return lost, rotten


def _compare(stores: StorePool, source: Side, target: Side, options: CopyOptions, clock: Clock, found: Audit) -> Audit:
    """Complete the audit of the target with the differences from its source."""
    wrong = {*found.lost, *found.rotten, *found.extra}
    try:
        plan = plan_copy(stores, source, target, without_shortcuts(options), clock, found.distrusted)
    except SourceNotAvailableError as exc:
        return replace(found, reason=str(exc), source_state=exc.availability)
    except (SourceEmptiedError, NothingSelectedError) as exc:
        return replace(found, reason=str(exc))
    kept = {each.path for each in plan.kept}
    return replace(
        found,
        behind=tuple(file.path for file in plan.transfers if file.path not in wrong),
        removed=tuple(path for path in plan.removed if path not in wrong),
        hopeless=tuple(path for path in found.rotten if path in kept),
        plan=plan,
    )
