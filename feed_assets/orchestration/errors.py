"""Errors in the exchange with Dagster."""

from datetime import datetime

from feed_assets.entities.errors import DefinitionsError
from feed_assets.errors import FeedAssetsError
from feed_assets.lifecycle.errors import LifecycleError


class WebserverError(FeedAssetsError):
    """Dagster's webserver does not answer, or refuses."""

    def __init__(self, *, url: str, reason: str, next_step: str) -> None:
        self.url = url
        super().__init__(f"webserver {url}: {reason}. {next_step}")


class RunsNotStoppedError(FeedAssetsError):
    """Dagster did not end the runs of killed instances; `runs` are their ids."""

    def __init__(self, *, runs: tuple[str, ...], reason: str) -> None:
        self.runs = runs
        super().__init__(
            f"the instances are killed, but their runs go on ({', '.join(runs) or 'unknown'}): {reason}. "
            "End them in Dagster; their results are no longer recorded."
        )


class PartitionKeyError(LifecycleError):
    """A partition key does not denote an instance of the feed or process."""

    def __init__(self, *, key: str, start: datetime, frequency: object, reason: str) -> None:
        self.key = key
        super().__init__(
            f"partition {key!r} is not an instance of {frequency} from {start:%Y-%m-%dT%H:%MZ}: {reason}. "
            "Choose a partition from the asset's page."
        )


class TranslationError(DefinitionsError):
    """A translator fails for a feed or process, or changes what follows from the entities."""

    def __init__(self, *, translator: str, entity: str, reason: str, next_step: str) -> None:
        super().__init__(location=entity, reason=f"the translator {translator} {reason}", next_step=next_step)


class AssetKeyClashError(DefinitionsError):
    """Two feeds or processes have the same asset key."""

    def __init__(self, *, asset_key: str, first: str, second: str) -> None:
        super().__init__(
            location=f"asset key {asset_key}",
            reason=f"{first} and {second} both have it",
            next_step="Let the translator give them different keys.",
        )


class NoAssetError(DefinitionsError):
    """A feed or process has no asset in what has been built; `writes` are the feeds that stand for the process."""

    def __init__(
        self,
        *,
        kind: str,
        name: str,
        cluster: str,
        clusters: tuple[str, ...],
        writes: tuple[str, ...],
        suggestions: tuple[str, ...],
    ) -> None:
        if writes:
            next_step = f"Its assets are the feeds that it writes; ask for feed {' or '.join(map(repr, writes))}."
        elif clusters:
            next_step = f"It is on {', '.join(clusters)}."
        elif suggestions:
            next_step = f"Did you mean {' or '.join(map(repr, suggestions))}?"
        else:
            next_step = f"Declare a {kind} {name!r}, or look for the issues of its file with `feed-assets validate`."
        super().__init__(
            location=f"{kind} {name!r} on cluster {cluster!r}", reason="it has no asset", next_step=next_step
        )
