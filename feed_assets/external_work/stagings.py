"""Name the stagings in which programs elsewhere put the outputs of a batch.

An attempt that keeps steps of the one before it goes on in the same stagings, since those steps have written there. Any
other gets stagings of its own, so that a program that was given up never writes into those of the next one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from feed_assets.context.lifecycle import AttemptContext
from feed_assets.external_work.attempts import BatchAtWork
from feed_assets.instances.steps.records import StepRun, StepStatus
from feed_assets.json_form import NominalTime
from feed_assets.masking import get_logger
from feed_assets.plan.edges import OutputEdge
from feed_assets.plan.records import FeedRecord
from feed_assets.storage.errors import StorageError
from feed_assets.storage.paths import is_content
from feed_assets.storage.port import InstanceStore
from feed_assets.storage.records import StagingPlace

_logger = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputStaging:
    """The staging of one output: the feed instance that it becomes, and its store."""

    edge: OutputEdge
    record: FeedRecord
    nominal_time: NominalTime
    store: InstanceStore
    token: str

    @property
    def path(self) -> str:
        """The path of the instance."""
        return self.record.path(self.nominal_time)

    @property
    def url(self) -> str:
        """Where the program puts the files."""
        return self.store.staging_url(self.path, self.token)

    @property
    def place(self) -> StagingPlace:
        """The staging, for its publication or removal."""
        return StagingPlace(path=self.path, token=self.token, url=self.url, local_path=Path())

    @property
    def is_empty(self) -> bool:
        """Whether the program has put nothing there that readers see."""
        staged = self.store.staged_files(self.path, self.token)
        return not any(is_content(file, self.record.flag) for file in staged)


def find_stagings(context: AttemptContext, batch: BatchAtWork, attempt: int | None = None) -> tuple[OutputStaging, ...]:
    """Return the stagings of the attempt at a batch, or of an earlier one."""
    number = batch.row.attempt if attempt is None else attempt
    token = f"batch.{batch.record.process}.{find_origin(batch.runs, number)}"
    plan, stores = batch.active.plan, context.stores
    return tuple(
        OutputStaging(edge=edge, record=feed, nominal_time=time, store=stores.get(feed.store), token=token)
        for edge in batch.record.outputs
        if (time := plan.output_time(edge, batch.row.nominal_time)) is not None and (feed := plan.feeds[edge.feed_key])
    )


def stage_outputs(context: AttemptContext, batch: BatchAtWork) -> tuple[OutputStaging, ...]:
    """Return the stagings of an attempt that has just begun; they are made, unless it goes on in those of another."""
    stagings = find_stagings(context, batch)
    if find_origin(batch.runs, batch.row.attempt) == batch.row.attempt:
        for each in stagings:
            each.store.stage(each.path, each.token)
    return stagings


def discard_stagings(stagings: Iterable[OutputStaging]) -> None:
    """Remove stagings. What cannot be removed now is left to the sweep of stagings."""
    for staging in stagings:
        try:
            staging.store.discard(staging.place)
        except StorageError as exc:
            _logger.warning("the staging of feed '%s' at %s is left: %s", staging.edge.feed, staging.url, exc)


def find_origin(runs: Sequence[StepRun], attempt: int) -> int:
    """Return the attempt that has made the stagings of an attempt: the newest up to it that keeps no steps."""
    keeping = {run.attempt for run in runs if run.status is StepStatus.KEPT}
    return next(number for number in range(attempt, 0, -1) if number not in keeping)
