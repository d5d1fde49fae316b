"""Store the last scanned content of external feed instances, file by file; only where late data matter."""

import json
import zlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from feed_assets.log.instances.tables import manifests
from feed_assets.log.records import FeedKey, OfFeedInstance
from feed_assets.sql.database import lock_log
from feed_assets.sql.errors import StateError
from feed_assets.sql.rows import RowMapper, TableStore, build_upsert, delete_keys, select_keys
from feed_assets.storage.records import ScannedFile

_VERSION = 1
_T = manifests.c


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedManifest(OfFeedInstance):
    """The content of one instance; `digest` covers all files."""

    digest: str
    files: tuple[ScannedFile, ...]
    recorded_at: datetime


_ROWS = RowMapper(manifests, RecordedManifest)


class Manifests(TableStore):
    """The newest manifest of each instance, as one transaction sees them."""

    def get_many(self, keys: Collection[FeedKey]) -> dict[FeedKey, RecordedManifest]:
        """Return the manifests of the instances that have one, in one statement."""
        columns = (*_ROWS.columns, _T.content)
        found = select_keys(self._connection, manifests, FeedKey._fields, columns, keys)
        return {manifest.key: manifest for manifest in map(_from_row, found)}

    def get_digests(self, keys: Collection[FeedKey]) -> dict[FeedKey, str]:
        """Return the digests of the instances that have a manifest.

        In a write transaction only: it keeps other transactions from writing manifests until it ends.
        """
        if not keys:
            return {}
        lock_log(self._connection)
        columns = (_T.feed, _T.cluster, _T.nominal_time, _T.digest)
        found = select_keys(self._connection, manifests, FeedKey._fields, columns, keys)
        return {FeedKey(feed, cluster, time): digest for feed, cluster, time, digest in found}

    def put(self, found: Iterable[RecordedManifest]) -> None:
        """Write manifests; replace existing ones."""
        rows = [_to_row(manifest) for manifest in sorted(found, key=lambda manifest: manifest.key)]
        if rows:
            self._connection.execute(build_upsert(self._dialect, manifests), rows)

    def remove(self, keys: Iterable[tuple[str, str, datetime]]) -> None:
        """Remove the manifests of instances that are gone; instances without one are ignored."""
        delete_keys(self._connection, manifests, FeedKey._fields, keys)


def _to_row(manifest: RecordedManifest) -> dict[str, object]:
    document = {"version": _VERSION, "files": manifest.files}
    content = zlib.compress(json.dumps(document, separators=(",", ":")).encode("ascii"))
    return _ROWS.values(manifest) | {"content": content}


def _from_row(row: Sequence[Any]) -> RecordedManifest:
    *values, content = row
    document = json.loads(zlib.decompress(content))
    if document["version"] > _VERSION:
        raise StateError(
            reason=f"a manifest has version {document['version']}, but this release reads up to {_VERSION}",
            next_step="Upgrade feed-assets here to the release that wrote it.",
        )
    return _ROWS.load(values, files=tuple(ScannedFile(*file) for file in document["files"]))
