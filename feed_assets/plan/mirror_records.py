"""What mirrors of directories compile to: frozen records."""

from dataclasses import dataclass

from feed_assets.plan.addresses import StoreAddress
from feed_assets.plan.copy_options import CopyOptions
from feed_assets.timing.frequency import Frequency


@dataclass(frozen=True, slots=True, kw_only=True)
class Directory:
    """A directory: its store and its path in it."""

    store: StoreAddress
    path: str

    @property
    def url(self) -> str:
        return f"{self.store.url.rstrip('/')}/{self.path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRules:
    """The numbers of snapshots of each side that are always kept, and the age that removes others."""

    source_keep: int
    source_age: Frequency
    target_keep: int
    target_age: Frequency


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorRecord:
    """The directories of a mirror, each (source, target) separately. `share` and `files` limit what one run removes."""

    directories: tuple[tuple[Directory, Directory], ...]
    options: CopyOptions
    share: float
    files: int
    allow_emptying: bool
    snapshots: SnapshotRules | None

    @property
    def work(self) -> str:
        """The mirrored directories, for people."""
        return ", ".join(f"{source.url} → {target.url}" for source, target in self.directories)
