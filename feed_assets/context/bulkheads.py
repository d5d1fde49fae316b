"""Confine a failure to the unit of work in which it happens, and record it: which unit of which step of ticks on a
cluster, why, since when, and when it is tried again.

A tick consists of units: a step, or the part of a step that concerns one feed, process or storage endpoint. A unit that
fails is recorded with its reason and put off; all others run. The first success of the unit ends the record. If it is
an address, all else that has failed on the cluster is due at once: much of it has waited for that address. The table
holds only what fails now.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import ParamSpec, TypeVar

from sqlalchemy import (
    BigInteger,
    Column,
    update,
)
from sqlalchemy.exc import SQLAlchemyError

from feed_assets.actions import Action, ActionStatus, record_action
from feed_assets.clock import Clock, Stopwatch
from feed_assets.context.errors import NotAskedError
from feed_assets.entities.common import Kind
from feed_assets.errors import NoAnswerError, describe_error
from feed_assets.log.instances.arrival_polls import ArrivalPolls
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.masking import get_logger
from feed_assets.patience import Answer, Patience
from feed_assets.sql.column_types import Choice, Text, UtcDateTime
from feed_assets.sql.database import Database
from feed_assets.sql.errors import StateUnreachableError
from feed_assets.sql.names import names_by
from feed_assets.sql.rows import RowMapper, TableStore, delete_keys
from feed_assets.sql.tables import define_table
from feed_assets.storage.errors import StorageAwayError


class TickStep(StrEnum):
    """The step of a tick to which a unit of work belongs; the comment says what the unit is.

    The last five are steps of the sensors for deadlines and for late data and of the jobs of retention and replication,
    all others of the arrival sensor.
    """

    DEFINITIONS = "definitions"  # what the location declares
    RECONCILIATION = "reconciliation"  # the runs of the cluster
    STAGED_TABLES = "staged tables"  # an export
    SPARK = "Spark"  # a Spark Connect server
    STAGING_SWEEP = "staging sweep"  # the address of a store
    STORAGE = "storage"  # the endpoint of stores
    MATERIALIZATIONS = "materializations"  # a feed that an asset of another Dagster code produces
    WATCHES = "watches"  # a feed whose instances come as they come
    STORED_DATA = "stored data"  # a store
    INBOXES = "inboxes"  # a feed with an inbox
    ARRIVALS = "arrivals"  # the polls of the cluster
    PAST_ARRIVALS = "past arrivals"  # a process with older releases
    QUALITY = "quality"  # a feed whose instances from outside are judged
    REGISTRATIONS = "registrations"  # a feed whose instances are partitions of a table, too
    RETRIES = "retries"  # a process
    INSTANCES = "instances"  # a process
    EVENTS = "events"  # the queues of the cluster
    TRIGGERS = "triggers"  # a process
    GATES = "gates"  # a process
    UPDATES = "updates"  # a process
    REQUESTS = "requests"  # a process
    NOTICES = "notices"  # a process
    AUDIT = "audit"  # its rows
    REPORTS = "reports"  # a feed
    PARTITIONS = "partitions"  # a grid
    POOLS = "pools"  # the pools of the cluster
    DEADLINES = "deadlines"  # a feed or process with an SLA
    FORECASTS = "forecasts"  # the same, if it warns
    LATE_DATA = "late data"  # a feed
    RETENTION = "retention"  # a feed, a sweep, or the trash of a sweep
    REPLICATION = "replication"  # a flow

    @property
    def kind(self) -> Kind | None:
        """The kind of entity that a unit of the step is; None if it is something else, or not always one kind."""
        match self:
            case TickStep.MATERIALIZATIONS | TickStep.WATCHES | TickStep.INBOXES | TickStep.REPORTS | TickStep.QUALITY:
                return Kind.FEED
            case TickStep.REGISTRATIONS:
                return Kind.FEED
            case (
                TickStep.STAGED_TABLES
                | TickStep.PAST_ARRIVALS
                | TickStep.RETRIES
                | TickStep.INSTANCES
                | TickStep.TRIGGERS
            ):
                return Kind.PROCESS
            case TickStep.GATES | TickStep.UPDATES | TickStep.NOTICES | TickStep.REQUESTS:
                return Kind.PROCESS
            case _:
                return None


@dataclass(frozen=True, slots=True, kw_only=True)
class TickFailure:
    """A unit of work of a cluster's ticks that failed when it was last tried, and when it is tried next (real times).

    `subject` names the unit within its step; "" if the step has one unit. `failures` counts those in a row.
    """

    cluster: str
    step: TickStep
    subject: str
    reason: str
    since: datetime
    next_try_at: datetime
    failures: int = 1


tick_failures = define_table(
    "fa_tick_failures",
    Column("cluster", Text, nullable=False),
    Column("step", Choice(TickStep), nullable=False),
    Column("subject", Text, nullable=False, info=names_by("step", TickStep, lambda each: each.kind)),
    Column("reason", Text, nullable=False),
    Column("since", UtcDateTime, nullable=False),
    Column("next_try_at", UtcDateTime, nullable=False),
    Column("failures", BigInteger, nullable=False),
    key=("cluster", "step", "subject"),
)


_T = tick_failures.c
_KEY = ("cluster", "step", "subject")
_ROWS = RowMapper(tick_failures, TickFailure)


class TickFailures(TableStore):
    """The failures as one transaction sees them."""

    def all(self) -> list[TickFailure]:
        """Return the failures of all clusters, ordered by cluster, step and subject."""
        return _ROWS.find(self._connection, _ROWS.select.order_by(*(_T[name] for name in _KEY)))

    def put(self, failures: Iterable[TickFailure]) -> None:
        """Record failures; replace earlier ones of the same units."""
        _ROWS.put(self._connection, failures)

    def try_again(self, cluster: str, now: datetime, *, but: Collection[TickStep]) -> None:
        """Let the failed units of a cluster be due, but for those of some steps."""
        late = update(tick_failures).where(_T.cluster == cluster, _T.step.not_in(but), _T.next_try_at > now)
        self._connection.execute(late.values(next_try_at=now))

    def remove(self, keys: Iterable[tuple[str, TickStep, str]]) -> None:
        """Remove the failures of units, by (cluster, step, subject)."""
        delete_keys(self._connection, tick_failures, _KEY, keys)


SHORTEST_PAUSE = timedelta(seconds=1)
LONGEST_PAUSE = timedelta(minutes=10)
LONGEST_PAUSE_OF_ADDRESS = timedelta(minutes=1)
"""Others wait for an address, and one try of it says whether it is back."""
ADDRESSES = frozenset({TickStep.STORAGE, TickStep.SPARK})
"""The steps whose units are addresses."""
AGE_PER_PAUSE = 50
WORK_PER_PAUSE = 2
"""A unit that fails slowly, such as by a time-out, takes at most a third of the time."""
CHECKS_OF = "checks of "  # before the name of a feed: the checks of the asset that produces it
FORGOTTEN_AFTER = timedelta(hours=1)
SLOW_SECONDS = 2.0
"""Seconds after which a service that fails is not called again in the same tick."""

TIME_OUT_SECONDS = 10.0
"""Seconds after which work that reads much, and fails, has probably waited for its storage."""

AWAY = (NoAnswerError, StorageAwayError)
"""What says that an address fails, however fast it comes."""

NOT_CONFINED = (StateUnreachableError, SQLAlchemyError)
"""Nothing can be recorded, or the transaction around the unit is lost."""

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_Otherwise = TypeVar("_Otherwise")
_Arguments = ParamSpec("_Arguments")

_logger = get_logger(__name__)


class Bulkheads:
    """The units of one tick of a cluster, and what is recorded about their failures.

    `save` records what has changed. `clock` is the real clock. `patience` is that of the process; without one, services
    are called without a time limit. Steps, and units that fail, are recorded as actions, too.
    """

    def __init__(
        self, cluster: str, clock: Clock, known: Iterable[TickFailure] = (), patience: Patience | None = None
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._patience = patience or Patience(None)
        self._stored = {(each.step, each.subject): each for each in known if each.cluster == cluster}
        self._now = dict(self._stored)

    @property
    def patience(self) -> Patience:
        """What waits for services, and remembers which of them hang."""
        return self._patience

    @classmethod
    def open(cls, database: Database, cluster: str, clock: Clock, patience: Patience | None = None) -> "Bulkheads":
        """Read the failures of earlier ticks and runs."""
        with database.read() as connection:
            failures = TickFailures(connection).all()
        return cls(cluster, clock, failures, patience)

    def is_put_off(self, step: TickStep, subject: str = "") -> bool:
        """Return whether a unit has failed and its next try is not due."""
        failure = self._now.get((step, subject))
        return failure is not None and failure.next_try_at > self._clock.now()

    def has_failed(self, step: TickStep, subject: str = "") -> bool:
        """Return whether a unit failed when it was last tried."""
        return (step, subject) in self._now

    def reason(self, step: TickStep, subject: str = "") -> str:
        """Return why a unit failed; "" if it did not."""
        failure = self._now.get((step, subject))
        return "" if failure is None else failure.reason

    def pause(self, step: TickStep, subject: str = "") -> timedelta:
        """Return the time until the next try of a unit."""
        failure = self._now.get((step, subject))
        return timedelta(0) if failure is None else max(failure.next_try_at - self._clock.now(), timedelta(0))

    def to_try_again(self, step: TickStep) -> frozenset[str]:
        """Return the units of a step that have failed and whose next try is due."""
        return frozenset(subject for own, subject in self._now if own is step and not self.is_put_off(step, subject))

    def run(
        self,
        step: TickStep,
        otherwise: _Otherwise,
        work: Callable[_Arguments, _Result],
        *args: _Arguments.args,
        **kwargs: _Arguments.kwargs,
    ) -> _Result | _Otherwise:
        """Return the result of a step that is one unit: see `run_unit`. Each call is recorded as an action."""
        watch = Stopwatch()
        result = self.run_unit(step, "", otherwise, work, *args, **kwargs)
        if not self.has_failed(step):
            self._record(step, "", watch.seconds)
        return result

    def run_unit(
        self,
        step: TickStep,
        subject: str,
        otherwise: _Otherwise,
        work: Callable[_Arguments, _Result],
        *args: _Arguments.args,
        **kwargs: _Arguments.kwargs,
    ) -> _Result | _Otherwise:
        """Call `work` and return its result; return `otherwise` if it fails, or is put off.

        Raises:
            StateUnreachableError: nothing can be recorded, so no other unit would succeed.
            SQLAlchemyError: the transaction in which the unit runs is lost.
        """
        if self.is_put_off(step, subject):
            return otherwise
        watch = Stopwatch()
        try:
            result = work(*args, **kwargs)
        except NOT_CONFINED:
            raise
        except Exception as exc:  # noqa: BLE001 - whatever fails, it must not end the tick; `fail` logs it
            self.fail(step, subject, exc, watch.seconds)
            return otherwise
        self.succeed(step, subject)
        return result

    def run_apart(
        self, step: TickStep, units: Mapping[str, _Item], work: Callable[[Sequence[_Item]], list[_Result]]
    ) -> list[_Result]:
        """Return the results of all units together; if that fails, of each alone, so that only the broken ones fail.

        Units that are put off are left out. `work` must have no effect if it raises.
        """
        due = {subject: item for subject, item in units.items() if not self.is_put_off(step, subject)}
        try:
            results = work(list(due.values())) if due else []
        except NOT_CONFINED:
            raise
        except Exception:  # noqa: BLE001 - the unit that fails alone logs it
            none: list[_Result] = []
            return [
                result for subject, item in due.items() for result in self.run_unit(step, subject, none, work, [item])
            ]
        for subject in due:
            self.succeed(step, subject)
        return results

    def ask(self, step: TickStep, calls: Mapping[str, Callable[[], _Result]]) -> dict[str, _Result | Exception]:
        """Call several services at once, by endpoint; return what each returned or raised.

        An endpoint that fails slowly, such as by a time-out, is recorded and put off; until its next try, it is not
        called, so that its time-out is waited for once.
        """
        due = {endpoint: call for endpoint, call in calls.items() if not self.is_put_off(step, endpoint)}
        answers = self._patience.ask(due)
        for endpoint, answer in answers.items():
            self._note(step, endpoint, answer)
        found: dict[str, _Result | Exception] = {endpoint: answer.value for endpoint, answer in answers.items()}
        for endpoint in calls.keys() - due.keys():
            found[endpoint] = NotAskedError(endpoint=endpoint, reason=self.reason(step, endpoint))
        return found

    def _note(self, step: TickStep, endpoint: str, answer: Answer[_Result]) -> None:
        if not isinstance(answer.value, Exception):
            self.succeed(step, endpoint)
        elif answer.seconds > SLOW_SECONDS or isinstance(answer.value, AWAY):
            self.fail(step, endpoint, answer.value, answer.seconds)

    def fail(
        self,
        step: TickStep,
        subject: str,
        error: Exception,
        seconds: float = 0.0,
        next_try_at: datetime | None = None,
    ) -> None:
        """Record that a unit has failed after `seconds`, and when it is tried again: at `next_try_at`, if given."""
        now, known = self._clock.now(), self._now.get((step, subject))
        reason = describe_error(error)
        if known is None or known.reason != reason:
            name = f"{step} of {subject}" if subject else str(step)
            _logger.warning("cluster %s: %s failed: %s", self._cluster, name, reason, exc_info=error)
        self._record(step, subject, seconds, reason)
        since = now if known is None else min(known.since, now)
        longest = LONGEST_PAUSE_OF_ADDRESS if step in ADDRESSES else LONGEST_PAUSE
        pause = max(pause_by_age(now - since, longest), timedelta(seconds=WORK_PER_PAUSE * seconds))
        self._now[step, subject] = TickFailure(
            cluster=self._cluster,
            step=step,
            subject=subject,
            reason=reason,
            since=since,
            next_try_at=next_try_at or now + min(pause, longest),
            failures=1 if known is None else known.failures + 1,
        )

    def _record(self, step: TickStep, subject: str, seconds: float, reason: str = "") -> None:
        kind = step.kind
        dimensions = {
            "cluster": self._cluster,
            "kind": kind if subject else None,
            "entity" if kind else "unit": subject,
        }
        status = ActionStatus.FAILED if reason else ActionStatus.SUCCEEDED
        name = f"tick {step}"
        record_action(Action(name=name, dimensions=dimensions, status=status, seconds=seconds, reason=reason))

    def succeed(self, step: TickStep, subject: str = "") -> None:
        """Forget an earlier failure of a unit."""
        if self._now.pop((step, subject), None) is not None:
            name = f"{step} of {subject}" if subject else str(step)
            _logger.info("cluster %s: %s works again", self._cluster, name)

    @property
    def failures(self) -> list[TickFailure]:
        """The present failures of the cluster, in the order of the steps."""
        order = {step: number for number, step in enumerate(TickStep)}
        return sorted(self._now.values(), key=lambda each: (order[each.step], each.subject))

    def save(self, database: Database) -> None:
        """Record what has changed since the last `save`. A failure that no tick tries any more is forgotten.

        If an address works again, what has failed because of it is forgotten. What else fails on the cluster, and what
        could not be polled, is due.
        """
        now = self._clock.now()
        back = [subject for step, subject in self._stored.keys() - self._now.keys() if step in ADDRESSES]
        tried = (each for each in self._now.values() if each.next_try_at > now - FORGOTTEN_AFTER)
        self._now = {(each.step, each.subject): each for each in without_outages(tried, back)}
        new = [each for key, each in self._now.items() if self._stored.get(key) != each]
        gone = [(self._cluster, *key) for key in self._stored.keys() - self._now.keys()]
        if new or gone:
            with database.begin() as connection:
                TickFailures(connection).put(new)
                TickFailures(connection).remove(gone)
                if back:
                    TickFailures(connection).try_again(self._cluster, now, but=ADDRESSES)
                    ArrivalPolls(connection).try_obstructed(self._cluster)
                    ProcessInstances(connection).retry_outages(self._cluster)
        self._stored = dict(self._now)


class Unconfined(Bulkheads):
    """Bulkheads that let every failure through, where nobody would see a record of it: simulations, benchmarks. Steps
    are not recorded either.
    """

    def fail(self, step: TickStep, subject: str, error: Exception, *_: object, **__: object) -> None:  # noqa: ARG002
        """Raise the error."""
        raise error

    def _record(self, *_: object, **__: object) -> None:
        """Record nothing."""


def pause_by_age(age: timedelta, longest: timedelta) -> timedelta:
    """Return the pause before something is tried again: a fiftieth of its age, at least a second, at most `longest`.

    >>> str(pause_by_age(timedelta(minutes=10), LONGEST_PAUSE))
    '0:00:12'
    """
    return min(max(age / AGE_PER_PAUSE, SHORTEST_PAUSE), longest)


def without_outages(failures: Iterable[TickFailure], away: Collection[str]) -> list[TickFailure]:
    """Return failures without those that name one of the addresses that are `away`, except for these themselves. The
    beginning of a longer address is not its name: `s3://logs` is not `s3://logs-old`.
    """
    named = [re.compile(re.escape(name) + r"(?!\.?[\w-])") for name in away]
    return [each for each in failures if each.step in ADDRESSES or not any(name.search(each.reason) for name in named)]
