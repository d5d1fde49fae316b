"""Present the partitions of a table as a tree of folders with one level per key, in every order of the keys."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from feed_assets.storage.port import Choose, FolderNames
from feed_assets.storage.table.partition_names import Keys, spellings

Values = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTree:
    """The tree of partitions below a base path; `open_keys` are the keys that the base does not name."""

    keys: Keys
    open_keys: tuple[str, ...]
    depth: int
    choose: Choose

    def walk(self, partitions: Sequence[Values]) -> Iterator[FolderNames]:
        """Yield the chosen names in folders relative to the base; skip partitions that no path can name."""
        if self.depth == len(self.open_keys):
            yield from self._walk(partitions, "", self.open_keys)

    def _walk(self, partitions: Sequence[Values], below: str, open_keys: tuple[str, ...]) -> Iterator[FolderNames]:
        shown: dict[str, tuple[str, list[Values]]] = {}
        for key in open_keys:
            named: dict[str, list[Values]] = defaultdict(list)
            for values in partitions:
                if "/" not in values[key]:
                    for spelled in spellings({key: values[key]}, self.keys):
                        named[f"{key}={spelled[key]}"].append(values)
            shown |= {name: (key, found) for name, found in named.items()}
        if not shown:
            return
        prefix = f"{below}/" if below else ""
        chosen = [name for name in self.choose(below, list(shown)) if name in shown]
        if len(open_keys) == 1:
            yield FolderNames(prefix, chosen)
            return
        for name in chosen:
            key, found = shown[name]
            yield from self._walk(found, prefix + name, tuple(each for each in open_keys if each != key))
