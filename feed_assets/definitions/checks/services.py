"""Services for live checks, opened once, on first use: a Java machine, catalogs, fetched files."""

import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from feed_assets.engines.errors import ServiceError
from feed_assets.entities.bundle import Bundle
from feed_assets.errors import FeedAssetsError

if TYPE_CHECKING:
    from feed_assets.engines.java.catalogs import Catalog
    from feed_assets.engines.java.machine import JavaMachine

T = TypeVar("T")


class _Once(Generic[T]):
    """Makes a value on first use; later callers get the same value, or the same error."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._made: list[T] = []
        self._error: FeedAssetsError | None = None

    def get(self) -> T:
        with self._lock:
            if self._error is not None:
                raise self._error
            if not self._made:
                try:
                    self._made.append(self._make())
                except FeedAssetsError as exc:
                    self._error = exc
                    raise
            return self._made[0]

    def find_made(self) -> T | None:
        return self._made[0] if self._made else None


class Outside:
    """The services of one round of checks; `close` ends the started ones. It is thread-safe. `root` is the project's
    folder. With `prepares`, absent optional folders are made.
    """

    def __init__(self, bundle: Bundle, *, root: Path, environ: Mapping[str, str], prepares: bool) -> None:
        self.bundle = bundle
        self.root = root
        self.environ = environ
        self.prepares = prepares
        self._machine = _Once(_start_java)
        self._folder = _Once(lambda: Path(tempfile.mkdtemp(prefix="feed-assets-checks-")))
        self._catalogs: dict[str, _Once[Catalog]] = {}
        self._lock = threading.Lock()

    def java(self) -> "JavaMachine":
        """Return the Java machine. Raises ServiceError if it cannot be started."""
        return self._machine.get()

    def catalog(self, address: str) -> "Catalog":
        """Return the catalog of an address. Raises ServiceError if it does not answer."""
        with self._lock:
            once = self._catalogs.setdefault(address, _Once(lambda: self._open_catalog(address)))
        return once.get()

    def fetch(self, name: str) -> Path:
        """Return a file of the project, or of a URL, as a local file. Raises ServiceError if it does not exist."""
        if "://" not in name or name.startswith("file://"):
            file = self.root / name.removeprefix("file://")
            if not file.is_file():
                raise ServiceError(service=name, reason=f"{file} is not a file", next_step="Correct the path.")
            return file
        import fsspec

        target = self._folder.get() / f"{len(list(self._folder.get().iterdir()))}-{name.rpartition('/')[2]}"
        try:
            with fsspec.open(name, "rb") as source, target.open("wb") as copy:
                shutil.copyfileobj(source, copy)
        except (OSError, ImportError, ValueError) as exc:
            raise ServiceError(
                service=name, reason=f"it cannot be fetched: {exc}", next_step="Check the address."
            ) from exc
        return target

    def close(self) -> None:
        """End the started services."""
        machine, folder = self._machine.find_made(), self._folder.find_made()
        if machine is not None:
            machine.close()
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    def _open_catalog(self, address: str) -> "Catalog":
        from feed_assets.engines.java.catalogs import Catalog

        return Catalog(self.java(), address)


def _start_java() -> "JavaMachine":
    from feed_assets.engines.java.machine import JavaMachine

    return JavaMachine()
