"""Define the results of copies."""

from dataclasses import dataclass, field
from enum import StrEnum

from feed_assets.entities.copies.options import Verification
from feed_assets.storage.manifests import Publication
from feed_assets.storage.records import Displaced
from feed_assets.transfer.running import Failure


class CopyStatus(StrEnum):
    """The status of a finished copy."""

    COPIED = "copied"
    UNCHANGED = "unchanged"
    INCOMPLETE = "incomplete"


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """The result of a copy.

    `bytes` and `files` count the transferred content; an earlier try had transferred `resumed` of these bytes.
    `source_digest` is the digest of the copied content. `publication` describes the whole instance at the target.
    `displaced` went from the target to the trash. `failures` are the files that could not be copied (INCOMPLETE, see
    `OnError`). `skipped` are pipes, sockets and devices of the source, which are not copied. `seconds` is the time from
    the plan to the publication.
    """

    status: CopyStatus
    source_url: str
    target_url: str
    bytes: int = 0
    files: int = 0
    resumed: int = 0
    kept: int = 0
    removed: tuple[str, ...] = ()
    displaced: Displaced | None = None
    source_digest: str = ""
    verification: Verification
    failures: tuple[Failure, ...] = ()
    skipped: tuple[str, ...] = ()
    tries: int = 1
    seconds: float = 0.0
    publication: Publication | None = field(default=None, repr=False)

    @property
    def bandwidth(self) -> float:
        """Bytes per second."""
        return self.bytes / self.seconds if self.seconds > 0 else 0.0
