"""Addresses of storages."""

from dataclasses import dataclass, field

from feed_assets.entities.maps import EMPTY, FrozenMap


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAddress:
    """The address of a filesystem: an fsspec URL and its options, hashable so that each store is opened once."""

    url: str
    options: FrozenMap[str, object] = field(default=EMPTY, repr=False)
