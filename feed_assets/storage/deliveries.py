"""The port to one folder in which others put files, and from which they are taken."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from feed_assets.storage.listing import Entry


class DeliveredFile(NamedTuple):
    """A file whose content is known: its version when it was read, its size, and the checksum of what was read."""

    name: str
    version: str
    size: int
    checksum: str


WRITTEN = "another version was written over what was listed"


class Deliveries(ABC):
    """One folder, in which others may write and rename at any moment. Every method raises `StorageError`."""

    @abstractmethod
    def find(self) -> list[Entry]:
        """List the files directly in the folder, by name, with few requests; links and folders are no files."""

    @abstractmethod
    def chunks(self, name: str, version: str) -> Iterator[bytes | memoryview]:
        """Read a file of the version that `find` has listed, from start to end.

        Raises `InstanceChangingError` if it has another version by now, before or after it was read. Object storages
        read on that condition, with one request.
        """

    def put_back(self) -> None:  # noqa: B027 - not every removal moves it aside
        """Put back what an interrupted `remove` has moved aside, unless another file has its place by now."""

    @abstractmethod
    def remove(self, files: Sequence[DeliveredFile]) -> dict[str, str]:
        """Remove files that are still those that were read; return why others cannot be removed, by name.

        A file of the same name that came since stays, whenever it comes; at storages without conditional removals, one
        that comes between a comparison and the removal behind it may not.
        """
