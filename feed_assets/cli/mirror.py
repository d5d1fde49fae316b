"""`mirror`: previews of mirror runs, snapshots, and templates for new mirrors."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from feed_assets.cli.exit_codes import FAILED
from feed_assets.cli.groups import Verbs
from feed_assets.cli.instance_control import parse_properties, read_property_lines
from feed_assets.cli.instance_options import open_context_for
from feed_assets.cli.options import FrequencyType, MomentType, name_argument, output_option
from feed_assets.cli.proposals import names_of
from feed_assets.cli.render import Output, print_json, print_table, say, say_shown
from feed_assets.clock import open_clock
from feed_assets.entities.common import Kind
from feed_assets.settings import load_settings
from feed_assets.timing.frequency import Frequency

if TYPE_CHECKING:
    from feed_assets.replication.mirrors.reading import ShownMirror
    from feed_assets.replication.mirrors.templates import MirrorRequest

FILES = 20

_CLUSTER = click.option("--cluster", help="The cluster of the process; not needed if it has only one.")


@click.group(cls=Verbs)
def mirror() -> None:
    """Manage mirrors: directories without dates that are kept equal to others.

    PROCESS is a process with the engine directory-mirror.
    """


@mirror.command()
@name_argument("process", names_of(Kind.PROCESS))
@_CLUSTER
@click.option("--removals", type=click.IntRange(min=0), help="Assume that a run may remove this many files.")
@click.option("--limit", type=click.IntRange(min=0), default=FILES, show_default=True, help="How many files are shown.")
@output_option
@click.pass_context
def plan(ctx: click.Context, process: str, cluster: str | None, removals: int | None, limit: int, output: str) -> None:
    """Show what a run of PROCESS would do now: bytes and files to copy, and files to remove.

    Writes nothing. The exit code is 1 if a run would fail.
    """
    from feed_assets.replication.mirrors.reading import plan_mirrors

    plans = plan_mirrors(open_context_for(), process, cluster, removals)
    if output == "json":
        print_json(plans)
    else:
        rows = [_row(planned) for planned in plans.directories]
        if output == Output.TABLE:
            print_table(("source", "target", "copies", "bytes", "removes", "of"), rows)
        files = [[(*file, planned.source) for file in _files(planned)] for planned in plans.directories]
        shown = [file for each in files for file in each[:limit]]
        print_table(("change", "bytes", "file", "source"), shown, output, spare=("source",))
        say_shown(len(shown), sum(map(len, files)), "files", "--limit shows more")
    for planned in plans.directories:
        if planned.refusal is not None:
            say(f"feed-assets: {planned.refusal}", err=True)
    if not plans.is_good:
        ctx.exit(FAILED)


def _row(planned: "ShownMirror") -> tuple[object, ...]:
    copies, removals = planned.copies, planned.removals
    if copies is None or removals is None:
        return (planned.source, planned.target, "-", "-", "-", "-")
    standing = "-" if planned.standing is None else f"{planned.standing:,}"
    return (planned.source, planned.target, f"{len(copies):,}", f"{planned.bytes:,}", f"{len(removals):,}", standing)


def _files(planned: "ShownMirror") -> Iterator[tuple[object, ...]]:
    yield from (("remove", "", path) for path in planned.removals or ())
    yield from (("copy", f"{file.bytes:,}", file.path) for file in planned.copies or ())


@mirror.command()
@name_argument("process", names_of(Kind.PROCESS))
@_CLUSTER
@output_option
def snapshots(process: str, cluster: str | None, output: str) -> None:
    """List the snapshots of PROCESS, of source and target, and where older content can be read."""
    from feed_assets.replication.mirrors.reading import list_snapshots

    found = list_snapshots(open_context_for(), process, cluster)
    if output == "json":
        print_json(found)
        return
    rows = [
        (one.shelf.value, one.name, f"{one.files:,}", f"{one.bytes:,}", one.content, url)
        for url, each in found.snapshots.items()
        for one in each
    ]
    print_table(("side", "snapshot", "files", "bytes", "content", "directory"), rows, output, spare=("directory",))
    for url, each in found.snapshots.items():
        if not each:
            say(f"{url}: there is no snapshot", err=True)


def _request(
    name: str | None,
    sources: tuple[str, ...],
    target: str | None,
    cluster: str | None,
    frequency: Frequency | None,
    start: datetime | None,
    end: datetime | None,
    remove: bool,
    snapshots: str | None,
    file: Path | None,
    properties: tuple[str, ...],
) -> "MirrorRequest":
    """Build the requested mirror from the options."""
    from feed_assets.replication.mirrors.templates import MirrorRequest

    return MirrorRequest(
        name=name,
        sources=sources,
        target=target,
        cluster=cluster,
        frequency=frequency.render() if frequency else None,
        start=start,
        end=end,
        removes=remove,
        snapshots=_parse_snapshots(snapshots),
        properties=parse_properties([*read_property_lines(file), *properties]),
    )


@mirror.command(epilog="Example: feed-assets mirror new models --source primary:/models --target backup:/models")
@click.argument("name", required=False)
@click.option(
    "--source",
    "sources",
    multiple=True,
    metavar="PLACE",
    help="The directory to read, cluster:/directory; may be repeated.",
)
@click.option("--target", metavar="PLACE", help="The directory to write, cluster:/directory, or a URL.")
@click.option("--cluster", help="Where it runs; by default the cluster of the target, else of the source.")
@click.option("--frequency", type=FrequencyType(), help="How often; by default days(1).")
@click.option("--start", type=MomentType(), help="The first run; by default today, at midnight.")
@click.option("--end", type=MomentType(), help="The end of the validity: no run from then on.")
@click.option("--remove", is_flag=True, help="Remove files at the target that the source does not have.")
@click.option("--snapshots", metavar="N[,M]", help="Keep the newest N states of the source, and M of the target.")
@click.option(
    "--file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Properties of Falcon's extension."
)
@click.option("--property", "properties", multiple=True, metavar="NAME=VALUE", help="One of them; may be repeated.")
@click.option("--to", "target_file", metavar="FILE", help="The file to write; without it the text is printed.")
@click.option("--force", is_flag=True, help="Replace a file or a definition that differs.")
@output_option
def new(target_file: str | None, force: bool, output: str, **options: Any) -> None:
    """Write a mirror NAME, with a comment for each option, and validate it together with the declared entities.

    Falcon's properties of hdfs-mirroring and hdfs-snapshot-mirroring, such as sourceDir and removeDeletedFiles, are
    translated; options take precedence.
    """
    from feed_assets.definitions.checks.declared_definitions import load_declared
    from feed_assets.replication.mirrors.templates import make_mirror, write_template

    settings = load_settings()
    template = make_mirror(_request(**options), load_declared(settings), open_clock(settings).now(), is_forced=force)
    for note in (*template.notes, *(f"warning: {issue.render()}" for issue in template.warnings)):
        say(note, err=True)
    if target_file is not None:
        shown = write_template(template, target_file, is_forced=force)
        say(f"{shown}: process '{template.process.name}' is written", err=True)
    if output == "json":
        print_json(template)
    elif target_file is None:
        say(template.text, nl=False)


def _parse_snapshots(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > 2 or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise click.BadParameter(f"{text!r} is neither N nor N,M.", param_hint="--snapshots")
    return int(parts[0]), int(parts[-1])
