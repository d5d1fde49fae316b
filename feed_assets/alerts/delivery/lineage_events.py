"""Compose the events of OpenLineage (https://openlineage.io, 2-0-2) from messages about lineage.

What happened is in the message; inputs, outputs and figures come from the record, words and schemas from the plan. What
is not there any more is left out: an event always leaves.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from sqlalchemy import Connection

from feed_assets.alerts.delivery.dataset_names import locate_path, name_feed, name_path
from feed_assets.alerts.delivery.words import RUN
from feed_assets.catalog.column_sets import ColumnSet, ColumnSets, FeedColumn
from feed_assets.catalog.run_metadata import QUALITY, RULE, Facts
from feed_assets.entities.common import LocationKind
from feed_assets.entities.content.columns import describe_column, parse_columns
from feed_assets.entities.flow_names import parse_transfer, source_of
from feed_assets.entities.maps import EMPTY
from feed_assets.entities.workflow import Workflow
from feed_assets.log.events import EventLog
from feed_assets.log.instances.attempts import Attempts
from feed_assets.log.messages.payloads import Happening, LineagePayload
from feed_assets.log.messages.records import OutboxMessage
from feed_assets.log.records import COLUMNS, CONTENT, Attempt, FeedEvent, FeedEventKind, ProcessKey
from feed_assets.log.removals.chunks import SweepChunks
from feed_assets.log.removals.records import ItemOutcome
from feed_assets.masking import mask_values
from feed_assets.plan.copy_records import StoreAddress
from feed_assets.plan.facts import EntityFacts
from feed_assets.plan.records import FeedRecord, Plan, ProcessRecord
from feed_assets.plan.release_fingerprint import parse_fingerprint
from feed_assets.releases.store import Releases, WorkflowFiles, find_pinned_files
from feed_assets.settings import DEFAULT_NAMESPACE
from feed_assets.sql.errors import SweepDamagedError
from feed_assets.timing.dates import render_datetime

_PRODUCER = "urn:feed-assets"
_SOURCE = "FEED_ASSETS"
_SPEC = "https://openlineage.io/spec"
_UNKNOWN = {"_producer": _PRODUCER, "_schemaURL": f"{_PRODUCER}:facets:1-0-0#/$defs/ColumnsUnknownDatasetFacet"}
_REMOVED = frozenset({ItemOutcome.EVICTED, ItemOutcome.RESTORED, ItemOutcome.OCCUPIED, ItemOutcome.LOST})

Facets = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class LineageEvents:
    """Composes the events of a project: its plan, and its namespace. `connection` reads the record."""

    connection: Connection
    plan: Plan
    namespace: str | None

    def compose(self, message: OutboxMessage) -> dict[str, Any]:
        """Return the event that a message is about, as JSON values without secrets; of one that only tries the receiver
        a remark on a job that never runs.
        """
        payload, at = message.payload, message.recorded_at.isoformat()
        content: dict[str, Any]
        if not isinstance(payload, LineagePayload):
            said = _facet("1-1-0/DocumentationJobFacet", description="a test of this receiver: nothing has happened")
            job = {"namespace": self._jobs, "name": "test", "facets": {"documentation": said}}
            kind, content = "JobEvent", {"job": job}
        elif payload.event is not None:
            kind, content = "DatasetEvent", {"dataset": self._changed(payload, payload.event)}
        else:
            kind, content = "RunEvent", {"eventType": payload.happening.value}
            content |= self._attempt(payload) if payload.process is not None else self._sweep(payload)
        head = {"eventTime": at, "producer": _PRODUCER, "schemaURL": f"{_SPEC}/2-0-2/OpenLineage.json#/$defs/{kind}"}
        found: dict[str, Any] = mask_values(head | content)
        return found

    @property
    def _jobs(self) -> str:
        return f"feed-assets/{self.namespace or DEFAULT_NAMESPACE}"

    def _run(self, payload: LineagePayload, *names: object) -> dict[str, Any]:
        """Return a run with the id that its begin and end share, whoever tells them."""
        whole = "/".join(map(str, (self._jobs, payload.cluster, *names, payload.begun_at)))
        time, facets = payload.nominal_time, dict[str, dict[str, Any]]()
        if time is not None:
            facets["nominalTime"] = _facet("1-0-1/NominalTimeRunFacet", nominalStartTime=time.isoformat())
        if RUN.fullmatch(payload.run_id or ""):
            job = {"namespace": self._jobs, "name": "dagster"}
            facets["parent"] = _facet("1-2-0/ParentRunFacet", run={"runId": payload.run_id}, job=job)
        if payload.happening is Happening.FAIL:
            said = {"message": payload.reason or "unknown", "programmingLanguage": "PYTHON"}
            facets["errorMessage"] = _facet("1-0-1/ErrorMessageRunFacet", **said)
        return {"runId": str(uuid5(NAMESPACE_URL, whole)), "facets": facets}

    def _attempt(self, payload: LineagePayload) -> dict[str, Any]:
        assert payload.process is not None
        assert payload.nominal_time is not None
        key = ProcessKey(payload.process, payload.cluster, payload.nominal_time)
        process = self.plan.processes.get(key[:2])
        found = [each for each in Attempts(self.connection).of(key) if each.attempt == payload.attempt]
        attempt = found[0] if found else None
        ended = attempt if payload.happening is not Happening.START else None
        facets = _describe(process.facts, "Job") if process is not None else {}
        facets["jobType"] = _type(_job_type(payload.process))
        if query := self._find_query(attempt, process):
            facets["sql"] = _facet("1-1-0/SQLJobFacet", query=query, dialect="spark")
        return {
            "run": self._run(payload, *key[::2], payload.attempt),
            "job": {"namespace": self._jobs, "name": f"{payload.cluster}.{payload.process}", "facets": facets},
            "inputs": [*self._inputs(key, attempt, process), *self._beyond(ended)],
            "outputs": list(self._outputs(key, ended, process, payload.happening)),
        }

    def _sweep(self, payload: LineagePayload) -> dict[str, Any]:
        """Return the part of a sweep for a feed: at its end, what it has removed."""
        record = self.plan.feeds.get((payload.entity, payload.cluster))
        chunks, paths = SweepChunks(self.connection, payload.sweep or ""), list[str]()
        with suppress(SweepDamagedError):
            for chunk in chunks.iter_all(feed=payload.entity) if payload.happening is not Happening.START else ():
                if chunk.kind == LocationKind.DATA and chunk.place is None and record is not None:
                    removed = (each for each, result in chunk.results.items() if result.outcome in _REMOVED)
                    paths += [locate_path(record.store, each.path) for each in removed]
        facets = {"lifecycleStateChange": _change("DROP")} if paths else {}
        name, work = f"{payload.cluster}.{payload.entity}.retention", {"jobType": _type("RETENTION")}
        return {
            "run": self._run(payload, "sweep", payload.sweep, payload.entity),
            "job": {"namespace": self._jobs, "name": name, "facets": work},
            "inputs": [],
            "outputs": [self._output(payload.entity, payload.cluster, paths, facets)],
        }

    def _changed(self, payload: LineagePayload, seq: int) -> dict[str, Any]:
        """Return a feed of which an instance has changed without a run."""
        facets: Facets = {}
        for event in EventLog(self.connection).of_numbers([seq]).values():
            facets |= _version([(event.nominal_time, event.manifest_digest)])
            facets["lifecycleStateChange"] = self._lifecycle(event)
        return self._dataset(payload.entity, payload.cluster, facets)

    def _find_query(self, attempt: Attempt | None, process: ProcessRecord | None) -> str | None:
        """Return the text of the SQL file in the release of an attempt; None if it was not kept, or there is none."""
        workflow = process.work if process is not None else None
        if attempt is None or process is None or not isinstance(workflow, Workflow) or workflow.engine != "sql":
            return None
        releases = Releases(self.connection).of(*process.key)
        digests = [parse_fingerprint(each.fingerprint).files for each in releases if each.release == attempt.release]
        pinned = find_pinned_files(self.connection, digests[0]) if digests else None
        files = [each.digest for each in pinned.files if each.path == workflow.path] if pinned is not None else []
        content = WorkflowFiles(self.connection).find(files[0]) if files else None
        return content.decode("utf-8", "replace") if content is not None else None

    def _inputs(
        self, key: ProcessKey, attempt: Attempt | None, process: ProcessRecord | None
    ) -> Iterator[dict[str, Any]]:
        """Yield what an attempt has read; before that is known, what it will read."""
        cluster, read = source_of(key.process) or key.cluster, dict[str, dict[datetime, str | None]]()
        for edge in process.inputs if process is not None and not (attempt and attempt.inputs) else ():
            read[edge.feed] = {}
        for each in attempt.inputs if attempt is not None else ():
            read.setdefault(each.feed, {}).update(zip(each.nominal_times, each.digests, strict=True))
        for feed, found in read.items():
            paths = self._paths(self.plan.feeds.get((feed, cluster)), sorted(found))
            facets = {"subset": _subset("InputSubsetInputDatasetFacet", inputCondition=paths)} if paths else {}
            yield {**self._dataset(feed, cluster, _version(found.items())), "inputFacets": facets}

    def _beyond(self, attempt: Attempt | None) -> Iterator[dict[str, Any]]:
        """Yield what an attempt has read without being told to, as far as its columns say."""
        events = EventLog(self.connection).of_numbers(attempt.outputs if attempt is not None else ())
        sets = ColumnSets(self.connection).find([str(each.payload.get(COLUMNS)) for each in events.values()])
        for place in sorted({each for found in sets.values() for each in found.beyond}):
            address = place.removeprefix("external/")
            is_path = address.startswith("/") or ":/" in address
            namespace, name = name_path(StoreAddress(url=address), "") if is_path else (self._jobs, place)
            yield {"namespace": namespace, "name": name}

    def _outputs(
        self, key: ProcessKey, ended: Attempt | None, process: ProcessRecord | None, happening: Happening
    ) -> Iterator[dict[str, Any]]:
        """Yield what an attempt that has ended has published; unless it has succeeded, also what it would."""
        events = EventLog(self.connection).of_numbers(ended.outputs if ended is not None else ())
        judged = self._judged(key, ended.attempt) if ended is not None else {}
        published = {str(event.payload.get("output")): event for event in events.values()}
        for name, event in published.items():
            yield self._published(event, judged.get(name, {}))
        for edge in process.outputs if process is not None and happening is not Happening.COMPLETE else ():
            time = self.plan.output_time(edge, key.nominal_time)
            if edge.name not in published and time is not None:
                paths = self._paths(self.plan.feeds.get(edge.feed_key), [time])
                yield self._output(edge.feed, key.cluster, paths, judged.get(edge.name, {}))

    def _published(self, event: FeedEvent, judged: Facets) -> dict[str, Any]:
        """Return an output with its figures, and what its columns were made of."""
        figures: dict[str, Any] = {"rowCount": event.payload.get("rows"), "size": event.bytes, "fileCount": event.files}
        version = _version([(event.nominal_time, event.manifest_digest)])
        facets = {**judged, **version, "lifecycleStateChange": self._lifecycle(event)}
        for columns in ColumnSets(self.connection).find([str(event.payload.get(COLUMNS))]).values():
            if columns.columns:
                facets["columnLineage"] = self._columns(columns, event.cluster)
            if columns.unknown is not None:
                facets["feedAssets_columnsUnknown"] = {**_UNKNOWN, "reason": columns.unknown}
        record = self.plan.feeds.get((event.feed, event.cluster))
        paths = [locate_path(record.store, str(event.payload["path"]))] if record and record.has_data else []
        more = {"outputStatistics": _facet("1-0-2/OutputStatisticsOutputDatasetFacet", **figures)}
        return self._output(event.feed, event.cluster, paths, facets, more)

    def _columns(self, found: ColumnSet, cluster: str) -> dict[str, Any]:
        def render(sources: Iterable[FeedColumn]) -> list[dict[str, Any]]:
            found = []
            for each in sources:
                (namespace, name), how = self._name(each.feed, cluster), each.kind.value.upper()
                step = {"type": how, **({"description": each.text} if each.text else {})}
                found.append({"namespace": namespace, "name": name, "field": each.column, "transformations": [step]})
            return found

        fields = {name: {"inputFields": render(sources)} for name, sources in found.columns.items()}
        return _facet("1-2-0/ColumnLineageDatasetFacet", fields=fields, dataset=render(found.indirect))

    def _lifecycle(self, event: FeedEvent) -> dict[str, Any]:
        """Return what an event is for its instance: new content, other content, or the end of it."""
        if event.kind is FeedEventKind.VANISHED:
            return _change("DROP")
        found = EventLog(self.connection).for_instances([event.key]).get(event.key, ())
        before = [each.kind for each in found if each.seq < event.seq and each.is_of_data]
        return _change("OVERWRITE" if before and before[-1] in CONTENT else "CREATE")

    def _judged(self, key: ProcessKey, attempt: int) -> dict[str, Facets]:
        """Return what was found about the rows of an attempt, by output: the demand as a whole, and each rule."""
        by_output: dict[str, dict[str, str]] = {}
        for fact in Facts(self.connection).of(key):
            if fact.attempt == attempt and fact.category.startswith(QUALITY):
                by_output.setdefault(fact.category.removeprefix(QUALITY), {})[fact.name] = fact.value
        return {output: {"dataQualityAssertions": _assert(facts)} for output, facts in by_output.items()}

    def _output(
        self, feed: str, cluster: str, paths: Sequence[str], facets: Facets, more: Mapping[str, Any] = EMPTY
    ) -> dict[str, Any]:
        subset = {"subset": _subset("OutputSubsetOutputDatasetFacet", outputCondition=paths)} if paths else {}
        return {**self._dataset(feed, cluster, facets), "outputFacets": {**subset, **more}}

    def _dataset(self, feed: str, cluster: str, more: Facets | None = None) -> dict[str, Any]:
        """Return a feed on a cluster, with what the plan says of it."""
        record, (namespace, name) = self.plan.feeds.get((feed, cluster)), self._name(feed, cluster)
        facets = _describe(record.facts, "Dataset") if record is not None else {}
        if record is not None and record.columns:
            shown = ((column, describe_column(kind)) for column, kind in parse_columns(record.columns))
            fields = [{"name": column, "type": it.type, "description": it.comment or ""} for column, it in shown]
            facets["schema"] = _facet("1-2-0/SchemaDatasetFacet", fields=fields)
        return {"namespace": namespace, "name": name, "facets": {**facets, **(more or {})}}

    def _name(self, feed: str, cluster: str) -> tuple[str, str]:
        record = self.plan.feeds.get((feed, cluster))
        return name_feed(record) if record is not None and record.has_data else (self._jobs, f"{cluster}.{feed}")

    def _paths(self, record: FeedRecord | None, times: Iterable[datetime]) -> list[str]:
        is_there = record is not None and record.has_data
        return [locate_path(record.store, record.path(time)) for time in times] if record and is_there else []


def _facet(schema: str, name: str | None = None, **fields: Any) -> dict[str, Any]:
    """Return a facet; `schema` is its version and file, and `name` what it is called there, if that is not the same."""
    url = f"{_SPEC}/facets/{schema}.json#/$defs/{name or schema.rpartition('/')[2]}"
    said = {key: value for key, value in fields.items() if value is not None}
    return {"_producer": _PRODUCER, "_schemaURL": url, **said}


def _subset(name: str, **conditions: Sequence[str]) -> dict[str, Any]:
    found = {key: {"type": "location", "locations": list(paths)} for key, paths in conditions.items()}
    return _facet("1-0-0/BaseSubsetDatasetFacet", name, **found)


def _version(instances: Iterable[tuple[datetime, str | None]]) -> Facets:
    """Return the version of a dataset: of one instance its time and digest, of several a digest of those."""
    found = [f"{render_datetime(time)} {digest or ''}".rstrip() for time, digest in sorted(instances)]
    whole = found[0] if len(found) == 1 else hashlib.sha256("\n".join(found).encode()).hexdigest()
    return {"version": _facet("1-0-1/DatasetVersionDatasetFacet", datasetVersion=whole)} if found else {}


def _assert(facts: Mapping[str, str]) -> dict[str, Any]:
    needed, good = facts.get("good.records.threshold", ""), facts.get("good.records.percent", "")
    success = facts.get("did.dq.pass") == "true"
    tests = [{"assertion": "good_rows_percent", "success": success, "expected": needed, "actual": good}]
    tests += [
        {"assertion": "rule", "name": name.removeprefix(RULE), "success": value == "0", "actual": value}
        for name, value in facts.items()
        if name.startswith(RULE)
    ]
    return _facet("1-1-0/DataQualityAssertionsDatasetFacet", assertions=tests)


def _change(state: str) -> dict[str, Any]:
    return _facet("1-0-1/LifecycleStateChangeDatasetFacet", lifecycleStateChange=state)


def _job_type(process: str) -> str:
    if (transfer := parse_transfer(process)) is not None:
        return transfer[1].upper()
    return "PROCESS" if source_of(process) is None else "REPLICATION"


def _type(kind: str) -> dict[str, Any]:
    return _facet("2-0-4/JobTypeJobFacet", processingType="BATCH", integration=_SOURCE, jobType=kind)


def _describe(facts: EntityFacts, of: str) -> Facets:
    """Return the facets of a job or dataset with what an entity says of itself."""
    tags = [{"key": name, "value": value, "source": _SOURCE} for name, value in facts.tags]
    found: dict[str, tuple[str, dict[str, Any], object]] = {
        "ownership": (f"1-0-1/Ownership{of}Facet", {"owners": [{"name": facts.owner}]}, facts.owner),
        "tags": (f"1-0-0/Tags{of}Facet", {"tags": tags}, tags),
        "documentation": (f"1-1-0/Documentation{of}Facet", {"description": facts.description}, facts.description),
    }
    return {key: _facet(schema, **fields) for key, (schema, fields, said) in found.items() if said}
