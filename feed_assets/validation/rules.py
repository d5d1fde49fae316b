"""All rules, in the order of application, and their application to a bundle.

F…, P… and C… in the rules' docstrings are the numbers of Falcon's own checks in the reference.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from feed_assets.entities.bundle import AnyEntity, Bundle
from feed_assets.entities.common import Kind
from feed_assets.issues import UNREAD, EntityKey, Issue, SourceMap, internal_error, order_of
from feed_assets.validation.copies import mirrors, replication, transfers
from feed_assets.validation.entities import cluster, credentials, metadata, references
from feed_assets.validation.feeds import feed, lifecycle, paths, quality, registration, retention
from feed_assets.validation.processes import cycles, neighbours, process, wakes, windows
from feed_assets.validation.scope import Rule, Scope

_SCHEDULED = (Kind.FEED, Kind.PROCESS)
RULES: tuple[Rule, ...] = (
    Rule(code="interface-address", kind=Kind.CLUSTER, check=cluster.check_interface_addresses),
    Rule(code="catalog-options", kind=Kind.CLUSTER, check=cluster.check_catalog_options),
    Rule(code="spark-address", kind=Kind.CLUSTER, check=cluster.check_spark_address),
    Rule(code="cluster-staging", kind=Kind.CLUSTER, check=cluster.check_staging),
    Rule(code="cluster-folders", kind=Kind.CLUSTER, check=cluster.check_folders),
    Rule(code="storage-not-here", kind=Kind.CLUSTER, check=cluster.check_storage_scheme),
    *(Rule(code="local-address", kind=kind, check=paths.check_hosts) for kind in (Kind.CLUSTER, *_SCHEDULED)),
    Rule(code="spark-conf", kind=Kind.CLUSTER, check=cluster.check_conf),
    Rule(code="hidden-property", kind=Kind.CLUSTER, check=cluster.check_hidden_properties),
    Rule(code="datasource-interface", kind=Kind.DATASOURCE, check=cluster.check_interfaces),
    Rule(code="datasource-driver", kind=Kind.DATASOURCE, check=cluster.check_drivers),
    *(Rule(code=credentials.CLEAR_TEXT_CREDENTIAL, kind=kind, check=credentials.check_credentials) for kind in Kind),
    *(Rule(code="acl-name", kind=kind, check=metadata.check_acl) for kind in Kind),
    *(Rule(code="metadata-name", kind=kind, check=metadata.check_names) for kind in Kind),
    *(Rule(code="metadata-tag", kind=kind, check=metadata.check_tags) for kind in Kind),
    *(Rule(code="metadata-twice", kind=kind, check=metadata.check_once) for kind in Kind),
    *(Rule(code="metadata-column", kind=kind, check=metadata.check_columns) for kind in Kind),
    *(Rule(code="metadata-size", kind=kind, check=metadata.check_size) for kind in Kind),
    Rule(code="cluster-root", kind=Kind.CLUSTER, check=cluster.check_root),
    *(Rule(code="unknown-reference", kind=kind, check=references.check_references) for kind in _SCHEDULED),
    *(Rule(code="cluster-version", kind=kind, check=references.check_cluster_versions) for kind in _SCHEDULED),
    Rule(code="datasource-version", kind=Kind.FEED, check=references.check_datasource_versions),
    Rule(code="feed-validity", kind=Kind.FEED, check=feed.check_validity),
    Rule(code="feed-instances", kind=Kind.FEED, check=feed.check_instances),
    Rule(code="feed-watch", kind=Kind.FEED, check=feed.check_watch),
    Rule(code="feed-inbox", kind=Kind.FEED, check=feed.check_inbox),
    Rule(code="quality-writers", kind=Kind.FEED, check=quality.check_writers),
    Rule(code="quality-outside", kind=Kind.FEED, check=quality.check_outside),
    Rule(code="quality-compare", kind=Kind.FEED, check=quality.check_compare),
    Rule(code="quality-in-feed", kind=Kind.FEED, check=quality.check_columns),
    Rule(code="quality-threshold", kind=Kind.FEED, check=quality.check_threshold),
    Rule(code="quality-quarantine", kind=Kind.FEED, check=quality.check_quarantine),
    Rule(code="quality-unique", kind=Kind.FEED, check=quality.check_unique),
    Rule(code="retention-limit", kind=Kind.FEED, check=retention.check_limit),
    Rule(code="retention-late-arrival", kind=Kind.FEED, check=retention.check_late_arrival),
    Rule(code="retention-newest", kind=Kind.FEED, check=retention.check_newest),
    Rule(code="retention-frequency", kind=Kind.FEED, check=retention.check_frequency),
    Rule(code="retention-readers", kind=Kind.FEED, check=retention.check_readers),
    Rule(code="retention-replicas", kind=Kind.FEED, check=retention.check_replicas),
    Rule(code="retention-replication", kind=Kind.FEED, check=retention.check_replication),
    Rule(code="retention-place", kind=Kind.FEED, check=retention.check_places),
    Rule(code="archive-missing", kind=Kind.FEED, check=retention.check_archive_is_declared),
    Rule(code="archive-place", kind=Kind.FEED, check=retention.check_archive_place),
    Rule(code="lifecycle-stage", kind=Kind.FEED, check=lifecycle.check_stage),
    Rule(code="lifecycle-frequency", kind=Kind.FEED, check=lifecycle.check_stage_frequency),
    Rule(code="lifecycle-limit", kind=Kind.FEED, check=lifecycle.check_stage_limit),
    Rule(code="feed-sla", kind=Kind.FEED, check=feed.check_sla),
    Rule(code="feed-schema", kind=Kind.FEED, check=feed.check_schema),
    Rule(code="import-options", kind=Kind.FEED, check=transfers.check_import),
    Rule(code="import-place", kind=Kind.FEED, check=transfers.check_import_place),
    Rule(code="export-options", kind=Kind.FEED, check=transfers.check_export),
    Rule(code="export-place", kind=Kind.FEED, check=transfers.check_export_place),
    Rule(code="replication-source", kind=Kind.FEED, check=replication.check_sources),
    Rule(code="replication-target-slice", kind=Kind.FEED, check=replication.check_target_slices),
    Rule(code="replication-slice-depth", kind=Kind.FEED, check=replication.check_slice_depth),
    Rule(code="replication-delay", kind=Kind.FEED, check=replication.check_delay),
    Rule(code="replication-overlap", kind=Kind.FEED, check=replication.check_overlap),
    Rule(code="replication-nothing", kind=Kind.FEED, check=replication.check_copies_exist),
    Rule(code="replication-grid", kind=Kind.FEED, check=replication.check_grid),
    Rule(code="replication-table", kind=Kind.FEED, check=replication.check_tables),
    Rule(code="replication-options", kind=Kind.FEED, check=replication.check_options),
    Rule(code="replication-pattern", kind=Kind.FEED, check=replication.check_patterns),
    Rule(code="replication-property", kind=Kind.FEED, check=replication.check_properties),
    Rule(code="produced-by", kind=Kind.FEED, check=feed.check_producer),
    Rule(code="table-asset", kind=Kind.FEED, check=feed.check_table_assets),
    Rule(code="availability-flag", kind=Kind.FEED, check=feed.check_flag),
    Rule(code="partition-names", kind=Kind.FEED, check=feed.check_partition_names),
    Rule(code="data-location", kind=Kind.FEED, check=paths.check_data_location),
    Rule(code="table-address", kind=Kind.FEED, check=paths.check_addresses),
    Rule(code="table-catalog", kind=Kind.FEED, check=paths.check_catalog),
    Rule(code="catalog-table", kind=Kind.CLUSTER, check=registration.check_form),
    Rule(code="catalog-table", kind=Kind.FEED, check=registration.check_tables),
    Rule(code="table-sources", kind=Kind.FEED, check=paths.check_table_sources),
    Rule(code="table-partitions", kind=Kind.FEED, check=paths.check_table_partitions),
    Rule(code="lake-table", kind=Kind.FEED, check=paths.check_lake_tables),
    Rule(code="other-columns", kind=Kind.FEED, check=paths.check_other_columns),
    Rule(code="storage-uniform", kind=Kind.FEED, check=paths.check_uniform_storage),
    Rule(code="path-template", kind=Kind.FEED, check=paths.check_templates),
    Rule(code="path-segment", kind=Kind.FEED, check=paths.check_segments),
    Rule(code="path-without-time", kind=Kind.FEED, check=paths.check_variables),
    Rule(code="path-granularity", kind=Kind.FEED, check=paths.check_granularity),
    Rule(code="path-variables", kind=Kind.FEED, check=paths.check_same_variables),
    Rule(code="path-written", kind=Kind.FEED, check=paths.check_written_places),
    Rule(code="path-shared", kind=Kind.FEED, check=paths.check_shared_paths),
    *(Rule(code="copy-ring", kind=kind, check=cycles.check_rings) for kind in _SCHEDULED),
    *(Rule(code="job-priority", kind=kind, check=metadata.check_priority) for kind in _SCHEDULED),
    *(Rule(code="no-effect", kind=kind, check=metadata.check_effect) for kind in _SCHEDULED),
    *(Rule(code="notification-address", kind=kind, check=metadata.check_recipients) for kind in _SCHEDULED),
    Rule(code="feed-group", kind=Kind.FEED, check=feed.check_groups),
    Rule(code="feed-not-on-cluster", kind=Kind.PROCESS, check=references.check_feed_on_cluster),
    Rule(code="process-validity", kind=Kind.PROCESS, check=process.check_validity),
    Rule(code="input-output-names", kind=Kind.PROCESS, check=process.check_names),
    Rule(code="expression", kind=Kind.PROCESS, check=windows.check_expressions),
    Rule(code="window-range", kind=Kind.PROCESS, check=windows.check_window_range),
    Rule(code="window-too-small", kind=Kind.PROCESS, check=windows.check_window_counts),
    Rule(code="window-ends", kind=Kind.PROCESS, check=neighbours.check_ends),
    Rule(code="window-clock-change", kind=Kind.PROCESS, check=neighbours.check_clock_changes),
    Rule(code="window-deadline", kind=Kind.PROCESS, check=neighbours.check_deadlines),
    Rule(code="window-as-they-come", kind=Kind.PROCESS, check=windows.check_scheduled_windows),
    Rule(code="window-current", kind=Kind.PROCESS, check=windows.check_current_windows),
    Rule(code="batch-output", kind=Kind.PROCESS, check=windows.check_batch_outputs),
    Rule(code="output-data", kind=Kind.PROCESS, check=windows.check_output_data),
    Rule(code="day-in-another-zone", kind=Kind.PROCESS, check=windows.check_days),
    Rule(code="window-retention", kind=Kind.PROCESS, check=windows.check_window_retention),
    Rule(code="window-outlives-feed", kind=Kind.PROCESS, check=windows.check_window_outlives_feed),
    Rule(code="output-range", kind=Kind.PROCESS, check=windows.check_output_range),
    Rule(code="output-replicated", kind=Kind.PROCESS, check=windows.check_output_target),
    Rule(code="written-again", kind=Kind.PROCESS, check=neighbours.check_written_once),
    Rule(code="several-writers", kind=Kind.PROCESS, check=windows.check_one_writer),
    Rule(code="waits-for-itself", kind=Kind.PROCESS, check=cycles.check_cycles),
    Rule(code="trigger-names", kind=Kind.PROCESS, check=windows.check_names),
    Rule(code="trigger-times", kind=Kind.PROCESS, check=windows.check_times),
    Rule(code="wakes-itself", kind=Kind.PROCESS, check=wakes.check_wakes),
    Rule(code="input-partition", kind=Kind.PROCESS, check=process.check_partition_depth),
    Rule(code="optional-table", kind=Kind.PROCESS, check=paths.check_optional_tables),
    Rule(code="process-sla", kind=Kind.PROCESS, check=process.check_sla),
    Rule(code="column-lineage", kind=Kind.PROCESS, check=process.check_lineage),
    Rule(code="late-input", kind=Kind.PROCESS, check=process.check_late_inputs),
    Rule(code="late-delay", kind=Kind.PROCESS, check=process.check_late_delay),
    Rule(code="text", kind=Kind.PROCESS, check=process.check_texts),
    Rule(code="mirror-work", kind=Kind.PROCESS, check=mirrors.check_work),
    Rule(code="mirror-place", kind=Kind.PROCESS, check=mirrors.check_places),
    Rule(code="mirror-overlap", kind=Kind.PROCESS, check=mirrors.check_overlaps),
    Rule(code="mirror-patterns", kind=Kind.PROCESS, check=mirrors.check_patterns),
    Rule(code="workflow-steps", kind=Kind.PROCESS, check=process.check_steps),
    Rule(code="made-up-output", kind=Kind.PROCESS, check=process.check_outputs),
    Rule(code="made-up-columns", kind=Kind.PROCESS, check=process.check_columns),
    Rule(code="work-elsewhere", kind=Kind.PROCESS, check=process.check_work_elsewhere),
    Rule(code="workflow-path", kind=Kind.PROCESS, check=process.check_workflow),
    Rule(code="engine-not-here", kind=Kind.PROCESS, check=paths.check_engines),
    Rule(code="workflow-master", kind=Kind.PROCESS, check=process.check_application),
    Rule(code="workflow-submit", kind=Kind.PROCESS, check=process.check_submit_options),
    Rule(code="spark-conf", kind=Kind.PROCESS, check=process.check_conf),
    Rule(code="workflow-file", kind=Kind.PROCESS, check=process.check_files),
)

_RULES_OF: Mapping[Kind, tuple[Rule, ...]] = {kind: tuple(rule for rule in RULES if rule.kind is kind) for kind in Kind}


def validate_bundle(
    bundle: Bundle,
    sources: SourceMap,
    root: Path | None = None,
    *,
    left_out: Iterable[AnyEntity] = (),
    only: Collection[EntityKey] | None = None,
    listeners: Collection[str] | None = None,
) -> list[Issue]:
    """Apply every rule to every entity; return issues in the order of files and lines.

    Args:
        bundle: the entities that could be read.
        sources: positions of declarations. An entity in `sources` but not in the bundle was declared with errors;
            references to it are no mistake.
        root: the folder in which files of workflows are checked; None leaves files unchecked.
        left_out: entities that could not be read as a whole. They are not checked, but what they name is theirs.
        only: the entities to check, with the other entities as context; None for all.
        listeners: the receivers that the settings declare; None if that is not known.
    """
    scope = Scope(
        bundle=bundle,
        sources=sources,
        root=root,
        left_out=tuple(left_out),
        listeners=None if listeners is None else frozenset(listeners),
    )
    entities = bundle.entities if only is None else [entity for entity in bundle.entities if entity.key in only]
    return sorted(_iter_issues(scope, entities), key=order_of)


def _iter_issues(scope: Scope, entities: Iterable[AnyEntity]) -> Iterator[Issue]:
    for entity in entities:
        for rule in _RULES_OF[entity.kind]:
            try:
                complaints = tuple(dict.fromkeys(rule.check(scope, entity)))  # alike on several clusters: once
            except Exception as exc:  # noqa: BLE001
                source = scope.sources.locate(entity.key)
                yield internal_error(f"the rule {rule.code}", exc, entity=entity.label, source=source)
                continue
            for complaint in complaints:
                yield Issue(
                    severity=complaint.severity,
                    code=rule.code,
                    entity=entity.label,
                    message=complaint.message,
                    remedy=complaint.remedy,
                    source=complaint.source or scope.sources.locate(entity.key, complaint.path),
                    follows=(
                        *complaint.causes,
                        *((UNREAD,) if scope.sources.is_partial and complaint.is_absence else ()),
                    ),
                )
