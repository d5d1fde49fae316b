"""Errors in the exchange with Dagster."""

from collections.abc import Collection, Sequence
from datetime import datetime

from feed_assets.command_lines import command_line
from feed_assets.entities.errors import DefinitionsError
from feed_assets.entities.flow_names import describe_process
from feed_assets.errors import Fault, FeedAssetsError, LifecycleError, find_similar, render_some
from feed_assets.plan.edges import Key
from feed_assets.plan.records import ProcessRecord
from feed_assets.timing.dates import render_datetime


class WebserverError(FeedAssetsError):
    """Dagster's webserver does not answer, or refuses."""

    def __init__(self, *, url: str, reason: str, next_step: str) -> None:
        super().__init__(f"webserver {url}: {reason}. {next_step}")


class RunsNotStoppedError(FeedAssetsError):
    """Dagster did not end the runs of killed instances; `runs` are their ids."""

    def __init__(self, *, runs: tuple[str, ...], reason: str) -> None:
        super().__init__(
            f"the instances are killed, but their runs go on ({', '.join(runs) or 'unknown'}): {reason}. "
            "End them in Dagster; their results are no longer recorded."
        )


class PartitionKeyError(LifecycleError):
    """A partition key does not denote an instance of the feed or process."""

    fault = Fault.ASKED

    def __init__(self, *, key: str, start: datetime, frequency: object, reason: str) -> None:
        super().__init__(
            f"partition {key!r} is not an instance of {frequency} from {render_datetime(start)}: {reason}. "
            "Choose a partition from the asset's page."
        )


class NoProcessInstanceError(LifecycleError):
    """A partition of a feed is none of the process that makes it, which has fewer instances."""

    fault = Fault.MISSING

    def __init__(self, *, process: ProcessRecord, nominal_time: datetime) -> None:
        sequence = process.sequence
        last = "" if sequence.size is None else f" to {render_datetime(sequence.at(sequence.size - 1))}"
        super().__init__(
            f"{describe_process(process.process)} on {process.cluster!r} has no instance "
            f"{render_datetime(nominal_time)}: its instances are {sequence.frequency.render()} from "
            f"{render_datetime(sequence.start)}{last}. Choose partitions among them."
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
    """A feed or process has no asset in what has been built: there are `known` ones of its kind, each with its cluster.
    `writes` are the feeds that stand for the process.
    """

    fault = Fault.MISSING

    def __init__(
        self, *, kind: str, name: str, cluster: str, known: Collection[Key], writes: Sequence[str] = ()
    ) -> None:
        clusters = sorted(on for each, on in known if each == name)
        suggestions = find_similar(name, sorted({each for each, _ in known}), n=2)
        if writes:
            next_step = f"Its assets are the feeds that it writes; ask for feed {' or '.join(map(repr, writes))}."
        elif clusters:
            next_step = f"It is on {', '.join(clusters)}."
        elif suggestions:
            next_step = f"Did you mean {' or '.join(map(repr, suggestions))}?"
        else:
            next_step = (
                f"Declare a {kind} {name!r}, or look for the issues of its file with `{command_line('validate')}`."
            )
        super().__init__(
            location=f"{kind} {name!r} on cluster {cluster!r}", reason="it has no asset", next_step=next_step
        )


class ProducerError(FeedAssetsError):
    """The asset that produces a feed is not what the feed needs."""

    def __init__(self, *, asset: str, feed: str, reason: str, next_step: str) -> None:
        super().__init__(f"asset {asset}, which produces feed {feed!r}: {reason}. {next_step}")


class StrayPartitionsError(FeedAssetsError):
    """An asset that produces a feed was materialized for partitions that are no instances of the feed."""

    def __init__(self, *, asset: str, feed: str, partitions: tuple[str | None, ...]) -> None:
        shown = render_some(tuple("no partition" if each is None else each for each in partitions))
        super().__init__(
            f"asset {asset} was materialized for {shown}, which feed {feed!r} has no instances for. "
            "Extend the validity of the feed, or ignore it: nothing else is affected."
        )


class OutdatedLocationError(FeedAssetsError):
    """Files have changed since the location was loaded."""

    def __init__(self) -> None:
        super().__init__(
            "the files of the entities or of their work have changed since Dagster loaded them, so what it has loaded "
            "is not recorded, and has no effect. Reload the code location, or apply the files if they are ready."
        )


class ChecksAwaitedError(FeedAssetsError):
    """The checks of an asset that produces a feed have been awaited for long."""

    def __init__(self, *, asset: str, run: str, until: datetime) -> None:
        super().__init__(
            f"run {run} has materialized asset {asset}, and its checks have not ended. Later materializations "
            f"wait until {until:%Y-%m-%dT%H:%MZ}; those of the run are refused then. If it is dead, end it in Dagster."
        )


class AssetClashError(FeedAssetsError):
    """Two assets have one key."""

    def __init__(self, *, key: str, feed: str | None) -> None:
        whose = f"the asset of feed {feed!r}" if feed is not None else "an asset of feed-assets"
        produces = f", or write produced_by: {{asset: [{', '.join(key.split('/'))}]}} at the feed" if feed else ""
        super().__init__(f"two assets have the key {key}: {whose} and one of yours. Give yours another key{produces}.")


class NameClashError(FeedAssetsError):
    """Two asset checks, jobs, schedules or sensors have one name."""

    def __init__(self, *, kind: str, name: str) -> None:
        super().__init__(f"two {kind.replace('_', ' ')} have the name {name}: one is built here. Give yours another.")


class FeedOutputError(FeedAssetsError):
    """An asset returns a value that the IO manager of feeds would have to write."""

    def __init__(self, *, asset: str) -> None:
        super().__init__(
            f"asset {asset} returns a value, but the IO manager of feeds only reads. Write the data to the path of "
            "feed_assets.locate_instance(context, feed), return nothing, and name the asset at the feed: "
            f"produced_by: {{asset: [{', '.join(asset.split('/'))}]}}. Or declare a process that returns the DataFrame."
        )
