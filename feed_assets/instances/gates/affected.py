"""Find the process instances that events of feeds concern, without a search: by the windows that read them."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TypeAlias

from feed_assets.log.records import ARRIVING, FeedEvent
from feed_assets.plan.edges import Key
from feed_assets.plan.records import Plan, ProcessRecord
from feed_assets.releases.timeline import ReleaseTimeline

Span: TypeAlias = tuple[datetime, datetime | None]
"""First and last nominal time, both inclusive; None means no end."""


def find_affected(timeline: ReleaseTimeline, cluster: str, events: Sequence[FeedEvent]) -> dict[Key, list[Span]]:
    """Return the time spans of instances that may read what the events mention, by any definition in force."""
    spans: dict[Key, list[Span]] = defaultdict(list)
    for key, runs in decide_affected(timeline.plan, cluster, events).items():
        spans[key].extend(_spans_of(timeline.plan.processes[key], runs))
    for older in timeline.older(cluster):
        for key, runs in decide_affected(older.plan, cluster, events).items():
            spans[key].extend(_spans_of(older.record, runs))
    return spans


def _spans_of(record: ProcessRecord, runs: Sequence[range] | None) -> list[Span]:
    sequence = record.sequence
    if runs is None:
        return [(sequence.at(0), None)]
    return [(sequence.at(run.start), sequence.at(run.stop - 1)) for run in runs]


def decide_affected(plan: Plan, cluster: str, events: Sequence[FeedEvent]) -> dict[Key, list[range] | None]:
    """Return the index ranges of the instances that read what the events mention, by process of the cluster.

    None stands for all waiting instances.
    """
    times: dict[Key, set[datetime]] = defaultdict(set)
    for event in events:
        if event.kind in ARRIVING and (event.feed, event.cluster) in plan.feeds:
            times[event.feed, event.cluster].add(event.nominal_time)
    affected: dict[Key, list[range] | None] = {}
    for key, moments in times.items():
        record = plan.feeds[key]
        runs = contiguous(sorted(record.sequence.index_at_or_before(moment) for moment in moments))
        for edge in record.inputs_of:
            if edge.cluster != cluster:
                continue
            process = edge.process_key
            if edge.window is not None and edge.window.is_data_driven:
                affected[process] = None
            elif (known := affected.setdefault(process, [])) is not None:
                known.extend(found for run in runs if (found := plan.reader_indices(edge, run)))
    return affected


def contiguous(indices: Iterable[int]) -> list[range]:
    """Return ascending numbers as ranges without gaps.

    >>> contiguous([1, 2, 3, 7, 8])
    [range(1, 4), range(7, 9)]
    """
    runs: list[range] = []
    for index in indices:
        if runs and runs[-1].stop == index:
            runs[-1] = range(runs[-1].start, index + 1)
        else:
            runs.append(range(index, index + 1))
    return runs
