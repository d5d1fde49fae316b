"""Errors of instances and sweeps that cannot take their next step."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from feed_assets.command_lines import command_line
from feed_assets.entities.flow_names import describe_process
from feed_assets.errors import LifecycleError, render_some
from feed_assets.timing.dates import render_datetime


class InputsMissingError(LifecycleError):
    """Mandatory input instances are missing; `missing` has their URLs by input (empty if unresolved), `makers` who
    makes them, `lost` the URLs of those that were available, and were found gone just now. No attempt has begun if
    the instance `stays` what it was.
    """

    def __init__(
        self,
        *,
        process: str,
        cluster: str,
        nominal_time: datetime,
        missing: Mapping[str, tuple[str, ...]],
        makers: Mapping[str, str],
        lost: tuple[str, ...] = (),
        stays: str | None = None,
    ) -> None:
        self.stays = stays
        parts = [
            f"{name} lacks {render_some(urls)}" if urls else f"{name} cannot be resolved yet"
            for name, urls in missing.items()
        ]
        told = "; ".join(f"{part} ({maker})" for part, maker in zip(parts, makers.values(), strict=True))
        step = _NEXT.get(stays, _AGAIN.format(stays))
        if stays == TRIED:
            step += command_line("why", process, nominal_time, cluster=cluster)
        super().__init__(
            f"{describe_process(process)} at {render_datetime(nominal_time)} lacks mandatory inputs: {told}. "
            f"{f'Storage has lost {render_some(lost)}. ' if lost else ''}{step}"
        )


TRIED = "TRIED"
"""What an instance is that is only tried."""
_NEXT = {
    TRIED: "Nothing was begun. Why they are not there: ",
    None: "Deliver the data (with the availability flag, if the feed has one) and run the instance again.",
    "NEW": "Nothing was begun: the instance is created at its time, and runs when they are there.",
    "WAITING": "Nothing was begun: the instance stays WAITING with its own time-out, and runs when they are there.",
    "SUSPENDED": "Nothing was begun: the instance stays SUSPENDED. Resume it, and it runs when they are there.",
}
_AGAIN = "Nothing was begun: the instance stays {}. When they are there, run it again."


class NotNeededError(LifecycleError):
    """An instance does not need the run any more: another one made it before this one had its lease."""

    def __init__(self, *, process: str, nominal_time: datetime) -> None:
        at = render_datetime(nominal_time)
        super().__init__(f"{describe_process(process)} at {at} was made by another run meanwhile; nothing was begun")


class TryRefusedError(LifecycleError):
    """An instance cannot be tried: what it does would not stay in a scratch place, or there is nothing to do."""

    def __init__(self, *, process: str, nominal_time: datetime, reason: str, next_step: str) -> None:
        subject = f"{describe_process(process)} at {render_datetime(nominal_time)}"
        super().__init__(f"{subject} cannot be tried: {reason}. {next_step}")


class InputChangedError(LifecycleError):
    """Current instances of feeds have got other content while an attempt has read them."""

    def __init__(self, *, process: str, nominal_time: datetime, feeds: Sequence[str]) -> None:
        super().__init__(
            f"{describe_process(process)} at {render_datetime(nominal_time)}: feed {render_some(tuple(feeds))} changed "
            "while it was read, and again when the work was repeated. Nothing is published. Run the instance again when"
            " nobody writes there."
        )


class OutputOutsideValidityError(LifecycleError):
    """A process instance would write outside the validity of the feed."""

    def __init__(self, *, process: str, output: str, feed: str, nominal_time: datetime) -> None:
        super().__init__(
            f"{describe_process(process)} at {render_datetime(nominal_time)}: output {output!r} is outside the "
            f"validity of feed {feed!r}. Widen the feed's validity, or shorten the process's."
        )


class StepRefusedError(LifecycleError):
    """A step would run outside of its attempt, or twice in it."""

    def __init__(self, *, process: str, nominal_time: datetime, step: str) -> None:
        super().__init__(
            f"{describe_process(process)} at {render_datetime(nominal_time)}: step {step!r} has begun already in this "
            "attempt, or does not belong to it. Run the instance again."
        )


class RerunOutdatedError(LifecycleError):
    """A digest is not that of a rerun's plan: other instances hang on it now. `changed` are processes with others, if
    the digest tells; it was of so many processes, if it tells that.
    """

    def __init__(self, *, digest: str, changed: Sequence[str], processes: int, was: int | None) -> None:
        told = f": other instances are to run again of {', '.join(changed)}" if changed else ""
        if not changed and was is not None and was != processes:
            told = f": it has {processes} processes now, not {was}"
        super().__init__(
            f"plan {digest[:16]}: it is not, or no longer, that of this rerun{told}. Nothing was changed. Plan again "
            "with --dry-run, review the plan, and give its digest, eight characters of it at least."
        )


class DataRemovedError(LifecycleError):
    """An instance is less than what was read of it: files have gone, and none has come."""

    def __init__(self, *, url: str, files: int) -> None:
        super().__init__(
            f"{url}: late data are less than what was read: files have gone, none has come, and {files} are left. "
            "Nothing is run again by itself. Bring them back, or run again what reads it, to take what is left."
        )


class QualityError(LifecycleError):
    """Rows that a process has written are not as good as their feed demands; `refused` says why, by output.

    `quarantines` are the feeds that have the bad rows.
    """

    def __init__(
        self,
        *,
        process: str,
        nominal_time: datetime,
        refused: Mapping[str, str],
        quarantines: Sequence[str],
        feed: str,
        feed_time: datetime,
        cluster: str,
    ) -> None:
        reasons = "; ".join(f"its output {output} is not good enough: {reason}" for output, reason in refused.items())
        rest = f" but the bad rows, in feed {', '.join(map(repr, quarantines))}" if quarantines else ""
        shown = command_line("quality", "show", feed, feed_time, cluster=cluster)
        super().__init__(
            f"{describe_process(process)} at {render_datetime(nominal_time)}: {reasons}. Nothing is published{rest}. "
            f"To see the figures: {shown}"
        )


class NothingToCompareError(LifecycleError):
    """A feed whose column must have the values of another feed's has no instance yet."""

    def __init__(self, *, feed: str, other: str, cluster: str) -> None:
        super().__init__(
            f"quality.in_feed of feed {feed!r} names feed {other!r}, which has no instance on {cluster} yet. It is "
            "tried again; or remove in_feed."
        )


class BatchEndedError(LifecycleError):
    """A batch has no events any more, because its queue has ended since it was cut."""

    def __init__(self, *, process: str, nominal_time: datetime) -> None:
        super().__init__(
            f"batch {render_datetime(nominal_time)} of {describe_process(process)} has no events any more: the process "
            "was deleted, or taken off the cluster, since it was cut. They are still in the event log: write "
            "trigger.from: earliest to take all of them again, or add single ones to the queue."
        )
