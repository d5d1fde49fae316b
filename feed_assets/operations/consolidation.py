"""One answer from several clusters: what each had to say, and whether all of them could."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from feed_assets.errors import FeedAssetsError
from feed_assets.state.errors import StateError

Item = TypeVar("Item")


class Result(StrEnum):
    """Falcon's results of a request: all clusters answered, some, or none."""

    SUCCEEDED = "SUCCEEDED"
    PARTIAL = "PARTIAL"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part(Generic[Item]):
    """What one cluster had to say, or why it could not."""

    cluster: str
    items: tuple[Item, ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Consolidated(Generic[Item]):
    """The parts of all clusters."""

    parts: tuple[Part[Item], ...]

    @property
    def items(self) -> tuple[Item, ...]:
        """What all clusters had to say, one after the other."""
        return tuple(item for part in self.parts for item in part.items)

    @property
    def result(self) -> Result:
        """SUCCEEDED if no cluster failed, FAILED if all did, else PARTIAL."""
        failed = sum(part.error is not None for part in self.parts)
        if not failed:
            return Result.SUCCEEDED
        return Result.FAILED if failed == len(self.parts) else Result.PARTIAL

    @property
    def message(self) -> str:
        """What went wrong, each as `cluster/text`; empty if nothing did."""
        return "\n".join(f"{part.cluster}/{part.error}" for part in self.parts if part.error is not None)


def consolidate(clusters: Iterable[str], read: Callable[[str], Sequence[Item]]) -> Consolidated[Item]:
    """Ask one cluster after the other; one that fails takes no other along. The record belongs to all of them.

    Raises:
        StateError: the state database refused.

    >>> from feed_assets.timing.errors import FrequencyError
    >>> def read(cluster: str) -> list[int]:
    ...     if cluster == "b":
    ...         raise FrequencyError(text="x", reason="a reason")
    ...     return [1]
    >>> consolidate(["a", "b"], read).result, consolidate(["b"], read).result
    (<Result.PARTIAL: 'PARTIAL'>, <Result.FAILED: 'FAILED'>)
    """
    parts: list[Part[Item]] = []
    for cluster in clusters:
        try:
            parts.append(Part(cluster=cluster, items=tuple(read(cluster))))
        except StateError:
            raise
        except FeedAssetsError as exc:
            parts.append(Part(cluster=cluster, error=str(exc)))
    return Consolidated(parts=tuple(parts))
