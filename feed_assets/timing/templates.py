"""Path templates (`/data/${YEAR}/${MONTH}/${DAY}`): nominal time to path and back, with an exact round trip; and
addresses of tables in a catalog: database, table and partition (`catalog:sales:clicks#ds=${YEAR};region=eu`).
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from itertools import chain
from types import MappingProxyType
from typing import TypeAlias
from zoneinfo import ZoneInfo

from feed_assets.errors import find_similar
from feed_assets.timing.dates import offset_changes, render_datetime, resolve_wall
from feed_assets.timing.errors import TableAddressError, TemplateError
from feed_assets.timing.sequence import Frequency, InstanceSequence, Unit


class TimeVariable(StrEnum):
    """The variables of a path, coarsest first; widths are fixed: four digits for the year and two for the others."""

    YEAR = "YEAR"
    MONTH = "MONTH"
    DAY = "DAY"
    HOUR = "HOUR"
    MINUTE = "MINUTE"
    SECOND = "SECOND"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterVariable:
    """A `${cluster.<name>}` that `PathTemplate.with_cluster` has not replaced yet."""

    name: str


Piece: TypeAlias = str | TimeVariable | ClusterVariable
"""Literal text or a variable."""

_VARIABLE = re.compile(r"\$\{([^{}]*)(\}?)")  # ${YEAR}, ${cluster.colo}; an unclosed ${YEAR too
_CLUSTER = "cluster."
_VALUES = {
    TimeVariable.YEAR: "[0-9]{4}",
    TimeVariable.MONTH: "0[1-9]|1[0-2]",
    TimeVariable.DAY: "0[1-9]|[12][0-9]|3[01]",
    TimeVariable.HOUR: "[01][0-9]|2[0-3]",
    TimeVariable.MINUTE: "[0-5][0-9]",
    TimeVariable.SECOND: "[0-5][0-9]",
}
_ORDER = tuple(TimeVariable)


def iter_pieces(text: str) -> Iterator[Piece]:
    """Yield the literal pieces and variables of a template, in order.

    Raises:
        TemplateError: a variable is unknown or not closed.
    """
    end = 0
    for found in _VARIABLE.finditer(text):
        yield text[end : found.start()]
        name, closed = found.groups()
        end = found.end()
        if closed and name in _ORDER:
            yield TimeVariable(name)
        elif closed and name.startswith(_CLUSTER) and name != _CLUSTER:
            yield ClusterVariable(name=name.removeprefix(_CLUSTER))
        else:
            raise _refused_variable(text, found.group(), name, closed=bool(closed))
    yield text[end:]


def _refused_variable(text: str, written: str, name: str, *, closed: bool) -> TemplateError:
    if not closed:
        return TemplateError(text=text, reason=f"{written} is not closed", next_step="Add the closing brace.")
    close = find_similar(name.upper(), _ORDER, n=1)
    known = "${" + "}, ${".join(_ORDER) + "} or ${cluster.<property>}"
    return TemplateError(
        text=text,
        reason=f"{written} is not a variable of paths",
        next_step=f"Did you mean ${{{close[0]}}}?" if close else f"Use {known}.",
    )


def merge_pieces(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    """Return the pieces with neighbouring literal texts joined and empty texts removed."""
    merged: list[Piece] = []
    for piece in pieces:
        if merged and is_literal(piece) and is_literal(merged[-1]):
            merged[-1] = f"{merged[-1]}{piece}"
        elif piece != "":
            merged.append(piece)
    return tuple(merged)


def is_literal(piece: Piece) -> bool:
    """Return whether the piece is text, not a variable."""
    return not isinstance(piece, (TimeVariable, ClusterVariable))


def text_of(piece: Piece) -> str:
    """Return the piece as it is written in a template."""
    if isinstance(piece, ClusterVariable):
        return f"${{{_CLUSTER}{piece.name}}}"
    return f"${{{piece.value}}}" if isinstance(piece, TimeVariable) else piece


def format_of(piece: Piece) -> str:
    """Return the piece in `%` formatting."""
    if isinstance(piece, TimeVariable):
        return "%04d" if piece is TimeVariable.YEAR else "%02d"
    return text_of(piece).replace("%", "%%")


def pattern_of(pieces: Iterable[Piece]) -> str:
    """Return a regular expression with one group per time variable; a repeated variable must repeat its value.

    >>> pattern_of(("/d/", TimeVariable.YEAR, "/", TimeVariable.YEAR))
    '/d/(?P<YEAR>[0-9]{4})/(?P=YEAR)'
    """
    seen: set[TimeVariable] = set()
    parts: list[str] = []
    for piece in pieces:
        if isinstance(piece, ClusterVariable):
            parts.append("[^/]+")
        elif not isinstance(piece, TimeVariable):
            parts.append(re.escape(piece))
        elif piece in seen:
            parts.append(f"(?P={piece.value})")
        else:
            seen.add(piece)
            parts.append(f"(?P<{piece.value}>{_VALUES[piece]})")
    return "".join(parts)


LONGEST = MappingProxyType(
    {
        TimeVariable.YEAR: timedelta(days=366),
        TimeVariable.MONTH: timedelta(days=31),
        TimeVariable.DAY: timedelta(days=1),
        TimeVariable.HOUR: timedelta(hours=1),
        TimeVariable.MINUTE: timedelta(minutes=1),
        TimeVariable.SECOND: timedelta(seconds=1),
    }
)
"""The longest periods that paths name."""
_MONTHS_OF_A_YEAR = 12
_FIRST = {"YEAR": "2000", "MONTH": "1", "DAY": "1", "HOUR": "0", "MINUTE": "0", "SECOND": "0"}
"""Defaults of missing variables. The year is a leap year."""
_NO_TIME = timedelta(0)
_UTC = ZoneInfo("UTC")
_LAST = datetime(2101, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class PathTemplate:
    """A parsed template; make one with `parse_path_template`.

    A path belongs to a template only if rendering what was parsed gives the same path, byte for byte.
    Differs from Falcon: nothing may follow the template, the date must exist, repeated variables must agree, and hour
    24 and minute 60 are refused. (Falcon rolls such dates over and tolerates a tail, so its retention deletes
    `/data/2015-01-01_backup`.)

    `variables` are the distinct time variables, coarsest first; they are filled in wall-clock time of `zone`.

    >>> template = parse_path_template("/data/${YEAR}/${MONTH}/${DAY}")
    >>> template.render(datetime(2015, 3, 8, tzinfo=UTC))
    '/data/2015/03/08'
    >>> template.parse("/data/2015/02/30") is None
    True
    """

    text: str
    pieces: tuple[Piece, ...] = field(repr=False)
    zone: ZoneInfo = field(default=_UTC, repr=False)
    variables: tuple[TimeVariable, ...] = field(init=False, repr=False, compare=False)
    _format: str = field(init=False, repr=False, compare=False)
    _attributes: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        times = [piece for piece in self.pieces if isinstance(piece, TimeVariable)]
        fields: dict[str, object] = {
            "variables": tuple(variable for variable in TimeVariable if variable in times),
            "_format": "".join(map(format_of, self.pieces)),
            "_attributes": tuple(variable.value.lower() for variable in times),
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def __str__(self) -> str:
        return self.text

    @property
    def granularity(self) -> TimeVariable | None:
        """The finest variable that has all coarser variables beside it; None without `${YEAR}`.

        >>> parse_path_template("/d/${YEAR}/${MONTH}/${HOUR}").granularity
        <TimeVariable.MONTH: 'MONTH'>
        """
        found = None
        for variable in TimeVariable:
            if variable not in self.variables:
                break
            found = variable
        return found

    @property
    def is_static(self) -> bool:
        """Whether the path has no variable."""
        return all(map(is_literal, self.pieces))

    @property
    def base(self) -> str:
        """The path above the first segment with a variable, without a trailing slash; the whole path if there is none.

        >>> parse_path_template("s3://bucket/clicks/ds=${YEAR}-${MONTH}/x").base
        's3://bucket/clicks'
        """
        if self.is_static:
            return self.text
        first = self.pieces[0]
        return text_of(first).rpartition("/")[0] if is_literal(first) else ""

    def in_zone(self, zone: ZoneInfo) -> "PathTemplate":
        """Return the template of paths in wall-clock time of another zone."""
        return replace(self, zone=zone)

    def render(self, nominal_time: datetime) -> str:
        """Return the path of an instance.

        Raises:
            TemplateError: a `${cluster.…}` variable has no value yet.
        """
        self._require_no_cluster_variable()
        wall = nominal_time.astimezone(self.zone)
        return self._format % tuple([getattr(wall, name) for name in self._attributes])

    def parse(self, path: str) -> datetime | None:
        """Return the UTC instant at the start of the month, day, hour, minute or second that `path` names; or None.

        Returns None if `path` is not exactly a path of this template. A missing variable means the first month, first
        day, hour 0, minute 0 or second 0; without `${YEAR}` nothing can be parsed. A local time that occurs twice means
        the second, as in Falcon; a skipped local time has no path. Instances need not be at that start:
        `find_instance` returns the instance that has this path.
        """
        self._require_no_cluster_variable()
        wall = self._parse_wall(path)
        if wall is None or TimeVariable.YEAR not in self.variables:
            return None
        try:
            moment = resolve_wall(wall, self.zone)
            return moment if self.render(moment) == path else None
        except OverflowError:
            return None

    def matches(self, path: str) -> bool:
        """Return whether `path` is this static path, or the path of a date that exists."""
        return self._parse_wall(path) is not None

    def find_instance(self, path: str, sequence: InstanceSequence) -> datetime | None:
        """Return the first instance of the sequence, inside its validity, whose path is exactly `path`."""
        moment = sequence.start if self.is_static else self.parse(path)
        if moment is None:
            return None
        first_reading = moment.astimezone(self.zone).replace(fold=0).astimezone(UTC)
        candidate = sequence.ceil(min(moment, first_reading))
        return candidate if candidate is not None and self.render(candidate) == path else None

    def covers(self, frequency: Frequency) -> bool:
        """Return whether the template is fine enough to give each instance its own path, clock changes aside.

        `hours(1)` needs `${HOUR}` and all coarser variables; `${DAY}` is enough for `hours(24)`, and `${YEAR}` for
        `months(12)`. `find_collision` also considers clock changes.
        """
        granularity = self.granularity
        if granularity is None:
            return False
        if frequency.unit is Unit.MONTHS:
            return granularity is not TimeVariable.YEAR or frequency.count >= _MONTHS_OF_A_YEAR
        return frequency.as_duration() >= LONGEST[granularity]

    def find_collision(self, sequence: InstanceSequence) -> str | None:
        """Return why two instances of the sequence have the same path, as a clause for a message; None if no two have.

        When the clocks go back, an hour of local time occurs twice, and `${HOUR}` gives two instances one path. A day
        or month of another zone than that of the paths may be shorter than one of theirs. Each clock change of the
        validity is checked (up to the year 2100 if it has no end).
        """
        if sequence.size is not None and sequence.size <= 1:
            return None
        if not self.covers(sequence.frequency):
            missing = next((variable for variable in TimeVariable if variable not in self.variables), None)
            return f"without ${{{missing}}} several instances of {sequence.frequency} have the same path"
        for near in _suspects(sequence, self.zone, LONGEST[self.granularity or TimeVariable.SECOND]):
            seen: dict[str, datetime] = {}
            for instance in near:
                other = seen.setdefault(self.render(instance), instance)
                if other != instance:
                    why = f"local time in {self.zone.key} repeats when the clocks go back"
                    if sequence.frequency.is_calendar:
                        why = f"the instances go by {sequence.timezone.key} and their paths by {self.zone.key}"
                    both = f"{render_datetime(other)} and {render_datetime(instance)}"
                    return f"{both} have the same path, because {why}"
        return None

    def with_cluster(self, *, name: str, colo: str, properties: Mapping[str, str]) -> "PathTemplate":
        """Return the template with every `${cluster.name}`, `${cluster.colo}` and `${cluster.<property>}` replaced.

        Raises:
            TemplateError: the cluster has no such property.
        """
        if not any(isinstance(piece, ClusterVariable) for piece in self.pieces):
            return self
        merged = merge_pieces(_iter_replaced(self, {**properties, "name": name, "colo": colo}))
        return PathTemplate(text="".join(map(text_of, merged)), pieces=merged, zone=self.zone)

    def _parse_wall(self, path: str) -> datetime | None:
        """Return the wall-clock time that `path` names, in no zone.

        A missing year is a leap year. Returns None as `parse` does.
        """
        found = _compiled(self.pieces).fullmatch(path)
        if found is None:
            return None
        year, month, day, hour, minute, second = map(int, (_FIRST | found.groupdict()).values())
        try:
            return datetime(year, month, day, hour, minute, second)  # noqa: DTZ001
        except ValueError:
            return None

    def _require_no_cluster_variable(self) -> None:
        for piece in self.pieces:
            if isinstance(piece, ClusterVariable):
                raise TemplateError(
                    text=self.text, reason=f"{text_of(piece)} has no value yet", next_step="Use with_cluster first."
                )


@lru_cache(maxsize=8192)
def parse_path_template(text: str) -> PathTemplate:
    """Parse a template: literal text with `${YEAR}`, `${MONTH}`, `${DAY}`, `${HOUR}`, `${MINUTE}`, `${SECOND}` and
    `${cluster.<property>}`.

    Differs from Falcon: other variables are refused, and no literal text.

    Raises:
        TemplateError: a variable is unknown or not closed.

    >>> parse_path_template("/data/${YEAR}/${MNTH}")
    Traceback (most recent call last):
    feed_assets.timing.errors.TemplateError: template '/data/${YEAR}/${MNTH}': ${MNTH} is not a variable of paths. \
Did you mean ${MONTH}?
    """
    return PathTemplate(text=text, pieces=merge_pieces(iter_pieces(text)))


def find_variables(text: str | None) -> tuple[TimeVariable, ...] | None:
    """Return the time variables of a template or of the address of a table; None if the text is neither.

    >>> find_variables("/ref/lands"), find_variables("catalog:web:clicks#year=${YEAR}"), find_variables("catalog:web")
    ((), (<TimeVariable.YEAR: 'YEAR'>,), None)
    """
    try:
        if text is None:
            return None
        is_table = text.startswith("catalog:")
        return (parse_table_address(text).template if is_table else parse_path_template(text)).variables
    except (TemplateError, TableAddressError):
        return None


@lru_cache(maxsize=8192)
def _compiled(pieces: tuple[Piece, ...]) -> re.Pattern[str]:
    """Compile the pattern of a template's paths on first use; a location of thousands of feeds uses few of them."""
    return re.compile(pattern_of(pieces))


def _iter_replaced(template: PathTemplate, known: Mapping[str, str]) -> Iterator[Piece]:
    for piece in template.pieces:
        if not isinstance(piece, ClusterVariable):
            yield piece
        elif piece.name in known:
            yield known[piece.name]
        else:
            raise TemplateError(
                text=template.text,
                reason=f"the cluster has no property {piece.name!r}",
                next_step=f"Known are {', '.join(sorted(known))}.",
            )


def _suspects(sequence: InstanceSequence, zone: ZoneInfo, span: timedelta) -> Iterator[Iterator[datetime]]:
    """Yield runs of instances that may have the same path in a zone, a period of the path being so long."""
    is_calendar = sequence.frequency.is_calendar
    if is_calendar and sequence.timezone is zone:
        return
    if sequence.frequency.unit is Unit.MONTHS:
        yield sequence.between(sequence.start, _LAST)
        return
    for change in chain(offset_changes(zone), offset_changes(sequence.timezone) if is_calendar else ()):
        length = abs(change.after - change.before)
        is_harmless = change.after >= change.before and not is_calendar
        if not is_harmless and change.at >= sequence.start and (sequence.end is None or change.at < sequence.end):
            yield sequence.between(change.at - length - span, change.at + length + span)


_ADDRESS = re.compile(r"catalog:([^:#]*):([^:#]*)(?:#(.*))?", re.DOTALL)  # catalog:sales:clicks#ds=${YEAR}
_NAME = re.compile(r"[A-Za-z0-9_]+")  # clicks_2
WHOLE_TABLE = "whole-table"
"""The path of a table without partition keys in its store; no partition has such a path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableAddress:
    """A parsed address; make one with `parse_table_address`.

    `partition` holds the partition keys in order, each with the template of its value; none for a whole table.

    >>> address = parse_table_address("catalog:sales:clicks#ds=${YEAR}-${MONTH}-${DAY};region=eu")
    >>> address.database, address.table
    ('sales', 'clicks')
    >>> address.template.text
    'ds=${YEAR}-${MONTH}-${DAY}/region=eu'
    """

    text: str
    database: str
    table: str
    partition: tuple[tuple[str, PathTemplate], ...]

    @property
    def name(self) -> str:
        """The table's name, `database.table`."""
        return f"{self.database}.{self.table}"

    @property
    def template(self) -> PathTemplate:
        """The partition in Hive's folder syntax, `key=value/key=value`: one for each instance; else `WHOLE_TABLE`."""
        return parse_path_template("/".join(f"{key}={value.text}" for key, value in self.partition) or WHOLE_TABLE)


@lru_cache(maxsize=8192)
def parse_table_address(text: str) -> TableAddress:
    """Parse `catalog:database:table#key=value;key=value`; values may contain variables of paths.

    `catalog:database:table` is the whole of a table that has no partitions.

    Raises:
        TableAddressError: the text does not have this form, or a variable is unknown.

    >>> parse_table_address("catalog:sales:countries").template.text
    'whole-table'
    >>> parse_table_address("catalog:sales:clicks#")
    Traceback (most recent call last):
    feed_assets.timing.errors.TableAddressError: table 'catalog:sales:clicks#': it names no partition. \
Write catalog:database:table#key=value, for example catalog:sales:clicks#ds=${YEAR}-${MONTH}-${DAY}.
    """
    found = _ADDRESS.fullmatch(text)
    if found is None:
        raise TableAddressError(text=text, reason="it does not have the form catalog:database:table#partition")
    database, table, partition = found.groups()
    for what, name in (("database", database), ("table", table)):
        if _NAME.fullmatch(name) is None:
            reason = f"{name!r} is not the name of a {what}" if name else f"it names no {what}"
            raise TableAddressError(text=text, reason=reason)
    if partition == "":
        raise TableAddressError(text=text, reason="it names no partition")
    values = tuple(_values(text, partition)) if partition else ()
    return TableAddress(text=text, database=database, table=table, partition=values)


def _values(text: str, partition: str) -> Iterator[tuple[str, PathTemplate]]:
    seen: set[str] = set()
    for part in partition.removesuffix(";").split(";"):
        key, _, value = part.partition("=")
        if _NAME.fullmatch(key) is None:
            raise TableAddressError(text=text, reason=f"{key!r} is not the name of a partition key")
        if not value or "/" in value or "=" in value:
            wrong = "a slash" if "/" in value else "an equals sign"
            reason = f"the value of {key!r} contains {wrong}" if value else f"{key!r} has no value"
            raise TableAddressError(text=text, reason=reason)
        if key in seen:
            raise TableAddressError(text=text, reason=f"the partition key {key!r} is written twice")
        seen.add(key)
        try:
            yield key, parse_path_template(value)
        except TemplateError as exc:
            raise TableAddressError(text=text, reason=exc.reason) from exc
