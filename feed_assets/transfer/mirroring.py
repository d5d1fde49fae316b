"""Run mirrors: make undated directories equal to their sources, within limits on the files removed, and keep snapshots.

A snapshot is a named state, pruned by number and age. It is made from the manifest of a publication at the target. A
snapshot of the source therefore holds verified content, and both sides use the same name. If a run dies between the
publication and the snapshot, the next run makes the snapshot. All snapshots are kept in the target's storage: nothing
is ever written at a source.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

from feed_assets.clock import Clock
from feed_assets.engines.port import Engine, Work, WorkReport
from feed_assets.entities.copies.mirror import MirrorSnapshots
from feed_assets.errors import FeedAssetsError, render_some
from feed_assets.plan.copy_records import Directory, MirrorRecord
from feed_assets.storage.copy_port import Snapshots
from feed_assets.storage.errors import InstanceNotFoundError, PathRefusedError
from feed_assets.storage.manifests import hidden_entries
from feed_assets.storage.pool import StorePool
from feed_assets.storage.records import Clearing, Guard, Manifest, content_digest, describe_displaced
from feed_assets.transfer.copying import copy_many
from feed_assets.transfer.errors import (
    APPROVAL,
    ForeignTargetError,
    MirrorEmptiedError,
    MirrorFailedError,
    RemovalLimitError,
    TargetRefusedError,
)
from feed_assets.transfer.executors import run_where_worth
from feed_assets.transfer.finishing import INCOMPLETE
from feed_assets.transfer.plans import CopyPlan, Side, plan_copy
from feed_assets.transfer.requests import Copied, CopyRequest, CopyStatus, OnProgress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SNAPSHOT = "snapshot"
"""The key in a manifest's `extra` for the snapshot name of its state."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST = 160


class Shelf(StrEnum):
    """The side to which a list of snapshots belongs."""

    SOURCE = "source"
    TARGET = "target"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A snapshot of a mirrored directory. `content` is the URL of its files; None if only its manifest is kept."""

    name: str
    shelf: Shelf
    taken_at: datetime
    bytes: int
    files: int
    digest: str
    content: str | None


def snapshot_name(process: str, nominal_time: datetime, now: datetime) -> str:
    """Return the name of a run's snapshot: the mirror, the nominal time, and the start of the run in milliseconds.

    >>> snapshot_name("models", datetime(2015, 2, 28, 6, 30, tzinfo=UTC), datetime(2015, 2, 28, 6, 31, tzinfo=UTC))
    'models.20150228T0630Z.1425105060000'
    """
    return f"{process[:_LONGEST]}.{nominal_time:%Y%m%dT%H%MZ}.{(now - _EPOCH) // timedelta(milliseconds=1)}"


def taken_at(name: str) -> datetime:
    """Return when the run that made a snapshot began; 1970 for any other name.

    >>> taken_at("models.20150228T0630Z.1425105060000").isoformat()
    '2015-02-28T06:31:00+00:00'
    """
    number = name.rpartition(".")[2]
    return _EPOCH + timedelta(milliseconds=int(number) if number.isdecimal() and len(number) < 15 else 0)


def decide_pruning(names: Sequence[str], keep: int, age: timedelta, now: datetime) -> tuple[str, ...]:
    """Return the snapshots to remove: those older than `age`, except the `keep` newest.

    >>> names = [f"a.20150101T0000Z.{day * 86_400_000}" for day in range(4)]
    >>> [taken_at(name).day for name in decide_pruning(names, 2, timedelta(days=3), datetime(1970, 1, 5, tzinfo=UTC))]
    [1]
    """
    newest_first = sorted(names, key=lambda name: (taken_at(name), name), reverse=True)
    return tuple(name for name in newest_first[keep:] if taken_at(name) < now - age)


def state_digest(manifest: Manifest) -> str:
    """Return a digest of all files of a state with their names, including hidden ones."""
    files = [*manifest.entries, *hidden_entries(manifest)]
    return content_digest([each._replace(path=f"{each.path}/") for each in files])  # a folder of each name


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotResult:
    """The snapshots of a directory after a run: the name of the current state, and the names of those removed."""

    name: str | None
    pruned: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SnapshotKeeper:
    """Keeps the snapshots of the mirror at `target`. `guard` is called before each change."""

    stores: StorePool
    target: Side
    guard: Guard = lambda: None

    def update(self, rules: MirrorSnapshots, name: str, now: datetime) -> SnapshotResult:
        """Snapshot the current state of the target on both sides, unless the newest snapshot has this state; prune.

        An incomplete state gets no snapshot. `name` is used if the manifest does not name its snapshot.
        """
        manifest = self.stores.get(self.target.store).published_manifest(self.target.path)
        if manifest is None or INCOMPLETE in manifest.extra:
            return SnapshotResult(name=None)
        state, named = state_digest(manifest), manifest.extra.get(SNAPSHOT) or name
        pruned = []
        for shelf in Shelf:
            snapshots = self._on(shelf)
            names = snapshots.names()
            newest = max(names, key=lambda name: (taken_at(name), name), default=None)
            if newest is None or _state_of(snapshots, newest) != state:
                self.guard()
                snapshots.keep(named, manifest, with_content=shelf is Shelf.TARGET)
                names = [*names, named]
            else:
                named = newest
            for old in decide_pruning(names, *_rule(rules, shelf), now):
                self.guard()
                snapshots.drop(old)
                pruned.append(f"{shelf}/{old}")
        return SnapshotResult(name=named, pruned=tuple(pruned))

    def find_all(self) -> list[Snapshot]:
        """Return all snapshots: the source's before the target's, each newest first."""
        return [found for shelf in Shelf for found in self._find_on(shelf)]

    def _find_on(self, shelf: Shelf) -> list[Snapshot]:
        snapshots, found = self._on(shelf), []
        for name in sorted(snapshots.names(), key=taken_at, reverse=True):
            manifest = snapshots.find(name)
            if manifest is not None:
                hidden = hidden_entries(manifest)
                found.append(
                    Snapshot(
                        name=name,
                        shelf=shelf,
                        taken_at=taken_at(name),
                        bytes=manifest.bytes + sum(entry.size for entry in hidden),
                        files=manifest.files + len(hidden),
                        digest=state_digest(manifest),
                        content=snapshots.content(name),
                    )
                )
        return found

    def _on(self, shelf: Shelf) -> Snapshots:
        return self.stores.get(self.target.store).snapshots(self.target.path, shelf.value)


def _state_of(snapshots: Snapshots, name: str) -> str | None:
    manifest = snapshots.find(name)
    return None if manifest is None else state_digest(manifest)


def _rule(rules: MirrorSnapshots, shelf: Shelf) -> tuple[int, timedelta]:
    if shelf is Shelf.SOURCE:
        return rules.source_keep, rules.source_age.as_duration()
    return rules.target_keep, rules.target_age.as_duration()


_LISTED_FAILURES = 5

Details = Mapping[str, str | int | float]


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorEngine(Engine):
    """Runs mirrors. `guard` is called before each visible change; `clock` is the real clock.

    `clearing_of` returns the rules for what stands at a target, where what no mirror has written goes to the trash.

    Large copies run on the executors of the session. `is_remote` marks a session of Spark Connect, whose executors
    cannot run the Python code of feed-assets.
    """

    mirror: MirrorRecord
    stores: StorePool
    clock: Clock
    guard: Guard
    clearing_of: Callable[[Directory], Clearing]
    is_remote: bool = False
    on_progress: OnProgress | None = None

    def run(self, work: Work, session: "Callable[[], SparkSession]") -> WorkReport:
        """Mirror each directory separately. A failed one does not stop the others; the attempt fails at the end.

        Raises:
            CopyError: a directory could not be mirrored; its target was not changed.
            StorageError: a storage refused.
            FencedOutError: another worker took over; this attempt made nothing visible after that.
        """
        name = snapshot_name(work.process, work.nominal_time, self.clock.now())
        approved = parse_approval(work.properties.get(APPROVAL))
        extra = {"process": work.process, "run": work.run_id}
        if self.mirror.snapshots is not None:
            extra[SNAPSHOT] = name
        requests = [
            CopyRequest(
                source=_side(source),
                target=_side(target),
                guard=partial(self._guard, _side(target)),
                extra=extra,
                check=partial(check_plan, self.stores, self.mirror, approved),
                clearing=self.clearing_of(target),
            )
            for source, target in self.mirror.directories
        ]
        options = self.mirror.options
        run_tasks = run_where_worth(session, is_remote=self.is_remote)
        outcomes = copy_many(
            self.stores, requests, options, self.clock, run_tasks=run_tasks, on_progress=self.on_progress
        )
        done: dict[str, Copied] = {}
        failures: dict[str, Exception] = {}
        snapshots = []
        for (source, target), outcome in zip(self.mirror.directories, outcomes, strict=True):
            if isinstance(outcome, Exception):
                failures[source.url] = outcome
                continue
            done[source.url] = outcome
            if self.mirror.snapshots is not None:
                keeper = SnapshotKeeper(self.stores, _side(target), self.guard)
                snapshots.append(keeper.update(self.mirror.snapshots, name, self.clock.now()))
        _raise_failures(failures, len(self.mirror.directories))
        return WorkReport(outputs=(), details=describe_mirror(list(done.values()), snapshots))

    def _guard(self, target: Side) -> None:
        self.guard()
        _require_replaceable(self.stores, target)


def plan_mirror(
    stores: StorePool, mirror: MirrorRecord, clock: Clock, approved: int | None = None
) -> Iterator[tuple[CopyPlan | None, FeedAssetsError | None]]:
    """Yield the plan of a run for each directory, and why the run would do nothing. Writes nothing; `clock` is the real
    clock.
    """
    for source, target in mirror.directories:
        plan: CopyPlan | None = None
        try:
            plan = plan_copy(stores, _side(source), _side(target), mirror.options, clock)
            check_plan(stores, mirror, approved, plan)
        except FeedAssetsError as exc:
            yield plan, exc
        else:
            yield plan, None


def check_plan(stores: StorePool, mirror: MirrorRecord, approved: int | None, plan: CopyPlan) -> None:
    """Check that a directory may be mirrored as planned.

    `approved` is the number of files that may be removed regardless of the limits, or replaced although foreign.

    Raises:
        MirrorEmptiedError: the source has no files, the target has files, and nothing says that this is intended.
        RemovalLimitError: more files would be removed than the limits allow.
        ForeignTargetError: files would be replaced or removed that no mirror has written.
        TargetRefusedError: the target must not be replaced as a whole: it is a link, or has something of others in it.
    """
    target, standing, removed = plan.target, count_standing(plan), len(plan.removed)
    url = stores.get(target.store).url(target.path)
    is_approved = approved is not None and removed <= approved
    if standing and not plan.survey.files and not mirror.allow_emptying and not (is_approved and removed):
        raise MirrorEmptiedError(url=plan.source_url, target=url, files=standing)
    limit = find_limit(mirror, removed, standing)
    if limit is not None and not is_approved:
        raise RemovalLimitError(target=url, removed=removed, standing=standing, limit=limit)
    if not plan.is_unchanged:
        _require_replaceable(stores, target)
    if not plan.is_unchanged and not plan.standing:
        with suppress(InstanceNotFoundError):
            try:
                stores.get(target.store).all_files(target.path)  # raises for all but plain files: these would be lost
            except PathRefusedError as exc:
                raise TargetRefusedError(url=url, reason=exc.reason) from exc
    lost = removed + len(plan.replaced)
    if plan.is_foreign and lost and (approved is None or lost > approved):
        raise ForeignTargetError(target=url, files=lost)


def find_limit(mirror: MirrorRecord, removed: int, standing: int) -> str | None:
    """Return the limit that a removal exceeds, as a clause for a message; None if it exceeds none."""
    if removed > mirror.limits.share * standing:
        return f"more than the share {mirror.limits.share:g}"
    return f"more than {mirror.limits.files:,}" if removed > mirror.limits.files else None


def count_standing(plan: CopyPlan) -> int:
    """Return the number of files at the target, as far as a plan had to list them."""
    return len(plan.kept) + len(plan.replaced) + len(plan.removed)


def parse_approval(text: str | None) -> int | None:
    """Parse the number of removals that a property approves; return None if it is not a number.

    >>> parse_approval("1234"), parse_approval("all")
    (1234, None)
    """
    plain = (text or "").strip().replace(",", "").replace("_", "")
    return int(plain) if plain.isdecimal() and len(plain) < 16 else None


def describe_mirror(copies: Sequence[Copied], snapshots: Sequence[SnapshotResult]) -> Details:
    """Return the figures of a run over all directories, as its Dagster partition shows them."""
    size, seconds = sum(copied.bytes for copied in copies), max((copied.seconds for copied in copies), default=0.0)
    failures = [failure for copied in copies for failure in copied.failures]
    listed = [f"{failure.file}: {failure.reason}" for failure in failures[:_LISTED_FAILURES]]
    skipped = tuple(path for each in copies for path in each.skipped)
    pruned = [name for each in snapshots for name in each.pruned]
    displaced = [copied.displaced for copied in copies if copied.displaced is not None]
    return {
        "copy": _status(copies).value,
        "copied_bytes": size,
        "copied_files": sum(copied.files for copied in copies),
        "removed_files": sum(len(copied.removed) for copied in copies),
        **describe_displaced(displaced),
        "copy_seconds": round(seconds, 3),
        "bandwidth": round(size / seconds) if seconds > 0 else 0,
        "source": ", ".join(copied.source_url for copied in copies),
        "target": ", ".join(copied.target_url for copied in copies),
        "verification": copies[0].verification.value if copies else "",
        **({"resumed_bytes": resumed} if (resumed := sum(copied.resumed for copied in copies)) else {}),
        **({"failed_files": len(failures), "failures": "; ".join(listed)} if failures else {}),
        **({"skipped": render_some(skipped, 3)} if skipped else {}),
        **({"snapshot": ", ".join(str(each.name) for each in snapshots if each.name)} if snapshots else {}),
        **({"pruned_snapshots": ", ".join(pruned)} if pruned else {}),
    }


def _require_replaceable(stores: StorePool, target: Side) -> None:
    store = stores.get(target.store)
    if (obstacle := store.find_obstacle(target.path)) is not None:
        raise TargetRefusedError(url=store.url(target.path), reason=obstacle)


def _status(copies: Sequence[Copied]) -> CopyStatus:
    for status in (CopyStatus.INCOMPLETE, CopyStatus.COPIED):
        if any(copied.status is status for copied in copies):
            return status
    return CopyStatus.UNCHANGED


def _side(directory: Directory) -> Side:
    return Side(store=directory.store, path=directory.path)


def _raise_failures(failures: Mapping[str, Exception], total: int) -> None:
    if not failures:
        return
    first = next(iter(failures.values()))
    if total == 1:
        raise first
    raise MirrorFailedError(failures=failures, total=total) from first
