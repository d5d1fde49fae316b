"""`simulate`: a preview of a period: the runs, the late instances and those that never run. Nothing is run."""

import random
from collections import Counter
from datetime import datetime
from pathlib import Path

import click

from feed_assets.cli.groups import Verb
from feed_assets.cli.options import FREQUENCY, MomentType, text_output_option
from feed_assets.cli.render import print_json, say
from feed_assets.settings import load_settings
from feed_assets.timing.sequence import Frequency


@click.command(
    cls=Verb, epilog="Example: feed-assets simulate --from 2013-11-01T00:00Z --to 2013-11-08T00:00Z --late 0.2"
)
@click.option("--from", "start", type=MomentType(), required=True, help="When the simulation begins.")
@click.option("--to", "end", type=MomentType(), required=True, help="When it ends.")
@click.option(
    "--arrivals",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A CSV file with the columns feed, cluster, instance, at and, to distinguish writes, content. "
    "By default arrivals are random.",
)
@click.option(
    "--events",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file with lines of JSON, or of CSV if it is named so: what comes and is told, and when a process is "
    "suspended and resumed. Nothing arrives at random then.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="The seed of all random decisions.")
@click.option(
    "--every", type=FREQUENCY, default="minutes(15)", show_default=True, help="The interval between sensor ticks."
)
@click.option("--run-time", type=FREQUENCY, default="minutes(10)", show_default=True, help="How long a run takes.")
@click.option("--late", type=click.FloatRange(0, 1), default=0.05, show_default=True, help="Share of late arrivals.")
@click.option(
    "--missing", type=click.FloatRange(0, 1), default=0.01, show_default=True, help="Share that never arrives."
)
@click.option("--again", type=click.FloatRange(0, 1), default=0.02, show_default=True, help="Share that changes later.")
@click.option(
    "--faults",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    help="Share of runs whose worker dies, of lost requests, and of ticks after which the sensors pause or the clock "
    "is set wrong.",
)
@text_output_option
def simulate(
    start: datetime,
    end: datetime,
    arrivals: Path | None,
    events: Path | None,
    seed: int,
    every: Frequency,
    run_time: Frequency,
    late: float,
    missing: float,
    again: float,
    faults: float,
    output: str,
) -> None:
    """Simulate the entities of the settings over a period, in seconds and without touching anything real.

    The decisions are those of the sensors. Storage and record are temporary, and every workflow is replaced by one that
    only takes time. The same seed gives the same log.
    """
    from feed_assets.definitions.store import record_location
    from feed_assets.plan.location import load_location
    from feed_assets.simulate.parts import (
        ArrivalPattern,
        ClockSteps,
        group_lines,
        iter_arrivals,
        load_arrivals,
        load_events,
        render_group,
    )
    from feed_assets.simulate.simulation import Faults, SimulationSettings
    from feed_assets.simulate.simulation import simulate as run_simulation

    if end <= start:
        raise click.BadParameter("it is not after --from.", param_hint="--to")
    settings = load_settings()
    location = load_location(settings.model_copy(update={"strict": True}))
    pattern = ArrivalPattern(late=late, missing=missing, again=again)
    told = load_events(events, location.plan) if events else []
    if arrivals:
        coming = load_arrivals(arrivals, location.plan)
    else:
        coming = [] if events else sorted(iter_arrivals(location.plan, start, end, pattern, random.Random(seed)))
    simulation_settings = SimulationSettings(
        start=start,
        end=end,
        root=settings.root,
        seed=seed,
        every=every.as_duration(),
        run_time=run_time.as_duration(),
        faults=Faults(death=faults, loss=faults, stop=faults, clock=ClockSteps(share=faults)),
    )
    lines = run_simulation(
        location.plan,
        lambda database: record_location(database, settings, location, start),
        coming,
        simulation_settings,
        told,
    )
    if output == "json":
        print_json(seed=seed, log=list(lines))
        return
    counted: Counter[str] = Counter()
    for group in group_lines(lines):
        counted[group[0].what.value] += len(group)
        say(render_group(group))
    say(", ".join(f"{count} {what}" for what, count in sorted(counted.items())), err=True)
