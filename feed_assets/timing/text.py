"""`${…}` in property values, partitions and arguments: string functions and variables of the expression language."""

import re
from calendar import monthrange
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import TypeAlias
from zoneinfo import ZoneInfo

from feed_assets.timing.calls import Argument, Call, Word
from feed_assets.timing.dates import parse_datetime, parse_timezone, render_datetime
from feed_assets.timing.errors import DateTimeError, ExpressionError, InstanceError, TimeZoneError, UnknownNameError
from feed_assets.timing.expressions import TIME_FUNCTIONS, parse_time_expression

_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+|.", re.DOTALL)  # yyyy-MMM-dd'T'HH:mm, 'o''clock'
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_SHORT = 3


def _number(value: int, width: int) -> str:
    return f"{value:0{width}d}"


def _name(name: str, width: int) -> str:
    return name if width > _SHORT else name[:_SHORT]


def _offset(moment: datetime) -> str:
    return moment.strftime("%z") or "+0000"


_LETTERS: Mapping[str, Callable[[datetime, int], str]] = MappingProxyType(
    {
        "G": lambda _, __: "AD",
        "y": lambda t, w: _number(t.year % 100, 2) if w == 2 else _number(t.year, w),
        "M": lambda t, w: _number(t.month, w) if w < _SHORT else _name(_MONTHS[t.month - 1], w),
        "D": lambda t, w: _number(t.timetuple().tm_yday, w),
        "d": lambda t, w: _number(t.day, w),
        "E": lambda t, w: _name(_WEEKDAYS[t.weekday()], w),
        "u": lambda t, w: _number(t.isoweekday(), w),
        "a": lambda t, _: "AM" if t.hour < 12 else "PM",
        "H": lambda t, w: _number(t.hour, w),
        "k": lambda t, w: _number(t.hour or 24, w),
        "K": lambda t, w: _number(t.hour % 12, w),
        "h": lambda t, w: _number(t.hour % 12 or 12, w),
        "m": lambda t, w: _number(t.minute, w),
        "s": lambda t, w: _number(t.second, w),
        "S": lambda t, w: _number(t.microsecond // 1000, w),
        "z": lambda t, _: t.tzname() or "UTC",
        "Z": lambda t, _: _offset(t),
        "X": lambda t, w: "Z" if _offset(t) == "+0000" else _iso_offset(_offset(t), w),
    }
)


def _iso_offset(offset: str, width: int) -> str:
    return {1: offset[:3], 2: offset[:5]}.get(width, f"{offset[:3]}:{offset[3:5]}")


def format_date(moment: datetime, pattern: str) -> str:
    """Format the wall-clock time of an aware datetime.

    Letters of a pattern: G y M D d E u a H k K h m s S z Z X, quoted 'text', and '' for a quote.

    Differs from Falcon: the letters for weeks (w, W, F), whose meaning depends on a locale, are refused.

    Raises:
        DateTimeError: another letter, or a quote that is not closed.

    >>> from datetime import UTC
    >>> format_date(datetime(2009, 9, 2, 10, tzinfo=UTC), "yyyy-MMM-dd'T'HH:mm")
    '2009-Sep-02T10:00'
    """
    return "".join(_part(moment, pattern, found) for found in _TOKEN.finditer(pattern))


def _part(moment: datetime, pattern: str, found: re.Match[str]) -> str:
    token, quoted, letter = found.group(), found.group(1), found.group(2)
    if quoted is not None:
        return quoted.replace("''", "'") if quoted else "'"
    if token == "'":
        raise DateTimeError(text=pattern, reason="a quote of the pattern is not closed")
    if letter is None:
        return token
    if letter not in _LETTERS:
        raise DateTimeError(text=pattern, reason=f"{letter} is not a letter of date patterns ({' '.join(_LETTERS)})")
    return _LETTERS[letter](moment, len(token))


Value: TypeAlias = int | str

_SUBSTITUTION = re.compile(r"\$\{((?:[^{}'\"]|'[^']*'|\"[^\"]*\")*)\}")  # ${cluster.colo}, ${formatTime(x(),'{}')}
_VARIABLE = re.compile(r"[A-Za-z_][\w.\-]*", re.ASCII)  # YEAR, cluster.colo, my-property
_TIME_VARIABLES = MappingProxyType(
    {"YEAR": "yyyy", "MONTH": "MM", "DAY": "dd", "HOUR": "HH", "MINUTE": "mm", "SECOND": "ss"}
)
_CLUSTER = "cluster."
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextContext:
    """The values that a text can refer to.

    Attributes:
        nominal_time: nominal time of the instance, aware.
        timezone: zone of `${YEAR}` … `${SECOND}` and of the truncation in `${today(0,0)}` and similar functions.
        user: the value of `${user()}`.
        cluster: the values of `${cluster.<key>}`: the properties, and `name` and `colo`.
        properties: further variables, such as the properties of the entity.
        inputs: the resolved paths of each input, by its name, for `${dataIn(name, partition)}`.
    """

    nominal_time: datetime
    timezone: ZoneInfo
    user: str = ""
    cluster: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    inputs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def render_text(text: str, context: TextContext) -> str:
    """Replace every `${…}` in a text; replacements are not expanded again.

    Functions: `instanceTime()`, `dateOffset(date, n, unit)`, `formatTime(date, pattern)` (see `format_date`),
    `dateTzOffset(date, zone)`, `epochTime(date, millis)`, `user()`, `dataIn(name, partition)`, the durations
    `minutes(n)`, `hours(n)`, `days(n)`, `months(n)` (31 days) and `years(n)` (366 days) in milliseconds, and the time
    functions (`today(0,0)`), which give an exact time. Variables: `YEAR` … `SECOND`, `cluster.<key>`, properties.

    Args:
        text: any text; without `${` it is returned unchanged.
        context: the values.

    Raises:
        UnknownNameError: an unknown variable, function or input; the error lists the known ones.
        ExpressionError: a syntax error, or arguments that do not fit.

    >>> context = TextContext(nominal_time=datetime(2009, 9, 2, 10, tzinfo=UTC), timezone=ZoneInfo("UTC"))
    >>> render_text("out-${YEAR}/${formatTime(dateOffset(instanceTime(), 1, 'DAY'), 'yyyy-MMM-dd')}", context)
    'out-2009/2009-Sep-03'
    """
    parts: list[str] = []
    end = 0
    for found in _SUBSTITUTION.finditer(text):
        parts += _literal(text, end, found.start()), _substituted(found, context)
        end = found.end()
    parts.append(_literal(text, end, len(text)))
    return "".join(parts)


def _literal(text: str, start: int, stop: int) -> str:
    opened = text.find("${", start, stop)
    if opened >= 0:
        raise ExpressionError(text=text, position=opened, reason="this ${ is not closed")
    return text[start:stop]


def _substituted(found: re.Match[str], context: TextContext) -> str:
    text, inner, position = found.string, found.group(1), found.start(1)
    evaluation = _Evaluation(text=text, context=context, origin=position)
    try:
        if _VARIABLE.fullmatch(inner.strip()):
            return evaluation.variable(inner.strip(), 0)
        from feed_assets.timing.grammar import parse_call  # as in `expressions`

        call = parse_call(inner)
    except ExpressionError as exc:
        raise _moved(exc, text, position) from exc
    return str(evaluation.call(call))


def _moved(error: ExpressionError, text: str, offset: int) -> ExpressionError:
    if error.text == text:
        return error
    return ExpressionError(
        text=text, position=offset + error.position, reason=error.reason, suggestions=error.suggestions
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Evaluation:
    text: str
    context: TextContext
    origin: int = 0

    def variable(self, name: str, position: int) -> str:
        context = self.context
        if name in _TIME_VARIABLES:
            return format_date(context.nominal_time.astimezone(context.timezone), _TIME_VARIABLES[name])
        key = name.removeprefix(_CLUSTER)
        if key != name and key in context.cluster:
            return context.cluster[key]
        if name in context.properties:
            return context.properties[name]
        clusters = tuple(f"{_CLUSTER}{key}" for key in sorted(context.cluster))
        raise self._unknown(position, name, "variable", (*_TIME_VARIABLES, *clusters, *sorted(context.properties)))

    def call(self, call: Call) -> Value:
        if call.name in TIME_FUNCTIONS:
            return self._time(call)
        function = _FUNCTIONS.get(call.name)
        if function is None:
            raise self._unknown(call.position, call.name, "function", (*_FUNCTIONS, *sorted(TIME_FUNCTIONS)))
        values = self._values(call, function)
        if call.name == "dataIn" and values[0] not in self.context.inputs:
            known = tuple(sorted(self.context.inputs))
            raise self._unknown(call.argument_positions[0], str(values[0]), "input", known)
        try:
            return function.apply(self.context, *values)
        except (DateTimeError, TimeZoneError) as exc:
            raise self._refusal(call.position, str(exc).rstrip(".")) from exc
        except (OverflowError, ValueError) as exc:
            raise self._refusal(call.position, "the result is outside the years 1 to 9999") from exc

    def _values(self, call: Call, function: "_Function") -> list[Value]:
        if len(call.arguments) != len(function.parameters):
            signature = f"{call.name}({', '.join(function.parameters)})"
            reason = f"{signature} takes {len(function.parameters)} arguments, not {len(call.arguments)}"
            raise self._refusal(call.position, reason)
        values = [self._value(*pair) for pair in zip(call.arguments, call.argument_positions, strict=True)]
        for value, parameter, position in zip(values, function.parameters, call.argument_positions, strict=True):
            if isinstance(value, int) != (parameter == "n"):
                kind = "a whole number" if parameter == "n" else "a text in quotes"
                raise self._refusal(position, f"{parameter} is {kind}")
        return values

    def _value(self, argument: Argument, position: int) -> Value:
        match argument:
            case Call():
                return self.call(argument)
            case Word():
                return self.variable(argument.name, position)
            case _:
                return argument

    def _time(self, call: Call) -> str:
        values = [self._value(*pair) for pair in zip(call.arguments, call.argument_positions, strict=True)]
        arguments = ",".join(str(value) if isinstance(value, int) else f"'{value}'" for value in values)
        try:
            expression = parse_time_expression(f"{call.name}({arguments})")
            return render_datetime(expression.evaluate(self.context.nominal_time, self.context.timezone))
        except (ExpressionError, InstanceError) as exc:
            reason = exc.reason if isinstance(exc, ExpressionError) else str(exc).rstrip(".")
            raise self._refusal(call.position, reason) from exc

    def _refusal(self, position: int, reason: str) -> ExpressionError:
        return ExpressionError(text=self.text, position=self.origin + position, reason=reason)

    def _unknown(self, position: int, name: str, kind: str, known: tuple[str, ...]) -> UnknownNameError:
        return UnknownNameError(text=self.text, position=self.origin + position, name=name, kind=kind, known=known)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Function:
    parameters: tuple[str, ...]
    apply: Callable[..., Value]


def _duration(days: int = 0, hours: int = 0, minutes: int = 0) -> _Function:
    unit = timedelta(days=days, hours=hours, minutes=minutes) // _MILLISECOND
    return _Function(parameters=("n",), apply=lambda _, n: n * unit)


def _date_offset(_: TextContext, text: str, n: int, unit: str) -> str:
    moment = parse_datetime(text, seconds=True)
    match unit:
        case "MINUTE":
            moved = moment + timedelta(minutes=n)
        case "HOUR":
            moved = moment + timedelta(hours=n)
        case "DAY" | "END_OF_DAY":
            moved = moment + timedelta(days=n)
        case "MONTH" | "END_OF_MONTH":
            moved = _plus_months(moment, n)
        case "YEAR":
            moved = _plus_months(moment, 12 * n)
        case _:
            raise DateTimeError(text=unit, reason="the unit is one of MINUTE, HOUR, DAY, MONTH, YEAR")
    return render_datetime(moved)


def _plus_months(moment: datetime, n: int) -> datetime:
    year, month = divmod(moment.year * 12 + moment.month - 1 + n, 12)
    return moment.replace(year=year, month=month + 1, day=min(moment.day, monthrange(year, month + 1)[1]))


def _date_tz_offset(_: TextContext, text: str, zone_name: str) -> str:
    return render_datetime(parse_datetime(text, seconds=True).astimezone(parse_timezone(zone_name)).replace(tzinfo=UTC))


def _epoch_time(_: TextContext, text: str, millis: str) -> str:
    seconds = int(parse_datetime(text, seconds=True).timestamp())
    return str(seconds * 1000 if millis == "true" else seconds)


def _data_in(context: TextContext, name: str, partition: str) -> str:
    suffix = "" if partition in {"", "null"} else f"/{partition}"
    return ",".join(f"{path}{suffix}" for path in context.inputs[name])


_FUNCTIONS: Mapping[str, _Function] = MappingProxyType(
    {
        "instanceTime": _Function(parameters=(), apply=lambda context: render_datetime(context.nominal_time)),
        "dateOffset": _Function(parameters=("date", "n", "unit"), apply=_date_offset),
        "dateTzOffset": _Function(parameters=("date", "zone"), apply=_date_tz_offset),
        "epochTime": _Function(parameters=("date", "millis"), apply=_epoch_time),
        "formatTime": _Function(
            parameters=("date", "pattern"),
            apply=lambda _, text, pattern: format_date(parse_datetime(text, seconds=True), pattern),
        ),
        "user": _Function(parameters=(), apply=lambda context: context.user),
        "dataIn": _Function(parameters=("name", "partition"), apply=_data_in),
        "minutes": _duration(minutes=1),
        "hours": _duration(hours=1),
        "days": _duration(days=1),
        "months": _duration(days=31),
        "years": _duration(days=366),
    }
)
