"""The partitions of a table as a tree of folders, one level a key, in whatever order a path names the keys."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from feed_assets.storage.partition_names import Keys, spellings
from feed_assets.storage.port import Choose, FolderNames

Values = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTree:
    """What a walk below a base is shown: `open_keys` are those that the base does not name."""

    keys: Keys
    open_keys: tuple[str, ...]
    depth: int
    choose: Choose

    def walk(self, partitions: Sequence[Values]) -> Iterator[FolderNames]:
        """What was chosen, in folders relative to the base; partitions that no path can name are passed over."""
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
