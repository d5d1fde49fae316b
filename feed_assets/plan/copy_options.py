"""What can be asked of a copy."""

from dataclasses import dataclass
from enum import StrEnum

from feed_assets.entities.copying import Preserve, RemovedFiles, Verification


class OnError(StrEnum):
    """What happens when a file of the source cannot be read.

    STOP: the copy ends at the first. REPORT: all others are copied and kept for the next try, every failure is named,
    and nothing is published, because a part of an instance is no instance. PUBLISH, for directories that are no
    instances: what could be copied is published without an availability flag and says that it is incomplete; the files
    that failed stay as they stood.
    """

    STOP = "stop"
    REPORT = "report"
    PUBLISH = "publish"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyOptions:
    """The options of a copy.

    `sub_path` is the part of the instance that is copied, a partition sub-path, possibly with globs; `include` and
    `exclude` are globs on the paths below the instance (see `CopyFilter`). What the filter does not name is neither
    copied nor removed at the target. `hidden` also copies what readers pass over (`_metadata`, `.crc`).
    `overwrite` transfers every file, `removed_files` says what becomes of what the source does not have (any more).
    `quick` takes a source that was published by this program for unchanged if its publication is the same; otherwise
    all its files are listed. `allow_emptying`: a source without flag and manifest that has no files any more may empty
    a target that has some. `instance_flag` writes the flag of the whole instance, too, where only a part is copied.
    `bandwidth` is in bytes a second, over all tasks and for each. A source that changes is copied `tries` times.

    Differs from Falcon: the target is replaced as a whole, also where files stay.
    """

    verification: Verification = Verification.TRANSFERRED
    on_error: OnError = OnError.STOP
    sub_path: str = ""
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    hidden: bool = False
    overwrite: bool = False
    removed_files: RemovedFiles = RemovedFiles.BY_MANIFEST
    quick: bool = True
    allow_emptying: bool = False
    instance_flag: bool = False
    preserve: frozenset[Preserve] = frozenset()
    bandwidth: int | None = None
    task_bandwidth: int | None = None
    max_tasks: int = 5
    tries: int = 3
