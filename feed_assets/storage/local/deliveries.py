"""Remove delivered files from a local folder: each is moved aside first, where no name can bring another, and compared.

What is another goes back. Each removal has a folder of its own, so that it never meets what another one has moved.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from uuid import uuid4

from feed_assets.storage.checksums import checksum_of
from feed_assets.storage.deliveries import DeliveredFile, Deliveries
from feed_assets.storage.listing import Entry
from feed_assets.storage.local.calls import OBSTACLES, LocalCalls
from feed_assets.storage.local.files import entry_of, opened, read_chunks
from feed_assets.storage.local.tree import make_directories
from feed_assets.storage.paths import CONTROL_FOLDER, path_name
from feed_assets.storage.refusals import Refuse, Translated

_GONE = (FileNotFoundError, FileExistsError)


class LocalDeliveries(Deliveries):
    """A folder below a root. What is moved aside has a place of its own for each `shelf`."""

    def __init__(self, root: str, folder: str, shelf: str, calls: LocalCalls, refuse: Refuse) -> None:
        self._root = root
        self._folder = folder
        self._shelf = f"{CONTROL_FOLDER}/inboxes/{path_name(shelf)}"
        self._calls = calls
        self._refuse = refuse

    def find(self) -> list[Entry]:
        with self._translated(), suppress(FileNotFoundError), self._opened(self._folder) as (folder,):
            names = sorted(self._calls.list_folder(folder))
            seen = {name: found for name in names if (found := self._calls.find(folder, name)) is not None}
            return [entry_of(name, found) for name, found in seen.items() if stat.S_ISREG(found.st_mode)]
        return []

    def put_back(self) -> None:
        with (
            self._translated(),
            suppress(FileNotFoundError),
            self._opened(self._folder, self._shelf) as (folder, shelf),
        ):
            for token in self._calls.list_folder(shelf):
                with suppress(FileNotFoundError), self._calls.opened(shelf, token) as aside:
                    for name in self._calls.list_folder(aside):
                        with suppress(*_GONE):
                            self._calls.move(aside, name, folder, name)
                self._drop(shelf, token)

    def remove(self, files: Sequence[DeliveredFile]) -> dict[str, str]:
        refused: dict[str, str] = {}
        token = uuid4().hex
        with self._translated():
            make_directories(f"{self._root}/{self._shelf}/{token}")
            with suppress(FileNotFoundError), self._opened(self._folder, f"{self._shelf}/{token}") as (folder, aside):
                for file in files:
                    reason = self._remove(folder, aside, file)
                    if reason is not None:
                        refused[file.name] = reason
            with suppress(FileNotFoundError), self._opened(self._shelf) as (shelf,):
                self._drop(shelf, token)
        return refused

    def _remove(self, folder: int, aside: int, file: DeliveredFile) -> str | None:
        """Move a file aside and remove it, or put it back if it is another; return what keeps it from being moved."""
        try:
            self._calls.move(folder, file.name, aside, file.name)
        except FileNotFoundError:
            return None
        except OSError as exc:
            if exc.errno not in OBSTACLES:
                raise
            return OBSTACLES[exc.errno]
        with suppress(*_GONE):
            if self._is_same(aside, file):
                self._calls.remove_file(aside, file.name)
            else:
                self._calls.move(aside, file.name, folder, file.name)
        return None

    def _is_same(self, folder: int, file: DeliveredFile) -> bool:
        found = self._calls.find(folder, file.name)
        if found is None or not stat.S_ISREG(found.st_mode) or found.st_size != file.size:
            return False
        with opened(file.name, os.O_RDONLY | os.O_NOFOLLOW, folder) as descriptor:
            return checksum_of(read_chunks(descriptor)) == file.checksum

    def _drop(self, shelf: int, token: str) -> None:
        """Remove the place of one removal; it stays while it holds a file whose name is in use."""
        with suppress(OSError):
            self._calls.remove_folder(shelf, token)

    @contextmanager
    def _opened(self, *paths: str) -> Iterator[list[int]]:
        """Open folders below the root. Raises `FileNotFoundError` if one of them does not exist."""
        with ExitStack() as stack:
            root = self._calls.open_root(self._root)
            stack.callback(self._calls.close, root)
            yield [stack.enter_context(self._calls.opened(root, path)) for path in paths]

    def _translated(self) -> Translated:
        return Translated(self._refuse, self._folder)
