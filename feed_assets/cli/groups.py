"""Groups of commands: their help has the first sentence of each command, in full, and each call can be recorded.

`keys` is a group of which one command needs no name.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import click

from feed_assets.cli.options import in_zone
from feed_assets.errors import WrongUsageError
from feed_assets.masking import encodable
from feed_assets.operation import Operation

LARGEST = 2**53
"""The largest number: every database, calendar and JSON can have it."""
_SENTENCE = 1_000
_PLACES = frozenset({"files", "path", "source", "target", "to", "folder", "storage"})
"""Parameters that name files, which need not be UTF-8."""
_ALIKE = (
    frozenset({"show", "get", "describe", "definition", "view", "read", "cat"}),
    frozenset({"list", "ls", "search", "find"}),
    frozenset({"delete", "remove", "rm", "release", "clear", "drop"}),
    frozenset({"add", "create", "new", "put", "set", "submit", "make"}),
)
"""Names of commands that mean the same."""
_GIVEN = "feed_assets.given"
SERVER = "server"
"""The option of the address of a server that is asked instead of this project."""


class Given:
    """The parameters of a request, in the place of a parser of words."""

    _opt_prefixes: frozenset[str] = frozenset()

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = given

    def parse_args(self, args: list[str]) -> tuple[Mapping[str, Any], list[str], list[click.Parameter]]:
        """Return the parameters by name, and no words."""
        return self._given, args, []


class Verb(click.Command):
    """A command; the boundary above it finds out which one was given, and with what."""

    operation: Operation | None = None

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words. A shell that completes the value of the last option has not given it: the rest is parsed."""
        is_unfinished = ctx.resilient_parsing and args and args[-1].startswith("--")
        if not (ctx.resilient_parsing or self.name == "completion" or isinstance(ctx.obj, Given)) and self._is_afar(
            ctx, args
        ):
            return []
        return super().parse_args(ctx, args[:-1] if is_unfinished else args)

    def _is_afar(self, ctx: click.Context, args: list[str]) -> bool:
        """Return whether a server is asked. The words are then only parsed: it judges them."""
        given, rest, _ = self.make_parser(ctx).parse_args([*args])
        server = given.pop(SERVER, None)
        server = server if isinstance(server, str) else ctx.find_root().params.get(SERVER)
        if server is None or given.keys() - {each.name for each in self.params}:  # help, which is shown here
            return False
        if rest:
            ctx.fail(f"Got unexpected extra argument{'s' if rest[1:] else ''} ({' '.join(rest)})")
        ctx.params = {name: value for name, value in given.items() if isinstance(value, str | bool | list | tuple)}
        ctx.meta[SERVER] = server
        return True

    def make_parser(self, ctx: click.Context) -> Any:
        """Return the parser of words; of a request, what it gives by name."""
        return ctx.obj if isinstance(ctx.obj, Given) else super().make_parser(ctx)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        ctx.meta[_GIVEN] = ctx
        for param in self.params:
            if param.name not in _PLACES and not isinstance(param.type, click.Path | click.File):
                for value in _iter_values(ctx.params.get(param.name or "")):
                    if isinstance(value, int) and abs(value) > LARGEST:
                        raise click.BadParameter(f"it is too large: at most {LARGEST:,}.", ctx, param)
                    if isinstance(value, str) and encodable(value) != value:
                        reason = "bytes that are not UTF-8. Write it in UTF-8."
                        reason = f"{value!r} has {'a NUL. Leave it out.' if chr(0) in value else reason}"
                        raise click.BadParameter(reason, ctx, param)
        try:
            if (server := ctx.meta.get(SERVER)) is not None:
                from feed_assets.cli.remote import ask

                del ctx.meta[_GIVEN]  # the server records it
                ask(ctx, self.operation, server)
            if ctx.find_root().params.get("do_as") is not None:
                raise WrongUsageError("--do-as is for servers. Give --server, too, or --author to a command here.")
            ctx.params = in_zone(self.params, ctx.params)
            return super().invoke(ctx)
        except WrongUsageError as exc:
            raise click.UsageError(str(exc), ctx) from exc


def _iter_values(given: object) -> Iterator[object]:
    match given:
        case tuple() | list():
            for each in given:
                yield from _iter_values(each)
        case dict():
            yield from _iter_values([*given.items()])
        case _:
            yield given


def find_given(ctx: click.Context) -> click.Context | None:
    """Return the context of the command that was run below `ctx`; None if it did not come to that, as for help."""
    given: click.Context | None = ctx.meta.get(_GIVEN)
    return given


_UNNAMED = {"audit": "show", "keys": "list"}
"""By the name of a group, the command that is meant without a name."""


def _no_command(error: click.NoSuchCommand, alike: list[str]) -> str | None:
    return f"{error.message} Did you mean {' or '.join(map(repr, alike))}?" if alike else None


class Verbs(click.Group):
    """A group that lists its commands with their first sentences. One of some needs no name: `keys own` is `keys list
    own`.
    """

    command_class = Verb

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put a command without a name before what is no command and no question for help."""
        unnamed = _UNNAMED.get(self.name or "")
        if unnamed is not None and not (args[:1] and (args[0] in self.commands or args[0] in ctx.help_option_names)):
            args = [unnamed, *args]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the named command; suggest names that are similar, or mean the same, if there is none."""
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as exc:
            known = self.list_commands(ctx)
            alike = [each for words in _ALIKE if exc.command_name in words for each in known if each in words]
            raise click.NoSuchCommand(
                exc.command_name, possibilities=None if alike else known, ctx=ctx, message=_no_command(exc, alike)
            ) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.get_short_help_str(_SENTENCE)) for name, command in commands if command])


@click.group(cls=Verbs)
def keys() -> None:
    """List the names of properties, and show the values of one; without a command, list."""
