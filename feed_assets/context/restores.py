"""Whether the state was restored from a backup and has not been rebuilt since.

A restored state has forgotten what was done after the backup. It would run, copy and evict again what was done already,
so nothing is launched until a rebuild has recorded what lies on storage. Rebuilds are counted: a count that has not
grown since Dagster was last told something means that the restored state has not been rebuilt.
"""

from collections.abc import Mapping

from sqlalchemy import Connection

from feed_assets.command_lines import command_line
from feed_assets.log.cursors import Cursors

REBUILDS = "state/rebuilds"
RESTORED = "state/restored"
HELD = (
    f"the state was restored from a backup or replaced: nothing is launched until `{command_line('state', 'rebuild')}` "
    "has recorded what lies on storage"
)


def count_rebuilds(connection: Connection) -> int:
    """Return how often the state has been rebuilt."""
    return int(Cursors(connection).get(REBUILDS) or 0)


def record_rebuild(connection: Connection) -> None:
    """Record that the state has been rebuilt."""
    Cursors(connection).put(REBUILDS, str(count_rebuilds(connection) + 1))


def record_restore(connection: Connection) -> None:
    """Record that the state is another one than before, and that nobody has rebuilt it."""
    Cursors(connection).put(RESTORED, str(count_rebuilds(connection)))


def is_restored(connection: Connection) -> bool:
    """Return whether the state was restored and has not been rebuilt since; costs one read."""
    return parse_restored(Cursors(connection).get_many((REBUILDS, RESTORED)))


def parse_restored(found: Mapping[str, str]) -> bool:
    """Return the same from the values of `REBUILDS` and `RESTORED`."""
    return RESTORED in found and int(found[RESTORED]) >= int(found.get(REBUILDS, 0))
