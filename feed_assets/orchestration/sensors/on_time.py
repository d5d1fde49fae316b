"""Tell Dagster the result of the check `on_time` whenever it has changed, without a run.

What was told last is recorded: the first time each feed is told of, then only what changes.
"""

import hashlib
import json

from dagster import DagsterInstance
from sqlalchemy import Connection

from feed_assets.lifecycle.deadlines.looking import revision_of
from feed_assets.operations.deadlines.states import FeedLateness, find_lateness
from feed_assets.orchestration.graph.layout import AssetLayout
from feed_assets.orchestration.runs.on_time_checks import build_evaluation, feeds_on_time
from feed_assets.state.cursors import Cursors
from feed_assets.state.database import Database

CHECKS_A_TICK = 200
_VERSION = 1


def report_changed(
    database: Database, layout: AssetLayout, cluster: str, instance: DagsterInstance, loaded: AssetLayout
) -> int:
    """Report the checks whose result has changed, at most `CHECKS_A_TICK`; return how many. One read if none has.

    A feed that is deleted, or has lost its SLA, is reported a last time, at the asset that Dagster has `loaded`.
    """
    with database.read() as connection:
        found = Cursors(connection).get_many((revision_of(cluster), _revision_told(cluster)))
        now = f"{found.get(revision_of(cluster), '')} {layout.plan.digest}"
        if found.get(_revision_told(cluster)) == now:
            return 0
        told = _load(connection, cluster)
        lateness = find_lateness(connection, cluster)
    none = FeedLateness()
    states = {feed: lateness.get(feed, none) for feed, _ in feeds_on_time(layout, cluster)}
    gone = {feed: none for feed, digest in told.items() if feed not in states and digest}
    changed = [feed for feed, state in (states | gone).items() if told.get(feed) != _digest(state)]
    for feed in changed[:CHECKS_A_TICK]:
        place = layout.find_asset((feed, cluster)) or loaded.find_asset((feed, cluster))
        if place is not None:
            asset, grid = place
            instance.report_runless_asset_event(build_evaluation(asset, grid, (states | gone)[feed]))
    after = {feed: digest for feed, digest in told.items() if feed in states or digest}
    after |= {feed: _digest((states | gone)[feed]) for feed in changed[:CHECKS_A_TICK]}
    with database.begin() as connection:
        Cursors(connection).put(_told(cluster), json.dumps({"version": _VERSION, "feeds": after}))
        if len(changed) <= CHECKS_A_TICK:
            Cursors(connection).put(_revision_told(cluster), now)
    return min(len(changed), CHECKS_A_TICK)


def _load(connection: Connection, cluster: str) -> dict[str, str]:
    text = Cursors(connection).get(_told(cluster))
    if text is None or (document := json.loads(text))["version"] != _VERSION:
        return {}
    return dict(document["feeds"])


def _digest(state: FeedLateness) -> str:
    return hashlib.sha256(state.token.encode()).hexdigest()[:12] if state.token else ""


def _told(cluster: str) -> str:
    return f"sla/told/{cluster}"


def _revision_told(cluster: str) -> str:
    return f"sla/told-revision/{cluster}"
