"""Who asks: a user of a server, whoever runs a command, or the system."""

import os
import pwd
from dataclasses import dataclass

from feed_assets.operation import Does


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """In whose name something is done: the author of history and audit.

    `groups` are proven, by a token, a proxy or an issuer; never those of the machine. `may` limits what is granted
    otherwise. `asked_by` is who has asked on behalf of `name`, if anybody did.
    """

    name: str
    groups: frozenset[str] = frozenset()
    may: tuple[Does, ...] = tuple(Does)
    asked_by: str | None = None

    @property
    def author(self) -> str:
        """The author of what is done: both names, as `ann via loader`, if one asks on behalf of another."""
        return f"{self.name} via {self.asked_by}" if self.asked_by else self.name


NOBODY = Principal(name="")
"""Who is not known: has no name, and owns nothing."""


def find_machine_user() -> Principal:
    """Return whoever runs this process: the user of the operating system, whatever USER or LOGNAME say. The groups
    there prove nothing.
    """
    try:
        return Principal(name=pwd.getpwuid(os.getuid()).pw_name)
    except KeyError:
        return Principal(name=f"uid {os.getuid()}")
