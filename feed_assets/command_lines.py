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


def _text(value: str | datetime) -> str:
    return render_datetime(value) if isinstance(value, datetime) else value
