"""What a change of definitions has left to look at: is it applied, and which instances does it concern."""

import json
from collections import defaultdict
from collections.abc import Iterable

from sqlalchemy import Connection

from feed_assets.log.cursors import Cursors
from feed_assets.plan.edges import Key
from feed_assets.releases.timeline import REVISION, ReleaseTimeline

DESCRIBED = "metadata/described"
"""The cursor with the sign of the descriptions that were written last."""

_APPLIED = "definitions/applied"

_FIRST_VERSION = 1


def is_applied(connection: Connection, timeline: ReleaseTimeline, sign: str | None = None) -> bool:
    """Return whether the plan was applied last, its view of the releases is current, and its descriptions are those of
    the sign, if one is given; costs one read.
    """
    found = Cursors(connection).get_many((_APPLIED, REVISION, DESCRIBED))
    is_described = sign is None or found.get(DESCRIBED) == sign
    return found.get(_APPLIED) == timeline.plan.digest and timeline.is_current(found.get(REVISION)) and is_described


def find_changed(connection: Connection, cluster: str) -> frozenset[str]:
    """Return the processes of a cluster whose gates must be checked because a definition has changed."""
    text = Cursors(connection).get(_changed_on(cluster))
    return frozenset(json.loads(text)["processes"] if text else ())


def forget_changed(connection: Connection, cluster: str) -> None:
    """Record that all of `find_changed` have been checked."""
    _store_changed(connection, cluster, frozenset())


def _changed_on(cluster: str) -> str:
    return f"definitions/changed/{cluster}"


def note_changed(connection: Connection, changed: Iterable[Key]) -> None:
    """Record processes whose gates must be checked, because their definition or that of a feed has changed."""
    by_cluster: dict[str, set[str]] = defaultdict(set)
    for process, cluster in changed:
        by_cluster[cluster].add(process)
    for cluster, names in by_cluster.items():
        _store_changed(connection, cluster, find_changed(connection, cluster) | names)


def _store_changed(connection: Connection, cluster: str, names: frozenset[str]) -> None:
    text = json.dumps({"version": _FIRST_VERSION, "processes": sorted(names)})
    Cursors(connection).put(_changed_on(cluster), text)
