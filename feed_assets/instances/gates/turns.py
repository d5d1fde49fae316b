"""Which instance is next where each reads after the one before: the first that has not been read."""

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import Connection

from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import EntityKey, ProcessInstanceStatus
from feed_assets.plan.edges import Key
from feed_assets.releases.timeline import BEGINNING

_UNREAD = frozenset(ProcessInstanceStatus) - {ProcessInstanceStatus.SUCCEEDED, ProcessInstanceStatus.SKIPPED}


def find_unread(connection: Connection, processes: Iterable[Key]) -> dict[Key, datetime]:
    """Return the first instance of each process that has not succeeded; processes without one are left out."""
    spans = {key: [(BEGINNING, None)] for key in processes}
    found = ProcessInstances(connection).times_in(spans, _UNREAD) if spans else {}
    return {EntityKey(*key): times[0] for key, times in found.items()}
