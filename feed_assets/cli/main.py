"""The command `feed-assets`: its groups, the shared options, the only error boundary, and the record of each command.

Exit codes: 0 done, 1 refused or a problem was found, 2 wrong usage, or something outside is away, 3 an internal error,
4 `plan --detailed-exitcode` has found a difference. Results go to standard output, messages to standard error.
"""

import atexit
import gc
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from enum import Enum
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from threading import Lock
from typing import Any

import click

from feed_assets.actions import Action, ActionStatus, close_actions, record_action, send_actions
from feed_assets.cli.door import find_door
from feed_assets.cli.exit_codes import DIFFERENT, OUR_MISTAKE, exit_code_of
from feed_assets.cli.groups import Verbs, find_given
from feed_assets.cli.options import author_of
from feed_assets.cli.progress import status_line
from feed_assets.cli.render import say, shown
from feed_assets.cli.state import current_settings
from feed_assets.clock import Stopwatch
from feed_assets.errors import describe_error
from feed_assets.masking import get_logger, mask_logs
from feed_assets.operation_list import MODULES
from feed_assets.project_homes import find_home
from feed_assets.settings import ENV_SERVER, project_environment
from feed_assets.timing.dates import render_datetime

_ENTITY = ("name", "feed", "process", "entity", "names", "feeds")
_FINE = (0, DIFFERENT)

_logger = get_logger(__name__)
_recording = Lock()


@contextmanager
def recorded(ctx: click.Context) -> Iterator[None]:
    """Record the command that is run below `ctx` in the block. Nothing is recorded of help or wrong usage."""
    watch = Stopwatch()
    try:
        yield
    except BaseException as exc:
        _record(ctx, watch.seconds, exc)
        raise
    _record(ctx, watch.seconds, None)


def _record(ctx: click.Context, seconds: float, error: BaseException | None) -> None:
    given = find_given(ctx)
    if given is None:
        return
    try:
        status, reason = _judge(error)
        action = Action(
            name=given.command_path.partition(" ")[2],
            dimensions=find_dimensions(_told(given)),
            status=status,
            seconds=seconds,
            reason=reason,
        )
        with _recording:  # requests are answered by several threads
            settings = current_settings()
            find_home(settings, os.environ)  # nothing is recorded beside the state of another project
            send_actions(settings, os.environ)
        record_action(action)
        if find_door() is None:  # a server goes on
            close_actions()
    except Exception:
        _logger.debug("the command was not recorded", exc_info=True)


def _told(given: click.Context) -> dict[str, Any]:
    """Return the parameters without those that have their defaults."""
    default = click.core.ParameterSource.DEFAULT
    return {name: value for name, value in given.params.items() if given.get_parameter_source(name) is not default}


def _judge(error: BaseException | None) -> tuple[ActionStatus, str]:
    match error:
        case None:
            return ActionStatus.SUCCEEDED, ""
        case click.exceptions.Exit(exit_code=code):
            return (ActionStatus.SUCCEEDED, "") if code in _FINE else (ActionStatus.FAILED, f"exit code {code}")
        case click.ClickException():
            return ActionStatus.FAILED, error.format_message()
        case Exception():
            return ActionStatus.FAILED, describe_error(error)
        case _:
            return ActionStatus.FAILED, type(error).__name__


def find_dimensions(params: Mapping[str, Any]) -> dict[str, str | None]:
    """Return what the parameters of a command say of its subject.

    >>> find_dimensions({"kind": "feed", "name": "clicks", "cluster": ("a", "b"), "payload": "x", "author": "ann"})
    {'kind': 'feed', 'entity': 'clicks', 'cluster': 'a,b', 'instances': None, 'user': 'ann', 'dry_run': None}
    """
    start, end = _text(params.get("start")), _text(params.get("end"))
    moment = next((value for name in ("instance", "nominal_time") if (value := params.get(name))), None)
    instance = render_datetime(moment) if isinstance(moment, datetime) else _text(moment)
    return {
        "kind": _text(params.get("kind")),
        "entity": next((text for name in _ENTITY if (text := _text(params.get(name)))), None),
        "cluster": _text(params.get("cluster")) or _text(params.get("clusters")),
        "instances": instance or (f"{start or ''}/{end or ''}" if start or end else None),
        "user": author_of(params.get("author")),
        "dry_run": "true" if params.get("dry_run") else None,
    }


def _text(value: object) -> str | None:
    match value:
        case None | "" | ():
            return None
        case Enum():
            return str(value.value)
        case datetime():
            return value.isoformat()
        case list() | tuple():
            return ",".join(_text(each) or "" for each in value)
        case _:
            return str(value)


_ALLOCATIONS = 50_000
"""New objects between two searches for garbage. Measured: with Python's 700, a fifth of the time of a short command."""

_LATER = {
    "completion": "feed_assets.cli.completion",
    "keys": "feed_assets.cli.groups",
    "metrics": "feed_assets.cli.metrics",
    "simulate": "feed_assets.cli.simulate",
    "state": "feed_assets.cli.rebuilding",
}
"""The modules of the commands that are not derived from operations, imported on use. They import operations only inside
their functions: help and completion load neither SQLAlchemy nor Dagster, and each command loads only what it needs."""


class Boundary(Verbs):
    """A group whose commands turn every exception into one sentence and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return sorted({*super().list_commands(ctx), *_LATER, *MODULES})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, and import its module."""
        if cmd_name not in self.commands and (cmd_name in _LATER or cmd_name in MODULES):
            self.add_command(_find_command(cmd_name), cmd_name)
        return super().get_command(ctx, cmd_name)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, and translate exceptions."""
        try:
            with recorded(ctx), status_line.running("at work"):
                return super().invoke(ctx)
        except click.ClickException as exc:
            of_all = isinstance(exc, click.NoSuchOption) and any(exc.option_name in each.opts for each in self.params)
            hint = " It goes before the name of the command." if of_all else ""
            exc.message = f"{shown(exc.message)}{hint}"  # type: ignore[misc]
            raise
        except (click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except Exception as exc:  # noqa: BLE001 - the boundary
            ctx.exit(tell_error(exc))


def tell_error(error: Exception) -> int:
    """Print the sentence of an exception that ends a command, and return the exit code."""
    code = exit_code_of(error)
    _logger.debug("the command ended with an error", exc_info=error)
    _say(_describe_mistake(error) if code == OUR_MISTAKE else _describe(error))
    return code


def _find_command(name: str) -> click.Command:
    by_hand = getattr(import_module(_LATER[name]), name.replace("-", "_")) if name in _LATER else None
    if name not in MODULES:
        assert isinstance(by_hand, click.Command)
        return by_hand
    from feed_assets.cli.derived import derive_commands

    return derive_commands(name, by_hand)


def _describe(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}." if error.filename else describe_error(error)
    return str(error)


def _describe_mistake(error: Exception) -> str:
    return f"internal error, {type(error).__name__}: {error}. Run it again with --debug and report the output."


def _say(text: str) -> None:
    say(f"feed-assets: {text}", err=True)


def _show_version(ctx: click.Context, _: click.Parameter, is_requested: bool) -> None:
    if is_requested and not ctx.resilient_parsing:
        try:
            say(f"feed-assets {version('feed-assets')}")
        except PackageNotFoundError:
            say("feed-assets (not installed)")
        ctx.exit()


@click.group(cls=Boundary, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show the version."
)
@click.option("--debug", is_flag=True, help="Show debug messages and tracebacks.")
@click.option(
    "--server",
    envvar=ENV_SERVER,
    metavar="URL",
    help=f"Ask this server instead of the project here. [env var: {ENV_SERVER}; the token: FEED_ASSETS_TOKEN]",
)
@click.option(
    "--token-file",
    envvar="FEED_ASSETS_TOKEN_FILE",
    metavar="FILE",
    help="The file with the token for the server. [env var: FEED_ASSETS_TOKEN_FILE]",
)
@click.option("--do-as", metavar="NAME", help="Ask the server on behalf of somebody, who is the author of changes.")
@click.pass_context
def main(ctx: click.Context, /, debug: bool, **_: str | None) -> None:
    """Manage feeds and processes on Dagster and Spark."""
    atexit.register(gc.freeze)  # measured: another fifth is the search at the end of the process
    ctx.call_on_close(partial(gc.set_threshold, *gc.get_threshold()))
    gc.set_threshold(_ALLOCATIONS)
    ctx.with_resource(project_environment(Path.cwd()))
    if debug:
        logging.basicConfig(level=logging.DEBUG)
        for handler in logging.getLogger().handlers:
            mask_logs(handler)
    elif logging.lastResort is not None:
        logging.lastResort.addFilter(_drop_traceback)


def _drop_traceback(record: logging.LogRecord) -> bool:
    status_line.hush()
    record.exc_info = record.exc_text = None
    return True
