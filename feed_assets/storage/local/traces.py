"""Keep traces on a local filesystem: one file each, written aside and renamed."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from feed_assets.storage.local.calls import LocalCalls
from feed_assets.storage.local.tree import make_directories
from feed_assets.storage.paths import CONTROL_FOLDER, parse_token
from feed_assets.storage.refusals import Refuse, Translated
from feed_assets.storage.traces import FOLDER, SUFFIX, Traces

_AREA = f"{CONTROL_FOLDER}/{FOLDER}"


class LocalTraces(Traces):
    """The traces of a store at `root`, an absolute directory."""

    def __init__(self, root: str, root_url: str, calls: LocalCalls, refuse: Refuse) -> None:
        self._root = root
        self._root_url = root_url
        self._calls = calls
        self._refuse = refuse

    def names(self) -> frozenset[str]:
        with self._translated(), suppress(FileNotFoundError), self._opened() as folder:
            found = [name for name in self._calls.list_folder(folder) if not name.startswith(".")]
            return frozenset(name.removesuffix(SUFFIX) for name in found if name.endswith(SUFFIX))
        return frozenset()

    def find(self, name: str) -> bytes | None:
        with self._translated(), suppress(FileNotFoundError), self._opened() as folder:
            return self._calls.read_file(folder, self._file(name))
        return None

    def keep(self, name: str, content: bytes) -> None:
        file, draft = self._file(name), f".{uuid.uuid4().hex}"
        with self._translated():
            self._calls.close(self._calls.open_root(self._root))
            make_directories(f"{self._root}/{_AREA}")
            with self._opened() as folder:
                self._calls.write_file(folder, draft, content)
                self._calls.replace(folder, draft, file)
                self._calls.flush_folder(folder)

    def drop(self, name: str) -> None:
        with self._translated(), suppress(FileNotFoundError), self._opened() as folder:
            self._calls.remove_file(folder, self._file(name))
            self._calls.flush_folder(folder)

    def _file(self, name: str) -> str:
        return f"{parse_token(self._root_url, name)}{SUFFIX}"

    @contextmanager
    def _opened(self) -> Iterator[int]:
        root = self._calls.open_root(self._root)
        try:
            with self._calls.opened(root, _AREA) as folder:
                yield folder
        finally:
            self._calls.close(root)

    def _translated(self) -> Translated:
        return Translated(self._refuse, _AREA)
