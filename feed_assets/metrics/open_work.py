"""Count what is open now, by entity: the gauges of metrics. The cost grows with what is open, not with the history."""

from collections.abc import Collection
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import TextClause, func, select

from feed_assets.alerts.delivery.store import ReceiverStates
from feed_assets.alerts.delivery.tables import IS_DEAD, IS_OPEN, deliveries
from feed_assets.log.instances.tables import arrival_polls, process_instances
from feed_assets.log.messages.outbox import Outbox, outbox
from feed_assets.log.records import ProcessInstanceStatus
from feed_assets.log.removals.records import OPEN_STATES, SweepState
from feed_assets.log.removals.tables import sweeps
from feed_assets.sql.rows import TableStore
from feed_assets.triggers.queue.tables import HAS_PENDING, trigger_inputs

_P = process_instances.c
_A = arrival_polls.c
_I = trigger_inputs.c
_S = sweeps.c
_D = deliveries.c
_O = outbox.c
_NONE = (0, 0)

UNFINISHED = (
    ProcessInstanceStatus.WAITING,
    ProcessInstanceStatus.READY,
    ProcessInstanceStatus.RUNNING,
    ProcessInstanceStatus.SUSPENDED,
    ProcessInstanceStatus.FAILED,
    ProcessInstanceStatus.TIMEDOUT,
)
"""The statuses of instances that have not ended, or have ended without success and wait for a retry or a person."""


class OpenInstances(NamedTuple):
    """How many instances of a process have a status, and the oldest of them."""

    process: str
    cluster: str
    status: ProcessInstanceStatus
    instances: int
    oldest: datetime


class MissingInstances(NamedTuple):
    """How many due instances of an external feed have not arrived, the oldest of them, and how many could not be
    polled.
    """

    feed: str
    cluster: str
    instances: int
    oldest: datetime
    obstructed: int


class PendingInputs(NamedTuple):
    """How many events the queue of a process has, and since when the oldest waits."""

    process: str
    cluster: str
    events: int
    since: datetime


class OpenSweeps(NamedTuple):
    """How many sweeps of a cluster are in an open state."""

    cluster: str
    state: SweepState
    sweeps: int


class OpenMessages(NamedTuple):
    """How many messages have not reached a receiver, when the oldest of them was written, and its dead letters.

    Messages that the receiver does not want count until it has moved over them.
    """

    way: str
    messages: int
    oldest: datetime | None
    dead: int


class OpenWork(TableStore):
    """What is open, as one transaction sees it."""

    def instances(self) -> list[OpenInstances]:
        """Return the process instances that are unfinished (see `UNFINISHED`)."""
        oldest = func.min(_P.nominal_time, type_=_P.nominal_time.type)
        statement = select(_P.process, _P.cluster, _P.status, func.count(), oldest)
        statement = statement.where(_P.status.in_(UNFINISHED)).group_by(_P.process, _P.cluster, _P.status)
        return [OpenInstances(*row) for row in self._connection.execute(statement)]

    def missing(self, clusters: Collection[str], as_of: datetime) -> list[MissingInstances]:
        """Return the external feeds that lack instances with a nominal time until `as_of`."""
        oldest = func.min(_A.nominal_time, type_=_A.nominal_time.type)
        statement = select(_A.feed, _A.cluster, func.count(), oldest, func.count(_A.obstacle))
        statement = statement.where(_A.cluster.in_(sorted(clusters)), _A.nominal_time <= as_of)
        return [MissingInstances(*row) for row in self._connection.execute(statement.group_by(_A.cluster, _A.feed))]

    def pending(self, clusters: Collection[str]) -> list[PendingInputs]:
        """Return the processes whose queues have events that no batch has taken."""
        since = func.min(_I.first_at, type_=_I.first_at.type)
        statement = select(_I.process, _I.cluster, func.sum(_I.pending), since)
        statement = statement.where(_I.cluster.in_(sorted(clusters)), HAS_PENDING)
        found = self._connection.execute(statement.group_by(_I.process, _I.cluster))
        return [PendingInputs(process, cluster, int(events), since) for process, cluster, events, since in found]

    def sweeps(self) -> list[OpenSweeps]:
        """Return how many sweeps are planned, wait for an approval, run, or are being undone."""
        statement = select(_S.cluster, _S.state, func.count()).where(_S.state.in_(sorted(OPEN_STATES)))
        return [OpenSweeps(*row) for row in self._connection.execute(statement.group_by(_S.cluster, _S.state))]

    def messages(self) -> list[OpenMessages]:
        """Return what each receiver has still to get. Costs what is tried again, however many messages there are."""
        receivers, last = ReceiverStates(self._connection).all(), Outbox(self._connection).last_seq()
        again = self._count_deliveries(IS_OPEN, receivers)
        dead = self._count_deliveries(IS_DEAD, receivers)
        first = {name: again[name][1] if name in again else receiver.cursor + 1 for name, receiver in receivers.items()}
        statement = select(_O.seq, _O.recorded_at).where(_O.seq.in_(sorted(set(first.values()))))
        written = {row.seq: row.recorded_at for row in self._connection.execute(statement)}
        return [
            OpenMessages(
                way=name,
                messages=max(last - receiver.cursor, 0) + again.get(name, _NONE)[0],
                oldest=written.get(first[name]),
                dead=dead.get(name, _NONE)[0],
            )
            for name, receiver in receivers.items()
        ]

    def _count_deliveries(self, condition: TextClause, receivers: Collection[str]) -> dict[str, tuple[int, int]]:
        """Return how many deliveries of each receiver meet a condition, and the number of the first message of them."""
        statement = select(_D.way, func.count(), func.min(_D.seq)).where(_D.way.in_(sorted(receivers)), condition)
        found = self._connection.execute(statement.group_by(_D.way))
        return {receiver: (count, first) for receiver, count, first in found}
