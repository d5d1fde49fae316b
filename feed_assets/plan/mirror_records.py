"""What mirrors of directories compile to: frozen records."""

from dataclasses import dataclass

from feed_assets.entities.mirror import MirrorSnapshots
from feed_assets.plan.addresses import StoreAddress
from feed_assets.plan.copy_options import CopyOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Directory:
    """A directory: its store and its path in it."""

    store: StoreAddress
    path: str

    @property
    def url(self) -> str:
        return f"{self.store.url.rstrip('/')}/{self.path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorRecord:
    """The directories of a mirror, each (source, target) separately. `share` and `files` limit what one run removes."""

    directories: tuple[tuple[Directory, Directory], ...]
    options: CopyOptions
    share: float
    files: int
    allow_emptying: bool
    snapshots: MirrorSnapshots | None

    @property
    def work(self) -> str:
        """The mirrored directories, for people."""
        return ", ".join(f"{source.url} → {target.url}" for source, target in self.directories)
