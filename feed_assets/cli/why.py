"""`why`: why an instance is as it is."""

import click

from feed_assets.cli.instance_options import SCHEDULABLE, end_with, instance_of, open_scene_for
from feed_assets.cli.options import ListType, output_option
from feed_assets.cli.render import print_json
from feed_assets.entities.common import Kind
from feed_assets.operations.explaining.explanations import explain
from feed_assets.operations.explaining.records import document


@click.command()
@click.argument("name")
@click.argument("instance")
@click.option("--cluster", "clusters", type=ListType(), default=(), help="Only there; by default wherever it is.")
@click.option(
    "--kind",
    type=click.Choice(SCHEDULABLE, case_sensitive=False),
    help="Where a feed and a process have the same name; by default the process is meant.",
)
@output_option
@click.pass_context
def why(ctx: click.Context, name: str, instance: str, clusters: tuple[str, ...], kind: str | None, output: str) -> None:
    """Why an INSTANCE of the process or feed NAME is as it is, up to the root causes.

    For one that waits: which data are missing and where, when somebody looks again, which process should have made them
    and why it has not; which slots, leases or suspensions stand in the way. For one that has run: what began it, and
    what it was made from. For missing data: whether they were evicted.
    """
    scene = open_scene_for()
    of_kind = Kind(kind) if kind else scene.kind_of(name)
    nominal_time = instance_of(scene, of_kind.value, name, instance)
    found = explain(scene, of_kind, name, nominal_time, clusters)
    if output == "json":
        print_json({**document(found.items), "status": found.result.value, "message": found.message})
    else:
        for explanation in found.items:
            click.echo(explanation.render())
            roots = [root.headline for root in explanation.root_causes() if root != explanation]
            if roots:
                click.echo("root causes:")
                for root in roots:
                    click.echo(f"  - {root}")
    end_with(ctx, found.result, found.message)
