"""Command lines that messages offer as the next step: whole, quoted, ready to be pasted into a shell."""

import shlex
from collections.abc import Iterable
from datetime import datetime

from feed_assets.timing.dates import render_datetime


def command_line(*words: str | datetime, **options: str | datetime | bool | Iterable[str] | None) -> str:
    """Return a command of `feed-assets`. Options that are None, False or empty are left out; several values are
    separated by commas.

    >>> command_line("entity", "resume", "process", "daily-delays", clusters=["east", "west"], dry_run=True)
    'feed-assets entity resume process daily-delays --clusters east,west --dry-run'
    """
    parts = ["feed-assets", *map(_text, words)]
    for name, value in options.items():
        if value is None or value is False:
            continue
        option = f"--{name.replace('_', '-')}"
        if value is True:
            parts.append(option)
            continue
        text = _text(value) if isinstance(value, str | datetime) else ",".join(value)
        if text:
            parts += [option, text]
    return shlex.join(parts)


def instance_command(verb: str, name: str, nominal_time: datetime, cluster: str, **options: str | None) -> str:
    """Return the command of a verb, such as `rerun`, on one instance of a process or flow.

    >>> from datetime import UTC
    >>> instance_command("rerun", "daily-delays", datetime(2013, 11, 3, 5, tzinfo=UTC), "primary")
    'feed-assets instance rerun daily-delays --instance 2013-11-03T05:00Z --clusters primary'
    """
    return command_line("instance", verb, name, instance=nominal_time, clusters=[cluster], **options)


def follow_command(process: str, cluster: str, nominal_time: datetime) -> str:
    """Return the command that lets the instances of a process from one on follow what is declared now."""
    return command_line("entity", "touch", "process", process, clusters=[cluster], effective_from=nominal_time)


def materialize_command(asset: str, partition: str) -> str:
    """Return Dagster's command that makes a partition of an asset; `asset` is its key as Dagster writes it."""
    return f"dagster asset materialize --select {render_selection(asset)} --partition {partition}"


def render_selection(asset: str) -> str:
    """Return the selection of an asset in a shell's command; `asset` is its key as Dagster writes it, `here/sums`."""
    return f"'key:\"{asset}\"'"


def _text(value: str | datetime) -> str:
    return render_datetime(value) if isinstance(value, datetime) else value
