"""Addresses of tables in a catalog: database, table and partition (`catalog:sales:clicks#ds=${YEAR};region=eu`)."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from feed_assets.timing.errors import TableAddressError, TemplateError
from feed_assets.timing.templates import PathTemplate, parse_path_template

_ADDRESS = re.compile(r"catalog:([^:#]*):([^:#]*)(?:#(.*))?", re.DOTALL)  # catalog:sales:clicks#ds=${YEAR}
_NAME = re.compile(r"[A-Za-z0-9_]+")  # clicks_2


@dataclass(frozen=True, slots=True, kw_only=True)
class TableAddress:
    """A parsed address; make one with `parse_table_address`.

    `partition` holds the partition keys in order, each with the template of its value.

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
        """The partition in Hive's folder syntax, `key=value/key=value`: one for each instance."""
        return parse_path_template("/".join(f"{key}={value.text}" for key, value in self.partition))


@lru_cache(maxsize=8192)
def parse_table_address(text: str) -> TableAddress:
    """Parse `catalog:database:table#key=value;key=value`; values may contain variables of paths.

    Raises:
        TableAddressError: the text does not have this form, or a variable is unknown.

    >>> parse_table_address("catalog:sales:clicks")
    Traceback (most recent call last):
    feed_assets.timing.errors.TableAddressError: table 'catalog:sales:clicks': it names no partition. \
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
    if not partition:
        raise TableAddressError(text=text, reason="it names no partition")
    values = tuple(_values(text, partition))
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
