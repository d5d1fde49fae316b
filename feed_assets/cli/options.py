"""Options and arguments that commands share, each defined once."""

import getpass
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from feed_assets.clock import open_clock
from feed_assets.entities.common import Kind
from feed_assets.settings import load_settings
from feed_assets.timing.dates import parse_datetime
from feed_assets.timing.errors import TimingError
from feed_assets.timing.frequency import Frequency, parse_frequency

if TYPE_CHECKING:
    from feed_assets.operations.entities.registry import Registry

ENV_AUTHOR = "FEED_ASSETS_AUTHOR"
STDIN = "-"

_Command = TypeVar("_Command", bound=Callable[..., Any])
_Value = TypeVar("_Value")


def output_option(command: _Command) -> _Command:
    """`--output text|json`."""
    return click.option(
        "--output",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="The form of the result.",
    )(command)


def dry_run_option(command: _Command) -> _Command:
    """`--dry-run`."""
    return click.option("--dry-run", is_flag=True, help="Do everything but the change itself.")(command)


def author_option(command: _Command) -> _Command:
    """`--author NAME`."""
    return click.option(
        "--author",
        envvar=ENV_AUTHOR,
        help=f"Who changes it, for history and audit; without it the user of the system. [env var: {ENV_AUTHOR}]",
    )(command)


def skip_checks_option(command: _Command) -> _Command:
    """`--skip-checks`."""
    return click.option(
        "--skip-checks", is_flag=True, help="Do not ask whether storages, tables, files and databases can be reached."
    )(command)


def change_options(command: _Command) -> _Command:
    """What every command that changes something has."""
    return author_option(dry_run_option(output_option(command)))


def clusters_option(command: _Command) -> _Command:
    """`--clusters a,b`; None without it."""
    option = click.option("--clusters", type=ListType(), help="Only on these clusters, with commas between them.")
    return option(command)


def packed(name: str, build: Callable[..., object]) -> Callable[[_Command], _Command]:
    """Give a command one argument `name` in the place of the options that `build` takes: what it makes of them. It
    stands below all of them.
    """
    taken = inspect.signature(build).parameters

    def pack(command: _Command) -> Any:
        @wraps(command)
        def with_packed(*args: object, **options: object) -> object:
            given = {option: options.pop(option) for option in taken if option in options}
            return command(*args, **{name: build(**given)}, **options)

        return with_packed

    return pack


def kind_argument(command: _Command) -> _Command:
    """`KIND`: cluster, datasource, feed or process, whatever the case."""
    return click.argument("kind", type=KindType())(command)


class KindType(click.ParamType[Kind]):
    """A kind of entity, in any case."""

    name = "kind"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Kind:
        """The kind of a text."""
        try:
            return Kind(str(value).lower())
        except ValueError:
            kinds = ", ".join(kind.value for kind in Kind)
            self.fail(f"{value!r} is not a kind of entity. Kinds are {kinds}.", param, ctx)

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:  # noqa: ARG002
        """How help shows it."""
        return "KIND"


class _TimingType(click.ParamType[_Value]):
    """What `parse` makes of a text; a value of this type is one already."""

    of: type[_Value]
    parse: Callable[[str], _Value]

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> _Value:
        """The value of a text."""
        if isinstance(value, self.of):
            return value
        try:
            return self.parse(str(value))
        except TimingError as exc:
            self.fail(str(exc), param, ctx)


class MomentType(_TimingType[datetime]):
    """A UTC time such as 2015-02-28T06:30Z."""

    name = "time"
    of = datetime
    parse = staticmethod(parse_datetime)


class FrequencyType(_TimingType[Frequency]):
    """A duration such as minutes(15)."""

    name = "frequency"
    of = Frequency
    parse = staticmethod(parse_frequency)


class ListType(click.ParamType[tuple[str, ...]]):
    """Texts with commas between them."""

    name = "text,text"

    def convert(
        self,
        value: Any,
        param: click.Parameter | None,  # noqa: ARG002
        ctx: click.Context | None,  # noqa: ARG002
    ) -> tuple[str, ...]:
        """The texts, without blanks around them."""
        if isinstance(value, tuple):
            return value
        return tuple(part.strip() for part in str(value).split(",") if part.strip())


def open_registry_for(*, author: str | None = None, dry_run: bool = False, skip_checks: bool = False) -> "Registry":
    """The registry that a command works on: settings, state and definitions, opened here and now."""
    from feed_assets.cli.state import open_state
    from feed_assets.operations.entities.registry import open_registry

    settings = load_settings()
    return open_registry(
        settings,
        open_state(settings),
        author=author_of(author),
        now=open_clock(settings).now(),
        dry_run=dry_run,
        skip_checks=skip_checks,
    )


def author_of(author: str | None) -> str:
    """Who gives the command."""
    if author:
        return author
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def read_files(paths: Sequence[str]) -> list[Any]:
    """The entity files that paths name: files, folders or URLs; `-` is standard input."""
    from feed_assets.loading.entity_files import EntityFile, read_entity_files

    files = []
    for path in paths:
        if path == STDIN:
            content = sys.stdin.buffer.read()
            suffix = "xml" if content.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<") else "yaml"
            files.append(EntityFile(name=f"stdin.{suffix}", content=content))
        else:
            files.extend(read_entity_files(path if "://" in path else Path(path).absolute()))
    return files
