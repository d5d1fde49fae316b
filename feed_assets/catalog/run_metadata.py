"""What a run says of entities and of itself: checked when it is said, written when its instance has succeeded."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, exists, select, true

from feed_assets.catalog.store import MetadataStore
from feed_assets.catalog.tables import facts
from feed_assets.catalog.targets import find_target, refuse_declared, require_room
from feed_assets.catalog.writing import Target, write_metadata
from feed_assets.engines.run_metadata import ReportedMetadata, Values
from feed_assets.entities.common import Kind
from feed_assets.entities.metadata import Metadata, MetadataKey, MetadataValue, Origin, Update
from feed_assets.errors import Fault, FeedAssetsError
from feed_assets.log.definitions.records import DefinitionAction
from feed_assets.log.definitions.store import Definitions
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import OfProcessInstance, ProcessKey
from feed_assets.masking import get_logger
from feed_assets.plan.records import Plan
from feed_assets.sql.database import Database, lock_log
from feed_assets.sql.rows import RowMapper, TableStore

_T = facts.c


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact(OfProcessInstance):
    """One fact of an attempt, as text; `name` is unique in its category."""

    attempt: int
    category: str
    name: str
    value: str
    recorded_at: datetime


_ROWS = RowMapper(facts, Fact)


class Facts(TableStore):
    """The facts as one transaction sees them."""

    def add(self, key: ProcessKey, attempt: int, category: str, said: Mapping[str, str], now: datetime) -> None:
        """Record the facts of one category of an attempt, which has none of them."""
        rows = [
            Fact(**key._asdict(), attempt=attempt, category=category, name=name, value=value, recorded_at=now)
            for name, value in said.items()
        ]
        _ROWS.insert(self._connection, rows)

    def of(self, key: ProcessKey) -> Sequence[Fact]:
        """Return the facts of all attempts at an instance, in the order of attempts, categories and names."""
        return self.of_many([key])

    def of_many(self, keys: Collection[ProcessKey]) -> Sequence[Fact]:
        """Return the facts of all attempts at several instances, in the same order for each."""
        found = _ROWS.of_keys(self._connection, ProcessKey._fields, keys)
        return sorted(found, key=lambda fact: (fact.attempt, fact.category, fact.name))

    def newest(self, process: str, cluster: str, category: str, limit: int) -> Sequence[Fact]:
        """Return the facts of one category of at most `limit` instances, newest first; of each all attempts."""
        is_it = (_T.process == process) & (_T.cluster == cluster) & (_T.category == category)
        times = select(_T.nominal_time).where(is_it).group_by(_T.nominal_time)
        newest = times.order_by(_T.nominal_time.desc()).limit(limit)
        statement = _ROWS.select.where(is_it & _T.nominal_time.in_(newest))
        return _ROWS.find(self._connection, statement.order_by(_T.nominal_time.desc(), _T.attempt, _T.name))

    def between(
        self, process: str, category: str, start: datetime, end: datetime, name: str | None = None
    ) -> Sequence[Fact]:
        """Return the facts of one category of the instances from `start` to before `end`, newest first."""
        is_it = (_T.process == process) & (_T.category == category) & (_T.nominal_time >= start)
        wanted = is_it & (_T.nominal_time < end) & (true() if name is None else _T.name == name)
        order = (_T.nominal_time.desc(), _T.cluster, _T.attempt, _T.name)
        return _ROWS.find(self._connection, _ROWS.select.where(wanted).order_by(*order))

    def times_bad(self, process: str, cluster: str, category: str, first: datetime, last: datetime) -> list[datetime]:
        """Return the nominal times from `first` to `last`, both inclusive, whose rows are not good enough by the newest
        attempt.
        """
        later, is_verdict = facts.alias(), (_T.category == category, _T.name == "did.dq.pass")
        is_one = (_T.process == process, _T.cluster == cluster, _T.nominal_time.between(first, last))
        names = ("process", "cluster", "nominal_time", "category", "name")
        is_replaced = exists().where(*(later.c[name] == _T[name] for name in names), later.c.attempt > _T.attempt)
        statement = select(_T.nominal_time).where(*is_one, *is_verdict, _T.value != "true", ~is_replaced)
        return list(self._connection.scalars(statement))


_logger = get_logger(__name__)

QUALITY = "quality/"
"""The category of the facts of an output, before its name."""
RULE = "rule."
"""The name of the fact of a rule, before the rule's; its value is the number of rows that broke the rule."""
CONDITION = "condition."
"""The name of the fact of a condition on all rows, before the condition's; its value says why it does not hold."""
HOLDS = "holds"
"""The value of the fact of a condition that holds."""
PROGRAM = "program"
"""The category of facts that the code of a process says."""


def check_reported(database: Database, plan: Plan, path: str, values: Values) -> None:
    """Require that a run can say something of an entity; `plan` has the current definitions.

    Raises:
        MetadataRefusedError: this is no path, a file says it, or it would be too much.
        EntityNotFoundError: there is no such entity.
    """
    with database.read() as connection:
        target = find_target(plan, connection, path)
        store = MetadataStore(connection)
        entity = store.find(target.path)
        before = store.read(entity.id) if entity is not None else {}
    for key in values:
        if key in before and before[key].origin is Origin.DEFINITION:
            refuse_declared(plan, target.path, key, "Say it under another name.", Fault.ASKED)
    require_room(target.path, before, {**before, **_sign(values, "")}, "Say less.", Fault.ASKED)


def apply_reported(
    connection: Connection, plan: Plan, key: ProcessKey, reported: ReportedMetadata, now: datetime
) -> None:
    """Write what the running attempt at an instance has said. What a file says by now stays the file's, and nothing is
    said of what is gone by now: neither keeps an instance from having succeeded.

    Takes the lock of the log.
    """
    lock_log(connection)
    row = ProcessInstances(connection).get(*key)
    facts = {name: _render(value) for name, value in reported.facts.items()}
    if row is not None:
        Facts(connection).add(key, row.attempt, PROGRAM, facts, now)
    author = f"process/{key.process}"
    for path, values in reported.metadata.items():
        try:
            target = find_target(plan, connection, path)
        except FeedAssetsError as exc:  # a step that is kept has said it when it was there
            _logger.info("nothing is said of %s: %s", path, exc)
            continue
        if not _is_deleted(connection, target):
            mutation = Update(_free(connection, target, _sign(values, author)))
            write_metadata(connection, target, [mutation], author=author, origin=Origin.PROGRAM, now=now)


def _is_deleted(connection: Connection, target: Target) -> bool:
    kind, name, *_ = target.path.split("/")
    if kind not in list(Kind) or MetadataStore(connection).find(f"{kind}/{name}") is not None:
        return False
    newest = Definitions(connection).find_newest(kind, name)
    return newest is not None and newest.action is DefinitionAction.DELETED


def _sign(values: Values, author: str) -> dict[MetadataKey, MetadataValue]:
    return {key: MetadataValue(text, Origin.PROGRAM, author) for key, text in values.items()}


def _free(connection: Connection, target: Target, values: Metadata) -> Metadata:
    """Return those values that no file says."""
    store = MetadataStore(connection)
    entity = store.find(target.path)
    before = store.read(entity.id) if entity is not None else {}
    declared = {key for key, each in before.items() if each.origin is Origin.DEFINITION}
    return {key: each for key, each in values.items() if key not in declared}


def _render(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
