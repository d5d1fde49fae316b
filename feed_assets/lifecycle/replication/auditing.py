"""Both sides of a copy compared: is all at the target that its manifest says, and is that what the source has now?

Nothing is written, but that a publication which broke off is brought to its end by whoever looks.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from feed_assets.clock import Clock
from feed_assets.lifecycle.errors import SourceEmptiedError, SourceNotAvailableError
from feed_assets.lifecycle.replication.filters import CopyFilter
from feed_assets.lifecycle.replication.plans import (
    CopyPlan,
    Replica,
    Side,
    copy_filter,
    copy_flags,
    nanoseconds,
    parse_replica,
    plan_copy,
    replica_key,
)
from feed_assets.lifecycle.stores import StorePool
from feed_assets.plan.copy_options import CopyOptions
from feed_assets.storage.checksums import checksum_of
from feed_assets.storage.copy_port import Reading
from feed_assets.storage.errors import InstanceChangingError, InstanceNotFoundError, ManifestError
from feed_assets.storage.manifests import hidden_entries
from feed_assets.storage.paths import MANIFEST_NAME, is_content
from feed_assets.storage.records import Availability, ManifestEntry

_TRIES = 3

OnBytes = Callable[[int], None]
"""Called with how many bytes more have been read; by several threads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What is wrong with a replica, file by file.

    `is_there`: something stands at the target; `replica` is what its manifest says of the source that it was copied
    from, None where nothing of that source is there. Against the manifest files are `lost`, `rotten` (another size, or
    other bytes) or `extra`. Against the source they are `behind`: a copy would bring them; or `removed`: a copy would
    take them away. `hopeless` are the rotten ones that the source does not have (any more), and a copy would keep.
    `plan` is what a repair would do; None where there is no whole instance at the source, for the `reason` given.
    """

    is_there: bool
    replica: Replica | None = None
    lost: tuple[str, ...] = ()
    rotten: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    hopeless: tuple[str, ...] = ()
    plan: CopyPlan | None = None
    reason: str = ""

    @property
    def distrusted(self) -> frozenset[str]:
        """What a repair must not believe the manifest of the target."""
        return frozenset({*self.lost, *self.rotten, *self.extra}) - frozenset(self.hopeless)

    @property
    def has_source(self) -> bool:
        """Whether there is a whole instance at the source."""
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
    on_bytes: OnBytes | None = None,
) -> Audit:
    """Compare a replica with its manifest and its source.

    Args:
        stores: has both sides.
        source: None if there is none any more; then the target is compared with its manifest only.
        target: where the replica should be.
        options: those of the copy.
        clock: the wall clock.
        deep: read every byte of the target, and not only its names and sizes.
        is_new: nothing was ever copied there, so a storage whose root is not there is no one that is not mounted.
        others: the parts that other copies bring to the same target; what they name is their business.
        on_bytes: told of what was read.

    Raises:
        InstanceChangingError: the target does not hold still.
        StorageError: a storage refused, or is not there.
    """
    copying = stores.get(target.store).copying()
    if is_new and _is_nothing_there(stores, target):
        found = Audit(is_there=False)
        return found if source is None else _compare(stores, source, target, options, clock, found)
    for _ in range(_TRIES):
        mark = copying.mark(target.path)
        found = _audit_target(stores, target, options, clock, deep, others, on_bytes)
        if copying.mark(target.path) == mark:
            return found if source is None else _compare(stores, source, target, options, clock, found)
    raise InstanceChangingError(
        store=target.store.url, path=target.path, reason="others publish it again and again while it is looked at"
    )


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
    on_bytes: OnBytes | None,
) -> Audit:
    """The target against its manifest."""
    store, part = stores.get(target.store), copy_filter(options)
    survey = store.copying().survey(target.path, None, nanoseconds(clock.now()), everything=True)
    standing = {file.path: file.size for file in survey.files}
    try:
        manifest = store.published_manifest(target.path)
    except ManifestError:
        return Audit(is_there=True, rotten=(MANIFEST_NAME,))
    replica = parse_replica(manifest.extra.get(replica_key(part.name))) if manifest else None
    if manifest is None or replica is None:
        return Audit(is_there=survey.availability is not Availability.MISSING)
    entries = {entry.path: entry for entry in (*manifest.entries, *hidden_entries(manifest))}
    mine = {path: entry for path, entry in entries.items() if part.matches(path)}
    lost = {path for path in mine if path not in standing}
    lost |= {flag for flag in copy_flags(target, part, options) if flag not in standing}
    rotten = {path for path, entry in mine.items() if path in standing and standing[path] != entry.size}
    if deep:
        unread = [entry for path, entry in mine.items() if entry.checksum and path not in lost | rotten]
        gone, damaged = _read(stores, target, unread, on_bytes)
        lost, rotten = lost | gone, rotten | damaged
    extra = {
        path
        for path in standing
        if path not in entries
        and is_content(path, target.flag)
        and not path.endswith(f"/{target.flag}")
        and (part.matches(path) or not any(other.matches(path) for other in others))
    }
    return Audit(
        is_there=True,
        replica=replica,
        lost=tuple(sorted(lost)),
        rotten=tuple(sorted(rotten)),
        extra=tuple(sorted(extra)),
    )


def _read(
    stores: StorePool, target: Side, entries: Sequence[ManifestEntry], on_bytes: OnBytes | None
) -> tuple[set[str], set[str]]:
    """Read files whole: which of them are gone, and which have other bytes than their manifest says."""
    lost: set[str] = set()
    rotten: set[str] = set()
    with stores.get(target.store).copying().reading(target.path) as reading:
        for entry in entries:
            try:
                checksum = _checksum(reading, entry, on_bytes)
            except InstanceNotFoundError:
                lost.add(entry.path)
            else:
                if checksum != entry.checksum:
                    rotten.add(entry.path)
    return lost, rotten


def _checksum(reading: Reading, entry: ManifestEntry, on_bytes: OnBytes | None) -> str:
    def chunks() -> Iterator[bytes | memoryview]:
        for chunk in reading.chunks(entry.path, 0, entry.size + 1):
            yield chunk
            if on_bytes is not None:
                on_bytes(len(chunk))

    return checksum_of(chunks(), like=entry.checksum)


def _compare(stores: StorePool, source: Side, target: Side, options: CopyOptions, clock: Clock, found: Audit) -> Audit:
    """What was found out of the target, and what the source has that is not there."""
    wrong = {*found.lost, *found.rotten, *found.extra}
    try:
        plan = plan_copy(stores, source, target, replace(options, overwrite=False), clock, found.distrusted)
    except (SourceNotAvailableError, SourceEmptiedError) as exc:
        return replace(found, reason=str(exc))
    kept = {each.path for each in plan.kept}
    return replace(
        found,
        behind=tuple(file.path for file in plan.transfers if file.path not in wrong),
        removed=tuple(path for path in plan.removed if path not in wrong),
        hopeless=tuple(path for path in found.rotten if path in kept),
        plan=plan,
    )
