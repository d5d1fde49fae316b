"""Store small values by name: positions of readers, revisions, times."""

import secrets
from collections.abc import Collection

from sqlalchemy import select

from feed_assets.log.tables import cursors
from feed_assets.sql.rows import TableStore, build_upsert

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
        upsert = build_upsert(self._dialect, cursors)
        self._connection.execute(upsert, {"name": name, "value": value})

    def advance(self, name: str) -> None:
        """Raise a number, of which caches are reminded by its change, by a random step.

        After a restore from a backup, other changes therefore do not lead to a number that it had before.
        """
        self.put(name, str(int(self.get(name) or 0) + 1 + secrets.randbelow(_LARGEST_STEP)))
