"""Why an instance, or a sweep of them, cannot take its next step."""

from collections.abc import Mapping
from datetime import datetime

from feed_assets.errors import FeedAssetsError, render_some


class LifecycleError(FeedAssetsError):
    """An instance cannot take its next step."""


class InputsMissingError(LifecycleError):
    """Mandatory input instances are missing; `missing` has their URLs by input (none where unresolved)."""

    def __init__(self, *, process: str, nominal_time: datetime, missing: Mapping[str, tuple[str, ...]]) -> None:
        self.process = process
        self.nominal_time = nominal_time
        self.missing = missing
        parts = [
            f"{name} lacks {render_some(urls)}" if urls else f"{name} cannot be resolved yet"
            for name, urls in missing.items()
        ]
        super().__init__(
            f"process {process!r} at {nominal_time:%Y-%m-%dT%H:%MZ} has not all its mandatory inputs: "
            f"{'; '.join(parts)}. Land the data (with its availability flag, where the feed has one) "
            "and run the instance again."
        )


class OutputOutsideValidityError(LifecycleError):
    """A process instance would write outside the validity of the feed."""

    def __init__(self, *, process: str, output: str, feed: str, nominal_time: datetime) -> None:
        self.process = process
        self.output = output
        self.feed = feed
        super().__init__(
            f"process {process!r} at {nominal_time:%Y-%m-%dT%H:%MZ}: output {output!r} is outside the validity of feed "
            f"{feed!r}. Widen the feed's validity, or shorten the process's."
        )


class ReleaseError(LifecycleError):
    """The releases of a process cannot go on as asked."""

    def __init__(self, *, process: str, cluster: str, reason: str) -> None:
        self.process = process
        self.cluster = cluster
        self.reason = reason
        super().__init__(
            f"process {process!r} on {cluster!r}: no new release: {reason}. "
            "Look at what is declared with `feed-assets entity definition`."
        )


class SweepRefusedError(LifecycleError):
    """What is asked of a sweep cannot be done as things stand; nothing was moved."""

    def __init__(self, *, sweep: str, reason: str, next_step: str) -> None:
        self.sweep = sweep
        self.reason = reason
        super().__init__(f"sweep {sweep}: {reason}. {next_step}")
