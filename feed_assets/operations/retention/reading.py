"""What there is to see of sweeps: all of them, one with its items, and what it evicted in Falcon's words."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime

from feed_assets.lifecycle.errors import SweepRefusedError
from feed_assets.lifecycle.retention.report import render_evicted_paths, render_evicted_times
from feed_assets.operations.errors import InstanceQueryError
from feed_assets.operations.scene import Scene
from feed_assets.state.sweep_chunks import SweepChunks
from feed_assets.state.sweep_records import ItemOutcome, ItemResult, Sweep, SweepItem, SweepState
from feed_assets.state.sweeps import Sweeps
from feed_assets.timing.dates import parse_timezone, render_datetime

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownItem:
    """A path of a sweep, and what became of it; None before it was run."""

    feed: str
    kind: str
    item: SweepItem
    result: ItemResult | None

    def to_json(self) -> dict[str, object]:
        """The JSON form."""
        item, result = self.item, self.result
        return {
            "feed": self.feed,
            "kind": self.kind,
            "path": item.path,
            "nominal_time": render_datetime(item.nominal_time),
            "bytes": item.bytes,
            "files": item.files,
            "rule": item.rule,
            "reason": item.reason,
            "outcome": result.outcome.value if result else None,
            "outcome_reason": result.reason if result else None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownSweep:
    """A sweep with items of it: at most as many as were asked for, of `matching` ones."""

    sweep: Sweep
    items: tuple[ShownItem, ...]
    matching: int

    def to_json(self) -> dict[str, object]:
        """The JSON form, `version` 1."""
        items = [item.to_json() for item in self.items]
        return {"version": VERSION, "sweep": sweep_to_json(self.sweep), "matching": self.matching, "items": items}


def find_sweep(scene: Scene, text: str) -> Sweep:
    """The sweep of an id, or of the beginning of one.

    Raises:
        SweepRefusedError: there is none, or several begin so.
    """
    with scene.database.read() as connection:
        sweeps = Sweeps(connection)
        found = sweeps.find(text)
        candidates = [found] if found is not None else sweeps.find_prefix(text) if text else []
    if len(candidates) == 1:
        return candidates[0]
    reason = "several begin so" if candidates else "it does not exist"
    next_step = "Write more of its id." if candidates else "`feed-assets retention list` has those there are."
    raise SweepRefusedError(sweep=repr(text), reason=reason, next_step=next_step)


def require_clusters(scene: Scene, clusters: Collection[str]) -> None:
    """Make sure that clusters are declared.

    Raises:
        InstanceQueryError: one is not.
    """
    unknown = sorted(set(clusters) - set(scene.plan.clusters))
    if unknown:
        raise InstanceQueryError(
            subject=f"cluster {unknown[0]!r}",
            reason="it is not declared",
            next_step=f"Declared are {', '.join(sorted(scene.plan.clusters))}.",
        )


def list_sweeps(
    scene: Scene,
    *,
    limit: int,
    clusters: Collection[str] = (),
    states: Collection[SweepState] = (),
) -> list[Sweep]:
    """The newest sweeps, newest first; of some clusters and in some states if given."""
    wanted = frozenset(states) or None
    with scene.database.read() as connection:
        sweeps = Sweeps(connection)
        if not clusters:
            return sweeps.newest(limit, states=wanted)
        found = [each for cluster in clusters for each in sweeps.newest(limit, cluster=cluster, states=wanted)]
    return sorted(found, key=lambda sweep: sweep.created_at, reverse=True)[:limit]


def show_sweep(
    scene: Scene,
    sweep: Sweep,
    *,
    limit: int,
    feed: str | None = None,
    outcomes: Collection[ItemOutcome] = (),
) -> ShownSweep:
    """A sweep and its first items; only of a feed and with some outcomes if given.

    Raises:
        SweepDamagedError: it is not what was planned.
    """
    shown: list[ShownItem] = []
    matching = 0
    for item in iter_items(scene, sweep, feed):
        if outcomes and (item.result is None or item.result.outcome not in outcomes):
            continue
        matching += 1
        if len(shown) < limit:
            shown.append(item)
    return ShownSweep(sweep=sweep, items=tuple(shown), matching=matching)


def iter_items(scene: Scene, sweep: Sweep, feed: str | None = None) -> Iterator[ShownItem]:
    """All items of a sweep; of one feed if given."""
    with scene.database.read() as connection:
        for chunk in SweepChunks(connection, sweep.sweep_id).iter_all(feed=feed):
            results = chunk.results or (None,) * chunk.count
            for item, result in zip(chunk.items, results, strict=True):
                yield ShownItem(feed=chunk.feed, kind=chunk.kind, item=item, result=result)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionReport:
    """What a sweep evicted of one feed, as Falcon writes it: the content of its file, and the line it prints."""

    feed: str
    cluster: str
    paths: str
    times: str

    def to_json(self) -> dict[str, object]:
        """The JSON form."""
        return {"feed": self.feed, "cluster": self.cluster, "paths": self.paths, "instances": self.times}


def report_evictions(scene: Scene, sweep: Sweep) -> list[EvictionReport]:
    """What a sweep evicted of each of its feeds; paths are those of URLs, as they are in Falcon's file."""
    paths: dict[str, list[str]] = {count.feed: [] for count in sweep.counts}
    times: dict[str, list[datetime]] = {count.feed: [] for count in sweep.counts}
    for shown in iter_items(scene, sweep):
        if shown.result is not None and shown.result.outcome is ItemOutcome.EVICTED:
            paths.setdefault(shown.feed, []).append("/" + shown.item.path)
            times.setdefault(shown.feed, []).append(shown.item.nominal_time)
    reports = []
    for feed in sorted(paths):
        record = scene.plan.feeds.get((feed, sweep.cluster))
        zone = record.sequence.timezone if record else parse_timezone("UTC")
        reports.append(
            EvictionReport(
                feed=feed,
                cluster=sweep.cluster,
                paths=render_evicted_paths(paths[feed]),
                times=render_evicted_times(times[feed], zone),
            )
        )
    return reports


def sweep_to_json(sweep: Sweep) -> dict[str, object]:
    """The JSON form of a sweep without its items."""
    return {
        "id": sweep.sweep_id,
        "cluster": sweep.cluster,
        "state": sweep.state.value,
        "as_of": render_datetime(sweep.as_of),
        "created_at": render_datetime(sweep.created_at),
        "author": sweep.author,
        "origin": sweep.origin,
        "digest": sweep.digest,
        "instances": sweep.instances,
        "paths": sweep.paths,
        "bytes": sweep.bytes,
        "files": sweep.files,
        "asks": [{"code": each.code, "sentence": each.sentence} for each in sweep.obstacles],
        "approved_by": sweep.approved_by,
        "started_at": _text(sweep.started_at),
        "ended_at": _text(sweep.ended_at),
        "purge_at": _text(sweep.purge_at),
        "purged_at": _text(sweep.purged_at),
        "undone_at": _text(sweep.undone_at),
        "note": sweep.note,
        "feeds": [
            {
                "feed": count.feed,
                "instances": count.instances,
                "paths": count.paths,
                "bytes": count.bytes,
                "files": count.files,
                "evicted": count.evicted,
                "kept": count.kept,
                "failed": count.failed,
                "protected": count.protected,
                "keepers": dict(count.keepers),
            }
            for count in sweep.counts
        ],
    }


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else render_datetime(moment)
