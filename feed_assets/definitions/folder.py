"""Definition files in a folder, a single file, or an fsspec URL of either."""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any

from feed_assets.definitions.errors import DefinitionStoreError, FileRefusedError
from feed_assets.loading.entity_files import EntityFile, is_entity_file, read_entity_files

_WHOLE_OBJECTS = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "memory"})
"""Protocols that show an object whole or not at all."""

_TEMPORARY = "feed-assets-tmp"


class DefinitionFolder(ABC):
    """The location where definitions are read and written. Files are named by their path below it, with `/`.

    `read_file`, `write` and `remove` act on one file. A reader sees either the old or the new file, never a part of it.
    Writes and removals survive a crash of the machine. Only one process may write at a time; callers ensure this.

    Raises:
        FileRefusedError: a name leads out of the folder, is hidden, or is not the name of a definition file.
        DefinitionStoreError: the filesystem refused the operation.
    """

    @property
    @abstractmethod
    def location(self) -> str:
        """The path or URL."""

    @property
    @abstractmethod
    def only_file(self) -> str | None:
        """The name of the single file that contains all definitions; None if the location is a folder."""

    @abstractmethod
    def exists(self) -> bool:
        """Return whether the location exists. Writing the first file creates it."""

    @abstractmethod
    def name_of(self, shown: str) -> str:
        """Return the name of a file from its name in messages."""

    @abstractmethod
    def shown(self, name: str) -> str:
        """Return the name of a file in messages; the inverse of `name_of`."""

    def read(self) -> tuple[EntityFile, ...]:
        """Read all files in their present state, under their names in messages.

        Raises:
            LocationUnreadableError: the location does not exist or cannot be read.
        """
        return read_entity_files(self.location)

    def read_file(self, name: str) -> bytes | None:
        """Return the content of a file; None if there is no such file."""
        with self._translated(name):
            return self._read(self._checked(name))

    def write(self, name: str, content: bytes) -> None:
        """Write a file as a whole, replacing the old one."""
        with self._translated(name):
            self._write(self._checked(name), content)

    def remove(self, name: str) -> None:
        """Remove a file. Has no effect if the file does not exist."""
        with self._translated(name):
            self._remove(self._checked(name))

    def owner_of(self, name: str) -> str | None:  # noqa: ARG002
        """Return the name of the user who owns a file; None if the filesystem has no owners."""
        return None

    def _checked(self, name: str) -> str:
        parts = name.split("/")
        if self.only_file is not None and name != self.only_file:
            raise FileRefusedError(location=self.location, file=name, reason="the definitions are in a single file")
        if "" in parts or "\0" in name or "\\" in name:
            raise FileRefusedError(location=self.location, file=name, reason="it is not a path below a folder")
        if any(part.startswith(".") for part in parts):
            raise FileRefusedError(location=self.location, file=name, reason="a part of it begins with a dot")
        if not is_entity_file(name):
            raise FileRefusedError(location=self.location, file=name, reason="it has another suffix")
        return name

    @contextmanager
    def _translated(self, name: str) -> Iterator[None]:
        try:
            yield
        except (OSError, ImportError, ValueError) as exc:
            raise DefinitionStoreError(
                location=self.location,
                reason=f"the file {name!r} cannot be used: {exc}",
                next_step="Check the address, the permissions and the free space.",
            ) from exc

    @abstractmethod
    def _read(self, name: str) -> bytes | None: ...

    @abstractmethod
    def _write(self, name: str, content: bytes) -> None: ...

    @abstractmethod
    def _remove(self, name: str) -> None: ...


def open_folder(location: str | Path) -> DefinitionFolder:
    """Return the folder of a path or an fsspec URL. Nothing is read yet, and it need not exist.

    >>> open_folder("/etc/entities").shown("feed/clicks.yaml")
    '/etc/entities/feed/clicks.yaml'
    """
    text = str(location)
    return _Remote(text) if "://" in text else _Local(Path(text))


class _Local(DefinitionFolder):
    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        self._is_file = self._path.is_file() or (is_entity_file(self._path.name) and not self._path.exists())
        self._root = self._path.parent if self._is_file else self._path

    @property
    def location(self) -> str:
        return str(self._path)

    @property
    def only_file(self) -> str | None:
        return self._path.name if self._is_file else None

    def exists(self) -> bool:
        return self._path.exists()

    def name_of(self, shown: str) -> str:
        root = f"{self._root}/"
        return shown.removeprefix(root) if shown.startswith(root) else self._name_from_here(shown)

    def shown(self, name: str) -> str:
        file, here = self._root / name, Path.cwd()
        return str(file.relative_to(here)) if file.is_relative_to(here) else str(file)

    def _name_from_here(self, shown: str) -> str:
        return Path(shown).absolute().relative_to(self._root).as_posix()

    def owner_of(self, name: str) -> str | None:
        try:
            return (self._root / name).owner()
        except (OSError, KeyError, NotImplementedError):
            return None

    def _read(self, name: str) -> bytes | None:
        try:
            return self._inside(name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _write(self, name: str, content: bytes) -> None:
        file = self._inside(name)
        _make_folder(file.parent)
        temporary = self._temporary(file)
        with temporary.open("wb") as stream:
            with suppress(FileNotFoundError):
                os.fchmod(stream.fileno(), file.stat().st_mode & 0o7777)
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(file)
        _sync_folder(file.parent)

    def _remove(self, name: str) -> None:
        file = self._inside(name)
        self._temporary(file).unlink(missing_ok=True)
        with suppress(FileNotFoundError, NotADirectoryError):
            file.unlink()
            _sync_folder(file.parent)

    def _inside(self, name: str) -> Path:
        """Return the target of a link, which must be inside the folder; otherwise the path of the file itself."""
        file = (self._root / name).resolve()
        if not file.is_relative_to(self._root.resolve()):
            raise FileRefusedError(location=self.location, file=name, reason="a link leads it out of the folder")
        return file

    @staticmethod
    def _temporary(file: Path) -> Path:
        """Return a fixed temporary name for each file, so that the next write overwrites the rest of an interrupted
        one.
        """
        return file.with_name(f".{file.name}.{_TEMPORARY}")


def _make_folder(folder: Path) -> None:
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class _Remote(DefinitionFolder):
    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._is_file = is_entity_file(PurePosixPath(self._url).name) and not self._fs().isdir(self._path())
        self._base = self._url.rpartition("/")[0] if self._is_file else self._url

    @property
    def location(self) -> str:
        return self._url

    @property
    def only_file(self) -> str | None:
        return PurePosixPath(self._url).name if self._is_file else None

    def exists(self) -> bool:
        fs = self._fs()
        fs.invalidate_cache()
        return bool(fs.exists(self._path()))

    def name_of(self, shown: str) -> str:
        return shown.removeprefix(f"{self._base}/")

    def shown(self, name: str) -> str:
        return f"{self._base}/{name}"

    def _read(self, name: str) -> bytes | None:
        fs = self._fs()
        fs.invalidate_cache()
        try:
            content: bytes = fs.cat_file(self._below(name))
        except FileNotFoundError:
            return None
        return content

    def _write(self, name: str, content: bytes) -> None:
        fs, path = self._fs(), self._below(name)
        protocols = {fs.protocol} if isinstance(fs.protocol, str) else set(fs.protocol)
        if protocols & _WHOLE_OBJECTS:
            fs.pipe_file(path, content)
            return
        folder, _, base = path.rpartition("/")
        temporary = f"{folder}/.{base}.{_TEMPORARY}"
        fs.makedirs(folder, exist_ok=True)
        fs.pipe_file(temporary, content)
        fs.mv(temporary, path)

    def _remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._fs().rm_file(self._below(name))

    def _fs(self) -> Any:
        import fsspec  # imported here because only URLs need it

        return fsspec.core.url_to_fs(self._url)[0]

    def _path(self) -> str:
        import fsspec

        path: str = fsspec.core.url_to_fs(self._url)[1]
        return path

    def _below(self, name: str) -> str:
        root = self._path().rpartition("/")[0] if self._is_file else self._path().rstrip("/")
        return f"{root}/{name}"
