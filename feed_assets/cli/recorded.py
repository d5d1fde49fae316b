"""Record each command as an action: what it concerned, who gave it, and how it ended."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from enum import Enum
from typing import Any

import click

from feed_assets.actions import Action, ActionStatus, close_actions, record_action, send_actions
from feed_assets.cli.exit_codes import DIFFERENT
from feed_assets.cli.groups import find_given
from feed_assets.cli.options import author_of
from feed_assets.clock import Stopwatch
from feed_assets.errors import describe_error
from feed_assets.masking import get_logger
from feed_assets.settings import load_settings

_ENTITY = ("name", "feed", "process", "entity", "names", "feeds")
_FINE = (0, DIFFERENT)

_logger = get_logger(__name__)


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
            dimensions=find_dimensions(given.params),
            status=status,
            seconds=seconds,
            reason=reason,
        )
        send_actions(load_settings(), os.environ)
        record_action(action)
        close_actions()
    except Exception:
        _logger.debug("the command was not recorded", exc_info=True)


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
    instance = next((text for name in ("instance", "nominal_time") if (text := _text(params.get(name)))), None)
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
