"""`search` and `keys`: entities by what is said of them."""

from typing import TYPE_CHECKING

import click

from feed_assets.cli.groups import Verb, Verbs
from feed_assets.cli.metadata import parse_scope
from feed_assets.cli.options import output_option
from feed_assets.cli.render import print_json, print_list, print_records, print_table, say, say_shown
from feed_assets.cli.state import find_state, open_state
from feed_assets.entities.metadata import Scope
from feed_assets.settings import DEFAULT_NAMESPACE, load_settings

if TYPE_CHECKING:
    from feed_assets.catalog.search.search import SearchPage

_MORE = "--offset shows the next ones"

_scope_option = click.option(
    "--scope", "scopes", callback=parse_scope, metavar="user|system", help="Only what this scope says."
)


class _KeysGroup(Verbs):
    """A group whose command `list` needs no name: `keys own` is `keys list own`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put `list` before what is no command and no question for help."""
        is_named = args[:1] and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if is_named else ["list", *args])


@click.command(cls=Verb, epilog="Example: feed-assets search 'owner:finance +delay*' --target feed")
@click.argument("query", default="*")
@click.option("--target", "kinds", multiple=True, metavar="KIND", help="Only this kind, such as feed or column.")
@_scope_option
@click.option("--sort", metavar="ORDER", help="entity-name or creation-time, asc or desc; else the best first.")
@click.option("--offset", type=int, default=0, help="Leave out so many.")
@click.option("--limit", type=int, default=20, show_default=True, help="At most so many, up to 1000.")
@click.option("--cursor", help="Go on at a cursor of an earlier page.")
@click.option("--cursors", type=int, default=0, help="Give the cursors of so many more pages; needs --sort.")
@click.option("--hidden", is_flag=True, help="Also entities whose names begin with an underscore.")
@click.option("--namespace", help="Search this namespace of the same database instead of the project's own.")
@output_option
def search(
    query: str,
    kinds: tuple[str, ...],
    scopes: tuple[Scope, ...],
    sort: str | None,
    offset: int,
    limit: int,
    cursor: str | None,
    cursors: int,
    hidden: bool,
    namespace: str | None,
    output: str,
) -> None:
    """Find entities by words of their names, properties, tags and columns.

    Terms are separated by blanks; more of them rank higher, and +term is required. word* is a beginning, name:word a
    word of that property (or of tags, schema, entity-name, the kind), name:* has it, name:>10 compares.
    """
    from feed_assets.catalog.search.search import SearchQuery
    from feed_assets.catalog.search.search import search as find

    settings = load_settings()
    own = settings.namespace or DEFAULT_NAMESPACE
    page = find(
        open_state(settings) if namespace in (None, own) else find_state(settings, str(namespace)),
        SearchQuery(
            text=query,
            kinds=kinds,
            scope=_only(scopes),
            sort=sort,
            offset=offset,
            limit=limit,
            cursor=cursor,
            cursors=cursors,
            shows_hidden=hidden,
        ),
    )
    if output == "json":
        print_json(page)
        return
    _print_page(page, output)


def _print_page(page: "SearchPage", output: str) -> None:
    print_records("entity, terms, found in=fields, description", page.results, output, spare=("description",))
    if not page.total:
        say("nothing is found; a term is a whole word, and word* is the beginning of one", err=True)
    say_shown(len(page.results), page.total, "entities", _MORE)
    for number, cursor in enumerate(page.cursors, 1):
        say(f"{number * page.limit:,} further: --cursor {cursor}", err=True)


@click.group(cls=_KeysGroup)
def keys() -> None:
    """List the names of properties, and show the values of one; without a command, list."""


@keys.command("list", epilog="Example: feed-assets keys list own")
@click.argument("beginning", default="")
@_scope_option
@output_option
def list_(beginning: str, scopes: tuple[Scope, ...], output: str) -> None:
    """List the names of properties that begin with BEGINNING, and how many entities have each."""
    from feed_assets.catalog.search.search import list_keys

    print_list("keys", "name, entities", list_keys(open_state(load_settings()), beginning, _only(scopes)), output)


@keys.command(epilog="Example: feed-assets keys show owner")
@click.argument("key")
@_scope_option
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="At most so many values.")
@output_option
def show(key: str, scopes: tuple[Scope, ...], limit: int, output: str) -> None:
    """Show the values of the property KEY, how many entities have each, and which these are."""
    from feed_assets.catalog.search.search import show_key

    found = show_key(open_state(load_settings()), key, _only(scopes), limit)
    if output == "json":
        print_json(found)
        return
    rows = [
        (each.value, each.count, ", ".join((*each.entities, *(["…"] if each.count > len(each.entities) else []))))
        for each in found.values
    ]
    print_table(("value", "entities", "which"), rows, output)
    say_shown(len(found.values), found.total, "values", "--limit shows more")


def _only(scopes: tuple[Scope, ...]) -> Scope | None:
    return scopes[0] if len(scopes) == 1 else None
