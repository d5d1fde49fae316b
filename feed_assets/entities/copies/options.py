"""Options of copies: verification, removal and preservation; and what happens to foreign content at a publication."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated

from pydantic import PlainSerializer


class Verification(StrEnum):
    """The files that are read back at the target before it becomes visible.

    TRANSFERRED: every copied file, unless the storage proves by its own checksum that it has received the sent bytes.
    WHOLE: all of these, and the files that stay, so that damaged files are copied again. NONE: only files that were
    split or taken over from an earlier attempt, because their checksum is not known otherwise; for a file copied by the
    kernel, the checksum in the source's manifest is trusted.
    """

    TRANSFERRED = "transferred"
    WHOLE = "whole"
    NONE = "none"


class RemovedFiles(StrEnum):
    """The treatment of files at the target that the source does not have, or no longer has.

    BY_MANIFEST: remove them if the source was published as a whole, with a manifest that lists its files; keep them if
    the source is a plain set of files. REMOVE: remove them. KEEP: keep them.
    """

    BY_MANIFEST = "by-manifest"
    REMOVE = "remove"
    KEEP = "keep"


class Preserve(StrEnum):
    """File attributes that copies preserve besides the bytes, if both storages support them; only HDFS has those other
    than times and permissions.
    """

    TIMES = "times"
    PERMISSIONS = "permissions"
    OWNER = "owner"
    GROUP = "group"
    ACL = "acl"
    BLOCK_SIZE = "block-size"
    REPLICAS = "replicas"


OF_HDFS = frozenset(Preserve) - {Preserve.TIMES, Preserve.PERMISSIONS}
"""What only copies from HDFS to HDFS preserve."""

PRESERVED: Mapping[str, Preserve] = MappingProxyType(
    {
        "preserveTimes": Preserve.TIMES,
        "preservePermission": Preserve.PERMISSIONS,
        "preserveUser": Preserve.OWNER,
        "preserveGroup": Preserve.GROUP,
        "preserveAcl": Preserve.ACL,
        "preserveBlockSize": Preserve.BLOCK_SIZE,
        "preserveReplicationNumber": Preserve.REPLICAS,
    }
)
"""Falcon's properties for it."""


PreserveField = Annotated[frozenset[Preserve], PlainSerializer(sorted, return_type=list[Preserve])]
"""Always serialized in the same order, so that a definition has one digest."""

EXISTING = "feed_assets.existing"
"""The property of a process or a re-run that decides for its outputs."""


class Columns(StrEnum):
    """The decision about columns of a publication that the table or the schema of a feed does not have.

    REFUSE: nothing is published, nor if one is missing. ADD: they are added at the end. IGNORE: they are left out.
    With the last two, missing ones are null.
    """

    REFUSE = "refuse"
    ADD = "add"
    IGNORE = "ignore"


class Existing(StrEnum):
    """The decision about content that no record and no manifest knows, in the place of an instance.

    REFUSE: nothing is published. ADOPT: it becomes the instance as it is; a replica keeps the files that equal those of
    its source. REPLACE: it goes to the trash, and the instance takes its place.
    """

    REFUSE = "refuse"
    ADOPT = "adopt"
    REPLACE = "replace"
