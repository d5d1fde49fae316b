"""All rules, in the order in which they are applied, and their application to a bundle.

F…, P… and C… in the rules' docstrings are Falcon's own checks, by the numbers of the reference.
"""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from feed_assets.entities.bundle import Bundle
from feed_assets.entities.common import Kind
from feed_assets.issues import Issue, SourceMap, order_of
from feed_assets.validation import (
    rules_cluster,
    rules_cycles,
    rules_feed,
    rules_paths,
    rules_process,
    rules_references,
    rules_windows,
    rules_workflow,
)
from feed_assets.validation.scope import Rule, Scope

RULES: tuple[Rule, ...] = (
    Rule(code="cluster-folders", kind=Kind.CLUSTER, check=rules_cluster.check_folders),
    Rule(code="hidden-property", kind=Kind.CLUSTER, check=rules_cluster.check_hidden_properties),
    Rule(code="datasource-interface", kind=Kind.DATASOURCE, check=rules_cluster.check_interfaces),
    Rule(code="unknown-reference", kind=Kind.FEED, check=rules_references.check_references),
    Rule(code="cluster-version", kind=Kind.FEED, check=rules_references.check_cluster_versions),
    Rule(code="feed-validity", kind=Kind.FEED, check=rules_feed.check_validity),
    Rule(code="retention-late-arrival", kind=Kind.FEED, check=rules_feed.check_retention),
    Rule(code="feed-sla", kind=Kind.FEED, check=rules_feed.check_sla),
    Rule(code="feed-schema", kind=Kind.FEED, check=rules_feed.check_schema),
    Rule(code="archive-place", kind=Kind.FEED, check=rules_feed.check_archive),
    Rule(code="replication-source", kind=Kind.FEED, check=rules_feed.check_sources),
    Rule(code="replication-target-slice", kind=Kind.FEED, check=rules_feed.check_target_slices),
    Rule(code="replication-slice-depth", kind=Kind.FEED, check=rules_feed.check_slice_depth),
    Rule(code="replication-delay", kind=Kind.FEED, check=rules_feed.check_delay),
    Rule(code="availability-flag", kind=Kind.FEED, check=rules_feed.check_flag),
    Rule(code="partition-names", kind=Kind.FEED, check=rules_feed.check_partition_names),
    Rule(code="data-location", kind=Kind.FEED, check=rules_paths.check_data_location),
    Rule(code="path-template", kind=Kind.FEED, check=rules_paths.check_templates),
    Rule(code="path-without-time", kind=Kind.FEED, check=rules_paths.check_variables),
    Rule(code="path-granularity", kind=Kind.FEED, check=rules_paths.check_granularity),
    Rule(code="path-variables", kind=Kind.FEED, check=rules_paths.check_same_variables),
    Rule(code="path-shared", kind=Kind.FEED, check=rules_paths.check_shared_paths),
    Rule(code="feed-group", kind=Kind.FEED, check=rules_feed.check_groups),
    Rule(code="unknown-reference", kind=Kind.PROCESS, check=rules_references.check_references),
    Rule(code="feed-not-on-cluster", kind=Kind.PROCESS, check=rules_references.check_feed_on_cluster),
    Rule(code="cluster-version", kind=Kind.PROCESS, check=rules_references.check_cluster_versions),
    Rule(code="process-validity", kind=Kind.PROCESS, check=rules_process.check_validity),
    Rule(code="input-output-names", kind=Kind.PROCESS, check=rules_process.check_names),
    Rule(code="expression", kind=Kind.PROCESS, check=rules_windows.check_expressions),
    Rule(code="window-range", kind=Kind.PROCESS, check=rules_windows.check_window_range),
    Rule(code="window-retention", kind=Kind.PROCESS, check=rules_windows.check_window_retention),
    Rule(code="window-outlives-feed", kind=Kind.PROCESS, check=rules_windows.check_window_outlives_feed),
    Rule(code="output-range", kind=Kind.PROCESS, check=rules_windows.check_output_range),
    Rule(code="output-replicated", kind=Kind.PROCESS, check=rules_windows.check_output_target),
    Rule(code="several-writers", kind=Kind.PROCESS, check=rules_windows.check_one_writer),
    Rule(code="waits-for-itself", kind=Kind.PROCESS, check=rules_cycles.check_cycles),
    Rule(code="input-partition", kind=Kind.PROCESS, check=rules_process.check_partition_depth),
    Rule(code="process-sla", kind=Kind.PROCESS, check=rules_process.check_sla),
    Rule(code="late-input", kind=Kind.PROCESS, check=rules_process.check_late_inputs),
    Rule(code="text", kind=Kind.PROCESS, check=rules_process.check_texts),
    Rule(code="workflow-path", kind=Kind.PROCESS, check=rules_workflow.check_workflow),
    Rule(code="workflow-submit", kind=Kind.PROCESS, check=rules_workflow.check_submit_options),
    Rule(code="workflow-file", kind=Kind.PROCESS, check=rules_workflow.check_files),
)


def validate_bundle(bundle: Bundle, sources: SourceMap, as_of: datetime, root: Path | None = None) -> list[Issue]:
    """Apply every rule to every entity; issues in the order of files and lines.

    Args:
        bundle: the entities that could be read.
        sources: where they stand; an entity that is in here and not in the bundle was declared with errors, and naming
            it is no mistake.
        as_of: stands for the present, for rules about retention.
        root: the folder that files of workflows are looked for in; None leaves files unchecked.
    """
    scope = Scope(bundle=bundle, sources=sources, as_of=as_of, root=root)
    return sorted(_iter_issues(scope), key=order_of)


def _iter_issues(scope: Scope) -> Iterator[Issue]:
    for entity in scope.bundle.entities:
        for rule in RULES:
            if rule.kind is not entity.kind:
                continue
            for complaint in rule.check(scope, entity):
                yield Issue(
                    severity=complaint.severity,
                    code=rule.code,
                    entity=entity.label,
                    message=complaint.message,
                    remedy=complaint.remedy,
                    source=scope.sources.locate(entity.key, complaint.path),
                )
