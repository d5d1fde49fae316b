"""The choices that replication and mirrors share: what is verified, removed and preserved."""

from enum import StrEnum
from typing import Annotated

from pydantic import PlainSerializer


class Verification(StrEnum):
    """What is read back at the target before it becomes visible.

    TRANSFERRED: every file that was copied, unless the storage proves by a checksum of its own that it has what was
    sent. WHOLE: all of these, and those that stay, so that what has rotted there is brought again. NONE: only what was
    split or taken over from an earlier try, because its checksum is not known otherwise; of a file that the kernel
    copied that of the source's manifest is believed.
    """

    TRANSFERRED = "transferred"
    WHOLE = "whole"
    NONE = "none"


class RemovedFiles(StrEnum):
    """What becomes of files at the target that the source does not have (any more).

    BY_MANIFEST: they go where the source was published as a whole, with a manifest that says what belongs to it, and
    stay where files just lie there. REMOVE: they go. KEEP: they stay.
    """

    BY_MANIFEST = "by-manifest"
    REMOVE = "remove"
    KEEP = "keep"


class Preserve(StrEnum):
    """What copies keep beside bytes, where both storages know it."""

    TIMES = "times"
    PERMISSIONS = "permissions"


PreserveField = Annotated[frozenset[Preserve], PlainSerializer(sorted, return_type=list[Preserve])]
"""Always written alike, so that a definition has one digest."""
