"""Decide which partitions of a table have expired, by the keys that hold time; pure.

A partition is a whole period, and expires when all of it is older than the limit. Differs from Falcon: Falcon compares
the key values as strings, in the order of the table. With several dated keys, or with `${DAY}-${MONTH}-${YEAR}`, it
therefore drops other partitions.
"""

from collections.abc import Mapping
from datetime import datetime
from zoneinfo import ZoneInfo

from feed_assets.timing.tables import TableAddress
from feed_assets.timing.template_syntax import TimeVariable
from feed_assets.timing.templates import PathTemplate, parse_path_template

_ORDER = tuple(TimeVariable)
_BETWEEN = "\n"


def find_partition_time(address: TableAddress, values: Mapping[str, str], zone: ZoneInfo) -> datetime | None:
    """Return the start of the period that a partition's dated keys name; None if they do not name one exactly.

    >>> from feed_assets.timing.tables import parse_table_address
    >>> address = parse_table_address("catalog:web:clicks#month=${MONTH};year=${YEAR};region=eu")
    >>> find_partition_time(address, {"month": "11", "year": "2013", "region": "us"}, ZoneInfo("UTC")).isoformat()
    '2013-11-01T00:00:00+00:00'
    """
    if not values.keys() >= set(address.dated):
        return None
    return _joined(address).parse(_BETWEEN.join(values[key] for key in address.dated), zone)


def is_of_feed(address: TableAddress, values: Mapping[str, str]) -> bool:
    """Return whether the keys without time have the values of the address. Falcon ignores these keys."""
    return all(values.get(key) == value.text for key, value in address.partition if not value.variables)


def is_expired(address: TableAddress, values: Mapping[str, str], before: datetime, zone: ZoneInfo) -> bool:
    """Return whether the whole period of a partition is before a moment; False for keys that name no exact period."""
    time, reached = find_partition_time(address, values, zone), start_of_period(_joined(address), before, zone)
    return time is not None and reached is not None and time < reached


def start_of_period(template: PathTemplate, moment: datetime, zone: ZoneInfo) -> datetime | None:
    """Return the start of the period, as the template can name it, that contains a moment; None without a year.

    >>> from datetime import UTC
    >>> monthly = parse_path_template("month=${YEAR}${MONTH}")
    >>> start_of_period(monthly, datetime(2013, 11, 5, 3, tzinfo=UTC), ZoneInfo("UTC")).isoformat()
    '2013-11-01T00:00:00+00:00'
    """
    return template.parse(template.render(moment, zone), zone)


def render_filter(address: TableAddress, before: datetime, zone: ZoneInfo) -> str | None:
    """Render a metastore filter that all expired partitions match; None if strings do not give the order.

    The matches must still be checked with `is_expired`.

    >>> from datetime import UTC
    >>> from feed_assets.timing.tables import parse_table_address
    >>> address = parse_table_address("catalog:web:clicks#month=${MONTH};year=${YEAR}")
    >>> render_filter(address, datetime(2013, 11, 5, tzinfo=UTC), ZoneInfo("UTC"))
    "(year < '2013') or (year = '2013' and month < '11')"
    """
    dated = {key: value for key, value in address.partition if value.variables}
    keys = sorted(dated, key=lambda key: _ORDER.index(dated[key].variables[0]))
    order = [piece for key in keys for piece in dated[key].pieces if isinstance(piece, TimeVariable)]
    if order != list(_ORDER[: len(order)]) or not order:
        return None
    limits = {key: _quoted(dated[key].render(before, zone)) for key in keys}
    parts = []
    for position, key in enumerate(keys):
        equal = [f"{other} = {limits[other]}" for other in keys[:position]]
        parts.append(f"({' and '.join([*equal, f'{key} < {limits[key]}'])})")
    return " or ".join(parts)


def _joined(address: TableAddress) -> PathTemplate:
    return parse_path_template(_BETWEEN.join(value.text for _, value in address.partition if value.variables))


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
