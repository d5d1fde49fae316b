"""The combined answer of several clusters, with the failures of single clusters."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

from feed_assets.errors import FeedAssetsError
from feed_assets.sql.errors import StateError
from feed_assets.storage.errors import StorageAwayError

Item = TypeVar("Item")


class Result(StrEnum):
    """Falcon's results of a request: all clusters answered, some, or none."""

    SUCCEEDED = "SUCCEEDED"
    PARTIAL = "PARTIAL"
    FAILED = "FAILED"


class Answer:
    """What the answer of several clusters, with its `result` and `message`, says on standard error."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """What is to be said besides failures."""
        return ()

    @property
    def has_failed(self: Any) -> bool:
        """Whether a cluster failed."""
        return self.result is not Result.SUCCEEDED

    @property
    def notes(self: Any) -> tuple[str, ...]:
        """The remarks, and the failures."""
        return (*self.remarks, self.message, f"feed-assets: {self.result}" if self.has_failed else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part(Generic[Item]):
    """The answer of one cluster, or the reason why it failed."""

    cluster: str
    items: tuple[Item, ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Consolidated(Answer, Generic[Item]):
    """The parts of all clusters."""

    parts: tuple[Part[Item], ...]
    remarks: tuple[str, ...] = ()

    def document(self, name: str) -> Mapping[str, object]:
        """Return the members of the JSON form, with the items under a name."""
        return {"result": self.result.value, "message": self.message, name: self.items}

    @property
    def items(self) -> tuple[Item, ...]:
        """The items of all clusters, one cluster after the other."""
        return tuple(item for part in self.parts for item in part.items)

    @property
    def result(self) -> Result:
        """SUCCEEDED if no cluster failed, FAILED if all failed, else PARTIAL."""
        failed = sum(part.error is not None for part in self.parts)
        if not failed:
            return Result.SUCCEEDED
        return Result.FAILED if failed == len(self.parts) else Result.PARTIAL

    @property
    def message(self) -> str:
        """The failures, each as `cluster/text`; empty without any."""
        return "\n".join(f"{part.cluster}/{part.error}" for part in self.parts if part.error is not None)


def consolidate(clusters: Iterable[str], read: Callable[[str], Sequence[Item]]) -> Consolidated[Item]:
    """Ask one cluster after the other. A cluster that fails does not stop the others; an unusable state database stops
    all.

    Raises:
        StateError: the state database cannot be used.
        StorageAwayError: the storage of the only cluster is away.

    >>> from feed_assets.timing.errors import FrequencyError
    >>> def read(cluster: str) -> list[int]:
    ...     if cluster == "b":
    ...         raise FrequencyError(text="x", reason="a reason")
    ...     return [1]
    >>> consolidate(["a", "b"], read).result, consolidate(["b"], read).result
    (<Result.PARTIAL: 'PARTIAL'>, <Result.FAILED: 'FAILED'>)
    """
    parts: list[Part[Item]] = []
    asked = list(clusters)
    for cluster in asked:
        try:
            parts.append(Part(cluster=cluster, items=tuple(read(cluster))))
        except StateError:
            raise
        except FeedAssetsError as exc:
            if isinstance(exc, StorageAwayError) and len(asked) == 1:
                raise
            parts.append(Part(cluster=cluster, error=str(exc)))
    return Consolidated(parts=tuple(parts))


PAGE = 10


class Lifecycle(StrEnum):
    """The lifecycles of instances, with Falcon's names: execution of a process; the others of a feed."""

    EXECUTION = "execution"
    REPLICATION = "replication"
    IMPORT = "import"
    EXPORT = "export"
    EVICTION = "eviction"
