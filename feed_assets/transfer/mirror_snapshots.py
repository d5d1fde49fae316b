"""Keep snapshots of mirrors: named states of a mirrored directory, listed for both sides, pruned by number and age.

A snapshot is made from the manifest of a publication at the target. A snapshot of the source therefore holds verified
content, and both sides use the same name. If a run dies between the publication and the snapshot, the next run makes
the snapshot. All snapshots are kept in the target's storage: nothing is ever written at a source.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from feed_assets.entities.copies.mirror import MirrorSnapshots
from feed_assets.storage.copy_port import Snapshots
from feed_assets.storage.manifests import hidden_entries
from feed_assets.storage.pool import StorePool
from feed_assets.storage.records import Guard, Manifest, content_digest
from feed_assets.transfer.finishing import INCOMPLETE
from feed_assets.transfer.plans import Side

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
    is_new: bool = False
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
        is_new, pruned = False, []
        for shelf in Shelf:
            snapshots = self._on(shelf)
            names = snapshots.names()
            newest = max(names, key=lambda name: (taken_at(name), name), default=None)
            if newest is None or _state_of(snapshots, newest) != state:
                self.guard()
                snapshots.keep(named, manifest, with_content=shelf is Shelf.TARGET)
                names, is_new = [*names, named], True
            else:
                named = newest
            for old in decide_pruning(names, *_rule(rules, shelf), now):
                self.guard()
                snapshots.drop(old)
                pruned.append(f"{shelf}/{old}")
        return SnapshotResult(name=named, is_new=is_new, pruned=tuple(pruned))

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
        return self.stores.get(self.target.store).copying().snapshots(self.target.path, shelf.value)


def _state_of(snapshots: Snapshots, name: str) -> str | None:
    manifest = snapshots.find(name)
    return None if manifest is None else state_digest(manifest)


def _rule(rules: MirrorSnapshots, shelf: Shelf) -> tuple[int, timedelta]:
    if shelf is Shelf.SOURCE:
        return rules.source_keep, rules.source_age.as_duration()
    return rules.target_keep, rules.target_age.as_duration()
