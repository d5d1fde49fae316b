"""Snapshots of mirrors: the states that were mirrored, by name, listed for both sides and pruned by number and age.

A state becomes a snapshot when it stands at the target, from the manifest of that publication. So a snapshot of the
source is what was verified to be copied, both sides have it under one name, and a run that died in between is made good
by the next one. They are kept with the target's storage: nothing is ever written at a source.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from feed_assets.lifecycle.replication.finishing import INCOMPLETE
from feed_assets.lifecycle.replication.plans import Side
from feed_assets.lifecycle.stores import StorePool
from feed_assets.plan.records import SnapshotRules
from feed_assets.storage.manifests import hidden_entries
from feed_assets.storage.records import Guard, Manifest, content_digest
from feed_assets.storage.snapshots import Snapshots

SNAPSHOT = "snapshot"
"""The name in a manifest's `extra` that tells what its state is called."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST = 160


class Shelf(StrEnum):
    """Which side's snapshots."""

    SOURCE = "source"
    TARGET = "target"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A state of a mirrored directory; `content` is the URL where it can still be read, None if only its manifest is
    known.
    """

    name: str
    shelf: Shelf
    taken_at: datetime
    bytes: int
    files: int
    digest: str
    content: str | None


def snapshot_name(process: str, nominal_time: datetime, now: datetime) -> str:
    """The name of the state that a run makes: of the mirror, of its instance, and the millisecond.

    >>> snapshot_name("models", datetime(2015, 2, 28, 6, 30, tzinfo=UTC), datetime(2015, 2, 28, 6, 31, tzinfo=UTC))
    'models.20150228T0630Z.1425105060000'
    """
    return f"{process[:_LONGEST]}.{nominal_time:%Y%m%dT%H%MZ}.{(now - _EPOCH) // timedelta(milliseconds=1)}"


def taken_at(name: str) -> datetime:
    """When the run that made a snapshot began; 1970 for a name that is none of ours.

    >>> taken_at("models.20150228T0630Z.1425105060000").isoformat()
    '2015-02-28T06:31:00+00:00'
    """
    number = name.rpartition(".")[2]
    return _EPOCH + timedelta(milliseconds=int(number) if number.isdecimal() and len(number) < 15 else 0)


def decide_pruning(names: Sequence[str], keep: int, age: timedelta, now: datetime) -> tuple[str, ...]:
    """The snapshots that go: none of the `keep` newest, of the others those that are older than the age.

    >>> names = [f"a.20150101T0000Z.{day * 86_400_000}" for day in range(4)]
    >>> [taken_at(name).day for name in decide_pruning(names, 2, timedelta(days=3), datetime(1970, 1, 5, tzinfo=UTC))]
    [1]
    """
    newest_first = sorted(names, key=lambda name: (taken_at(name), name), reverse=True)
    return tuple(name for name in newest_first[keep:] if taken_at(name) < now - age)


def state_digest(manifest: Manifest) -> str:
    """A digest of all files of a state, hidden ones included."""
    return content_digest([*manifest.entries, *hidden_entries(manifest)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What became of the snapshots of a directory: the name of the state that stands, and those that were dropped."""

    name: str | None
    is_new: bool = False
    pruned: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SnapshotKeeper:
    """Keeps the snapshots of the mirror at `target`. `guard` is asked before each change."""

    stores: StorePool
    target: Side
    guard: Guard = lambda: None

    def settle(self, rules: SnapshotRules, name: str, now: datetime) -> Settled:
        """Make a snapshot of what stands at the target, on both sides, unless the newest is of that state; and prune.

        A state that could not be copied whole becomes none. `name` is for one that its own run did not name.
        """
        manifest = self.stores.get(self.target.store).published_manifest(self.target.path)
        if manifest is None or INCOMPLETE in manifest.extra:
            return Settled(name=None)
        state, named = state_digest(manifest), manifest.extra.get(SNAPSHOT) or name
        is_new, pruned = False, []
        for shelf in Shelf:
            snapshots = self._on(shelf)
            names = snapshots.names()
            newest = _newest(names)
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
        return Settled(name=named, is_new=is_new, pruned=tuple(pruned))

    def find_all(self) -> list[Snapshot]:
        """All snapshots, those of the source first, the newest first."""
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


def _newest(names: Sequence[str]) -> str | None:
    return max(names, key=lambda name: (taken_at(name), name), default=None)


def _state_of(snapshots: Snapshots, name: str) -> str | None:
    manifest = snapshots.find(name)
    return None if manifest is None else state_digest(manifest)


def _rule(rules: SnapshotRules, shelf: Shelf) -> tuple[int, timedelta]:
    if shelf is Shelf.SOURCE:
        return rules.source_keep, rules.source_age.as_duration()
    return rules.target_keep, rules.target_age.as_duration()
