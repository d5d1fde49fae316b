"""The facts about feeds and processes that their assets show: metadata, owners and tags."""

from dagster import CodeReferencesMetadataValue, LocalFileCodeReference, MetadataValue, TableColumn, TableSchema

from feed_assets.entities.columns import parse_columns
from feed_assets.masking import mask, mask_values
from feed_assets.orchestration import names
from feed_assets.plan.records import EntityFacts, FeedRecord, ProcessRecord
from feed_assets.timing.dates import render_datetime
from feed_assets.timing.sequence import InstanceSequence


def feed_metadata(record: FeedRecord, made_by: ProcessRecord | None) -> dict[str, object]:
    """Return the metadata of a feed, with those of the process whose run materializes it, if there is one."""
    metadata: dict[str, object] = {
        names.META_FEED: record.feed,
        **_common_metadata(record.cluster, record.sequence, record.facts),
        names.META_FORMAT: record.format.value,
        names.META_TEMPLATE: record.template.text,
        "dagster/uri": feed_url(record),
    }
    if record.columns is not None:
        metadata["dagster/column_schema"] = TableSchema(
            columns=[TableColumn(name=name, type=kind) for name, kind in parse_columns(record.columns)]
        )
    optional = {
        names.META_FLAG: record.flag,
        names.META_LATE: record.late_cut_off and record.late_cut_off.render(),
        names.META_RETENTION: record.retention_limit and record.retention_limit.render(),
        names.META_SLA: record.sla and f"low {record.sla[0].render()}, high {record.sla[1].render()}",
        names.META_MADE_BY: made_by and made_by.process,
    }
    metadata.update({name: value for name, value in optional.items() if value})
    if made_by is not None:
        metadata.update(_work_metadata(made_by))
    masked: dict[str, object] = mask_values(metadata)
    return masked


def process_metadata(process: ProcessRecord) -> dict[str, object]:
    """Return the metadata of a process that is an asset of its own."""
    metadata: dict[str, object] = mask_values(
        {
            names.META_PROCESS: process.process,
            **_common_metadata(process.cluster, process.sequence, process.facts),
            **_work_metadata(process),
        }
    )
    return metadata


def feed_url(record: FeedRecord) -> str:
    """Return the URL of a feed's data, with the variables of its template."""
    return f"{record.store.url.rstrip('/')}/{record.template.text.lstrip('/')}"


def _common_metadata(cluster: str, sequence: InstanceSequence, facts: EntityFacts) -> dict[str, object]:
    until = render_datetime(sequence.end) if sequence.end else "no end"
    metadata: dict[str, object] = {
        names.META_CLUSTER: cluster,
        names.META_FREQUENCY: sequence.frequency.render(),
        names.META_VALIDITY: f"{render_datetime(sequence.start)} to {until}",
        names.META_TIMEZONE: sequence.timezone.key,
    }
    if facts.file is not None and "://" not in facts.file:
        metadata["dagster/code_references"] = CodeReferencesMetadataValue(
            code_references=[LocalFileCodeReference(file_path=facts.file, line_number=facts.line)]
        )
    return metadata


def _work_metadata(process: ProcessRecord) -> dict[str, object]:
    metadata: dict[str, object] = {
        names.META_WORKFLOW: process.work,
        names.META_PARALLEL: MetadataValue.int(process.parallel),
        names.META_ORDER: process.order.value,
        names.META_CATCH_UP: process.catch_up.value,
        names.META_TIMEOUT: process.timeout.render(),
    }
    for edge in process.inputs:
        optional = ", optional" if edge.optional else ""
        metadata[names.META_INPUT + edge.name] = f"{edge.feed} {edge.window.start} to {edge.window.end}{optional}"
    for out in process.outputs:
        metadata[names.META_OUTPUT + out.name] = f"{out.feed} {out.window.start}"
    if process.retry is not None:
        retry = process.retry
        metadata[names.META_RETRY] = f"{retry.policy.value}, {retry.delay.render()}, {retry.attempts} attempts"
    return metadata


def asset_owners(facts: EntityFacts) -> list[str]:
    """Return the owner in the form that Dagster allows: an e-mail address, or a team."""
    if facts.owner is None:
        return []
    return [facts.owner if "@" in facts.owner else f"team:{facts.owner}"]


def asset_tags(facts: EntityFacts) -> dict[str, str]:
    """Return tags in the form that Dagster allows (letters, digits, `_`, `-`, `.`, 63 characters), adapting them if
    needed.
    """
    return {names.tag_text(name): names.tag_text(mask(value)) for name, value in facts.tags}
