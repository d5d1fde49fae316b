"""Trees to copy: instances side by side below one folder, each with files of one size."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from feed_assets.storage.copy_port import CHUNK
from feed_assets.storage.manifests import read_entry, render_manifest
from feed_assets.storage.paths import MANIFEST_NAME
from feed_assets.storage.records import Manifest, ManifestEntry

_BLOCK = os.urandom(1 << 20)


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """A number of files with their size in bytes."""

    count: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedTree:
    """A number of instances with the same files."""

    root: Path
    instances: int
    kinds: tuple[Files, ...]

    @property
    def paths(self) -> list[str]:
        """Return the paths of the instances below the root."""
        return [f"{number:05d}" for number in range(self.instances)]

    @property
    def files(self) -> int:
        """The number of files."""
        return self.instances * sum(kind.count for kind in self.kinds)

    @property
    def bytes(self) -> int:
        """The number of bytes."""
        return self.instances * sum(kind.count * kind.size for kind in self.kinds)

    def make(self) -> None:
        """Write all files; no two have the same content."""
        for path in self.paths:
            os.makedirs(f"{self.root}/{path}")  # noqa: PTH103 - thousands of them
            for name, size in self._names():
                _write(f"{self.root}/{path}/{name}", size, f"{path} {name}")

    def publish(self, paths: Iterable[str] | None = None) -> None:
        """Write the manifests of published instances, by default for all instances."""
        for path in self.paths if paths is None else paths:
            folder = f"{self.root}/{path}"
            entries = [_read(folder, name) for name, _ in self._names()]
            Path(folder, MANIFEST_NAME).write_bytes(render_manifest(Manifest.of(entries)))

    def change(self, paths: Iterable[str], count: int | None, what: str) -> None:
        """Rewrite the first `count` files (None: all) of instances with other content."""
        for path in paths:
            for name, size in self._names()[:count]:
                _write(f"{self.root}/{path}/{name}", size, f"{what} {path} {name}")

    def _names(self) -> list[tuple[str, int]]:
        return [
            (f"part-{kind}-{number:05d}.bin", files.size)
            for kind, files in enumerate(self.kinds)
            for number in range(files.count)
        ]


def count_files(folder: Path) -> int:
    """Count the files below a folder, without hidden ones."""
    found = 0
    for _, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += sum(not name.startswith(".") for name in files)
    return found


def _write(path: str, size: int, begin: str) -> None:
    with open(path, "wb") as file:  # noqa: PTH123 - hundreds of thousands of them
        left = size - file.write(begin.encode()[:size])
        while left > 0:
            left -= file.write(_BLOCK[:left])


def _read(folder: str, name: str) -> ManifestEntry:
    with open(f"{folder}/{name}", "rb") as file:  # noqa: PTH123
        return read_entry(name, iter(lambda: file.read(CHUNK), b""))
