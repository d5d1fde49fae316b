"""What each instance of an external feed held when it was last found out, file by file; only where late data matter."""

import json
import zlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, and_, bindparam, delete, select

from feed_assets.state.database import lock_log
from feed_assets.state.errors import StateError
from feed_assets.state.keyed import KEY_ROWS, key_rows, render_rows
from feed_assets.state.records import FeedKey
from feed_assets.state.schema import manifests
from feed_assets.state.upserts import build_upsert

_VERSION = 1
_T = manifests.c
_REMOVE = delete(manifests).where(
    _T.feed == bindparam("of_feed"), _T.cluster == bindparam("on_cluster"), _T.nominal_time == bindparam("at")
)


class RecordedFile(NamedTuple):
    """One file: its path in the instance, bytes, a sign by which storage tells whether it was written since, and the
    checksum of its content.
    """

    path: str
    size: int
    sign: str
    checksum: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedManifest:
    """The content of one instance; `digest` is over all files."""

    feed: str
    cluster: str
    nominal_time: datetime
    digest: str
    files: tuple[RecordedFile, ...]
    recorded_at: datetime

    @property
    def key(self) -> FeedKey:
        """The instance."""
        return FeedKey(self.feed, self.cluster, self.nominal_time)


class Manifests:
    """The newest manifest of each instance, as one transaction sees them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._dialect = connection.dialect.name

    def get_many(self, keys: Collection[FeedKey]) -> dict[FeedKey, RecordedManifest]:
        """Those of the instances that have a manifest, in one statement."""
        if not keys:
            return {}
        found = self._connection.execute(_select_many(self._dialect), {KEY_ROWS: render_rows(keys)})
        return {manifest.key: manifest for manifest in map(_from_row, found)}

    def get_digests(self, keys: Collection[FeedKey]) -> dict[FeedKey, str]:
        """The digests of those of the instances that have a manifest.

        In a write transaction only: nobody else puts one until it ends.
        """
        if not keys:
            return {}
        lock_log(self._connection)
        found = self._connection.execute(_select_digests(self._dialect), {KEY_ROWS: render_rows(keys)})
        return {FeedKey(feed, cluster, time): digest for feed, cluster, time, digest in found}

    def put(self, found: Iterable[RecordedManifest]) -> None:
        """Remember manifests, in the place of those there are."""
        rows = [_to_row(manifest) for manifest in sorted(found, key=lambda manifest: manifest.key)]
        if rows:
            self._connection.execute(build_upsert(self._dialect, manifests), rows)

    def remove(self, keys: Iterable[tuple[str, str, datetime]]) -> None:
        """Forget the manifests of instances that are gone; those that have none are left out."""
        parameters = [{"of_feed": feed, "on_cluster": cluster, "at": time} for feed, cluster, time in sorted(keys)]
        if parameters:
            self._connection.execute(_REMOVE, parameters)


@lru_cache
def _select_many(dialect: str) -> Select[Any]:
    return _select_wanted(dialect, *manifests.columns)


@lru_cache
def _select_digests(dialect: str) -> Select[Any]:
    return _select_wanted(dialect, _T.feed, _T.cluster, _T.nominal_time, _T.digest)


def _select_wanted(dialect: str, *columns: Any) -> Select[Any]:
    wanted = key_rows(dialect, FeedKey._fields)
    is_wanted = and_(_T.feed == wanted.c.feed, _T.cluster == wanted.c.cluster, _T.nominal_time == wanted.c.nominal_time)
    return select(*columns).join_from(wanted, manifests, is_wanted)


def _to_row(manifest: RecordedManifest) -> dict[str, object]:
    document = {"version": _VERSION, "files": manifest.files}
    return {
        "feed": manifest.feed,
        "cluster": manifest.cluster,
        "nominal_time": manifest.nominal_time,
        "digest": manifest.digest,
        "content": zlib.compress(json.dumps(document, separators=(",", ":")).encode("ascii")),
        "recorded_at": manifest.recorded_at,
    }


def _from_row(row: Sequence[Any]) -> RecordedManifest:
    feed, cluster, nominal_time, digest, content, recorded_at = row
    document = json.loads(zlib.decompress(content))
    if document["version"] > _VERSION:
        raise StateError(
            reason=f"a manifest is of version {document['version']}, and this release reads up to {_VERSION}",
            next_step="Upgrade feed-assets here to the release that wrote it.",
        )
    return RecordedManifest(
        feed=feed,
        cluster=cluster,
        nominal_time=nominal_time,
        digest=digest,
        files=tuple(RecordedFile(*file) for file in document["files"]),
        recorded_at=recorded_at,
    )
