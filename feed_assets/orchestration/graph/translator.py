"""The assets that feeds and processes become in Dagster, and what users may change of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import dagster as dg

from feed_assets.command_lines import render_selection
from feed_assets.entities.maps import EMPTY
from feed_assets.entities.workflow import WorkflowEngine
from feed_assets.errors import describe_error
from feed_assets.masking import mask
from feed_assets.orchestration import names
from feed_assets.orchestration.errors import TranslationError
from feed_assets.orchestration.graph.metadata import (
    Shown,
    describe_feed,
    describe_process,
    feed_metadata,
    feed_url,
    process_metadata,
    tags_of,
    with_process,
)
from feed_assets.orchestration.graph.partitions import Grid
from feed_assets.plan.records import FeedRecord, Plan, ProcessRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedAssetsTranslatorData:
    """A feed on a cluster, or a process on a cluster that is an asset of its own. Texts contain no secrets.

    Attributes:
        kind: `feed` or `process`.
        name: the name of the entity.
        cluster: the name of the cluster.
        frequency: the frequency of the instances, such as `days(1)`.
        timezone: the IANA name of their time zone.
        description: the description of the entity.
        owner: the owner of the entity, as declared.
        groups: the groups of the entity.
        tags: the tags of the entity, as declared.
        url: the URL of a feed's data, such as `s3://lake/clicks/${YEAR}/${MONTH}`; None for a process.
        format: the format of a feed's data, such as `parquet`; None for a process, and for a signal.
        made_by: the process whose runs materialize the feed, as `feed@source` for a replica; None for other feeds.
        engine: the engine of the process: `python`, `sql`, `spark-submit`, `external`, `replication`; None for a
            feed that no process materializes.
        makes_batches: whether the instances of the process, or of the process that makes the feed, are batches.
        asset_key: the asset key by default.
        asset_description: the description of the asset in Markdown, which begins with that of the entity.
        asset_owners: owner and group of `acl` in Dagster's form: of the process that makes a feed, else of the feed.
        asset_tags: the tags in Dagster's form, also those of the process that makes a feed.
        metadata: the metadata of the asset.
        partitions_def: the partitions of the asset, which are the instances.
    """

    kind: Literal["feed", "process"]
    name: str
    cluster: str
    frequency: str
    timezone: str
    asset_key: dg.AssetKey
    partitions_def: dg.PartitionsDefinition[str] | None = None
    description: str | None = None
    owner: str | None = None
    groups: tuple[str, ...] = ()
    tags: Mapping[str, str] = EMPTY
    url: str | None = None
    format: str | None = None
    made_by: str | None = None
    engine: str | None = None
    makes_batches: bool = False
    asset_description: str | None = None
    asset_owners: tuple[str, ...] = ()
    asset_tags: Mapping[str, str] = EMPTY
    metadata: Mapping[str, object] = EMPTY


class FeedAssetsTranslator:
    """Describes feeds and processes as assets. Subclass it to change what Dagster shows.

    ```python
    class LakeTranslator(FeedAssetsTranslator):
        def get_asset_spec(self, data: FeedAssetsTranslatorData) -> AssetSpec:
            spec = super().get_asset_spec(data)
            return spec.replace_attributes(key=spec.key.with_prefix("lake")).merge_attributes(tags={"tier": "gold"})
    ```
    """

    def get_asset_spec(self, data: FeedAssetsTranslatorData) -> dg.AssetSpec:
        """Return the asset of a feed or process.

        It may have any attributes but other partitions or dependencies, which follow from the entities. It is called
        for every feed and process whenever the definitions are loaded, also by sensors: equal data must give equal
        keys.
        """
        kinds = {"process" if data.kind == "process" else data.format or "signal"}
        kinds |= {"feed"} if data.engine is None else {data.engine}
        if data.makes_batches:
            kinds.add("batch")
        if data.engine not in (None, WorkflowEngine.EXTERNAL):
            kinds.add("spark")
        return dg.AssetSpec(
            data.asset_key,
            partitions_def=data.partitions_def,
            group_name=names.word(data.groups[0] if data.groups else data.cluster),
            description=data.asset_description,
            metadata=data.metadata,
            owners=list(data.asset_owners),
            tags=data.asset_tags,
            kinds=kinds,
        )


DEFAULT_TRANSLATOR = FeedAssetsTranslator()


def asset_data(
    plan: Plan, record: FeedRecord | ProcessRecord, made_by: ProcessRecord | None, grid: Grid, shown: Shown
) -> FeedAssetsTranslatorData:
    """Return what a translator is told about a feed, or about a process that is an asset of its own. `made_by` is the
    process whose runs materialize the asset.
    """
    facts, sequence, tags = record.facts, record.sequence, tags_of(record.facts, shown.values_of(record))
    name, cluster = record.key
    url = data_format = maker = None
    if isinstance(record, FeedRecord):
        path, maker, url = [cluster, name], made_by, mask(feed_url(record))
        data_format = record.format.value if record.has_data else None
        metadata, described = feed_metadata(record, maker, shown), describe_feed(record, maker, grid, shown.pointer)
        if maker is not None:
            tags = with_process(tags, tags_of(maker.facts, shown.values_of(maker)))
    else:
        path = [cluster, *(["process"] if record.key in plan.feeds else []), name]
        metadata, described = process_metadata(record, shown), describe_process(record, path, grid, shown.pointer)
    return FeedAssetsTranslatorData(
        kind="feed" if isinstance(record, FeedRecord) else "process",
        name=name,
        cluster=cluster,
        frequency=sequence.pace,
        timezone=sequence.timezone.key,
        description=facts.description and mask(facts.description),
        owner=facts.owner,
        groups=facts.groups,
        tags={name: mask(value) for name, value in facts.tags},
        url=url,
        format=data_format,
        made_by=maker.process if maker is not None else None,
        engine=made_by.engine if made_by is not None else None,
        makes_batches=made_by is not None and made_by.trigger is not None,
        asset_key=dg.AssetKey(path),
        asset_description=described,
        asset_owners=(made_by or record).facts.acl.teams or facts.acl.teams,
        asset_tags=tags,
        metadata=metadata,
        partitions_def=grid.definition(),
    )


def translate(translator: FeedAssetsTranslator, data: FeedAssetsTranslatorData) -> dg.AssetSpec:
    """Return the asset that a translator makes of a feed or process, still without dependencies.

    Raises:
        TranslationError: the translator fails, or changes what follows from the entities.
    """
    try:
        spec: object = translator.get_asset_spec(data)
    except Exception as exc:
        raise _refusal(translator, data, f"raises {describe_error(exc)}", "Correct the translator.") from exc
    if not isinstance(spec, dg.AssetSpec):
        returned = type(spec).__name__
        raise _refusal(translator, data, f"returns {returned}", "Return an AssetSpec, as super() does.")
    if spec.partitions_def != data.partitions_def:
        raise _refusal(
            translator,
            data,
            "changes the partitions, which are the instances",
            "Leave partitions_def alone; frequency and validity of the entity decide it.",
        )
    if list(spec.deps):
        raise _refusal(
            translator,
            data,
            "adds dependencies, which follow from the inputs and outputs of processes",
            "Leave deps alone; declare the feed as an input of a process, or name it in deps of your own asset.",
        )
    if spec.key != data.asset_key and spec.description is not None:
        default, own = (render_selection(key.to_user_string()) for key in (data.asset_key, spec.key))
        spec = spec.replace_attributes(description=spec.description.replace(default, own))
    identity = (names.META_CLUSTER, names.META_FEED if data.kind == "feed" else names.META_PROCESS)
    if all(name in spec.metadata for name in identity):
        return spec
    return spec.merge_attributes(metadata={name: data.metadata[name] for name in identity})


def _refusal(
    translator: FeedAssetsTranslator, data: FeedAssetsTranslatorData, reason: str, next_step: str
) -> TranslationError:
    return TranslationError(
        translator=type(translator).__qualname__,
        entity=f"{data.kind} {data.name!r} on cluster {data.cluster!r}",
        reason=reason,
        next_step=next_step,
    )
