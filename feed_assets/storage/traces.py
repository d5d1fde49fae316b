"""The port to traces: small documents in a store's hidden folder that outlive the state database."""

from abc import ABC, abstractmethod

FOLDER = "holds"
SUFFIX = ".json"


class Traces(ABC):
    """The traces of holds on the data of one store, below `.feed-assets/holds/`. Names follow the rule of tokens.

    Every method raises `StorageError` if the storage refuses.
    """

    @abstractmethod
    def names(self) -> frozenset[str]:
        """Return the names of all traces; none if the root of the store does not exist."""

    @abstractmethod
    def find(self, name: str) -> bytes | None:
        """Return the content of a trace; None if it does not exist."""

    @abstractmethod
    def keep(self, name: str, content: bytes) -> None:
        """Save a trace atomically; it is on disk on return. Never creates the root: it may be an unmounted storage."""

    @abstractmethod
    def drop(self, name: str) -> None:
        """Remove a trace, if it exists."""
