"""Where storages are."""

from dataclasses import dataclass, field

from feed_assets.entities.maps import EMPTY, FrozenMap


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAddress:
    """Where a filesystem is: an fsspec URL and its options, hashable so that one store is opened once."""

    url: str
    options: FrozenMap[str, object] = field(default=EMPTY, repr=False)
