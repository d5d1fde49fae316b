"""Reruns of random instances in random graphs of processes: what runs is what the plan has said, and nothing is stale.

A failure names its seed.
"""

import hashlib
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from feed_assets.engines.port import Work
from feed_assets.entities.bundle import AnyEntity
from feed_assets.entities.errors import DefinitionsError
from feed_assets.instances.late.store import LateChecks
from feed_assets.log.agenda import AgendaKind
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import FeedKey, ProcessInstanceStatus
from tests.drills import sized
from tests.instances.harness import START, LifecycleHarness, feed, hours, process, read_inputs
from tests.instances.lists.test_reruns import planned, play, rerun, rewrite

COUNT = 12
BEFORE = [START - timedelta(hours=number) for number in range(30, 0, -1)]
NOON = START + timedelta(hours=COUNT + 1)
LATER = NOON + timedelta(hours=1)


def graph(source: random.Random) -> list[AnyEntity]:
    """Three to seven processes, each of which reads some of what was made before, or clicks."""
    made: list[AnyEntity] = [feed("clicks", start=BEFORE[0])]
    names = ["clicks"]
    for number in range(source.randint(3, 7)):
        frequency = f"hours({source.choice([1, 1, 1, 2, 3])})"
        read = source.sample(names, k=min(len(names), source.randint(1, 3)))
        if number and read == ["clicks"]:
            read = [names[-1]]
        windows = {name: f"now({-source.randint(0, 2)},0) now(0,0)" for name in read}
        if source.random() < 0.2:
            windows[read[0]] = "latest(0)"
        follows = {"trigger": {"on_update": source.choice(["rerun", "hold"])}} if source.random() < 0.2 else {}
        more: dict[str, Any] = {"parallel": source.randint(1, 4), "order": source.choice(["FIFO", "LIFO"]), **follows}
        end, optional = START + timedelta(hours=COUNT), [name for name in read if source.random() < 0.2]
        made.append(feed(f"f{number}", frequency, start=BEFORE[0]))
        made.append(
            process(
                f"p{number}",
                frequency,
                inputs=windows,
                outputs={f"f{number}": "now(0,0)"},
                optional=optional,
                end=end,
                **more,
            )
        )
        names.append(f"f{number}")
    return made


def lifecycles(source: random.Random, folder: Path) -> Iterator[LifecycleHarness]:
    """Graphs that can be declared."""
    for number in range(100):
        root = folder / str(number)
        root.mkdir()
        try:
            yield LifecycleHarness.of(root, *graph(source))
        except DefinitionsError:
            continue


@pytest.mark.sample
@pytest.mark.parametrize("seed", sized((7,), range(100)))
def test_what_runs_is_what_the_plan_has_said_and_nothing_is_stale(tmp_path: Path, seed: int) -> None:
    source = random.Random(seed)
    lifecycle = next(lifecycles(source, tmp_path))
    records = lifecycle.plan.processes.values()
    constant = {record.outputs[0].name for record in records if source.random() < 0.2}

    def job(work: Work) -> Mapping[str, str]:
        text = hashlib.sha256(repr(sorted(read_inputs(work).items())).encode()).hexdigest()
        return {target.name: "same" if target.name in constant else text for target in work.outputs}

    lifecycle.job = job
    lifecycle.land("clicks", *BEFORE, *hours(COUNT), text="a")
    play(lifecycle, NOON, 14)
    name = f"p{source.randint(0, 1)}"
    times = lifecycle.times(name, ProcessInstanceStatus.SUCCEEDED)
    first = source.randrange(len(times))
    chosen, even = times[first : source.randint(first, len(times)) + 1], source.random() < 0.4
    rewrite(lifecycle, *(time for time in hours(COUNT) if source.random() < 0.7))
    plan = rerun(lifecycle, *chosen, process=name, even_unchanged=even, dry_run=True, as_of=NOON)
    rerun(lifecycle, *chosen, process=name, even_unchanged=even, digest=plan.digest, as_of=NOON)
    ran = Counter(play(lifecycle, LATER, 60))
    follows = any(record.follows_updates for record in records)
    assert follows or ran <= planned(plan)
    assert follows or not even or ran == planned(plan)
    with lifecycle.database.read() as connection:
        assert LateChecks(connection).processes_of(AgendaKind.RERUN) == set()
        rows = ProcessInstances(connection).get_many([row.key for row in plan.rows] + [*plan.hanging])
    there = {key: row for each in range(7) for key, row in published(lifecycle, f"f{each}").items()}
    for row in rows.values():
        assert row.status is ProcessInstanceStatus.SUCCEEDED
        read = {
            FeedKey(each.feed, "primary", time): digest
            for each in row.inputs
            if each.feed != "clicks"
            for time, digest in zip(each.nominal_times, each.digests, strict=True)
        }
        assert read == {key: there[key] for key in read}


def published(lifecycle: LifecycleHarness, name: str) -> dict[FeedKey, str | None]:
    return {row.key: row.manifest_digest for row in lifecycle.feed_instances(name).values()}
