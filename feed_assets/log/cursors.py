"""Store small values by name: positions of readers, revisions, times, and what is noted of something by its name."""

import secrets
from collections.abc import Collection, Mapping

from sqlalchemy import delete, select

from feed_assets.log.tables import cursors
from feed_assets.sql.rows import TableStore, build_upsert, delete_keys

_T = cursors.c
_LARGEST_STEP = 2**32


class Cursors(TableStore):
    """The values as one transaction sees them."""

    def get(self, name: str) -> str | None:
        """Return the last value; None if there is none."""
        value: str | None = self._connection.scalar(select(_T.value).where(_T.name == name))
        return value

    def get_many(self, names: Collection[str]) -> dict[str, str]:
        """Return the last values, in one statement; names without a value are left out."""
        found = self._connection.execute(select(_T.name, _T.value).where(_T.name.in_(sorted(names))))
        return {row.name: row.value for row in found}

    def with_prefix(self, prefix: str) -> dict[str, str]:
        """Return the last values of the names with a prefix, by the rest of the name."""
        is_its = (_T.name > prefix, _T.name < f"{prefix}\U0010ffff")
        found = self._connection.execute(select(_T.name, _T.value).where(*is_its))
        return {row.name.removeprefix(prefix): row.value for row in found}

    def put(self, name: str, value: str) -> None:
        """Write a value; replace an existing one."""
        self._connection.execute(build_upsert(self._dialect, cursors), {"name": name, "value": value})

    def remove(self, name: str, value: str | None) -> None:
        """Remove a value, unless it is another one meanwhile."""
        self._connection.execute(delete(cursors).where(_T.name == name, _T.value == value))

    def replace(self, prefix: str, values: Mapping[str, str]) -> None:
        """Let the names with a prefix have these values, by the rest of the name, and no others be there."""
        known = self.with_prefix(prefix)
        new = [{"name": f"{prefix}{name}", "value": text} for name, text in values.items() if known.get(name) != text]
        if new:
            self._connection.execute(build_upsert(self._dialect, cursors), new)
        delete_keys(self._connection, cursors, ("name",), [(f"{prefix}{name}",) for name in known.keys() - values])

    def advance(self, name: str) -> None:
        """Raise a number, of which caches are reminded by its change, by a random step.

        After a restore from a backup, other changes therefore do not lead to a number that it had before.
        """
        self.put(name, str(int(self.get(name) or 0) + 1 + secrets.randbelow(_LARGEST_STEP)))
