"""The compiler of entities to a plan: one pass without outside access. A validated bundle compiles without errors.

Replication becomes flows, one for each pair of a source and a target of a feed. A flow is treated as a process of the
target cluster: its instances wait for those of the source, are run and retried, and run again for late data and
updates.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import lru_cache

from feed_assets.access.records import acl_of
from feed_assets.entities.bundle import Bundle
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.common import (
    USER_TOPIC_SWITCH,
    Entity,
    JobPriority,
    Kind,
    find_priority,
    find_queue,
    iter_metadata,
)
from feed_assets.entities.content.column_lineage import DECLARED, ColumnSource, SourceKind
from feed_assets.entities.copies.mirror import Mirror
from feed_assets.entities.copies.options import RemovedFiles, Verification
from feed_assets.entities.feed import ClusterRole, Duplicates, Feed, find_sources, flow_delay, flow_sequence
from feed_assets.entities.flow_names import flow_name
from feed_assets.entities.locations.overlaps import NO_OVERLAPS, Overlaps, find_overlaps
from feed_assets.entities.maps import FrozenMap
from feed_assets.entities.metadata import find_fault
from feed_assets.entities.process import LateProcess, Process
from feed_assets.entities.replication import (
    Replication,
    complete_replication,
)
from feed_assets.entities.triggers import OnUpdate
from feed_assets.issues import EntityKey, SourceMap
from feed_assets.plan.compile_transfers import compile_export, compile_import
from feed_assets.plan.copy_records import CopyOptions, CopyRecord, Directory, MirrorRecord, OnError, StoreAddress
from feed_assets.plan.edges import InputEdge, Key, OutputEdge, Pending, compile_trigger
from feed_assets.plan.facts import EntityFacts, MetadataRecord, compile_sla
from feed_assets.plan.feed_work import feed_process, read_edge, written_edge
from feed_assets.plan.places import address_of, lake_of, locate, locate_table
from feed_assets.plan.records import (
    ClusterRecord,
    FeedRecord,
    InboxRecord,
    LateRecord,
    Plan,
    ProcessRecord,
    RegistrationRecord,
    TableRecord,
)
from feed_assets.plan.release_fingerprint import release_fingerprint
from feed_assets.plan.retention import compile_retention
from feed_assets.timing.expressions import TimeExpression, Truncation
from feed_assets.timing.sequence import InstanceSequence
from feed_assets.timing.templates import PathTemplate
from feed_assets.timing.windows import Window, parse_window

INPUT, OUTPUT = "source", "target"
"""The names of the input and the output of each flow."""

_VARIABLE = re.compile(r"\$\{cluster\.([^}]+)\}")


def iter_flows(bundle: Bundle, feed: Feed, target: str) -> Iterator[str]:
    """Yield the sources of the flows to a target; both clusters are declared.

    Feeds without data are not copied, nor Iceberg tables to anything else. Neither is a feed whose validities do not
    overlap.
    """
    if feed.clusters[target].type is not ClusterRole.TARGET or not _is_copied(bundle, feed, target):
        return
    for source in find_sources(feed):
        is_alike = is_lake(bundle, feed, source) == is_lake(bundle, feed, target)
        if is_alike and _is_copied(bundle, feed, source) and flow_sequence(feed, source, target):
            yield source


def _is_copied(bundle: Bundle, feed: Feed, name: str) -> bool:
    return bundle.find_cluster(name) is not None and feed.has_data and feed.lies_on(name)


def is_lake(bundle: Bundle, feed: Feed, name: str) -> bool:
    """Return whether a feed is an Iceberg table on a cluster."""
    cluster = bundle.find_cluster(name)
    return cluster is not None and cluster.is_lake and feed.table_on(name) is not None


def slice_path(feed: Feed, source: Cluster, target: Cluster) -> str:
    """Return the copied part of each instance; "" for all of it.

    The part is the partition at the source, then that at the target, each with the variables of its own cluster.
    """
    parts = (_with_variables(feed.clusters[cluster.name].partition, cluster) for cluster in (source, target))
    return normalize_slice(*parts)


def normalize_slice(*parts: str | None) -> str:
    """Join partitions, each below the previous, into one path, as Falcon does.

    >>> normalize_slice(" /a// ", None, "  /b// ")
    'a/b'
    """
    return "/".join(level for part in parts for level in (part or "").strip().split("/") if level)


def _with_variables(text: str | None, cluster: Cluster) -> str | None:
    values = {**cluster.properties, "name": cluster.name, "colo": cluster.colo}
    return None if text is None else _VARIABLE.sub(lambda found: values.get(found[1], found[0]), text)


def compile_flow(bundle: Bundle, feed: Feed, source: str, target: str, facts: EntityFacts) -> ProcessRecord:
    """Compile the flow from a source to a target of a feed; see `iter_flows` for the sources."""
    sequence = flow_sequence(feed, source, target)
    assert sequence is not None
    policy = complete_replication(feed.replication, feed.properties)
    part = slice_path(feed, bundle.get_cluster(source), bundle.get_cluster(target))
    if is_lake(bundle, feed, source):  # what a table hides are the files that delete its rows
        policy = policy.model_copy(update={"hidden": False})
    made = feed_process(
        bundle,
        feed,
        flow_name(feed.name, source),
        CopyRecord(source=source, options=copy_options(policy, part)),
        facts,
        clusters=(source, target),
        content=("flow", part),
        sequence=sequence,
    )
    read, written = read_edge(made, INPUT, source, part or None), written_edge(made, OUTPUT)
    return replace(made, delay=flow_delay(feed, source), inputs=(read,), outputs=(written,))


def copy_options(policy: Replication, part: str) -> CopyOptions:
    """Return the options of each copy."""
    return replace(
        _options(policy, OnError.REPORT),
        sub_path=part,
        allow_empty=policy.allow_empty,
        removed_files=policy.removed_files or RemovedFiles.BY_MANIFEST,
    )


def _options(declared: Replication | Mirror, on_error: OnError) -> CopyOptions:
    """Return what copies and mirrors say alike; `on_error` is what happens with `ignore_errors`."""
    return CopyOptions(
        verification=declared.verification or Verification.TRANSFERRED,
        on_error=on_error if declared.ignore_errors else OnError.STOP,
        include=declared.include,
        exclude=declared.exclude,
        hidden=declared.hidden,
        overwrite=bool(declared.overwrite),
        preserve=declared.preserve or frozenset(),
        bandwidth=declared.bandwidth.bytes if declared.bandwidth else None,
        task_bandwidth=declared.task_bandwidth.bytes if declared.task_bandwidth else None,
        max_tasks=declared.max_tasks or 5,
    )


_HIDDEN = ".*"
"""Excludes hidden files, so that they are neither copied nor removed."""


def compile_mirror(bundle: Bundle, mirror: Mirror, own: str) -> MirrorRecord:
    """Return the mirror of a process on the cluster `own`.

    Raises:
        EntityNotFoundError: the bundle lacks the cluster of a side.
    """
    source, target = (bundle.get_cluster(name) for name in mirror.clusters(own))
    options = replace(
        _options(mirror, OnError.PUBLISH),
        exclude=mirror.exclude if mirror.hidden else (*mirror.exclude, _HIDDEN),
        removed_files=RemovedFiles.REMOVE if mirror.removes else RemovedFiles.KEEP,
        allow_emptying=True,  # whether a source may be empty is decided earlier
        allow_empty=mirror.allow_emptying,
        by_name=True,
    )
    return MirrorRecord(
        directories=tuple((_place(source, read), _place(target, written)) for read, written in mirror.directories()),
        options=options,
        limits=mirror.limits,
        allow_emptying=mirror.allow_emptying,
        snapshots=mirror.snapshots,
    )


def _place(cluster: Cluster, directory: str) -> Directory:
    store, template = locate(cluster, directory)
    return Directory(store=store, path="/".join(part for part in template.text.split("/") if part))


def compile_plan(
    bundle: Bundle,
    sources: SourceMap | None = None,
    cluster: str | None = None,
    overlaps: Overlaps | None = None,
    colo: str | None = None,
) -> Plan:
    """Compile a validated bundle; with `cluster`, only what is on that cluster, so that other clusters may be missing;
    with `colo`, only what is on its clusters. Of other clusters there is what is copied from them.

    Feeds and processes without a location, or with an unsupported engine, are left out. Retention removes nothing at
    locations with `overlaps`; by default those of the bundle.
    """
    only = None if cluster is None else frozenset([cluster])
    if colo is not None:
        only = frozenset(each.name for each in bundle.clusters if each.colo == colo)
    overlaps = find_overlaps(bundle, cluster) if overlaps is None else overlaps
    return _Compiler(bundle, sources or SourceMap(), only, overlaps, colo).plan()


def compile_process(bundle: Bundle, process: Process, cluster: str) -> ProcessRecord:
    """Compile a process of a validated bundle on one cluster, as in the bundle's plan."""
    return _Compiler(bundle, SourceMap(), frozenset([cluster]), NO_OVERLAPS).process(process, cluster)


def runs_here(bundle: Bundle, process: Process, cluster: str) -> bool:
    """Return whether the process has a supported engine, and all its inputs and outputs have a location."""
    feeds = [*(item.feed for item in process.inputs.values()), *bundle.written_feeds(process)]
    return process.workflow.engine.is_supported and all(bundle.get_feed(name).lies_on(cluster) for name in feeds)


@dataclass(frozen=True, slots=True)
class _Compiler:
    bundle: Bundle
    sources: SourceMap
    only: frozenset[str] | None
    overlaps: Overlaps
    colo: str | None = None
    inputs: dict[Key, list[InputEdge]] = field(default_factory=lambda: defaultdict(list))
    outputs: dict[Key, list[OutputEdge]] = field(default_factory=lambda: defaultdict(list))

    def plan(self) -> Plan:
        processes = {
            (process.name, cluster): self.process(process, cluster)
            for process in self.bundle.processes
            for cluster in self._clusters_of(process)
            if runs_here(self.bundle, process, cluster)
        }
        processes |= {each.key: each for feed in self.bundle.feeds for each in self._work_of(feed)}
        feeds = {
            (feed.name, cluster): self._feed(feed, cluster)
            for feed in self.bundle.feeds
            for cluster in self._clusters_of(feed)
            if feed.lies_on(cluster)
        }
        used = {cluster for _, cluster in feeds}.union(self.only or ())
        clusters = [each for each in self.bundle.clusters if self.colo is None or each.name in used]
        return Plan(
            digest=self.bundle.digest,
            clusters={each.name: _cluster(each, is_elsewhere=self._is_elsewhere(each.name)) for each in clusters},
            feeds=feeds,
            processes=processes,
            datasources={each.name: each for each in self.bundle.datasources},
            facts={entity.key: self._facts(entity) for entity in self.bundle.entities},
            colo=self.colo,
        )

    def _clusters_of(self, entity: Feed | Process) -> list[str]:
        """Return the relevant clusters of an entity, including the sources of its copies on them."""
        if self.only is None:
            return list(entity.clusters)
        relevant = self.only.intersection(entity.clusters)
        if isinstance(entity, Feed):
            relevant = relevant.union(*(iter_flows(self.bundle, entity, name) for name in relevant))
        return [name for name in entity.clusters if name in relevant]

    def _is_elsewhere(self, cluster: str) -> bool:
        return self.colo is not None and cluster not in (self.only or ())

    def _work_of(self, feed: Feed) -> Iterator[ProcessRecord]:
        """Yield the work that a feed declares, after noting its edges."""
        for cluster in feed.clusters:
            if self.only is not None and cluster not in self.only:
                continue
            for record in self._transfers(feed, cluster):
                for edge in record.inputs:
                    self.inputs[edge.feed_key].append(edge)
                for out in record.outputs:
                    self.outputs[out.feed_key].append(out)
                yield record

    def _transfers(self, feed: Feed, cluster: str) -> Iterator[ProcessRecord]:
        for source in iter_flows(self.bundle, feed, cluster):
            yield compile_flow(self.bundle, feed, source, cluster, self._facts(feed))
        if (declared := feed.import_on(cluster)) is not None and self.bundle.find_cluster(cluster) is not None:
            yield compile_import(self.bundle, feed, cluster, declared, self._facts(feed))
        if (exported := feed.export_on(cluster)) is not None and self.bundle.find_cluster(cluster) is not None:
            yield compile_export(self.bundle, feed, cluster, exported, self._facts(feed))

    def process(self, process: Process, cluster: str) -> ProcessRecord:
        sequence, mirror = process.sequence_on(cluster), process.workflow.mirror
        late = frozenset(process.late_process.inputs) if process.late_process else frozenset()
        inputs = tuple(self._input(process, name, cluster, sequence, is_late=name in late) for name in process.inputs)
        outputs = self._outputs_of(process, cluster, sequence)
        for edge in inputs:
            self.inputs[edge.feed, cluster].append(edge)
        for out in outputs:
            self.outputs[out.feed, cluster].append(out)
        return ProcessRecord(
            process=process.name,
            cluster=cluster,
            entity=process.key,
            sequence=sequence,
            delay=timedelta(0),
            inputs=inputs,
            outputs=outputs,
            work=compile_mirror(self.bundle, mirror, cluster) if mirror is not None else process.workflow,
            properties=tuple(process.properties.items()),
            parallel=process.parallel,
            order=process.order,
            catch_up=process.catch_up,
            priority=(find_priority(process.properties) or JobPriority.NORMAL).level,
            queue=find_queue(process.properties),
            timeout=process.effective_timeout(),
            on_timeout=process.on_timeout,
            on_update=process.trigger.on_update if process.trigger is not None else OnUpdate.IGNORE,
            retry=process.retry,
            late=_late(process.late_process),
            digest=self.bundle.entity_digest(process),
            fingerprint=release_fingerprint(self.bundle, process, cluster),
            members=_members(self.bundle, process, cluster),
            facts=self._facts(process),
            trigger=compile_trigger(self.bundle, process, cluster),
            is_enumerated=not process.makes_batches,
            sla=None if process.makes_batches else compile_sla(process.sla_on(cluster)),
        )

    def _input(
        self, process: Process, name: str, cluster: str, sequence: InstanceSequence, *, is_late: bool
    ) -> InputEdge:
        item = process.inputs[name]
        takes: Window | Pending = Pending()
        first = last = None
        if not item.takes_new:
            takes = parse_window(item.start, item.end, sequence.timezone)
            feed = self.bundle.get_feed(item.feed).sequence_on(cluster)
            first = relative_shift(takes, takes.start, feed, sequence)
            last = relative_shift(takes, takes.end, feed, sequence)
        return InputEdge(
            name=name,
            feed=item.feed,
            feed_cluster=cluster,
            process=process.name,
            cluster=cluster,
            takes=takes,
            shifts=None if first is None or last is None else (first, last),
            optional=item.optional,
            partition=item.partition,
            is_late=is_late,
            at_least=item.at_least,
            missing_at_most=item.missing_at_most,
        )

    def _outputs_of(self, process: Process, cluster: str, sequence: InstanceSequence) -> tuple[OutputEdge, ...]:
        """Return the outputs of a process, then the quarantines of those whose bad rows are kept."""
        own = [self._output(process, name, cluster, sequence) for name in process.outputs]
        kept = [(out, feed) for out in own if (feed := self.bundle.find_quarantine(out.feed)) is not None]
        return (*own, *(out.to_quarantine(feed) for out, feed in kept))

    def _output(self, process: Process, name: str, cluster: str, sequence: InstanceSequence) -> OutputEdge:
        item = process.outputs[name]
        window = parse_window(item.instance, item.instance, sequence.timezone)
        feed = self.bundle.get_feed(item.feed).sequence_on(cluster)
        return OutputEdge(
            name=name,
            feed=item.feed,
            process=process.name,
            cluster=cluster,
            window=window,
            shift=relative_shift(window, window.start, feed, sequence),
            optional=item.optional,
            column_lineage=FrozenMap({name: _sources(declared) for name, declared in item.column_lineage.items()}),
        )

    def _feed(self, feed: Feed, cluster: str) -> FeedRecord:
        entry = feed.clusters[cluster]
        on = self.bundle.get_cluster(cluster)
        store, template, table = _locate(feed, on)
        record = FeedRecord(
            feed=feed.name,
            cluster=cluster,
            role=entry.type,
            sequence=feed.sequence_on(cluster),
            store=store,
            template=template,
            table=table,
            flag=feed.availability_flag,
            format=feed.format,
            columns=feed.ddl,
            options=tuple(feed.options.items()),
            partitions=feed.partitions,
            late_cut_off=feed.late_arrival.cut_off if feed.late_arrival else None,
            existing=feed.existing,
            other_columns=feed.columns,
            preview=feed.preview,
            retention=compile_retention(feed, on, self.overlaps),
            sla=compile_sla(feed.sla_on(cluster)),
            inputs_of=tuple(self.inputs[feed.name, cluster]),
            outputs_of=tuple(self.outputs[feed.name, cluster]),
            facts=self._facts(feed),
            produced_by=entry.produced_by.asset if entry.produced_by else feed.asset,
            is_expected=feed.is_expected,
            has_data=feed.has_data,
            watch=feed.watch or (feed.frequency if feed.is_current else None),
            inbox=_compile_inbox(feed, on) if entry.type is not ClusterRole.TARGET else None,
            quality=feed.quality,
            is_current=feed.is_current,
            versions=entry.retention.versions if entry.retention is not None else 0,
            registration=_compile_registration(feed, on),
        )
        return record.as_source() if self._is_elsewhere(cluster) else record

    def _facts(self, entity: Entity) -> EntityFacts:
        groups = entity.groups if isinstance(entity, Feed) else ()
        groups = entity.pipelines if isinstance(entity, Process) else groups
        source = self.sources.get(entity.key)
        owner = (entity.acl.owner if entity.acl else None) or entity.tags.get("owner")
        return EntityFacts(
            description=entity.description,
            tags=tuple(entity.tags.items()),
            groups=tuple(groups),
            owner=owner,
            acl=acl_of(entity),
            file=source.file if source else None,
            line=source.line if source else None,
            metadata=tuple(self._metadata(entity)),
            notification=entity.notification if isinstance(entity, Feed | Process) else None,
            has_user_topic=entity.properties.get(USER_TOPIC_SWITCH, "").strip().lower() != "false",
        )

    def _metadata(self, entity: Entity) -> Iterator[MetadataRecord]:
        for each in iter_metadata(entity):
            if find_fault(each.key, each.value) is None:
                source = self.sources.locate(entity.key, each.place)
                line = source.line if source else None
                yield MetadataRecord(column=each.column, key=each.key, value=each.value, line=line)


def _locate(feed: Feed, cluster: Cluster) -> tuple[StoreAddress, PathTemplate, TableRecord | None]:
    text = feed.table_on(cluster.name)
    if text is not None:
        return locate_table(feed, cluster, text)
    return *locate(cluster, feed.data_on(cluster.name) or "", feed.path_zone), None


def _compile_registration(feed: Feed, cluster: Cluster) -> RegistrationRecord | None:
    text = feed.catalog_table_on(cluster)
    if text is None:
        return None
    store, template, table = locate_table(feed, cluster, text)
    return RegistrationRecord(table=table, store=store, template=template)


def _compile_inbox(feed: Feed, cluster: Cluster) -> InboxRecord | None:
    inbox = feed.inbox
    if inbox is None:
        return None
    store, directory = locate(cluster, inbox.directory)
    return InboxRecord(
        store=store,
        directory=directory.text.strip("/"),
        pattern=inbox.pattern,
        settle=inbox.settle,
        takes_duplicates=inbox.duplicates is Duplicates.TAKE,
        leaves=inbox.leave,
    )


def _members(bundle: Bundle, process: Process, cluster: str) -> tuple[EntityKey, ...]:
    feeds = {*(item.feed for item in process.inputs.values()), *bundle.written_feeds(process)}
    used = tuple((Kind.FEED.value, name) for name in sorted(feeds))
    clusters = {cluster} | (set(process.workflow.mirror.clusters(cluster)) if process.workflow.mirror else set())
    return (process.key, *used, *((Kind.CLUSTER.value, name) for name in sorted(clusters)))


def _sources(declared: Iterable[str]) -> tuple[ColumnSource, ...]:
    parts = (text.partition(".") for text in declared)
    return tuple(
        ColumnSource(input=name, column=column, kind=SourceKind.DIRECT, text=DECLARED) for name, _, column in parts
    )


def _late(late: LateProcess | None) -> LateRecord | None:
    if late is None:
        return None
    own = ((name, workflow) for name, workflow in late.inputs.items() if workflow is not None)
    workflows = tuple((name, workflow) for name, workflow in own if workflow.engine.is_supported)
    return LateRecord(policy=late.policy, delay=late.delay, workflows=workflows)


def _cluster(cluster: Cluster, *, is_elsewhere: bool) -> ClusterRecord:
    return ClusterRecord(
        name=cluster.name,
        colo=cluster.colo,
        store=address_of(cluster, cluster.storage),
        catalog=None if cluster.is_lake else ",".join(f"thrift://{host}" for host in cluster.metastores) or None,
        spark_master=cluster.spark.local_master or cluster.spark.master,
        spark_remote=cluster.spark.remote,
        keeps_server=cluster.spark.connect is not None and not is_elsewhere,
        spark_conf=tuple(cluster.spark.conf.items()),
        spark_submit=tuple(cluster.spark.submit.items()),
        properties=tuple(cluster.properties.items()),
        lake=lake_of(cluster),
        is_elsewhere=is_elsewhere,
    )


@lru_cache(maxsize=65536)
def relative_shift(
    window: Window, expression: TimeExpression, feed: InstanceSequence, process: InstanceSequence
) -> int | None:
    """Return how many instances after that of the process's nominal time an end of a window is; None if that varies."""
    truncates = expression.truncation is not Truncation.NONE
    if truncates and window.zone is not None and window.zone.key != feed.timezone.key:
        return None
    shift = expression.shift(process, feed)
    if shift is None:
        return None
    here = feed.index_at_or_before(process.start)
    return shift - here if feed.at(here) == process.start else None
