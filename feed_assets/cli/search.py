"""`search` and `keys`: entities by what is said of them."""

import click

from feed_assets.cli.instance_options import open_context_for
from feed_assets.cli.metadata import parse_scope
from feed_assets.cli.options import output_option
from feed_assets.cli.render import print_json, print_list_json, print_table, say_shown
from feed_assets.entities.metadata import Scope

_MORE = "--offset shows the next ones"


@click.command(epilog="Example: feed-assets search 'owner:finance +delay*' --target feed")
@click.argument("query", default="*")
@click.option("--target", "kinds", multiple=True, metavar="KIND", help="Only this kind, such as feed or column.")
@click.option("--scope", "scopes", callback=parse_scope, metavar="user|system", help="Only words that this scope says.")
@click.option("--sort", metavar="ORDER", help="entity-name or creation-time, asc or desc; else the best first.")
@click.option("--offset", type=click.IntRange(min=0), default=0, help="Leave out so many.")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="At most so many.")
@click.option("--cursor", help="Go on at a cursor of an earlier page.")
@click.option("--cursors", type=click.IntRange(min=0), default=0, help="Give the cursors of so many more pages.")
@click.option("--hidden", is_flag=True, help="Also entities whose names begin with an underscore.")
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
    output: str,
) -> None:
    """Find entities by words of their names, properties, tags and columns.

    Terms are separated by blanks; more of them rank higher, and +term is required. word* is a beginning, name:word a
    word of that property (or of tags, schema, entity-name, the kind), name:* has it, name:>10 compares.
    """
    from feed_assets.operations.searching.search import SearchQuery
    from feed_assets.operations.searching.search import search as find

    page = find(
        open_context_for(),
        SearchQuery(
            text=query,
            kinds=kinds,
            scope=scopes[0] if len(scopes) == 1 else None,
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
    rows = [(each.entity, str(each.terms), ", ".join(each.fields)) for each in page.results]
    print_table(("entity", "terms", "found in"), rows, output)
    say_shown(len(page.results), page.total, "entities", _MORE)


@click.command(epilog="Example: feed-assets keys own")
@click.argument("beginning", default="")
@output_option
def keys(beginning: str, output: str) -> None:
    """List the names of properties that begin with BEGINNING, and how many entities have each."""
    from feed_assets.operations.searching.search import list_keys

    found = list_keys(open_context_for(), beginning)
    if output == "json":
        print_list_json("keys", found, len(found))
        return
    print_table(("name", "entities"), [(each.name, str(each.entities)) for each in found], output)
