"""The definitions that a tick works with. They may be newer than those that Dagster has loaded."""

from dataclasses import dataclass

from feed_assets.orchestration.graph.layout import AssetLayout
from feed_assets.plan.edges import Key
from feed_assets.plan.location import Location
from feed_assets.plan.records import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveDefinitions:
    """A location with its layout, and the processes that cannot be launched yet.

    `not_yet` contains processes for which Dagster has loaded other assets, or none. While `is_restored`, nothing is
    launched: see `operations/restores.py`.
    """

    location: Location
    layout: AssetLayout
    not_yet: frozenset[Key]
    is_safe_mode: bool = False
    is_restored: bool = False

    @property
    def plan(self) -> Plan:
        """The plan of the location."""
        return self.location.plan
