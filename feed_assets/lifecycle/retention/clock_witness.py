"""The newest time that retention has believed: a clock that is far ahead of it is not believed before a person says so.

Events cannot witness a jump, because everybody logs with the clock that has jumped.
"""

from datetime import datetime

from sqlalchemy import Connection

from feed_assets.lifecycle.retention.limits import ClockSeen
from feed_assets.state.event_log import Cursors, EventLog


def load_clock_seen(connection: Connection, cluster: str) -> ClockSeen:
    """What is known of the time on a cluster; of one without a sweep, the time of the newest event there is."""
    text = Cursors(connection).get(_name(cluster))
    if text is not None:
        witnessed = datetime.fromisoformat(text)
        return ClockSeen(last_sweep=witnessed, newest=witnessed)
    log = EventLog(connection)
    newest = log.read(log.last_seq() - 1, 1)
    return ClockSeen(newest=newest[-1].recorded_at if newest else None)


def note_clock(connection: Connection, cluster: str, now: datetime) -> None:
    """Believe a clock: it is right as far as anything can tell, or a person has said so."""
    Cursors(connection).put(_name(cluster), now.isoformat())


def _name(cluster: str) -> str:
    return f"retention/clock/{cluster}"
