"""Dagster's webserver, whose requests know who asks. All of Dagster that is not public stands here.

A context answers who may act; fields of the schema leave out, and refuse, what somebody may not read.
"""

import os
import re
from asyncio import Task
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from inspect import isawaitable
from pathlib import Path
from typing import Any

import dagster as dg
from click import UsageError
from dagster._cli.workspace.cli_target import workspace_opts_to_load_target
from dagster._core.definitions.selector import JobSelector
from dagster._core.execution.backfill import PartitionBackfill
from dagster._core.remote_representation.code_location import is_implicit_asset_job_name
from dagster._core.workspace.context import WorkspaceProcessContext, WorkspaceRequestContext
from dagster._core.workspace.load_target import WorkspaceLoadTarget
from dagster._core.workspace.permissions import EDITOR_PERMISSIONS, LOCATION_SCOPED_PERMISSIONS, PermissionResult
from dagster_shared.cli import WorkspaceOpts
from dagster_webserver.webserver import DagsterWebserver
from graphene import Schema
from graphql import (
    GraphQLError,
    GraphQLFormattedError,
    GraphQLObjectType,
    GraphQLSchema,
    OperationDefinitionNode,
    OperationType,
    get_named_type,
    get_nullable_type,
    is_abstract_type,
    is_list_type,
    parse,
)
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp
from starlette.websockets import WebSocket

from feed_assets.access.errors import AccessRefusedError
from feed_assets.access.records import NOBODYS
from feed_assets.access.rights import describe_hidden
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
_MOST = 20
_KEYS = ("_asset_key", "assetKey", "key", "entityKey")
"""Where objects have the asset that they are about."""


class GuardedContext(WorkspaceRequestContext):
    """A request to Dagster, which knows who asks."""

    asker: Asker

    @property
    def permissions(self) -> Mapping[str, PermissionResult]:
        return self._everywhere

    def permissions_for_location(self, *, location_name: str) -> Mapping[str, PermissionResult]:  # noqa: ARG002
        return self._in_locations

    def permissions_for_owner(self, *, owner: str) -> Mapping[str, PermissionResult]:
        is_theirs = self.viewer_has_any_owner_definition_permissions() and self.asker.is_owner(owner)
        return self._as_owner if is_theirs else {}

    # Thousands of assets ask for these.
    @cached_property
    def _everywhere(self) -> Mapping[str, PermissionResult]:
        return _permit(lambda each: EDITOR_PERMISSIONS[each] and self.asker.may(each))

    @cached_property
    def _in_locations(self) -> Mapping[str, PermissionResult]:
        return {name: each for name, each in self._everywhere.items() if name in LOCATION_SCOPED_PERMISSIONS}

    @cached_property
    def _as_owner(self) -> Mapping[str, PermissionResult]:
        return _permit(lambda each: self.asker.acts and each in OF_OWNERS)

    def viewer_has_any_owner_definition_permissions(self) -> bool:
        return self.asker.acts and self.asker.rights is not None

    def has_permission_for_selector(self, permission: str, selector: Any) -> bool:
        """Return what Dagster finds; jobs that have no owner are for admins, but for the one that acts on entities."""
        if super().has_permission_for_selector(permission, selector):  # notes that it was asked
            return True
        name = selector.job_name if isinstance(selector, JobSelector) else names.OPERATE_JOB
        is_for_admins = name != names.OPERATE_JOB and not is_implicit_asset_job_name(name)
        return is_for_admins and self.asker.is_admin and self.asker.acts and not self.get_owners_for_selector(selector)

    def get_viewer_tags(self) -> dict[str, str]:
        return {names.TAG_USER: self.asker.principal.author}

    def get_reporting_user_tags(self) -> dict[str, str]:
        return self.get_viewer_tags()

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

    def find_hidden_steps(self) -> list[str]:
        """Return the names that steps of hidden assets have in jobs, the longest first."""
        nodes = [each for each in self.asset_graph.asset_nodes if self.find_hidden(each.key.path) is not None]
        snaps = [each.resolve_to_singular_repo_scoped_node().asset_node_snap for each in nodes]
        return sorted({step for each in snaps for step in each.op_names}, key=len, reverse=True)

    def hides_run(self, run: dg.DagsterRun) -> bool:
        """Return whether a run tells of what is hidden; one of no assets may tell of all."""
        keys = {*(run.asset_selection or ()), *(each.asset_key for each in run.asset_check_selection or ())}
        return any(self.find_hidden(each.path) for each in keys) if keys else not self.asker.is_admin

    def hides_value(self, value: object) -> bool:
        """Return whether an object of the schema is about something hidden."""
        if isinstance(run := getattr(value, "dagster_run", None), dg.DagsterRun):
            return self.hides_run(run)
        if isinstance(backfill := getattr(value, "_backfill_job", None), PartitionBackfill):
            return any(self.find_hidden(each.path) for each in backfill.asset_selection or ())
        about = next((found for each in _KEYS if (found := getattr(value, each, None)) is not None), value)
        path = getattr(about, "path", None)
        return isinstance(path, Sequence) and self.find_hidden(path) is not None

    def require_reads(self, keys: Sequence[dg.AssetKey], runs: Sequence[str], logs: Sequence[str] = ()) -> None:
        """Require that who asks may read assets, runs, and logs by the first part of their keys.

        Raises:
            AccessRefusedError: one is hidden.
        """
        if not self.hides:
            return
        found = [run for each in {*runs, *logs} if (run := self.instance.get_run_by_id(each)) is not None]
        if logs and not found and not self.asker.is_admin:
            raise AccessRefusedError(reason="These logs are of no asset", next_step="Ask an admin.")
        hidden = next(filter(None, (self.find_hidden(each.path) for each in keys)), None)
        rights = self.asker.rights
        if hidden is not None and rights is not None:
            acl = rights.find_acl(hidden) or NOBODYS
            reason = f"This is {describe_hidden(acl)}; {acl.whose} and superusers may"
            raise AccessRefusedError(reason=reason, next_step="Ask one of them.")
        if any(map(self.hides_run, found)):
            reason = "This is a run of an entity that you may not read"
            raise AccessRefusedError(reason=reason, next_step="Ask its owner.")


def _permit(may: Callable[[Any], bool]) -> Mapping[str, PermissionResult]:
    """Return permissions by their names, as Dagster has them."""
    return {each: PermissionResult(may(each), None if may(each) else REFUSED) for each in EDITOR_PERMISSIONS}


class GuardedProcess(WorkspaceProcessContext):
    """What Dagster's webserver knows; the contexts of its requests know who asks."""

    is_limited = True
    _entities: tuple[object, Mapping[tuple[str, ...], tuple[EntityKey, ...]]] = (None, {})

    def create_request_context(self, source: object | None = None) -> GuardedContext:
        context = GuardedContext(
            instance=self._instance,
            current_workspace=self.get_current_workspace(),
            process_context=self,
            version=self.version,
            source=source,
            read_only=False,
        )
        scope = source.scope if isinstance(source, HTTPConnection) else {}
        context.asker = Asker.of(scope, is_limited=self.is_limited)
        return context

    def find_entities(self, context: GuardedContext) -> Mapping[tuple[str, ...], tuple[EntityKey, ...]]:
        """Return the entities of assets, found once for each state of the locations."""
        graph, kept = context.asset_graph, self._entities
        if kept[0] is not graph:
            found = {tuple(each.key.path): _entities_of(each.metadata) for each in graph.asset_nodes}
            kept = self._entities = graph, found
        return kept[1]


def _entities_of(metadata: Mapping[str, Any]) -> tuple[EntityKey, ...]:
    kinds = {names.META_MADE_BY: Kind.PROCESS, names.META_PROCESS: Kind.PROCESS, names.META_FEED: Kind.FEED}
    return tuple((kind.value, str(metadata[each].value)) for each, kind in kinds.items() if each in metadata)


class GuardedWebserver(DagsterWebserver[GuardedProcess, GuardedContext]):
    """Dagster's webserver: its schema, and what it serves besides."""

    def __init__(self, process: GuardedProcess, settings: Settings, database: Database) -> None:
        self._settings = settings
        self._database = database
        super().__init__(process)

    def build_graphql_schema(self) -> Schema:
        schema = super().build_graphql_schema()
        _limit(schema.graphql_schema, self.note)
        return schema

    def handle_graphql_errors(self, errors: Sequence[GraphQLError]) -> list[Any]:
        """Return errors; a refusal is its sentence only."""
        return [
            each.formatted if _is_refusal(each) else super(GuardedWebserver, self).handle_graphql_errors([each])[0]
            for each in errors
        ]

    def _determine_status_code(
        self, resolver_errors: list[GraphQLError] | None, captured_errors: list[Exception]
    ) -> int:
        rest = [each for each in resolver_errors or () if not _is_refusal(each)]
        if resolver_errors and not rest and not captured_errors:
            return 403
        return super()._determine_status_code(rest, captured_errors)

    async def gen_graphql_response(
        self,
        request_context: GuardedContext,
        query: str,
        variables: dict[str, Any] | None,
        operation_name: str | None,
    ) -> JSONResponse:
        """Return an answer without the names of steps that make what is hidden."""
        answer: JSONResponse = await super().gen_graphql_response(request_context, query, variables, operation_name)
        if not request_context.hides or not (steps := request_context.find_hidden_steps()):
            return answer
        names_of_steps = rf"\b({'|'.join(map(re.escape, steps))})\b"
        answer.body = re.sub(names_of_steps, "hidden", bytes(answer.body).decode()).encode()
        answer.headers["content-length"] = str(len(answer.body))
        return answer

    async def execute_graphql_subscription(
        self,
        websocket: WebSocket,
        operation_id: str,
        query: str,
        variables: dict[str, Any] | None,
        operation_name: str | None,
    ) -> tuple[Task[Any] | None, GraphQLFormattedError | None]:
        """Follow what is subscribed to. Questions and what acts go by requests, whose answers leave out names."""
        try:
            operations = [each for each in parse(query).definitions if isinstance(each, OperationDefinitionNode)]
        except GraphQLError:
            operations = []  # Dagster says what is wrong
        if any(each.operation is not OperationType.SUBSCRIPTION for each in operations):
            return None, GraphQLError("A websocket is for subscriptions.").formatted
        return await super().execute_graphql_subscription(websocket, operation_id, query, variables, operation_name)

    def note(self, context: GuardedContext, action: str, targets: Sequence[str], details: Mapping[str, object]) -> None:
        """Write into the audit what somebody has done, or was refused."""
        now, author = open_clock(self._settings).now(), context.asker.principal.author
        entries = [
            AuditEntry(recorded_at=now, author=author, action=f"dagster {action}", target=each, details=details)
            for each in targets[:_MOST] or (None,)
        ]
        with self._database.begin() as connection:
            Audit(connection).append_many(entries)

    async def download_debug_file_endpoint(self, request: Request) -> Response:
        run_id = str(request.path_params["run_id"])
        return self._refuse_hidden(request, runs=[run_id]) or await super().download_debug_file_endpoint(request)

    async def download_captured_logs_endpoint(self, request: Request) -> Response:
        key = str(request.path_params["path"]).partition("/")[0]
        return self._refuse_hidden(request, logs=[key]) or await super().download_captured_logs_endpoint(request)

    async def download_notebook(self, request: Request) -> Response:
        if not self._make_request_context(request).asker.is_admin:
            return JSONResponse({"error": "Files of the code location are for admins."}, 403)
        answer: Response = await super().download_notebook(request)
        return answer

    async def report_asset_materialization_endpoint(self, request: Request) -> JSONResponse:
        return await self._report(request, super().report_asset_materialization_endpoint)

    async def report_asset_check_endpoint(self, request: Request) -> JSONResponse:
        return await self._report(request, super().report_asset_check_endpoint)

    async def report_asset_observation_endpoint(self, request: Request) -> JSONResponse:
        return await self._report(request, super().report_asset_observation_endpoint)

    async def _report(self, request: Request, report: Callable[[Request], Awaitable[JSONResponse]]) -> JSONResponse:
        answer = await report(request)
        context, text = self._make_request_context(request), str(request.path_params.get("asset_key") or "")
        targets = _targets_of(context, [dg.AssetKey.from_user_string(text)] if text else [])
        details = {"refused": REFUSED} if answer.status_code == 401 else {"status": answer.status_code}
        self.note(context, request.url.path.split("/")[1], targets, details)
        return answer

    def _refuse_hidden(self, request: Request, **named: Sequence[str]) -> JSONResponse | None:
        try:
            self._make_request_context(request).require_reads([], named.get("runs", ()), named.get("logs", ()))
        except AccessRefusedError as exc:
            return JSONResponse({"error": str(exc)}, 403)
        return None


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
        raise _unknown("DAGSTER_HOME", reason, "Set it to its folder.")
    try:
        target = target or workspace_opts_to_load_target(WorkspaceOpts())
    except UsageError as exc:
        reason = f"there is none in {Path.cwd()}, and --with-dagster needs a code location"
        raise _unknown("workspace.yaml", reason, "Write it, or serve where one is.") from exc
    with dg.DagsterInstance.get() as instance, GuardedProcess(instance, target) as process:
        process.is_limited = settings.authorization is Authorization.ACL
        yield GuardedWebserver(process, settings, database).create_asgi_app()


def _unknown(setting: str, reason: str, next_step: str) -> SettingsError:
    return SettingsError(setting=setting, reason=reason, tried=(), next_step=next_step)


def _is_refusal(error: GraphQLError) -> bool:
    return isinstance(error.original_error, AccessRefusedError)


def _limit(schema: GraphQLSchema, note: Callable[..., None]) -> None:
    """Let the fields of a schema ask who asks: what acts is told, what is hidden is refused or left out."""
    acting, looking, following = schema.mutation_type, schema.query_type, schema.subscription_type
    assert acting is not None
    assert looking is not None
    assert following is not None
    for name, field in acting.fields.items():
        if name not in UNTOLD:
            field.resolve = _acting(name, _required(field.resolve), note)
    for field in looking.fields.values():
        field.resolve = _asking(_required(field.resolve))
    for field in following.fields.values():
        field.subscribe = _asking(_required(field.subscribe))
    types = [each for each in schema.type_map.values() if isinstance(each, GraphQLObjectType)]
    about = {"AssetDependency", "AssetKey", "AssetNode", "PartitionBackfill", "Run"}
    about |= {
        each.name for each in types for name in _KEYS if str(getattr(each.fields.get(name), "type", "")) == "AssetKey!"
    }
    for each in types:
        for field in each.fields.values():
            found = get_named_type(field.type)
            of = schema.get_possible_types(found) if is_abstract_type(found) else (found,)
            if field.resolve is not None and about & {kind.name for kind in of} and not each.name.startswith("__"):
                field.resolve = _showing(field.resolve, is_list=is_list_type(get_nullable_type(field.type)))


def _required(resolve: Resolve | None) -> Resolve:
    assert resolve is not None
    return resolve


def _asking(resolve: Resolve) -> Resolve:
    """Return what refuses a question about something hidden."""

    def ask(source: object, info: Any, **given: Any) -> Any:
        if info.context.hides:
            info.context.require_reads(*_find_named(given))
        return resolve(source, info, **given)

    return ask


def _showing(resolve: Resolve, *, is_list: bool) -> Resolve:
    """Return what leaves hidden objects out of lists, and refuses one alone."""

    def pick(value: Any, context: GuardedContext) -> Any:
        if value is None:
            return None
        if is_list:
            return [each for each in value if not context.hides_value(each)]
        if context.hides_value(value):
            raise AccessRefusedError(reason="This is an entity that you may not read", next_step="Ask its owner.")
        return value

    async def pick_later(value: Awaitable[Any], context: GuardedContext) -> Any:
        return pick(await value, context)

    def show(source: object, info: Any, **given: Any) -> Any:
        value = resolve(source, info, **given)
        if not info.context.hides:
            return value
        return (pick_later if isawaitable(value) else pick)(value, info.context)

    return show


def _acting(name: str, resolve: Resolve, note: Callable[..., None]) -> Resolve:
    """Return what does something in the name of who asks, and tells it in the audit."""

    async def act(source: object, info: Any, **given: Any) -> Any:
        context = info.context
        keys, runs, _ = _find_named(given)
        instance, of_backfills = context.instance, "Backfill" in name
        ids = [*runs, *([given["backfillId"]] if "backfillId" in given else [])]
        asked = map(instance.get_backfill if of_backfills else instance.get_run_by_id, ids)
        keys += [key for each in asked if each is not None for key in each.asset_selection or ()]
        details = dict[str, Any](_iter_said(given))
        try:
            context.require_reads(keys, runs)
            _stamp(given, context.asker.principal.author)
            answer = resolve(source, info, **given)
            answer = await answer if isawaitable(answer) else answer
        except Exception as exc:
            details["refused"] = str(exc) or type(exc).__name__
            raise
        else:
            several = (getattr(answer, each, None) for each in ("launchMultipleRunsResult", "terminateRunResults"))
            answers = next((each for each in several if each), [answer])
            kinds = {str(found.name) for each in answers if (found := getattr(each, "_meta", None)) is not None}
            made = [str(run.runId) for each in answers if (run := getattr(each, "run", None)) is not None]
            details |= {"answers": sorted(kinds)} if kinds else {}
            details |= {"runs": made} if made else {}
            told = [str(text) for each in answers if (text := getattr(each, "message", None))]
            is_refused = "UnauthorizedError" in kinds or any("not have permission" in each for each in told)
            details |= {"refused": REFUSED} if is_refused else {}
            return answer
        finally:
            note(context, name, _targets_of(context, keys), details)

    return act


def _targets_of(context: GuardedContext, keys: Sequence[dg.AssetKey]) -> list[str]:
    """Return the entities that own assets, in words; of an asset of others its key."""
    owned = [(each, context.entities.get(tuple(each.path))) for each in keys]
    return list(dict.fromkeys(label_of(of[0]) if of else key.to_user_string() for key, of in owned))


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


def _iter_said(given: object) -> Iterator[tuple[str, Any]]:
    for name, value in _iter_values("", given):
        if name in _SAID and value is not None:
            yield name, value[:_MOST] if isinstance(value, list) else value


def _iter_values(name: str, value: object) -> Iterator[tuple[str, object]]:
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
    params = (given.get("executionParams"), *(given.get("executionParamsList") or ()))
    for each in filter(None, params):
        each["executionMetadata"] = each.get("executionMetadata") or {}
        _put_tag(each["executionMetadata"], "tags", author)
    for name, field in (("reexecutionParams", "extraTags"), ("backfillParams", "tags")):
        if given.get(name) is not None:
            _put_tag(given[name], field, author)


def _put_tag(params: Any, field: str, author: str) -> None:
    others = [each for each in params.get(field) or () if each["key"] != names.TAG_USER]
    params[field] = [*others, {"key": names.TAG_USER, "value": author}]
