"""Compose the events of OpenLineage from messages about lineage and what the record has when they leave.

What happened is in the message; inputs, outputs and figures come from the record, words and schemas from the plan. What
is not there any more is left out: an event always leaves.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from openlineage.client.event_v2 import (
    Dataset,
    InputDataset,
    Job,
    JobEvent,
    OutputDataset,
    Run,
    RunEvent,
    RunState,
)
from openlineage.client.facet_v2 import (
    base_subset_dataset,
    data_quality_assertions_dataset,
    documentation_dataset,
    documentation_job,
    error_message_run,
    job_type_job,
    lifecycle_state_change_dataset,
    nominal_time_run,
    output_statistics_output_dataset,
    ownership_dataset,
    ownership_job,
    parent_run,
    schema_dataset,
    sql_job,
    tags_dataset,
    tags_job,
)
from openlineage.client.serde import Serde
from openlineage.client.uuid import generate_static_uuid
from sqlalchemy import Connection

from feed_assets.alerts.delivery.dataset_names import DatasetName, name_feed, name_path
from feed_assets.alerts.delivery.words import TEST
from feed_assets.catalog.run_metadata import Facts
from feed_assets.entities.content.columns import describe_column, parse_columns
from feed_assets.entities.flow_names import source_of
from feed_assets.entities.workflow import WorkflowEngine
from feed_assets.log.events import EventLog
from feed_assets.log.instances.attempts import Attempts
from feed_assets.log.messages.payloads import Happening, LineagePayload
from feed_assets.log.messages.records import OutboxMessage
from feed_assets.log.records import CONTENT, Attempt, FeedEvent, ProcessInstanceStatus, ProcessKey
from feed_assets.masking import mask_values
from feed_assets.plan.records import EntityFacts, Plan, ProcessRecord
from feed_assets.plan.release_fingerprint import parse_fingerprint
from feed_assets.releases.pinning import find_pinned_files
from feed_assets.releases.store import Releases, WorkflowFiles
from feed_assets.settings import DEFAULT_NAMESPACE

PRODUCER = "urn:feed-assets"
SOURCE = "FEED_ASSETS"
_QUALITY = "quality/"
_PASSED = "did.dq.pass"
_RULE = "rule."
_PRODUCERS = ("producer", "_producer")


@dataclass(frozen=True, slots=True)
class LineageEvents:
    """Composes the events of a project: its plan, and its namespace. `connection` reads the record."""

    connection: Connection
    plan: Plan
    namespace: str | None

    def compose(self, message: OutboxMessage) -> dict[str, Any]:
        """Return the event that a message is about, as JSON values without secrets. One that tries the receiver, or is
        of another topic, is a remark on a job that never runs.
        """
        payload = message.payload
        if not isinstance(payload, LineagePayload) or payload.others.get(TEST):
            event: Any = self._compose_test(message)
        else:
            event = self._compose_attempt(payload, message.recorded_at)
        found: dict[str, Any] = _sign(mask_values(Serde.to_dict(event)))
        return found

    @property
    def _jobs(self) -> str:
        return f"feed-assets/{self.namespace or DEFAULT_NAMESPACE}"

    def _compose_test(self, message: OutboxMessage) -> JobEvent:
        said = documentation_job.DocumentationJobFacet(description="a test of this receiver: nothing has happened")
        job = Job(namespace=self._jobs, name="test", facets={"documentation": said})
        return JobEvent(eventTime=_render(message.recorded_at), job=job)

    def _compose_attempt(self, payload: LineagePayload, at: datetime) -> RunEvent:
        attempt = self._find_attempt(payload, at)
        process = self.plan.processes.get((attempt.process, attempt.cluster))
        run: dict[str, Any] = {"nominalTime": nominal_time_run.NominalTimeRunFacet(_render(attempt.nominal_time))}
        if _is_uuid(attempt.run_id):
            parent = parent_run.Run(runId=attempt.run_id or "")
            run["parent"] = parent_run.ParentRunFacet(
                run=parent, job=parent_run.Job(namespace=self._jobs, name="dagster")
            )
        if payload.happening is Happening.FAIL:
            run["errorMessage"] = error_message_run.ErrorMessageRunFacet(
                message=payload.reason or "unknown", programmingLanguage=_language(process)
            )
        place = f"{attempt.process}/{attempt.cluster}/{_render(attempt.nominal_time)}/{attempt.attempt}"
        return RunEvent(
            eventType=RunState(payload.happening.value),
            eventTime=_render(at),
            run=Run(runId=self._run_id(attempt.started_at, place), facets=run),
            job=self._job(f"{attempt.cluster}.{attempt.process}", self._describe_work(attempt, process)),
            inputs=self._inputs(attempt, process),
            outputs=self._outputs(attempt, process, payload.happening),
        )

    def _run_id(self, begun_at: datetime, place: str) -> str:
        """Return the id that begin and end of a run share, whoever tells them."""
        return str(generate_static_uuid(begun_at, f"{self._jobs}/{place}".encode()))

    def _find_attempt(self, payload: LineagePayload, at: datetime) -> Attempt:
        assert payload.nominal_time is not None
        assert payload.process is not None
        key = ProcessKey(payload.process, payload.cluster, payload.nominal_time)
        begun_at = payload.begun_at or at
        bare = Attempt(
            **key._asdict(),
            attempt=payload.attempt or 0,
            run_id=payload.run_id,
            status=ProcessInstanceStatus.RUNNING,
            started_at=begun_at,
        )
        found = (each for each in Attempts(self.connection).of(key) if each.attempt == payload.attempt)
        return replace(next(found, bare), started_at=begun_at, run_id=payload.run_id)

    def _job(self, name: str, facets: Mapping[str, Any]) -> Job:
        return Job(namespace=self._jobs, name=name, facets=dict(facets))

    def _describe_work(self, attempt: Attempt, process: ProcessRecord | None) -> dict[str, Any]:
        kind = "PROCESS" if source_of(attempt.process) is None else "REPLICATION"
        facets = {"jobType": job_type_job.JobTypeJobFacet("BATCH", SOURCE, kind)}
        if process is None:
            return facets
        facets |= _describe_job(process.facts)
        query = self._find_query(attempt, process)
        return facets | ({"sql": sql_job.SQLJobFacet(query=query, dialect="spark")} if query else {})

    def _find_query(self, attempt: Attempt, process: ProcessRecord) -> str | None:
        """Return the text of the SQL file in the release of an attempt; None if it was not kept, or there is none."""
        workflow, releases = process.workflow, Releases(self.connection).of(*process.key)
        release = next((each for each in releases if each.release == attempt.release), None)
        if workflow is None or workflow.engine is not WorkflowEngine.SQL or release is None:
            return None
        pinned = find_pinned_files(self.connection, parse_fingerprint(release.fingerprint).files)
        file = next((each for each in pinned.files if each.path == workflow.path), None) if pinned else None
        content = WorkflowFiles(self.connection).find(file.digest) if file is not None else None
        return content.decode("utf-8", "replace") if content else None

    def _inputs(self, attempt: Attempt, process: ProcessRecord | None) -> list[InputDataset]:
        """Return what an attempt has read; before that is known, what it will read."""
        cluster = source_of(attempt.process) or attempt.cluster
        read = [(each.feed, each.nominal_times) for each in attempt.inputs]
        if not read and process is not None:
            read = [(edge.feed, ()) for edge in process.inputs]
        found = []
        for feed, times in dict(read).items():
            dataset = self._dataset(feed, cluster)
            facets: dict[str, Any] = {}
            if locations := self._locations(feed, cluster, times):
                condition = base_subset_dataset.LocationSubsetCondition(locations)
                facets["subset"] = base_subset_dataset.InputSubsetInputDatasetFacet(condition)
            found.append(InputDataset(dataset.namespace, dataset.name, facets, facets=dataset.facets))
        return found

    def _outputs(self, attempt: Attempt, process: ProcessRecord | None, happening: Happening) -> list[OutputDataset]:
        """Return what an attempt has published; unless it has succeeded, also what it would."""
        has_ended = happening is not Happening.START
        events = EventLog(self.connection).of_numbers(attempt.outputs if has_ended else ())
        before = EventLog(self.connection).for_instances({event.key for event in events.values()})
        judged = self._assertions(attempt) if has_ended else {}
        found = []
        for event in events.values():
            output = str(event.payload.get("output"))
            found.append(self._published(event, before.get(event.key, ()), judged.pop(output, None)))
        if happening is Happening.COMPLETE or process is None:
            return found
        names = {str(event.payload.get("output")) for event in events.values()}
        for edge in process.outputs:
            time = self.plan.output_time(edge, attempt.nominal_time)
            if edge.name not in names and time is not None:
                locations = self._locations(edge.feed, attempt.cluster, (time,))
                found.append(self._output(edge.feed, attempt.cluster, locations, judged.get(edge.name), {}, {}))
        return found

    def _published(self, event: FeedEvent, events: Sequence[FeedEvent], judged: Any) -> OutputDataset:
        rows = event.payload.get("rows")
        figures = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            rowCount=rows if isinstance(rows, int) else None, size=event.bytes, fileCount=event.files
        )
        locations = self._locations(event.feed, event.cluster, (event.nominal_time,), event.payload.get("path"))
        change = {"lifecycleStateChange": _lifecycle(event, events)}
        return self._output(event.feed, event.cluster, locations, judged, change, {"outputStatistics": figures})

    def _output(
        self,
        feed: str,
        cluster: str,
        locations: list[str],
        judged: Any,
        facets: Mapping[str, Any],
        output_facets: Mapping[str, Any],
    ) -> OutputDataset:
        dataset, of_output = self._dataset(feed, cluster), dict(output_facets)
        if locations:
            condition = base_subset_dataset.LocationSubsetCondition(locations)
            of_output["subset"] = base_subset_dataset.OutputSubsetOutputDatasetFacet(condition)
        said = {"dataQualityAssertions": judged} if judged is not None else {}
        return OutputDataset(
            dataset.namespace, dataset.name, of_output, facets={**(dataset.facets or {}), **facets, **said}
        )

    def _assertions(self, attempt: Attempt) -> dict[str, Any]:
        """Return what was found about the rows of an attempt, by output: the demand as a whole, and each rule."""
        by_output: dict[str, dict[str, str]] = {}
        for fact in Facts(self.connection).of(attempt.key):
            if fact.attempt == attempt.attempt and fact.category.startswith(_QUALITY):
                by_output.setdefault(fact.category.removeprefix(_QUALITY), {})[fact.name] = fact.value
        made = data_quality_assertions_dataset
        found = {}
        for output, facts in by_output.items():
            whole = made.Assertion(
                assertion="good_rows_percent",
                success=facts.get(_PASSED) == "true",
                expected=facts.get("good.records.threshold"),
                actual=facts.get("good.records.percent"),
            )
            rules = [
                made.Assertion(assertion="rule", name=name.removeprefix(_RULE), success=value == "0", actual=value)
                for name, value in facts.items()
                if name.startswith(_RULE)
            ]
            found[output] = made.DataQualityAssertionsDatasetFacet(assertions=[whole, *rules])
        return found

    def _dataset(self, feed: str, cluster: str) -> Dataset:
        """Return a feed on a cluster, with what the plan says of it."""
        record = self.plan.feeds.get((feed, cluster))
        if record is None:
            return Dataset(self._jobs, f"{cluster}.{feed}")
        facts, facets = record.facts, dict[str, Any]()
        if record.columns:
            shown = ((name, describe_column(kind)) for name, kind in parse_columns(record.columns))
            facets["schema"] = schema_dataset.SchemaDatasetFacet(
                [schema_dataset.SchemaDatasetFacetFields(name, it.type, it.comment) for name, it in shown]
            )
        if facts.owner:
            facets["ownership"] = ownership_dataset.OwnershipDatasetFacet([ownership_dataset.Owner(facts.owner)])
        if facts.tags:
            tags = [tags_dataset.TagsDatasetFacetFields(name, value, SOURCE) for name, value in facts.tags]
            facets["tags"] = tags_dataset.TagsDatasetFacet(tags)
        if facts.description:
            facets["documentation"] = documentation_dataset.DocumentationDatasetFacet(facts.description)
        return Dataset(*name_feed(record), facets=facets)

    def _locations(self, feed: str, cluster: str, times: Iterable[datetime], path: object = None) -> list[str]:
        """Return the addresses of instances; `path` is where an only one was published."""
        record = self.plan.feeds.get((feed, cluster))
        if record is None or not record.has_data:
            return []
        paths = [path] if isinstance(path, str) else [record.path(time) for time in times]
        return [_locate(name_path(record.store, each)) for each in paths]


def _locate(name: DatasetName) -> str:
    namespace = "file://" if name.namespace == "file" else name.namespace
    return f"{namespace}/{name.name.lstrip('/')}"


def _lifecycle(event: FeedEvent, events: Sequence[FeedEvent]) -> Any:
    """Return what an event is for its instance, out of all events of it: new content, or other content."""
    before = [each for each in events if each.seq < event.seq and each.is_of_data]
    made = lifecycle_state_change_dataset
    was_there = bool(before) and before[-1].kind in CONTENT
    state = made.LifecycleStateChange.OVERWRITE if was_there else made.LifecycleStateChange.CREATE
    return made.LifecycleStateChangeDatasetFacet(state)


def _describe_job(facts: EntityFacts) -> dict[str, Any]:
    facets: dict[str, Any] = {}
    if facts.owner:
        facets["ownership"] = ownership_job.OwnershipJobFacet([ownership_job.Owner(facts.owner)])
    if facts.tags:
        tags = [tags_job.TagsJobFacetFields(name, value, SOURCE) for name, value in facts.tags]
        facets["tags"] = tags_job.TagsJobFacet(tags)
    if facts.description:
        facets["documentation"] = documentation_job.DocumentationJobFacet(facts.description)
    return facets


def _language(process: ProcessRecord | None) -> str:
    is_sql = process is not None and process.engine == WorkflowEngine.SQL.value
    return "SQL" if is_sql else "PYTHON"


def _render(moment: datetime) -> str:
    return moment.isoformat()


def _is_uuid(text: str | None) -> bool:
    try:
        return text is not None and str(UUID(text)) == text
    except ValueError:
        return False


def _sign(values: Any) -> Any:
    """Return an event in which this program is the producer, not the client that its classes come from."""
    if isinstance(values, dict):
        return {key: PRODUCER if key in _PRODUCERS else _sign(value) for key, value in values.items()}
    return [_sign(value) for value in values] if isinstance(values, list) else values
