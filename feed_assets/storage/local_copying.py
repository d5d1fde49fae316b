"""A local store as the source and target of copies."""
# System calls on text and descriptors.
# ruff: noqa: PTH112, PTH114, PTH120

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice

from feed_assets.storage.copy_port import Assembly, Copying, Reading, Standing, Survey
from feed_assets.storage.local_assembly import LocalAssembly, Swap
from feed_assets.storage.local_calls import LocalCalls, find_mounts, is_network, touches_mount
from feed_assets.storage.local_reader import LocalReader
from feed_assets.storage.local_reading import LocalSources
from feed_assets.storage.local_refusals import Refuse, Translated
from feed_assets.storage.local_slot import Slot
from feed_assets.storage.local_snapshots import LocalSnapshots
from feed_assets.storage.local_tree import flush_file
from feed_assets.storage.manifests import Publication
from feed_assets.storage.paths import CONTROL_FOLDER, parse_path, parse_token
from feed_assets.storage.snapshots import Snapshots

_WORTH_FLUSHING_ALL = 64


class LocalCopying(Copying):
    """Copies from and to instances below a root. `recover` and `swap` are those of the store."""

    def __init__(
        self,
        root: str,
        root_url: str,
        calls: LocalCalls,
        reader: LocalReader,
        recover: Callable[[str], bool],
        swap: Swap,
        refuse: Refuse,
    ) -> None:
        self._root = root
        self._root_url = root_url
        self._calls = calls
        self._reader = reader
        self._recover = recover
        self._swap = swap
        self._refuse = refuse
        self._sources = LocalSources(root, root_url, reader)

    @property
    def is_remote(self) -> bool:
        return is_network(self._root)

    def survey(self, path: str, flag: str | None, now: int, *, everything: bool = False) -> Survey:
        with self._translated(path):
            return self._sources.survey(path, flag, now, everything)

    def mark(self, path: str) -> str:
        with self._translated(path):
            return self._sources.mark(path)

    def standing(self, path: str) -> Standing:
        assembly = self._assembly(path, "look")  # which recovers it
        return Standing(self.mark(path), assembly.standing(), is_unfinished=False)

    def recover(self, path: str) -> bool:
        return self._recover(path)

    def find_publication(self, path: str, flags: Sequence[str]) -> Publication | None:
        with self._translated(path):
            return self._sources.find_publication(path, flags)

    @contextmanager
    def reading(self, path: str) -> Iterator[Reading]:
        with self._translated(path), self._sources.reading(path) as reading:
            yield reading

    def assembly(self, path: str, token: str) -> Assembly:
        return self._assembly(path, token)

    def _assembly(self, path: str, token: str) -> LocalAssembly:
        plain, target = parse_path(self._root_url, path), self._reader.target(path)
        check = partial(self._reader.check_inside, plain, os.path.dirname(target))
        self._recover(plain)
        slot = Slot.at(f"{self._root}/{CONTROL_FOLDER}", parse_token(self._root_url, token), plain)
        return LocalAssembly(plain, token, slot, target, self._root_url, check, self._swap, self._refuse)

    def find_obstacle(self, path: str) -> str | None:
        plain, target = parse_path(self._root_url, path), self._reader.target(path)
        with self._translated(path):
            if os.path.islink(target):
                return "it is a symbolic link"
            if os.path.lexists(target) and not os.path.isdir(target):
                return "it is no directory"
            mounts = find_mounts(self._root)
        return "something is mounted on it, in it or around it" if touches_mount(plain, mounts) else None

    def snapshots(self, path: str, shelf: str) -> Snapshots:
        plain = parse_path(self._root_url, path)
        return LocalSnapshots(self._root, self._root_url, self._calls, plain, shelf, self._refuse)

    def flush(self, assemblies: Sequence[Assembly]) -> None:
        """Flush what is staged and was swapped; the whole filesystem at once where that is many files."""
        local = [each for each in assemblies if isinstance(each, LocalAssembly)]
        with self._translated(""):
            touched = list(islice((path for each in local for path in each.touched()), _WORTH_FLUSHING_ALL + 1))
            if len(touched) <= _WORTH_FLUSHING_ALL:
                for path in touched:
                    flush_file(path)
                return
            folder = self._calls.open_root(self._root)
            try:
                self._calls.flush_all(folder)
            finally:
                self._calls.close(folder)

    def _translated(self, path: str) -> Translated:
        return Translated(self._refuse, path)
