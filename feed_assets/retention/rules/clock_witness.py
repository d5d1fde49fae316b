"""Record the newest time that retention has accepted; a clock far ahead of it needs a person's approval.

Events cannot reveal a clock jump, because all writers log with the clock that has jumped.
"""

from datetime import datetime

from sqlalchemy import Connection

from feed_assets.log.cursors import Cursors
from feed_assets.log.events import EventLog
from feed_assets.retention.rules.eligibility import KnownTimes, decide_clock
from feed_assets.timing.sequence import Frequency, Unit

DAILY = Frequency(unit=Unit.DAYS, count=1)


def load_known_times(connection: Connection, cluster: str) -> KnownTimes:
    """Load the known times of a cluster; before its first sweep, the time of the newest event."""
    text = Cursors(connection).get(_name(cluster))
    if text is not None:
        witnessed = datetime.fromisoformat(text)
        return KnownTimes(last_sweep=witnessed, newest=witnessed)
    log = EventLog(connection)
    newest = log.read(log.last_seq() - 1, 1)
    return KnownTimes(newest=newest[-1].recorded_at if newest else None)


def find_clock_obstacle(connection: Connection, as_of: datetime) -> str | None:
    """Return why a time cannot be believed for what all clusters share; None if what one of them knows agrees."""
    clusters = Cursors(connection).with_prefix(_name("")) or [""]
    found = [decide_clock(DAILY, as_of, load_known_times(connection, cluster)) for cluster in clusters]
    return found[0][0].sentence if all(found) else None


def note_clock(connection: Connection, cluster: str, now: datetime) -> None:
    """Record an accepted time: nothing contradicts it, or a person has approved it."""
    Cursors(connection).put(_name(cluster), now.isoformat())


def _name(cluster: str) -> str:
    return f"retention/clock/{cluster}"
