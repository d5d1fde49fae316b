"""What one tick works with, which may be newer than what Dagster was given."""

from dataclasses import dataclass

from feed_assets.operations.location import Location
from feed_assets.orchestration.layout import AssetLayout
from feed_assets.plan.records import Key, Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """What one tick works with: a location and its layout, and the processes in it that cannot be launched yet,
    because Dagster has been given other assets for them, or none.
    """

    location: Location
    layout: AssetLayout
    not_yet: frozenset[Key]
    is_safe_mode: bool = False

    @property
    def plan(self) -> Plan:
        """The plan of the location."""
        return self.location.plan
