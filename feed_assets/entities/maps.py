"""An immutable map. Models use it instead of a dict, so that an entity is an immutable value at every level."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, SerializerFunctionWrapHandler, WrapSerializer

K = TypeVar("K")
V = TypeVar("V")


class FrozenMap(Mapping[K, V]):
    """An immutable, hashable map that keeps its order; maps inside it are frozen too.

    >>> FrozenMap({"a": {"b": 1}}) == {"a": {"b": 1}}
    True
    """

    __slots__ = ("_hash", "_items")

    def __init__(self, items: Mapping[K, V]) -> None:
        self._items: dict[K, V] = {key: _frozen(value) for key, value in items.items()}
        self._hash: int | None = None

    def __getitem__(self, key: K) -> V:
        return self._items[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self._items.items()))
        return self._hash

    def __repr__(self) -> str:
        return repr(self._items)

    def __reduce__(self) -> tuple[type["FrozenMap[K, V]"], tuple[dict[K, V]]]:
        return type(self), (self._items,)


def _frozen(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    return FrozenMap(value) if isinstance(value, Mapping) and not isinstance(value, FrozenMap) else value


def _thawed(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _thawed(item) for key, item in value.items()}
    return list(map(_thawed, value)) if isinstance(value, tuple) else value


def _serialized(value: Mapping[Any, Any], handler: SerializerFunctionWrapHandler) -> Any:
    return handler({key: _thawed(item) for key, item in value.items()})


Map = Annotated[Mapping[K, V], AfterValidator(FrozenMap), WrapSerializer(_serialized)]
"""The type of map fields."""

EMPTY: FrozenMap[Any, Any] = FrozenMap({})
