"""What differs between databases: one record each, by the type of the datasource."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import TypeAlias

from feed_assets.entities.maps import EMPTY

Value: TypeAlias = str | int | float | bool | Decimal | datetime | date | bytes | None
"""A value of a database. A time that names a moment is aware, in UTC; one that is read on a clock is naive."""

_MARIADB, _MYSQL = "jdbc:mariadb:", "jdbc:mysql:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """What is particular to a database.

    `zoned` are its types of times that name a moment; those of the others are read on a clock in the time zone of the
    datasource. With `schema_is_catalog` a schema is what JDBC calls a catalog. `may_read` and
    `may_create` are queries with a schema as their only value: how many tables there the user may read, and whether he
    may make one; None if the database cannot be asked, or shows no others. `unique` is a query
    with a quoted table: index, position, column and whether it is the primary key, of each unique index over columns of
    all rows; without it JDBC is asked. `session` is what every connection says first, so that times are told in UTC, as
    drivers here take them; `read_only` what one says that must not write. `utc` follows the text of a time in UTC.

    Rows are read with the type `text` for texts, and `bits` as the text of bits. A database `knows_zones` that tells
    moments of a clock in a zone by itself; one that tells times and texts of fixed length best as texts, as neither
    Java nor Spark changes them then, has `times_as_text`. `reading` and `writing` are options of its driver in Spark:
    with the latter texts become whatever type a column has, and what does not fit is refused.
    """

    quote: str = '"'
    zoned: frozenset[str] = frozenset({"timestamp with time zone", "timestamp with local time zone"})
    schema_is_catalog: bool = False
    may_read: str | None = None
    may_create: str | None = None
    unique: str | None = None
    session: str | None = None
    read_only: str | None = None
    utc: str = ""
    has_arrays: bool = False
    text: str = "varchar(4000)"
    bits: str | None = None
    knows_zones: bool = False
    times_as_text: bool = False
    reading: Mapping[str, str] = EMPTY
    writing: Mapping[str, str] = EMPTY

    def quoted(self, name: str) -> str:
        """Return a name as an identifier.

        >>> DIALECTS["mysql"].quoted("a`b"), Dialect().quoted('or"der')
        ('`a``b`', '"or""der"')
        """
        return f"{self.quote}{name.replace(self.quote, self.quote * 2)}{self.quote}"


DIALECTS: Mapping[str, Dialect] = MappingProxyType(
    {
        "postgres": Dialect(
            zoned=frozenset({"timestamptz"}),
            utc=" UTC",
            has_arrays=True,
            text="text",
            knows_zones=True,
            writing=MappingProxyType({"stringtype": "unspecified", "reWriteBatchedInserts": "true"}),
            may_read="SELECT count(*) FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = ? "
            "AND relkind IN ('r', 'v', 'm', 'f', 'p') AND has_table_privilege(pg_class.oid, 'SELECT')",
            may_create="SELECT has_schema_privilege(CAST(? AS text), 'CREATE')",
            unique="SELECT i.relname, k.n, a.attname, indisprimary FROM pg_index JOIN pg_class i ON i.oid = indexrelid "
            "CROSS JOIN unnest(indkey) WITH ORDINALITY AS k(number, n) "
            "JOIN pg_attribute a ON attrelid = indrelid AND attnum = k.number "
            "WHERE indrelid = to_regclass(CAST(? AS text)) AND indisunique AND indisvalid AND k.n <= indnkeyatts "
            "AND indpred IS NULL AND indexprs IS NULL",
        ),
        "mysql": Dialect(
            quote="`",
            zoned=frozenset({"timestamp"}),
            schema_is_catalog=True,
            session="SET time_zone = '+00:00'",
            read_only="SET SESSION TRANSACTION READ ONLY",
            text="char",
            bits="BIN({} + 0)",
            times_as_text=True,
            reading=MappingProxyType({"useCursorFetch": "true", "sessionVariables": "time_zone='+00:00'"}),
            writing=MappingProxyType(
                {
                    "rewriteBatchedStatements": "true",
                    "sessionVariables": "time_zone='+00:00',sql_mode='STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE'",
                }
            ),
            may_create="SELECT count(*) > 0 FROM ("
            "SELECT grantee, privilege_type, '%' AS place FROM information_schema.user_privileges UNION ALL "
            "SELECT grantee, privilege_type, table_schema FROM information_schema.schema_privileges) AS granted "
            "WHERE privilege_type = 'CREATE' AND ? LIKE place "
            "AND grantee = CONCAT('''', REPLACE(CURRENT_USER(), '@', '''@'''), '''')",
        ),
    }
)


def spark_url(url: str) -> str:
    """Return the JDBC URL by which Spark knows the dialect of a database: MariaDB has that of MySQL. With another one
    Spark quotes names as texts, and every row has the name of the column.

    >>> spark_url("jdbc:mariadb://host/shop?useSsl=true")
    'jdbc:mysql://host/shop?useSsl=true&permitMysqlScheme=true'
    """
    if not url.startswith(_MARIADB):
        return url
    return f"{_MYSQL}{url.removeprefix(_MARIADB)}{'&' if '?' in url else '?'}permitMysqlScheme=true"
