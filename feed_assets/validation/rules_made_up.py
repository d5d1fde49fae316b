"""Rules about made-up data: the columns are those of the output's feed, and their values are of its types."""

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from decimal import Decimal, InvalidOperation

from feed_assets.entities.content.columns import describe_column, parse_columns
from feed_assets.entities.content.made_up import MadeUpColumn, MadeUpDecimal, Making, span_of
from feed_assets.entities.errors import ColumnsError
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process, iter_whole_workflows
from feed_assets.entities.workflow import Workflow, WorkflowEngine
from feed_assets.issues import FieldPath
from feed_assets.timing.dates import parse_timezone, render_datetime
from feed_assets.timing.errors import TimingError
from feed_assets.validation.scope import Complaint, Scope

_TYPE = re.compile(r"(\w+)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?")  # decimal(10, 2)
_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")  # -12
_BITS: Mapping[str, int] = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_DECIMALS = ("decimal", "dec", "numeric")
_NUMBERS = (*_BITS, *_DECIMALS, "double", "float")
_FITTING: Mapping[Making, tuple[str, ...]] = {
    Making.RANGE: (*_NUMBERS, "string"),
    Making.DECIMAL: (*_DECIMALS, "double", "float", "string"),
    Making.DATES: ("date", "timestamp", "timestamp_ltz", "string"),
    Making.REGEX: ("string",),
    Making.CHOICE: (*_NUMBERS, "boolean", "date", "string"),
}


def check_outputs(scope: Scope, process: Process) -> Iterator[Complaint]:
    """Made-up rows must be those of one output, which is no table and whose feed has a schema."""
    for where, workflow in iter_whole_workflows(process):
        if workflow.engine is not WorkflowEngine.GENERATE:
            continue
        if len(process.outputs) != 1:
            message = f"rows are made up for one output, but the process has {len(process.outputs) or 'none'}"
            yield Complaint(path=(*where, "engine"), message=message, remedy="Write a process for each feed.")
            continue
        feed = _output_feed(scope, process)
        if feed is not None and any(feed.table_on(name) for name in process.clusters if name in feed.clusters):
            message = f"rows are made up in files, but feed {feed.name!r} is a table"
            yield Complaint(path=(*where, "engine"), message=message, remedy="Give the feed locations.")
        elif feed is not None and feed.columns is None:
            columns = ", ".join(f"{_quoted(name)} {_usual_type(column)}" for name, column in workflow.columns.items())
            message = f"feed {feed.name!r} has no schema, so the types of its columns are not known"
            yield Complaint(path=(*where, "columns"), message=message, remedy=f'Write schema: "{columns}" at the feed.')


def check_columns(scope: Scope, process: Process) -> Iterator[Complaint]:
    """Made-up columns must be those of the feed's schema, with values of their types and dates in their order."""
    feed = _output_feed(scope, process)
    if feed is None or feed.columns is None:
        return
    try:
        declared = {name.lower(): (name, kind) for name, kind in parse_columns(feed.columns)}
    except ColumnsError:
        return
    for where, workflow in iter_whole_workflows(process):
        if workflow.engine is WorkflowEngine.GENERATE:
            yield from _complaints(process, feed, workflow, (*where, "columns"), declared)


def _complaints(
    process: Process, feed: Feed, workflow: Workflow, where: FieldPath, declared: Mapping[str, tuple[str, str]]
) -> Iterator[Complaint]:
    written = [name.lower() for name in workflow.columns]
    missing = [name for key, (name, _) in declared.items() if key not in written]
    if missing:
        message = f"columns of feed {feed.name!r} are not made up: {', '.join(missing)}"
        yield Complaint(path=where, message=message, remedy="Say how their values are made.")
    for name, column in workflow.columns.items():
        if name.lower() not in declared or written.count(name.lower()) > 1:
            reason = "is written twice" if name.lower() in declared else f"is none of feed {feed.name!r}"
            yield Complaint(path=(*where, name), message=f"column {name!r} {reason}", remedy="Remove it.")
            continue
        if (misfit := _find_misfit(column, declared[name.lower()][1])) is not None:
            path = (*where, name, column.making.value)
            message = f"column {name!r} of feed {feed.name!r} is {declared[name.lower()][1]}, {misfit}"
            yield Complaint(path=path, message=message, remedy="Change it, or the schema of the feed.")
        if column.dates is not None and (emptiness := _find_empty_span(process, column.dates)) is not None:
            message = f"column {name!r}: {emptiness}"
            yield Complaint(path=(*where, name, "dates"), message=message, remedy="Write the earlier one first.")


def _find_empty_span(process: Process, dates: tuple[str, str]) -> str | None:
    """Return why dates have no value for the first instance; None if they have some."""
    instance = min(entry.validity.start for entry in process.clusters.values())
    try:
        first, last = span_of(dates, instance, parse_timezone(process.timezone))
    except TimingError as exc:
        return str(exc)
    if first <= last:
        return None
    return f"its dates end at {render_datetime(last)}, before they begin at {render_datetime(first)}"


def _find_misfit(column: MadeUpColumn, kind: str) -> str | None:
    """Return why made-up values are not of a declared type, as a clause; None if they are."""
    text = describe_column(kind).type
    found = _TYPE.fullmatch(text.strip())
    if text.upper().endswith("NOT NULL"):
        return "but Spark reads the columns of files as nullable: remove NOT NULL"
    name = describe_column(found[1]).type.lower() if found else text
    if found is None or name not in _FITTING[column.making]:
        return f"and {column.making.value} makes {_made(column.making)}"
    fits = _test_of(name, int(found[2] or 10), int(found[3] or 0))
    wrong = next((value for value in _extremes(column) if not fits(value)), None)
    return None if wrong is None else f"and {wrong} is not"


def _test_of(name: str, precision: int, scale: int) -> Callable[[str], bool]:
    """Return a test of whether a text is a value of a type."""
    if name in _BITS:
        limit = 2 ** (_BITS[name] - 1)
        return lambda text: _WHOLE.fullmatch(text) is not None and -limit <= int(text) < limit
    if name in _DECIMALS:
        return lambda text: _is_number(text, scale=scale) and abs(Decimal(text)) < 10 ** (precision - scale)
    match name:
        case "double" | "float":
            return _is_number
        case "boolean":
            return lambda text: text.lower() in ("true", "false")
        case "date":
            return _is_date
        case _:
            return lambda _: True


def _extremes(column: MadeUpColumn) -> tuple[str, ...]:
    """Return the values that show whether all are of a type."""
    if column.decimal is not None:
        return tuple(str(Decimal(step).scaleb(-column.decimal.scale)) for step in column.decimal.steps)
    return tuple(map(str, column.range or column.choice))


def _is_number(text: str, scale: int | None = None) -> bool:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return False
    if not number.is_finite():
        return False
    exponent = number.as_tuple().exponent
    return scale is None or (isinstance(exponent, int) and -exponent <= scale)


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _made(making: Making) -> str:
    match making:
        case Making.RANGE:
            return "whole numbers"
        case Making.DECIMAL:
            return "decimal numbers"
        case Making.DATES:
            return "dates or times"
        case Making.REGEX:
            return "texts"
        case Making.CHOICE:
            return "numbers, truth values, dates or texts"


def _usual_type(column: MadeUpColumn) -> str:
    decimal = column.decimal or MadeUpDecimal(range=("0", "0"))
    match column.making:
        case Making.RANGE:
            return "bigint"
        case Making.DECIMAL:
            return f"decimal(18,{decimal.scale})"
        case Making.DATES:
            return "date"
        case Making.REGEX | Making.CHOICE:
            return "string"


def _quoted(name: str) -> str:
    return name if name.isidentifier() else f"`{name}`"


def _output_feed(scope: Scope, process: Process) -> Feed | None:
    return scope.bundle.find_feed(next(iter(process.outputs.values())).feed) if len(process.outputs) == 1 else None
