"""Remove delivered files from a local folder: each gets a hidden name first, that no program brings another to.

Then it is compared, and gets its name back if it is another one than was read.
"""

import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from uuid import uuid4

from feed_assets.storage.checksums import checksum_of
from feed_assets.storage.deliveries import DeliveredFile, Deliveries
from feed_assets.storage.listing import Entry
from feed_assets.storage.local.calls import OBSTACLES, LocalCalls
from feed_assets.storage.local.files import entry_of, opened, read_chunks
from feed_assets.storage.refusals import Refuse, Translated

_ASIDE = re.compile(r"\.feed-assets\.[0-9a-f]{8}\.(.+)", re.DOTALL)  # ".feed-assets.0123abcd.orders.json"
_IN_USE = (FileNotFoundError, FileExistsError)


class LocalDeliveries(Deliveries):
    """A folder below a root. Each removal has hidden names of its own, so that it never meets those of another one."""

    def __init__(self, root: str, folder: str, calls: LocalCalls, refuse: Refuse) -> None:
        self._root = root
        self._folder = folder
        self._calls = calls
        self._refuse = refuse

    def find(self) -> list[Entry]:
        with self._opened() as (folder, names):
            seen = {name: found for name in names if (found := self._calls.find(folder, name)) is not None}
            return [entry_of(name, found) for name, found in seen.items() if stat.S_ISREG(found.st_mode)]

    def put_back(self) -> None:
        with self._opened() as (folder, names):
            for found in filter(None, map(_ASIDE.fullmatch, names)):
                with suppress(*_IN_USE):
                    self._calls.move(folder, found[0], folder, found[1])

    def remove(self, files: Sequence[DeliveredFile]) -> dict[str, str]:
        token = uuid4().hex[:8]
        with self._opened() as (folder, names):
            known = frozenset(names)
            there = [file for file in files if file.name in known]
            reasons = [self._remove(folder, file, f".feed-assets.{token}.{file.name}") for file in there]
        return {file.name: reason for file, reason in zip(there, reasons, strict=True) if reason is not None}

    def _remove(self, folder: int, file: DeliveredFile, aside: str) -> str | None:
        """Remove a file if it is the one that was read; return what keeps it from getting another name."""
        try:
            self._calls.move(folder, file.name, folder, aside)
        except OSError as exc:
            if exc.errno not in OBSTACLES and not isinstance(exc, FileNotFoundError):
                raise
            return OBSTACLES.get(exc.errno or 0)
        with suppress(*_IN_USE):
            if self._is_same(folder, file, aside):
                self._calls.remove_file(folder, aside)
            else:
                self._calls.move(folder, aside, folder, file.name)
        return None

    def _is_same(self, folder: int, file: DeliveredFile, aside: str) -> bool:
        found = self._calls.find(folder, aside)
        if found is None or not stat.S_ISREG(found.st_mode) or found.st_size != file.size:
            return False
        with opened(aside, os.O_RDONLY | os.O_NOFOLLOW, folder) as descriptor:
            return checksum_of(read_chunks(descriptor)) == file.checksum

    @contextmanager
    def _opened(self) -> Iterator[tuple[int, list[str]]]:
        """Open the folder, and list its names in order; one that does not exist has none."""
        with Translated(self._refuse, self._folder), ExitStack() as stack:
            folder, names = -1, list[str]()
            with suppress(FileNotFoundError):
                root = self._calls.open_root(self._root)
                stack.callback(self._calls.close, root)
                folder = stack.enter_context(self._calls.opened(root, self._folder))
                names = sorted(self._calls.list_folder(folder))
            yield folder, names
