"""Where Dagster shows feeds, processes and their instances: ticks note the assets that Dagster has loaded, as its
translator has named them, and whoever has no code location reads it. Without a note there is no link.

This module knows Dagster's addresses, but does not import it.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from zoneinfo import ZoneInfo

from sqlalchemy import Connection

from feed_assets.context.operation import OperationContext, Subject
from feed_assets.entities.common import Kind
from feed_assets.log.cursors import Cursors
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.run_names import is_command
from feed_assets.sql.database import Database
from feed_assets.timing.dates import parse_timezone
from feed_assets.timing.sequence import InstanceSequence, Unit, parse_frequency

if TYPE_CHECKING:
    from feed_assets.orchestration.graph.layout import AssetLayout
    from feed_assets.orchestration.graph.partitions import Grid

NOTED = "assets"
"""The cursor with the digest of what is noted."""
_PREFIX = "assets/"
_LINKED = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")  # of "a/b" or "50%" Dagster's pages find another asset, or none


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownAsset:
    """An asset of Dagster that shows a feed or process on a cluster; of an instance also the partition, if Dagster has
    it. `url` is None without the setting `webserver`, and if Dagster's pages cannot be led to an asset of this name.
    """

    cluster: str
    asset: str
    partition: str | None
    url: str | None


def note_places(database: Database, layout: "AssetLayout", noted: str | None = None) -> str:
    """Note where each feed and process of a layout is shown: a feed by its asset, a process by those that its runs
    materialize. Nothing is written if the digest of it, which is returned, is the one that is `noted`.
    """
    feeds = {_name(Kind.FEED, *key): [layout.feed_asset(key)] for key in layout.feed_specs}
    processes = {_name(Kind.PROCESS, *key): layout.run_assets(each) for key, each in layout.plan.processes.items()}
    places = {
        name: json.dumps([[asset.path, _render_grid(grid)] for asset, grid in found])
        for name, found in (feeds | processes).items()
    }
    digest = hashlib.sha256(json.dumps(places, sort_keys=True).encode()).hexdigest()
    if digest != noted:
        with database.begin() as connection:
            Cursors(connection).replace(_PREFIX, places)
            Cursors(connection).put(NOTED, digest)
    return digest


def _name(kind: Kind, name: str, cluster: str) -> str:
    return f"{cluster}/{kind}/{name}"


def _render_grid(grid: "Grid") -> Mapping[str, object]:
    sequence = grid.sequence
    return {
        "start": sequence.start.isoformat(),
        "end": sequence.end and sequence.end.isoformat(),
        "frequency": sequence.frequency.render(),
        "timezone": sequence.timezone.key,
        "key_format": grid.key_format,
        "key_zone": grid.key_zone.key,
        "as_they_come": bool(grid.owner),
        "single": grid.is_single,
    }


def find_places(context: OperationContext, subject: Subject) -> tuple[ShownAsset, ...]:
    """Return the assets that show a feed or process on each cluster, or the partitions that show its instance."""
    names = {f"{_PREFIX}{_name(subject.kind, subject.name, each)}": each for each in subject.asked}
    with context.database.read() as connection:
        noted = Cursors(connection).get_many(names)
        return tuple(
            _show(context, cluster, path, _find_key(context, connection, subject, cluster, grid))
            for name, cluster in names.items()
            for path, grid in json.loads(noted.get(name, "[]"))
        )


def _find_key(
    context: OperationContext, connection: Connection, subject: Subject, cluster: str, grid: Mapping[str, Any]
) -> str | None:
    """Return the partition of an instance; None if Dagster has none."""
    time = subject.nominal_time
    if time is None or time > context.as_of or grid.get("single"):
        return None
    sequence = InstanceSequence(
        start=datetime.fromisoformat(grid["start"]),
        frequency=parse_frequency(grid["frequency"], finest=Unit.SECONDS),
        timezone=parse_timezone(grid["timezone"]),
        end=grid["end"] and datetime.fromisoformat(grid["end"]),
    )
    has_it = not grid["as_they_come"] or _has_come(connection, subject.kind, subject.name, cluster, time)
    if not has_it or not sequence.contains(time):
        return None
    return time.astimezone(ZoneInfo(grid["key_zone"])).strftime(grid["key_format"])


def _has_come(connection: Connection, kind: Kind, name: str, cluster: str, time: datetime) -> bool:
    """Return whether there is an instance, of a process one that Dagster has run: their partitions come with them."""
    if kind is Kind.FEED:
        return bool(FeedInstances(connection).find_between(name, cluster, time, time))
    row = ProcessInstances(connection).get(name, cluster, time)
    return row is not None and row.run_id is not None and not is_command(row.run_id)


def _show(context: OperationContext, cluster: str, path: Sequence[str], key: str | None) -> ShownAsset:
    url = None
    if context.webserver and all(map(_LINKED.fullmatch, path)):
        query = f"?view=partitions&partition={quote(key, safe='')}" if key else ""
        url = f"{context.webserver.rstrip('/')}/assets/{'/'.join(path)}{query}"
    return ShownAsset(cluster=cluster, asset="/".join(path), partition=key, url=url)
