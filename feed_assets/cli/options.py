"""Options and arguments that commands share, each defined once, and what a shell proposes for them."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from zoneinfo import ZoneInfo

import click
from click.shell_completion import CompletionItem

from feed_assets.access.principals import find_machine_user
from feed_assets.cli.door import find_door
from feed_assets.cli.render import Output
from feed_assets.cli.state import current_settings, open_state
from feed_assets.clock import open_clock
from feed_assets.entities.common import Kind
from feed_assets.errors import shorten
from feed_assets.json_form import parse_json
from feed_assets.settings import ENV_SETTINGS, Settings, find_settings_file, load_settings, project_environment
from feed_assets.timing.errors import TimingError
from feed_assets.timing.sequence import UTC_KEYS, parse_frequency, parse_instance, parse_time, zone_of_keys

if TYPE_CHECKING:
    from feed_assets.definitions.verbs.context import EntityContext
    from feed_assets.plan.records import Plan
    from feed_assets.timing.sequence import InstanceSequence

Proposal: TypeAlias = Callable[[click.Context], Iterable[str]]

_NEWEST = 20
_Value = TypeVar("_Value")


class ProposingType(click.ParamType[_Value]):
    """A value for which a shell proposes texts; none by default."""

    def __init__(self, find: Proposal = lambda _: ()) -> None:
        self._find = find

    def shell_complete(
        self,
        ctx: click.Context,
        param: click.Parameter,  # noqa: ARG002
        incomplete: str,
    ) -> list[CompletionItem]:
        """Return the values that begin so."""
        return propose(self._find, ctx, incomplete)


class ProposedType(ProposingType[str]):
    """A text for which a shell proposes values. It is a name: an empty one is more likely an unset variable."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text."""
        return str(value) or self.fail("it is empty. Give a name, or leave it out.", param, ctx)


def propose(find: Proposal, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """Return the found values that begin so; none if they cannot be found. Of a list with commas it is the last one."""
    before, comma, last = incomplete.rpartition(",")
    try:
        with project_environment(Path.cwd()):
            found = [value for value in dict.fromkeys(find(ctx)) if value.startswith(last)]
    except Exception:  # noqa: BLE001 - in the middle of a line a shell has no place for an error
        return []
    return [CompletionItem(f"{before}{comma}{value}") for value in found]


def names_of(*kinds: Kind) -> Proposal:
    """Return the proposal of the names of entities of these kinds; of the kind that the line names, if it names one."""

    def find(ctx: click.Context) -> Iterable[str]:
        kind = ctx.params.get("kind")
        return _names([kind] if kind in (kinds or tuple(Kind)) else kinds)

    return find


def _names(kinds: Sequence[Kind]) -> list[str]:
    plan = _load_plan()
    names = {
        Kind.CLUSTER: set(plan.clusters),
        Kind.FEED: {name for name, _ in plan.feeds},
        Kind.PROCESS: {name for name, _ in plan.processes},
    }
    return sorted(set().union(*(names.get(kind, set()) for kind in kinds)))


def find_entities(_: click.Context) -> Iterable[str]:
    """Return the paths of declared entities, as metadata name them."""
    return sorted(f"{kind}/{name}" for kind, name in _load_plan().facts)


def subjects_of(kinds: Sequence[Kind]) -> Proposal:
    """Return the proposal for `[KIND] NAME [INSTANCE]`: kinds and names, then names, then times."""

    def find(ctx: click.Context) -> Iterable[str]:
        given = [*map(ctx.params.get, ("kind", "name", "instance")), *(ctx.params.get("names") or ())]
        texts = [text for text in given if text]
        kind = next((kind for kind in kinds if texts and str(texts[0]).lower() == kind.value), None)
        if kind is not None and len(texts) == 1:
            return _names([kind])
        return _times(str(texts[-1])) if texts else [*(kind.value for kind in kinds), *_names(kinds)]

    return find


def find_names(ctx: click.Context) -> Iterable[str]:
    """Return what may come next in `[KIND] NAMES...`: kinds and names, then names of the kind that comes first."""
    given = (ctx.params.get("kind"), ctx.params.get("name"), *(ctx.params.get("names") or ()))
    words = [text for text in given if text]
    kinds = [kind for kind in Kind if words and kind.value == words[0].lower()]
    return _names(kinds or tuple(Kind)) if words else [*(kind.value for kind in Kind), *_names(tuple(Kind))]


def find_times(ctx: click.Context) -> Iterable[str]:
    """Return the newest nominal times of the entity that the line names, newest first."""
    return _times(_named(ctx.params))


def find_zone(given: Mapping[str, Any]) -> ZoneInfo:
    """Return the zone of days and keys of the process or feed that the parameters of a command name, else UTC."""
    name = _named(given)
    return next(map(zone_of_keys, _sequences(_load_plan(), name, given.get("kind")) if name else ()), UTC_KEYS)


def _sequences(plan: "Plan", name: str, kind: Kind | None = None) -> "Iterator[InstanceSequence]":
    records = (*(plan.processes.items() if kind is not Kind.FEED else ()), *plan.feeds.items())
    return (record.sequence for key, record in records if key[0] == name)


def _named(given: Mapping[str, Any]) -> str:
    return str(given.get("name") or given.get("feed") or given.get("process") or "")


def _times(name: str) -> Iterable[str]:
    from feed_assets.timing.dates import render_datetime

    plan, now = _load_plan(), open_clock(load_settings()).now()
    for sequence in islice(_sequences(plan, name), 1):
        past = sequence.clip(range(sequence.index_at_or_before(now) + 1))
        yield from (render_datetime(sequence.at(index)) for index in islice(reversed(past), _NEWEST))


def find_columns(ctx: click.Context) -> Iterable[str]:
    """Return the declared columns of the feed that the line names."""
    from feed_assets.entities.content.columns import iter_columns

    columns = (record.columns for key, record in _load_plan().feeds.items() if key[0] == _named(ctx.params))
    return [each.path for one in columns if one is not None for each in iter_columns(one)]


def find_groups(ctx: click.Context) -> Iterable[str]:
    """Return the names of what the line names by its kind: pipelines, owners, …"""
    from feed_assets.lineage.groups import find_members
    from feed_assets.lineage.records import NodeKind

    return sorted(find_members(open_entity_context_for((), dry_run=True), NodeKind(ctx.params["kind"])))


def find_sweeps(_: click.Context) -> Iterable[str]:
    """Return the ids of the newest sweeps."""
    from feed_assets.log.removals.store import Sweeps

    with open_state(load_settings()).read() as connection:
        return [sweep.sweep_id for sweep in Sweeps(connection).newest(_NEWEST)]


def find_holds(_: click.Context) -> Iterable[str]:
    """Return the names of the active holds."""
    from feed_assets.log.removals.holds import Holds

    with open_state(load_settings()).read() as connection:
        return [hold.name for hold in Holds(connection).active(open_clock(load_settings()).now())]


def find_extensions(_: click.Context) -> Iterable[str]:
    """Return the names of the extensions."""
    from feed_assets.definitions.extensions.store import Extensions

    with open_state(load_settings()).read() as connection:
        return Extensions(connection).names()


def find_jobs(_: click.Context) -> Iterable[str]:
    """Return the names of the jobs of extensions."""
    return sorted(open_entity_context_for((), dry_run=True).load().jobs)


def find_receivers(_: click.Context) -> Iterable[str]:
    """Return the names of the receivers of the settings."""
    return sorted(load_settings().notify)


def _load_plan() -> "Plan":
    if (door := find_door()) is not None:
        return door.open_context().plan
    from feed_assets.plan.location import find_plan_cache, load_location

    settings = load_settings()
    return load_location(settings, find_plan_cache(os.environ)).plan


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
colo_option = click.option(
    "--colo", metavar="NAMES", help="Of a front: only these colos, separated by commas; by default, as with *, all."
)
skip_checks_option = click.option(
    "--skip-checks", is_flag=True, help="Do not check whether storages, tables, files and databases can be reached."
)


def name_of(param: click.Parameter) -> str:
    """Return the name of a parameter in requests: that of its option, with `_` for `-`."""
    is_option = isinstance(param, click.Option)
    return max(param.opts, key=len).lstrip("-").replace("-", "_") if is_option else str(param.name)


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


def split_kind(words: Sequence[str]) -> tuple[Kind | None, Sequence[str]]:
    """Return the kind before names, if it is said, and the names.

    >>> split_kind(["Feed", "clicks"]), split_kind(["clicks"])
    ((<Kind.FEED: 'feed'>, ['clicks']), (None, ['clicks']))
    """
    kind = next((each for each in Kind if words and each.value == words[0].lower()), None)
    return kind, words if kind is None else words[1:]


def names_argument(name: str, form: str) -> click.Argument:
    """Return an argument such as `[KIND] NAMES...`, which sets the parameters `kind` and `names`."""

    def split(ctx: click.Context, _: click.Parameter, words: tuple[str, ...]) -> Sequence[str]:
        kind, names = split_kind(words)
        if kind is not None and not names and not ctx.resilient_parsing:
            raise click.UsageError(f"There is no name after the kind {words[0]!r}.", ctx)
        ctx.params["kind"] = kind
        return names

    find = subjects_of((Kind.FEED, Kind.PROCESS)) if "INSTANCE" in form else find_names
    return click.Argument([name], nargs=-1, required=True, metavar=form, type=ProposedType(find), callback=split)


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
            moment = parse_time(str(value), lambda: open_clock(current_settings()).now(), ask)
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


class ParsedType(click.ParamType[Any]):
    """What a function makes of a text. It raises TimingError or ValueError with a sentence."""

    def __init__(self, name: str, parse: Callable[[Any], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse the text."""
        try:
            return self._parse(value) if isinstance(value, str | bytes) else value
        except (TimingError, ValueError) as exc:
            self.fail(str(exc), param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return what a shell takes for a file, if it is one."""
        is_file = self.name == "file"
        return [CompletionItem(incomplete, type="file")] if is_file else super().shell_complete(ctx, param, incomplete)


def _parse_object(text: str) -> dict[str, object]:
    try:
        found = parse_json(text)
    except ValueError as exc:
        raise ValueError(f'{shorten(text, _SHOWN)!r} is not a JSON object, like {{"rows": 12}}: {exc}.') from exc
    if not isinstance(found, dict):
        raise ValueError(f'{shorten(text, _SHOWN)!r} is not a JSON object. Write for example {{"rows": 12}}.')
    return found


def _parse_pair(text: str) -> tuple[str, str]:
    name, is_pair, value = text.partition("=")
    if not is_pair or not name.strip():
        raise ValueError(f"{text!r} is not NAME=VALUE.")
    return name.strip(), value.strip()


def _read_properties(file: Any) -> dict[str, str]:
    """Read a file with a line NAME=VALUE for each property, and comments; bytes are its content."""
    name, content = "the file", file
    if not isinstance(file, bytes):
        name, path = file, click.Path(exists=True, dir_okay=False).convert(file, None, None)
        content = Path(os.fsdecode(path)).read_bytes()
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError as exc:
        raise ValueError(f"{name} is not UTF-8: {exc.reason} at byte {exc.start:,}. Save it in UTF-8.") from exc
    told = (line.strip() for line in lines if not line.lstrip().startswith(("#", "!")))
    return dict(map(_parse_pair, filter(None, told)))


FREQUENCY = ParsedType("frequency", parse_frequency)
JSON_OBJECT = ParsedType("json", _parse_object)
PAIR = ParsedType("name=value", _parse_pair)
PROPERTY_FILE = ParsedType("file", _read_properties)


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


def project_settings(paths: Sequence[str] = ()) -> Settings:
    """Read the settings of the working directory's project or, if it has none, of the project of a path.

    That project's `.env` holds until the command ends. A server has its settings.
    """
    if (door := find_door()) is not None:
        return door.settings
    here = Path.cwd()
    local = [Path(path).absolute() for path in paths if path != STDIN and "://" not in path]
    folders = [path if path.is_dir() else path.parent for path in local]
    found = next((each for each in (here, *folders) if find_settings_file(each) is not None), here)
    if found != here and ENV_SETTINGS not in os.environ:
        click.get_current_context().find_root().with_resource(project_environment(found))
    return load_settings(start=(here, *folders))


def open_entity_context_for(
    paths: Sequence[str] = (), *, author: str | None = None, may_take_over: bool = False, **asked: bool
) -> "EntityContext":
    """Open the context of an entity command: settings (see `project_settings`), state and definitions. `may_take_over`
    allows the database of another project; what else is `asked` is for the context: `dry_run` and `skip_checks`.
    """
    from feed_assets.definitions.verbs.context import open_entity_context

    settings = project_settings(paths)
    database, now = open_state(settings, may_take_over=may_take_over), open_clock(settings).now()
    store = door.open_store() if (door := find_door()) is not None else None
    return open_entity_context(settings, database, author=author_of(author), now=now, store=store, **asked)


def author_of(author: str | None) -> str:
    """Return the author of a command, or of a request."""
    if author:
        return author
    if (door := find_door()) is not None:
        return door.author
    return find_machine_user().name


class FileType(click.File):
    """A file of the caller, opened for reading, or one that has been read."""

    def __init__(self) -> None:
        super().__init__("rb")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Open it."""
        from feed_assets.loading.entity_files import EntityFile

        if isinstance(value, bytes):
            value = EntityFile(name="the body", content=value)
        if not isinstance(value, EntityFile):
            return super().convert(value, param, ctx)
        stream = BytesIO(value.content)
        stream.name = value.name
        return stream


class EntityFilesType(click.ParamType[Any]):
    """The path of entity files, or one that has been read."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ARG002
        """Return it."""
        return value


def read_files(paths: Sequence[Any]) -> list[Any]:
    """Read the entity files of paths: files, folders or URLs; `-` is standard input. What has been read stays."""
    from feed_assets.loading.entity_files import EntityFile, read_entity_files

    files = []
    for path in paths:
        if isinstance(path, EntityFile):
            files.append(path)
        elif path == STDIN:
            content = sys.stdin.buffer.read()
            suffix = "xml" if content.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<") else "yaml"
            files.append(EntityFile(name=f"stdin.{suffix}", content=content))
        else:
            files.extend(read_entity_files(path if "://" in path else Path(path).absolute()))
    return files
