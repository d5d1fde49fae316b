"""Options and arguments that commands share, each defined once."""

import getpass
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from zoneinfo import ZoneInfo

import click
from click.shell_completion import CompletionItem

from feed_assets.cli.proposals import (
    Proposal,
    ProposedType,
    ProposingType,
    find_names,
    find_times,
    find_zone,
    propose,
    subjects_of,
)
from feed_assets.cli.render import Output
from feed_assets.clock import open_clock
from feed_assets.entities.common import Kind
from feed_assets.json_form import parse_json
from feed_assets.settings import ENV_SETTINGS, Settings, find_settings_file, load_settings, project_environment
from feed_assets.timing.errors import TimingError
from feed_assets.timing.frequency import Frequency, parse_frequency
from feed_assets.timing.instance_texts import UTC_KEYS, parse_instance, parse_time

if TYPE_CHECKING:
    from feed_assets.definitions.verbs.context import EntityContext

ENV_AUTHOR = "FEED_ASSETS_AUTHOR"
STDIN = "-"
_SHOWN = 80
"""How many characters of a text that is refused are shown."""

_Command = TypeVar("_Command", bound=Callable[..., Any])


def output_in(default: str, *others: str) -> Callable[[_Command], _Command]:
    """Add `--output` with these forms."""
    return click.option(
        "--output",
        type=click.Choice([str(default), *map(str, others)]),
        default=str(default),
        show_default=True,
        help="The form of the result.",
    )


output_option = output_in(*Output)
text_output_option = output_in("text", Output.JSON)
dry_run_option = click.option("--dry-run", is_flag=True, help="Do everything except the change itself.")
author_option = click.option(
    "--author",
    envvar=ENV_AUTHOR,
    help=f"The author of the change, for history and audit; by default the system user. [env var: {ENV_AUTHOR}]",
)
skip_checks_option = click.option(
    "--skip-checks", is_flag=True, help="Do not check whether storages, tables, files and databases can be reached."
)


def kind_argument(name: str, kinds: Iterable[str]) -> click.Argument:
    """Return the argument `[KIND]` before a name: one of some kinds, or any if none is given."""
    known = tuple(map(Kind, kinds)) or tuple(Kind)

    def take_one(ctx: click.Context, param: click.Parameter, value: tuple[Kind, ...]) -> Kind | None:  # noqa: ARG001
        if len(value) > 1:
            raise click.UsageError("Give one KIND and one NAME.", ctx)
        return value[0] if value else None

    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return propose(subjects_of(known), ctx, incomplete)

    kind = ChoiceType(Kind, known)
    return click.Argument([name], nargs=-1, type=kind, callback=take_one, metavar="[KIND]", shell_complete=complete)


def names_argument(name: str, form: str) -> click.Argument:
    """Return an argument such as `[KIND] NAMES...`, which sets the parameters `kind` and `names`."""

    def split(ctx: click.Context, _: click.Parameter, words: tuple[str, ...]) -> tuple[str, ...]:
        kind = next((each for each in Kind if words[1:] and each.value == words[0].lower()), None)
        ctx.params["kind"] = kind
        return words if kind is None else words[1:]

    return click.Argument([name], nargs=-1, required=True, metavar=form, type=ProposedType(find_names), callback=split)


class MomentType(ProposingType[datetime | str]):
    """A time in any form that `parse_time` knows. Days, months and keys stay texts until all parameters are there, as
    their zone is that of the entity that the command names (see `in_zone`).
    """

    name = "time"

    def __init__(self) -> None:
        super().__init__(find_times)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime | str:
        """Parse the text as far as possible."""
        if isinstance(value, datetime):
            return value
        asked: list[None] = []

        def ask() -> ZoneInfo:
            asked.append(None)
            return UTC_KEYS

        try:
            moment = parse_time(str(value), lambda: open_clock(load_settings()).now(), ask)
        except TimingError as exc:
            if ctx is not None and ctx.resilient_parsing:  # of `feed clicks` a shell asks before there is a time
                return str(value)
            self.fail(str(exc), param, ctx)
        return str(value) if asked else moment


def in_zone(parameters: Iterable[click.Parameter], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a command, with the days, months and keys among them as times.

    Raises:
        DateTimeError: there is no such day in that zone.
    """
    names = [each.name for each in parameters if isinstance(each.type, MomentType)]
    local = {name: given[name] for name in names if name is not None and isinstance(given[name], str)}
    zone = find_zone(given) if local else UTC_KEYS
    return {**given, **{name: parse_instance(text, zone) for name, text in local.items()}}


class ChoiceType(click.Choice[str]):
    """A member of an enumeration, one with some values, by its value in any case."""

    def __init__(self, members: type[StrEnum], values: Iterable[str]) -> None:
        super().__init__([str(each) for each in values], case_sensitive=False)
        self._members = members

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> StrEnum:
        """Return the member."""
        return self._members(super().convert(value, param, ctx))


class JsonObjectType(click.ParamType[dict[str, object]]):
    """A JSON object such as {"rows": 12}."""

    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, object]:
        """Parse the text."""
        if isinstance(value, dict):
            return value
        try:
            found = parse_json(value)
        except ValueError as exc:
            self.fail(f"{value[:_SHOWN]!r} is not JSON: {exc}.", param, ctx)
        if not isinstance(found, dict):
            self.fail(f'{value[:_SHOWN]!r} is not a JSON object. Write for example {{"rows": 12}}.', param, ctx)
        return found


class PairType(click.ParamType[tuple[str, str]]):
    """A name and a value."""

    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Divide the text at the first sign of equality."""
        name, is_pair, text = str(value).partition("=")
        if not is_pair or not name.strip():
            self.fail(f"{value!r} is not NAME=VALUE.", param, ctx)
        return name.strip(), text.strip()


class PropertyFileType(click.ParamType[dict[str, str]]):
    """A file of properties: a line NAME=VALUE for each, and comments."""

    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, str]:
        """Read the file."""
        path = click.Path(exists=True, dir_okay=False).convert(value, param, ctx)
        try:
            lines = Path(os.fsdecode(path)).read_text("utf-8").splitlines()
        except UnicodeDecodeError as exc:
            self.fail(f"{value} is not UTF-8: {exc.reason} at byte {exc.start:,}. Save it in UTF-8.", param, ctx)
        told = (line.strip() for line in lines if not line.lstrip().startswith(("#", "!")))
        return dict(PairType().convert(line, param, ctx) for line in told if line)


class FrequencyType(click.ParamType[Frequency]):
    """A duration such as minutes(15)."""

    name = "frequency"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Frequency:
        """Parse the text."""
        try:
            return value if isinstance(value, Frequency) else parse_frequency(str(value))
        except TimingError as exc:
            self.fail(str(exc), param, ctx)


class ListType(ProposingType[tuple[Any, ...]]):
    """Values separated by commas, for which a shell proposes some."""

    name = "text,text"

    def __init__(self, find: Proposal = lambda _: (), of: click.ParamType[Any] = click.STRING) -> None:
        super().__init__(find)
        self._of = of

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[Any, ...]:
        """Split the texts, without blanks around them, and convert each."""
        if isinstance(value, tuple):
            return value
        return tuple(self._of.convert(part.strip(), param, ctx) for part in str(value).split(",") if part.strip())


def project_settings(paths: Sequence[str] = (), **overrides: Any) -> Settings:
    """Read the settings of the working directory's project or, if it has none, of the project of a path.

    That project's `.env` holds until the command ends.
    """
    here = Path.cwd()
    local = [Path(path).absolute() for path in paths if path != STDIN and "://" not in path]
    folders = [path if path.is_dir() else path.parent for path in local]
    found = next((each for each in (here, *folders) if find_settings_file(each) is not None), here)
    if found != here and ENV_SETTINGS not in os.environ:
        click.get_current_context().find_root().with_resource(project_environment(found))
    return load_settings(overrides, start=(here, *folders))


def open_entity_context_for(
    paths: Sequence[str] = (),
    *,
    author: str | None = None,
    dry_run: bool = False,
    skip_checks: bool = False,
    may_take_over: bool = False,
) -> "EntityContext":
    """Open the context of an entity command: settings (see `project_settings`), state and definitions. `may_take_over`
    allows the database of another project.
    """
    from feed_assets.cli.state import open_state
    from feed_assets.definitions.verbs.context import open_entity_context

    settings = project_settings(paths)
    return open_entity_context(
        settings,
        open_state(settings, may_take_over=may_take_over),
        author=author_of(author),
        now=open_clock(settings).now(),
        dry_run=dry_run,
        skip_checks=skip_checks,
    )


def author_of(author: str | None) -> str:
    """Return the author of a command."""
    if author:
        return author
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def read_files(paths: Sequence[str]) -> list[Any]:
    """Read the entity files of paths: files, folders or URLs; `-` is standard input."""
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
