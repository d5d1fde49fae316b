"""Store the releases of each process: which definitions govern its instances from which nominal time on."""

from collections import defaultdict
from collections.abc import Iterable

from feed_assets.state.definition_records import Release
from feed_assets.state.records import EntityKey
from feed_assets.state.rows import RowMapper, TableStore
from feed_assets.state.schema import releases

_T = releases.c
_ROWS = RowMapper(releases, Release)


class Releases(TableStore):
    """The releases as one transaction sees them."""

    def of(self, process: str, cluster: str) -> list[Release]:
        """Return the releases of a process, by number."""
        statement = _ROWS.select.where(_T.process == process, _T.cluster == cluster).order_by(_T.release)
        return _ROWS.find(self._connection, statement)

    def on(self, cluster: str) -> dict[EntityKey, list[Release]]:
        """Return the releases of all processes of a cluster, by number."""
        found: dict[EntityKey, list[Release]] = defaultdict(list)
        statement = _ROWS.select.where(_T.cluster == cluster).order_by(_T.process, _T.release)
        for release in _ROWS.find(self._connection, statement):
            found[EntityKey(release.process, release.cluster)].append(release)
        return dict(found)

    def all(self) -> dict[EntityKey, list[Release]]:
        """Return the releases of all processes, by number."""
        found: dict[EntityKey, list[Release]] = defaultdict(list)
        statement = _ROWS.select.order_by(_T.process, _T.cluster, _T.release)
        for release in _ROWS.find(self._connection, statement):
            found[EntityKey(release.process, release.cluster)].append(release)
        return dict(found)

    def put(self, rows: Iterable[Release]) -> None:
        """Insert releases, or replace those with the same number."""
        _ROWS.put(self._connection, rows)
