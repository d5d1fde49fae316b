"""Report to Dagster why instances are not done, as observations with the text of `feed-assets why`.

An observation does not colour the partition bar. It is reported before it is recorded, so a crash may report it twice.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import dagster as dg
from sqlalchemy import Connection

from feed_assets.command_lines import command_line
from feed_assets.context.errors import InstanceQueryError
from feed_assets.context.handlers import Handler, work_off
from feed_assets.context.operation import OperationContext
from feed_assets.context.tick import Tick, tick_step
from feed_assets.context.tick_failures import TickStep
from feed_assets.entities.common import Kind
from feed_assets.entities.errors import EntityNotFoundError
from feed_assets.explain.explanations import explain_process_instances
from feed_assets.explain.records import Explanation
from feed_assets.log.instances.overdue_notices import OverdueNotice, OverdueNotices, decide_notice
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import ProcessInstance, ProcessKey
from feed_assets.masking import get_logger, mask
from feed_assets.orchestration import names
from feed_assets.orchestration.graph.layout import AssetLayout
from feed_assets.timing.dates import render_datetime
from feed_assets.timing.errors import InstanceError
from feed_assets.triggers.waiting import describe_oldest_queue

EXPLAINED_A_TICK = 20
MOST_LINES = 200
NO_INSTANCE = (EntityNotFoundError, InstanceError, InstanceQueryError)
"""What says that something is no instance by the current definitions."""

_COMMAND = re.compile(r"^( *)\$ (.*)$", re.MULTILINE)  # as `Explanation.render` writes a command

_logger = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Notices(Handler[ProcessInstance, ProcessKey]):
    """Explains unfinished instances; a unit is a process. The results are the instances that are reported."""

    layout: AssetLayout
    instance: dg.DagsterInstance

    step = TickStep.NOTICES
    at_once = EXPLAINED_A_TICK
    most_steps = 1

    def find_due(self, connection: Connection, tick: Tick, limit: int) -> list[ProcessInstance]:
        return OverdueNotices(connection, without_row=tick.without_row).due(tick.cluster, tick.as_of, limit)

    def unit_of(self, entry: ProcessInstance) -> str:
        return entry.process

    def handle(self, tick: Tick, entries: Sequence[ProcessInstance]) -> list[ProcessKey]:
        with tick.context.read() as connection:
            standing = ProcessInstances(connection).get_many([row.key for row in entries])
            due = [row for row in entries if standing.get(row.key) == row]
            found = find_explanations(tick.context, connection, due)
        told: list[OverdueNotice] = []
        news: list[ProcessKey] = []
        try:
            for row in due:
                explanation = found.get(row.key)
                notice = decide_notice(row, explanation.digest if explanation else None, tick.as_of)
                if explanation is not None and notice.digest != row.notice_digest:
                    for observation in build_observations(self.layout, explanation):
                        self.instance.report_runless_asset_event(observation)
                    news.append(row.key)
                told.append(notice)
        finally:
            with tick.database.begin() as connection:
                OverdueNotices(connection).mark(told)
        return news


@tick_step(TickStep.NOTICES, otherwise=0)
def report_overdue(tick: Tick, layout: AssetLayout, instance: dg.DagsterInstance) -> int:
    """Report to Dagster why instances are overdue or have ended without success, once per cause; return how many.

    If no notice is due, this takes one query.
    """
    reported, _ = work_off(tick, _Notices(layout, instance))
    return len(reported)


def find_explanations(
    context: OperationContext, connection: Connection, rows: Sequence[ProcessInstance]
) -> dict[ProcessKey, Explanation]:
    """Return why instances are in their states.

    Those that are no instances by the current definitions are left out, and those with such an instance upstream.
    """
    known = []
    for row in rows:
        with suppress(*NO_INSTANCE):
            context.active_release(connection, *row.key)
            known.append(row)
    try:
        return explain_process_instances(context, connection, [row.key for row in known]) if known else {}
    except NO_INSTANCE:
        alone = [[row] for row in known] if len(known) > 1 else []
        return {key: found for each in alone for key, found in find_explanations(context, connection, each).items()}


def build_observations(layout: AssetLayout, explanation: Explanation) -> Iterator[dg.AssetObservation]:
    """Yield the observations of a process instance, at the partition of each output or of the process's own asset."""
    process = (explanation.name, explanation.cluster)
    for key, partition in layout.find_partitions(Kind.PROCESS, process, explanation.nominal_time):
        yield build_observation(key, partition, explanation)


def build_observation(
    key: dg.AssetKey, partition: str, explanation: Explanation, before: str = ""
) -> dg.AssetObservation:
    """Build the observation of an instance; `before` begins its description."""
    return dg.AssetObservation(
        asset_key=key,
        partition=partition,
        description=mask(before + explanation.summary),
        metadata={
            names.META_WHY: dg.MetadataValue.md(_COMMAND.sub(r"\n\1`\2`", render_most(explanation))),
            names.META_STATUS: explanation.status,
            names.META_NOMINAL: render_datetime(explanation.nominal_time),
        },
    )


def render_most(explanation: Explanation) -> str:
    """Return at most `MOST_LINES` lines of an explanation; the last one then has the command that shows all of them."""
    lines = mask(explanation.render()).splitlines()
    if len(lines) > MOST_LINES:
        kind, name, cluster = explanation.kind.value, explanation.name, explanation.cluster
        why = command_line("why", name, explanation.nominal_time, kind=kind, cluster=cluster, all=True)
        lines[MOST_LINES - 1 :] = [f"… and {len(lines) - MOST_LINES + 1} more lines: {why}"]
    return "\n".join(lines)


def describe_oldest(context: OperationContext, cluster: str) -> str:
    """Return a phrase about the longest-waiting instance with its first root cause, and one about the queue with the
    oldest pending event; empty if none waits.

    Only one instance and one queue are explained, however many wait.
    """
    try:
        with context.database.read() as connection:
            row = OverdueNotices(connection, without_row=context.without_row).oldest_waiting(cluster)
            found = find_explanations(context, connection, [row] if row else [])
            queue = describe_oldest_queue(context, connection, cluster) if context.plan.triggered_on(cluster) else None
    except Exception:
        _logger.warning("the oldest waiting instance on %s could not be explained", cluster, exc_info=True)
        return ""
    said = "".join(f"; oldest waiting instance: {mask(each.root_sentence)}" for each in found.values())
    return said if queue is None else f"{said}; {queue.headline}: {queue.sentence}"
