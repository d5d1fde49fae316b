"""What somebody may do in Dagster's webserver: it asks for permissions, by name, everywhere or as an owner of an asset.

What an asset's owner may needs the right to act, the rest is of Dagster itself: for admins.
"""

from dataclasses import dataclass
from functools import cached_property

from starlette.datastructures import Headers
from starlette.types import Scope

from feed_assets.access.principals import NOBODY, Principal
from feed_assets.access.records import AclRecord
from feed_assets.access.rights import Rights
from feed_assets.operation import Does
from feed_assets.server.routes import find_rights
from feed_assets.server.ui.addresses import is_of_dagster

GRAPHQL, REPORTS = "/graphql", "/report_asset_"
WEBSOCKET = "WEBSOCKET"
"""Instead of the method of a request."""
OF_OWNERS = frozenset(
    {
        "cancel_partition_backfill",
        "delete_pipeline_run",
        "launch_partition_backfill",
        "launch_pipeline_execution",
        "launch_pipeline_reexecution",
        "report_runless_asset_events",
        "terminate_pipeline_execution",
        "wipe_assets",
    }
)
"""Permissions that the owner of an asset has for it; the others are for admins."""
REFUSED = "This is for the owners of the asset, their groups and superusers; of Dagster itself for admins"


@dataclass(frozen=True)
class Asker:
    """Who asks, and what they may; without `rights` all that their token lets them."""

    principal: Principal
    rights: Rights | None

    @classmethod
    def of(cls, scope: Scope, *, is_limited: bool) -> "Asker":
        """Return who asks by what the guard has found; nobody, who may nothing, if it has not."""
        state = scope.get("state", {})
        principal, rights = state.get("principal"), state.get("rights")
        if principal is None or (is_limited and rights is None):
            return cls(Principal(name=NOBODY.name, may=()), None)
        return cls(principal, rights)

    @property
    def is_admin(self) -> bool:
        """Whether Dagster itself may be changed."""
        return Does.ADMINISTERS in self.principal.may and (self.rights is None or self.rights.is_admin)

    @property
    def acts(self) -> bool:
        """Whether something may be done with one's own."""
        return Does.ACTS in self.principal.may

    def may(self, permission: str) -> bool:
        """Return whether somebody has a permission everywhere."""
        if permission not in OF_OWNERS:
            return self.is_admin
        return self.acts and (self.rights is None or self.rights.is_superuser)

    def is_owner(self, owner: str) -> bool:
        """Return whether somebody is an owner in the form of Dagster."""
        return owner in self._teams

    @cached_property
    def _teams(self) -> frozenset[str]:
        """As which owners somebody counts. A name that is an owner and a group counts for nobody."""
        assert self.rights is not None
        acls = self.rights.declared.values()
        owners = {AclRecord(each.owner).teams for each in acls}
        groups = {AclRecord(None, each.group).teams for each in acls}
        own = {AclRecord(self.principal.name).teams} - groups
        own |= {AclRecord(None, each).teams for each in self.principal.groups} - owners
        return frozenset(team for teams in own for team in teams)


def find_all_rights(scope: Scope) -> tuple[Does, ...]:
    """Return the rights that a request needs, also to Dagster; none if no rule names them.

    What GraphQL does is asked where it is done. By GET there is only the page for queries: else links could act.
    """
    path, method = scope["path"], scope["method"]
    if not is_of_dagster(path):
        return find_rights(scope)
    if path == GRAPHQL:
        is_page = method == "GET" and "text/html" in Headers(scope=scope).get("accept", "")
        return (Does.READS,) if is_page or method in ("POST", WEBSOCKET) else ()
    if path.startswith(REPORTS) and method == "POST":
        return (Does.ACTS,)
    return (Does.READS,) if method in ("GET", "HEAD") else ()
