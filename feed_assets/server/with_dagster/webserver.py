"""Dagster's webserver, whose requests know who asks. All of Dagster that is not public stands here.

A context answers who may act; fields of the schema leave out, and refuse, what somebody may not read.
"""

import os
from asyncio import Task
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from inspect import isawaitable
from pathlib import Path
from typing import Any

import dagster as dg
import graphql
from click import UsageError
from dagster._cli.workspace.cli_target import workspace_opts_to_load_target
from dagster._core.definitions.selector import JobSelector
from dagster._core.execution.backfill import PartitionBackfill
from dagster._core.remote_representation.code_location import is_implicit_asset_job_name
from dagster._core.workspace.context import WorkspaceProcessContext, WorkspaceRequestContext
from dagster._core.workspace.load_target import WorkspaceLoadTarget
from dagster._core.workspace.permissions import EDITOR_PERMISSIONS, LOCATION_SCOPED_PERMISSIONS, PermissionResult
from dagster_shared.cli import WorkspaceOpts
from dagster_webserver import external_assets
from dagster_webserver.webserver import DagsterWebserver
from graphene import Schema
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp
from starlette.websockets import WebSocket

from feed_assets.access.errors import AccessRefusedError
from feed_assets.access.rights import Needs
from feed_assets.clock import open_clock
from feed_assets.entities.common import Kind, label_of
from feed_assets.errors import SettingsError
from feed_assets.issues import EntityKey
from feed_assets.log.audit import Audit
from feed_assets.log.definitions.records import AuditEntry
from feed_assets.orchestration import names
from feed_assets.server.with_dagster.asker import OF_OWNERS, REFUSED, Asker
from feed_assets.setting_sections import Authorization
from feed_assets.settings import Settings
from feed_assets.sql.database import Database

Permissions = Mapping[str, PermissionResult]
Resolve = Callable[..., Any]
UNTOLD = frozenset({"logTelemetry", "setNuxSeen"})
"""Mutations that change nothing of anybody."""
_RUNS = frozenset({"parentRunId", "rootRunId", "runId", "runIds"})
_SAID = _RUNS | {
    "backfillId", "concurrencyKey", "defsStateKey", "id", "jobName", "limit", "locationName", "partitionKey",
    "partitionKeys", "partitionNames", "partitionsDefName", "paused", "pipelineName", "repositoryLocationName",
    "scheduleName", "sensorName",
}  # fmt: skip
"""What of the arguments of a mutation the audit tells: no configuration of a run, which may have secrets."""
UNREAD = "This is of an entity that you may not read"
_MOST = 20
_KEYS = ("_asset_key", "assetKey", "key", "entityKey")
"""Where objects have the asset that they are about."""


class GuardedContext(WorkspaceRequestContext):
    """A request to Dagster, which knows who asks."""

    asker: Asker
    asked: list[dg.AssetKey]

    @property
    def permissions(self) -> Permissions:
        return self._everywhere

    def permissions_for_location(self, *, location_name: str) -> Permissions:  # noqa: ARG002
        return self._in_locations

    def permissions_for_owner(self, *, owner: str) -> Permissions:
        is_theirs = self.viewer_has_any_owner_definition_permissions() and self.asker.is_owner(owner)
        return self._as_owner if is_theirs else {}

    # Thousands of assets ask for these.
    @cached_property
    def _everywhere(self) -> Permissions:
        return _permit(self.asker.may)

    @cached_property
    def _in_locations(self) -> Permissions:
        return {name: each for name, each in self._everywhere.items() if name in LOCATION_SCOPED_PERMISSIONS}

    @cached_property
    def _as_owner(self) -> Permissions:
        return _permit(OF_OWNERS.__contains__)

    def viewer_has_any_owner_definition_permissions(self) -> bool:
        return self.asker.acts and self.asker.rights is not None

    def has_permission_for_selector(self, permission: str, selector: Any) -> bool:
        """Return what Dagster finds; jobs that have no owner are for admins, but for the one that acts on entities."""
        if isinstance(selector, dg.AssetKey):
            self.asked.append(selector)
        if super().has_permission_for_selector(permission, selector):  # notes that it was asked
            return True
        name = selector.job_name if isinstance(selector, JobSelector) else names.OPERATE_JOB
        is_for_admins = name != names.OPERATE_JOB and not is_implicit_asset_job_name(name)
        return is_for_admins and self.asker.is_admin and self.asker.acts and not self.get_owners_for_selector(selector)

    def get_viewer_tags(self) -> dict[str, str]:
        return {names.TAG_USER: self.asker.principal.author}

    def get_reporting_user_tags(self) -> dict[str, str]:
        return {names.TAG_USER: names.tag_text(self.asker.principal.author)}

    @property
    def show_instance_config(self) -> bool:
        return self.asker.is_admin

    @property
    def hides(self) -> bool:
        """Whether something is hidden from who asks."""
        return self.asker.rights is not None and bool(self.asker.rights.hidden)

    @cached_property
    def entities(self) -> Mapping[tuple[str, ...], tuple[EntityKey, ...]]:
        """Of each asset, by its path, the entities that it tells of: the process that makes it first."""
        process = self._process_context
        assert isinstance(process, GuardedProcess)
        return process.find_entities(self)

    @cached_property
    def _hidden(self) -> dict[tuple[str, ...], EntityKey | None]:
        return {}

    def find_hidden(self, path: Sequence[str]) -> EntityKey | None:
        """Return an entity that an asset tells of, and who asks may not read. One that is gone counts by its name."""
        key, rights = tuple(path), self.asker.rights
        if rights is not None and key not in self._hidden:
            entities = self.entities.get(key) or tuple((each.value, key[-1]) for each in (Kind.FEED, Kind.PROCESS))
            self._hidden[key] = next((each for each in entities if not rights.reads(*each)), None)
        return self._hidden.get(key)

    def hides_run(self, run: dg.DagsterRun | PartitionBackfill) -> bool:
        """Return whether a run, or several, tells of what is hidden; of no assets it may tell of all."""
        found = _assets_of(run)
        return any(self.find_hidden(each.path) for each in found) if found else not self.asker.is_admin

    def hides_value(self, value: object) -> bool:
        """Return whether an object of the schema is about something hidden."""
        for run in (getattr(value, "dagster_run", None), getattr(value, "_backfill_job", None)):
            if isinstance(run, dg.DagsterRun | PartitionBackfill):
                return self.hides_run(run)
        about = next((found for each in _KEYS if (found := getattr(value, each, None)) is not None), value)
        path = getattr(about, "path", None)
        return isinstance(path, Sequence) and self.find_hidden(path) is not None

    def require_reads(self, keys: Sequence[dg.AssetKey], runs: Sequence[str], logs: Sequence[str]) -> None:
        """Require that who asks may read assets, runs, and logs by the first part of their keys.

        Raises:
            AccessRefusedError: one is hidden.
        """
        rights = self.asker.rights
        if rights is None or not rights.hidden:
            return
        found = [run for each in {*runs, *logs} if (run := self.instance.get_run_by_id(each)) is not None]
        asked = {*keys, *(key for run in found for key in _assets_of(run))}
        rights.require((each, Needs.KNOWN) for key in asked if (each := self.find_hidden(key.path)) is not None)
        if any(map(self.hides_run, found)) or (logs and not found and not self.asker.is_admin):
            raise AccessRefusedError(reason=UNREAD, next_step="Ask its owner.")


def _assets_of(run: dg.DagsterRun | PartitionBackfill) -> set[dg.AssetKey]:
    checks = getattr(run, "asset_check_selection", None) or ()
    return {*(run.asset_selection or ()), *(each.asset_key for each in checks)}


def _permit(may: Callable[[str], bool]) -> Permissions:
    """Return permissions by their names, as Dagster has them."""
    found = {name: is_there and may(name) for name, is_there in EDITOR_PERMISSIONS.items()}
    return {name: PermissionResult(is_given, None if is_given else REFUSED) for name, is_given in found.items()}


class GuardedProcess(WorkspaceProcessContext):
    """What Dagster's webserver knows; the contexts of its requests know who asks."""

    is_limited = True
    _entities: tuple[object, Mapping[tuple[str, ...], tuple[EntityKey, ...]]] = (None, {})

    def create_request_context(self, source: object | None = None) -> GuardedContext:
        workspace = self.get_current_workspace()
        context = GuardedContext(self._instance, workspace, self, self.version, source, read_only=False)
        scope = source.scope if isinstance(source, HTTPConnection) else {}
        context.asker, context.asked = Asker.of(scope, is_limited=self.is_limited), []
        return context

    def find_entities(self, context: GuardedContext) -> Mapping[tuple[str, ...], tuple[EntityKey, ...]]:
        """Return the entities of assets, found once for each state of the locations."""
        graph = context.asset_graph
        if self._entities[0] is not graph:
            found = {tuple(each.key.path): tuple(_iter_entities(each.metadata)) for each in graph.asset_nodes}
            self._entities = graph, found
        return self._entities[1]


def _iter_entities(metadata: Mapping[str, Any]) -> Iterator[EntityKey]:
    kinds = {names.META_MADE_BY: Kind.PROCESS, names.META_PROCESS: Kind.PROCESS}
    kinds |= {names.META_FEED: Kind.FEED, names.META_CLUSTER: Kind.CLUSTER}
    yield from ((kind.value, str(metadata[name].value)) for name, kind in kinds.items() if name in metadata)


class GuardedWebserver(DagsterWebserver[GuardedProcess, GuardedContext]):
    """Dagster's webserver: its schema, and what it serves besides."""

    def __init__(self, process: GuardedProcess, settings: Settings, database: Database) -> None:
        self._settings = settings
        self._database = database
        for each in ("materialization", "observation", "check"):
            handle = getattr(external_assets, f"handle_report_asset_{each}_request")
            setattr(self, f"report_asset_{each}_endpoint", partial(self._report, f"report_asset_{each}", handle))
        for each in ("debug_file_endpoint", "captured_logs_endpoint", "notebook"):
            setattr(self, f"download_{each}", partial(self._give, getattr(self, f"download_{each}")))
        super().__init__(process)

    def build_graphql_schema(self) -> Schema:
        schema = super().build_graphql_schema()
        _limit(schema.graphql_schema, self._note)
        return schema

    def handle_graphql_errors(self, errors: Sequence[graphql.GraphQLError]) -> list[Any]:
        """Return errors; a refusal is its sentence only."""
        handle = super().handle_graphql_errors
        return [each.formatted if _is_refusal(each) else handle([each])[0] for each in errors]

    def _determine_status_code(
        self, resolver_errors: list[graphql.GraphQLError] | None, captured_errors: list[Exception]
    ) -> int:
        rest = [each for each in resolver_errors or () if not _is_refusal(each)]
        if resolver_errors and not rest and not captured_errors:
            return 403
        return super()._determine_status_code(rest, captured_errors)

    async def execute_graphql_subscription(
        self, websocket: WebSocket, operation_id: str, query: str, variables: Any, operation_name: str | None
    ) -> tuple[Task[Any] | None, graphql.GraphQLFormattedError | None]:
        """Follow what is subscribed to. Questions and what acts go by requests, whose answers leave out names."""
        try:
            found = [getattr(each, "operation", None) for each in graphql.parse(query).definitions]
        except graphql.GraphQLError:
            found = []  # Dagster says what is wrong
        if {graphql.OperationType.QUERY, graphql.OperationType.MUTATION} & {*found}:
            return None, graphql.GraphQLError("A websocket is for subscriptions.").formatted
        return await super().execute_graphql_subscription(websocket, operation_id, query, variables, operation_name)

    def _note(self, context: GuardedContext, action: str, keys: Iterable[dg.AssetKey], told: Mapping[str, Any]) -> None:
        """Write into the audit what somebody has done, or was refused, with the entities that own the assets; of an
        asset of others its key.
        """
        owned = {each: context.entities.get(tuple(each.path)) for each in keys}
        targets = dict.fromkeys(label_of(of[0]) if of else key.to_user_string() for key, of in owned.items())
        now, author = open_clock(self._settings).now(), context.asker.principal.author
        entries = [
            AuditEntry(recorded_at=now, author=author, action=f"dagster {action}", target=each, details=told)
            for each in [*targets][:_MOST] or (None,)
        ]
        with self._database.begin() as connection:
            Audit(connection).append_many(entries)

    async def _give(self, give: Callable[[Request], Awaitable[Response]], request: Request) -> Response:
        context = self._make_request_context(request)
        if context.hides:
            return JSONResponse(
                {"error": "This file may tell of what you may not read. The page of its run shows it."}, 403
            )
        if not (request.path_params or context.asker.is_admin):
            return JSONResponse({"error": "Files of the code location are for admins."}, 403)
        return await give(request)

    async def _report(self, action: str, report: Callable[..., Awaitable[JSONResponse]], request: Request) -> Response:
        with self.request_context(request) as context:
            answer = await report(context, request)
        told = {"refused": REFUSED} if answer.status_code == 401 else {"status": answer.status_code}
        self._note(context, action, context.asked, told)
        return answer


@contextmanager
def open_webserver(
    settings: Settings, database: Database, target: WorkspaceLoadTarget | None = None
) -> Iterator[ASGIApp]:
    """Yield Dagster's webserver of the instance of DAGSTER_HOME and the code locations of the working directory.

    Raises:
        SettingsError: there are none.
    """
    if not os.environ.get("DAGSTER_HOME"):
        reason = "it is not set, and --with-dagster needs Dagster's instance"
        raise SettingsError(setting="DAGSTER_HOME", reason=reason, tried=(), next_step="Set it to its folder.")
    try:
        target = target or workspace_opts_to_load_target(WorkspaceOpts())
    except UsageError as exc:
        reason = f"there is none in {Path.cwd()}, and --with-dagster needs a code location"
        step = "Write it, or serve where one is."
        raise SettingsError(setting="workspace.yaml", reason=reason, tried=(), next_step=step) from exc
    with (
        dg.DagsterInstance.get() as instance,
        GuardedProcess(instance, target, code_server_log_level="WARNING") as process,
    ):
        process.is_limited = settings.authorization is Authorization.ACL
        yield GuardedWebserver(process, settings, database).create_asgi_app()


def _is_refusal(error: graphql.GraphQLError) -> bool:
    return isinstance(error.original_error, AccessRefusedError)


def _limit(schema: graphql.GraphQLSchema, note: Callable[..., None]) -> None:
    """Let the fields of a schema ask who asks: what acts is told, what is hidden is refused or left out."""
    fields = [
        (of, name, field)
        for of in schema.type_map.values()
        if isinstance(of, graphql.GraphQLObjectType) and not of.name.startswith("__")
        for name, field in of.fields.items()
    ]
    about = {"AssetDependency", "AssetKey", "AssetNode", "PartitionBackfill", "Run"}
    about |= {of.name for of, name, field in fields if name in _KEYS and str(field.type) == "AssetKey!"}
    for of, name, field in fields:
        found = graphql.get_named_type(field.type)
        kinds = schema.get_possible_types(found) if graphql.is_abstract_type(found) else (found,)
        if field.resolve is not None and about & {each.name for each in kinds}:
            is_list = graphql.is_list_type(graphql.get_nullable_type(field.type))
            field.resolve = _showing(field.resolve, is_list=is_list)
        if of is schema.mutation_type and name not in UNTOLD:
            field.resolve = _acting(name, field.resolve, note)
        elif of is schema.query_type:
            field.resolve = _asking(field.resolve)
        elif of is schema.subscription_type:
            field.subscribe = _asking(field.subscribe)


def _asking(resolve: Resolve | None) -> Resolve:
    """Return what refuses a question about something hidden."""
    assert resolve is not None

    def ask(source: object, info: Any, **given: Any) -> Any:
        info.context.require_reads(*_find_named(given))
        return resolve(source, info, **given)

    return ask


def _showing(resolve: Resolve, *, is_list: bool) -> Resolve:
    """Return what leaves hidden objects out of lists, and refuses one alone."""

    def pick(value: Any, hides: Callable[[object], bool]) -> Any:
        if is_list:
            return value and [each for each in value if not hides(each)]
        if hides(value):
            raise AccessRefusedError(reason=UNREAD, next_step="Ask its owner.")
        return value

    async def pick_later(value: Awaitable[Any], hides: Callable[[object], bool]) -> Any:
        return pick(await value, hides)

    def show(source: object, info: Any, **given: Any) -> Any:
        value = resolve(source, info, **given)
        if not info.context.hides:
            return value
        return (pick_later if isawaitable(value) else pick)(value, info.context.hides_value)

    return show


def _acting(name: str, resolve: Resolve | None, note: Callable[..., None]) -> Resolve:
    """Return what does something in the name of who asks, and tells it in the audit."""
    assert resolve is not None

    async def act(source: object, info: Any, **given: Any) -> Any:
        context, (keys, runs, logs) = info.context, _find_named(given)
        of = context.instance.get_backfill if "Backfill" in name else context.instance.get_run_by_id
        asked = [of(each) for each in [*runs, *filter(None, [given.get("backfillId")])]]
        keys += [key for each in asked if each is not None for key in _assets_of(each)]
        told = {
            each: value[:_MOST] if isinstance(value, list) else value
            for each, value in _iter_values("", given)
            if each in _SAID and value is not None
        }
        try:
            context.require_reads(keys, runs, logs)
            _stamp(given, context.asker.principal.author)
            answer = resolve(source, info, **given)
            answer = await answer if isawaitable(answer) else answer
            told |= _told_by(answer)
            if "refused" in told and graphql.is_leaf_type(graphql.get_named_type(info.return_type)):
                raise AccessRefusedError(reason=REFUSED, next_step="Ask one of them.")
        except Exception as exc:
            told["refused"] = str(exc) or type(exc).__name__
            raise
        else:
            return answer
        finally:
            note(context, name, keys, told)

    return act


def _told_by(answer: object) -> dict[str, Any]:
    """Return what the audit tells of what a mutation has answered."""
    several = (getattr(answer, each, None) for each in ("launchMultipleRunsResult", "terminateRunResults"))
    answers = next(filter(None, several), [answer])
    kinds = {str(found.name) for each in answers if (found := getattr(each, "_meta", None)) is not None}
    made = [str(run.runId) for each in answers if (run := getattr(each, "run", None)) is not None]
    told = [str(getattr(each, "message", "")) for each in answers]
    is_refused = "UnauthorizedError" in kinds or any("not have permission" in each for each in told)
    found = {"answers": sorted(kinds), "runs": made, "refused": is_refused and REFUSED}
    return {name: each for name, each in found.items() if each}


def _find_named(given: object) -> tuple[list[dg.AssetKey], list[str], list[str]]:
    """Return the assets and runs that arguments name, and the first parts of keys of logs."""
    keys, runs, logs = list[dg.AssetKey](), list[Any](), list[Any]()
    for name, value in _iter_values("", given):
        if name == "path" and isinstance(value, list):
            keys.append(dg.AssetKey(value))
        elif name == "logKey" and isinstance(value, list):
            logs += value[:1]
        elif name in _RUNS:
            runs += value if isinstance(value, list) else filter(None, [value])
    return keys, runs, logs


def _iter_values(name: str, value: object) -> Iterator[tuple[str, Any]]:
    """Yield the values of arguments by their names, at any depth; a list of texts is one value."""
    if isinstance(value, Mapping):
        for each, inner in value.items():
            yield from _iter_values(str(each), inner)
    elif isinstance(value, list) and not all(isinstance(each, str) for each in value):
        for inner in value:
            yield from _iter_values(name, inner)
    else:
        yield name, value


def _stamp(given: Mapping[str, Any], author: str) -> None:
    """Let the runs that arguments ask for name who asks, whatever else they say of that."""
    several = [given.get("executionParams"), *(given.get("executionParamsList") or ())]
    for each in filter(None, several):
        each["executionMetadata"] = each.get("executionMetadata") or {}
    asked = [(each["executionMetadata"], "tags") for each in several if each]
    asked += [(given.get("reexecutionParams"), "extraTags"), (given.get("backfillParams"), "tags")]
    for params, field in asked:
        if params is not None:
            others = [each for each in params.get(field) or () if each["key"] != names.TAG_USER]
            params[field] = [*others, {"key": names.TAG_USER, "value": author}]
