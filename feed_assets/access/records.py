"""What an entity says of who may do what with it."""

import re
from typing import NamedTuple

from feed_assets.entities.common import Entity
from feed_assets.entities.fields import PERMISSION

_READING = "4567r"
_ADDRESS = re.compile(r"[A-Za-z0-9._%+-]+@(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,7}")  # ann@a.example


class AclRecord(NamedTuple):
    """The owner and the group of an entity, and whether others read it. One without both belongs to superusers."""

    owner: str | None = None
    group: str | None = None
    permission: str = "*"

    @property
    def is_public(self) -> bool:
        """Whether everybody who is known reads it: by `*`, or by what others may in an octal permission, or one like
        `rwxr-x---`. What an older release took for one hides it.

        >>> [AclRecord("ann", None, each).is_public for each in ("*", "0x755", "0x750", "rwxr-xr--", "rwxr-x---")]
        [True, True, False, True, False]
        """
        if self.permission.strip() == "*":
            return True
        found = PERMISSION.fullmatch(self.permission.strip())
        return found is not None and found[found.lastindex or 0] in _READING

    @property
    def teams(self) -> tuple[str, ...]:
        """Its owner and its group as Dagster knows owners: an address, or a team.

        >>> AclRecord("ann@a.example", "etl").teams, AclRecord("ann").teams
        (('ann@a.example', 'team:etl'), ('team:ann',))
        """
        owner = self.owner if _ADDRESS.fullmatch(self.owner or "") else self.owner and f"team:{self.owner}"
        return tuple(filter(None, (owner, self.group and f"team:{self.group}")))

    @property
    def whose(self) -> str:
        """Whose it is, in sentences: `ann and the group etl`."""
        group = f"the group {self.group}" if self.group else None
        return " and ".join(filter(None, (self.owner, group))) or "superusers"


NOBODYS = AclRecord()
"""Of an entity without `acl`."""
CLOSED = AclRecord(permission="0x700")
"""Of one that cannot be read, and never could: only superusers read it."""


def acl_of(entity: Entity) -> AclRecord:
    """Return what an entity says."""
    acl = entity.acl
    return NOBODYS if acl is None else AclRecord(acl.owner, acl.group, acl.permission)
