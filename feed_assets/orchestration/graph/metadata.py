"""Tell what an asset is: metadata, description, owners and tags of a feed, of the process that makes it, or of both."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import dagster as dg

from feed_assets.command_lines import command_line, render_selection
from feed_assets.entities.content.columns import describe_column, parse_columns
from feed_assets.entities.content.quality import Quality
from feed_assets.entities.maps import EMPTY
from feed_assets.entities.metadata import MetadataKey, MetadataKind, Scope
from feed_assets.entities.workflow import order_steps
from feed_assets.masking import mask, mask_values
from feed_assets.orchestration import names
from feed_assets.orchestration.graph.code_references import CodeReferences
from feed_assets.orchestration.graph.partitions import Grid
from feed_assets.plan.edges import InputEdge
from feed_assets.plan.facts import EntityFacts
from feed_assets.plan.records import FeedRecord, ProcessRecord, steps_of
from feed_assets.plan.rendering import counted
from feed_assets.timing.dates import render_datetime
from feed_assets.timing.sequence import InstanceSequence

if TYPE_CHECKING:  # a location is loaded without what keeps records
    from feed_assets.catalog.column_sets import FeedColumn

COLUMN_SCHEMA = "dagster/column_schema"

Values: TypeAlias = Mapping[MetadataKey, str]
"""Properties and tags of one entity, in the scope USER."""

ValuesByPath: TypeAlias = Mapping[str, Values]
"""Those of entities, by their paths."""

_DESCRIPTION = MetadataKey(Scope.USER, MetadataKind.PROPERTY, "description")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What assets show beside the plan: links to source code with `references`, and `values` that people and programs
    give to feeds, processes and columns. `revision` is that of the state with the values; None if it was not asked.
    """

    references: CodeReferences | None = None
    values: ValuesByPath = EMPTY
    revision: str | None = None

    @property
    def pointer(self) -> str | None:
        """The option by which commands of Dagster find the definitions, if it is known."""
        return self.references.pointer if self.references is not None else None

    def values_of(self, record: FeedRecord | ProcessRecord) -> Values:
        """Return what a file, people and programs say of a feed or process."""
        path = f"feed/{record.feed}" if isinstance(record, FeedRecord) else f"process/{record.process}"
        declared = {each.key: each.value for each in record.facts.metadata if each.column is None}
        return {**self.values.get(path, EMPTY), **declared}


NOTHING_MORE = Shown()


def feed_metadata(record: FeedRecord, made_by: ProcessRecord | None, shown: Shown) -> dict[str, object]:
    """Return the metadata of a feed's asset; `made_by` is the process that is compiled into it."""
    metadata: dict[str, object] = {
        names.META_FEED: record.feed,
        **_sequence_metadata(record.cluster, record.sequence),
        names.META_FORMAT: record.format.value,
        names.META_TEMPLATE: record.template.text,
        "dagster/uri": feed_url(record),
    }
    if record.columns is not None:
        columns = parse_columns(record.columns)
        metadata[COLUMN_SCHEMA] = column_schema(columns, user_values=column_values(record, shown.values))
    optional = {
        names.META_FLAG: record.flag,
        names.META_LATE: record.late_cut_off and record.late_cut_off.render(),
        names.META_RETENTION: record.retention_limit and record.retention_limit.render(),
        names.META_SLA: record.sla and record.sla.render(),
        names.META_MADE_BY: made_by and made_by.process,
    }
    metadata.update({name: value for name, value in optional.items() if value})
    if made_by is not None:
        metadata.update(_process_metadata(made_by))
    of_feed = user_metadata(shown.values_of(record))
    if made_by is not None:
        of_process = user_metadata(shown.values_of(made_by))
        of_feed = with_process(of_feed, of_process, names.META_USER)
    metadata.update(of_feed)
    return {**mask_values(metadata), **(shown.references.of_feed(record, made_by) if shown.references else {})}


def process_metadata(process: ProcessRecord, shown: Shown) -> dict[str, object]:
    """Return the metadata of an asset that is a process."""
    metadata = {
        names.META_PROCESS: process.process,
        **_sequence_metadata(process.cluster, process.sequence),
        **_process_metadata(process),
        **user_metadata(shown.values_of(process)),
    }
    return {**mask_values(metadata), **(shown.references.of_process(process) if shown.references else {})}


def column_values(record: FeedRecord, user_values: ValuesByPath) -> ValuesByPath:
    """Return what a file, people and programs say of the columns of a feed, by name."""
    place = f"feed/{record.feed}/column/"
    columns = [name for name, _ in parse_columns(record.columns)] if user_values and record.columns else ()
    found = {name: dict(own) for name in columns if (own := user_values.get(place + name))}
    for each in record.facts.metadata:
        if each.column is not None:
            found.setdefault(each.column, {})[each.key] = each.value
    return found


def user_metadata(values: Values) -> dict[str, str]:
    """Return the properties of an entity as metadata of its asset."""
    return {names.META_USER + key.name: text for key, text in values.items() if key.kind is MetadataKind.PROPERTY}


def column_schema(
    columns: Iterable[tuple[str, str]],
    declared: str | None = None,
    user_values: Mapping[str, Values] = EMPTY,
    made_of: "Mapping[str, Iterable[FeedColumn]]" = EMPTY,
) -> dg.TableSchema:
    """Return columns, each (name, type), in the form of Dagster; `declared` is a schema that describes them. Behind it
    stands what they are `made_of`: Dagster's own page of that is not in its open-source UI.

    `user_values` are theirs, by name: the property `description` is that of the column, the others and tags its tags.

    A type has the name that Spark gives to it, so that a declaration and what is written look the same.
    """
    described = {name: describe_column(kind) for name, kind in parse_columns(declared)} if declared else {}
    found = ((name, describe_column(kind)) for name, kind in columns)
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                name=name,
                type=known.type,
                description=_with_sources(
                    user_values.get(name, EMPTY).get(_DESCRIPTION)
                    or known.comment
                    or described.get(name, known).comment,
                    made_of.get(name, ()),
                ),
                tags={
                    key.name: mask(text)
                    for key, text in user_values.get(name, EMPTY).items()
                    if key.name != _DESCRIPTION.name
                },
            )
            for name, known in found
        ]
    )


def _with_sources(description: str | None, made_of: "Iterable[FeedColumn]") -> str | None:
    sources = ", ".join(dict.fromkeys(f"{each.feed}.{each.column}" for each in made_of))
    return "; ".join(filter(None, (description, sources and f"of {sources}"))) or None


def describe_feed(record: FeedRecord, made_by: ProcessRecord | None, grid: Grid, pointer: str | None) -> str:
    """Return the description of a feed's asset in Markdown: that of the feed comes first."""
    facts = [
        f"- **Location**: `{feed_url(record)}`, {record.format.value}"
        + (f", available with `{record.flag}`" if record.flag else ""),
        _instances(record.sequence, grid),
        *([f"- **Late data**: until {record.late_cut_off.render()} after"] if record.late_cut_off else []),
        *([f"- **Retention**: {record.retention_limit.render()}"] if record.retention_limit else []),
        *([_quality(record.quality)] if record.quality is not None else []),
        *(_process_facts(made_by) if made_by is not None else ()),
    ]
    asset = f"{record.cluster}/{record.feed}"
    partition = grid.partition((made_by or record).sequence.start)  # of the process, where its instances are fewer
    commands = [
        _why("feed", record.feed, record.cluster, partition),
        *(_materialize(asset, partition, pointer) if made_by is not None else ()),
    ]
    parts = [
        record.facts.description or f"The feed {record.feed} on cluster {record.cluster}.",
        *(_maker(made_by, record.facts.description) if made_by is not None else ()),
        "\n".join(facts),
        _code(commands),
    ]
    return mask("\n\n".join(parts))


def describe_process(process: ProcessRecord, asset: Iterable[str], grid: Grid, pointer: str | None) -> str:
    """Return the description of an asset that is a process, in Markdown."""
    partition = grid.partition(grid.sequence.start)
    kind = "feed" if process.is_of_feed else "process"
    text = None if process.is_of_feed else process.facts.description  # that of the feed says what its data are
    parts = [
        text or f"The process {process.process} on cluster {process.cluster}.",
        *_windows(process),
        *_steps(process),
        "\n".join([_instances(process.sequence, grid), *_process_facts(process)]),
        _code(
            [
                _why(kind, process.process, process.cluster, partition),
                *_materialize("/".join(asset), partition, pointer),
            ]
        ),
    ]
    return mask("\n\n".join(parts))


def tags_of(facts: EntityFacts, values: Values = EMPTY) -> dict[str, str]:
    """Return the tags of an entity, adapted to what Dagster allows: those with values, and those that are words."""
    words = {names.tag_text(key.name): "" for key in values if key.kind is MetadataKind.TAG}
    return words | {names.tag_text(name): names.tag_text(mask(value)) for name, value in facts.tags}


def with_process(own: Mapping[str, str], of_process: Mapping[str, str], prefix: str = "") -> dict[str, str]:
    """Return what is said of a feed and of the process compiled into it, by names with a prefix.

    The feed's own come first: where the process has another value, that is `process/<name>`.
    """
    found = dict(own)
    for name, value in of_process.items():
        if own.get(name) != value:
            found[f"{prefix}process/{name.removeprefix(prefix)}" if name in own else name] = value
    return found


def _sequence_metadata(cluster: str, sequence: InstanceSequence) -> dict[str, object]:
    return {
        names.META_CLUSTER: cluster,
        names.META_FREQUENCY: sequence.pace,
        names.META_VALIDITY: _validity(sequence),
        names.META_TIMEZONE: sequence.timezone.key,
    }


def _process_metadata(process: ProcessRecord) -> dict[str, object]:
    metadata: dict[str, object] = {
        names.META_WORKFLOW: process.work_text,
        names.META_PARALLEL: dg.MetadataValue.int(process.parallel),
        names.META_ORDER: process.order.value,
        names.META_CATCH_UP: process.catch_up.value,
    }
    if process.timeout is not None:
        metadata[names.META_TIMEOUT] = process.timeout.render()
    for edge in process.inputs:
        optional = ", optional" if edge.optional else ""
        metadata[names.META_INPUT + edge.name] = f"{edge.feed} {edge.taken}{optional}"
    for out in process.outputs:
        metadata[names.META_OUTPUT + out.name] = f"{out.feed} {out.window.start}{', optional' if out.optional else ''}"
    if process.retry is not None:
        metadata[names.META_RETRY] = _retries(process)
    return metadata


def feed_url(record: FeedRecord) -> str:
    """Return the URL of a feed's data, with the variables of its template."""
    return f"{record.store.url.rstrip('/')}/{record.template.text.lstrip('/')}"


def _validity(sequence: InstanceSequence) -> str:
    until = f" to {render_datetime(sequence.end)}" if sequence.end else ""
    return f"from {render_datetime(sequence.start)}{until}"


def _retries(process: ProcessRecord) -> str:
    retry = process.retry
    assert retry is not None
    return f"{retry.policy.value}, {retry.delay.render()}, {retry.attempts} attempts"


def _maker(process: ProcessRecord, known: str | None) -> Iterator[str]:
    """Yield paragraphs about the process that makes a feed; without its description if the feed has the same."""
    text = process.facts.description
    yield f"Made by **{process.process}** (`{process.work_text}`)" + (f": {text}" if text and text != known else ".")
    yield from _windows(process)
    yield from _steps(process)


def _windows(process: ProcessRecord) -> Iterator[str]:
    if process.inputs:
        rows = (
            f"| {edge.name}{' (optional)' if edge.optional else ''} "
            f"| {edge.feed}{f' on {edge.feed_cluster}' if edge.feed_cluster != edge.cluster else ''} "
            f"| {_taken(edge)} |"
            for edge in process.inputs
        )
        yield "\n".join(["| input | feed | window |", "|---|---|---|", *rows])


def _taken(edge: InputEdge) -> str:
    return edge.taken if edge.window is None else f"`{edge.window.start}` to `{edge.window.end}`"


def _steps(process: ProcessRecord) -> Iterator[str]:
    """Yield the steps in the order in which they run, and after which others each comes."""
    steps = steps_of(process.work)
    if not steps:
        return
    rows = []
    for number, name in enumerate(order_steps(steps), 1):
        step = steps[name]
        code = f" `{step.path}`" if step.path else ""
        work = f"{step.engine.value}{code}{'' if step.recoverable else ', not recoverable'}"
        rows.append(f"| {number} | {name} | {work} | {', '.join(step.after) or '–'} |")
    yield "\n".join(["| | step | work | after |", "|---|---|---|---|", *rows])


def _instances(sequence: InstanceSequence, grid: Grid) -> str:
    zone = sequence.timezone.key
    if sequence.is_single:
        return f"- **Instances**: one, the current one, {_validity(sequence)}"
    first = grid.sequence.start
    example = f"; the partition `{grid.key(first)}` begins at {render_datetime(first)}" if zone != "UTC" else ""
    return f"- **Instances**: {sequence.frequency.render()} in {zone}, {_validity(sequence)}{example}"


def _quality(quality: Quality) -> str:
    demands = [f"`{condition}` ({name})" for name, condition in quality.rules.items()]
    demands += [f"unique {', '.join(quality.unique)}"] if quality.unique else []
    demands += [f"at least {counted(quality.min_rows, 'row')}"] if quality.min_rows is not None else []
    rest = f"; bad rows go to {quality.quarantine}" if quality.quarantine is not None else ""
    return f"- **Quality**: {', '.join(demands)}; {quality.threshold:g} % of the rows{rest}"


def _process_facts(process: ProcessRecord) -> Iterator[str]:
    if process.retry is not None:
        yield f"- **Retries**: {_retries(process)}"
    if process.facts.groups and not process.is_of_feed:
        yield f"- **Pipelines**: {', '.join(process.facts.groups)}"


def _why(kind: str, name: str, cluster: str, partition: str | None) -> str:
    return command_line("why", name, *([] if partition is None else [partition]), cluster=cluster, kind=kind)


def _materialize(asset: str, partition: str | None, pointer: str | None) -> Iterator[str]:
    if pointer is not None:
        which = "" if partition is None else f" --partition {partition}"
        yield f"dagster asset materialize {pointer} --select {render_selection(asset)}{which}"


def _code(commands: list[str]) -> str:
    return "\n".join(["```sh", *commands, "```"])
