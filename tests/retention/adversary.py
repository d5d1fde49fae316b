"""Random trees in which expired instances stand among everything that looks like them and is none."""

import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from feed_assets.entities.feed import Feed
from tests.retention.harness import kept_feed

NOW = datetime(2015, 6, 15, 12, tzinfo=UTC)
FORMS = (
    ("days(1)", "/{name}/${{YEAR}}-${{MONTH}}-${{DAY}}"),
    ("days(1)", "/{name}/deep/${{YEAR}}/${{MONTH}}/${{DAY}}"),
    ("days(1)", "/{name}/dt=${{YEAR}}${{MONTH}}${{DAY}}/part"),
    ("hours(1)", "/{name}/${{YEAR}}/${{MONTH}}-${{DAY}}/${{HOUR}}"),
    ("hours(6)", "/{name}/${{YEAR}}-${{MONTH}}-${{DAY}}-${{HOUR}}/out"),
    ("minutes(30)", "/{name}/${{YEAR}}${{MONTH}}${{DAY}}/${{HOUR}}${{MINUTE}}"),
    ("months(1)", "/{name}/${{YEAR}}/${{MONTH}}"),
)
FIXED = ("UTC", "Asia/Kolkata")
ZONES = (*FIXED, "America/New_York", "Australia/Lord_Howe")
_ARABIC = str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩")
_WIDE = str.maketrans("0123456789", "０１２３４５６７８９")


@dataclass(slots=True, kw_only=True)
class Scenario:
    """A feed, its tree below `root`, and what of it is to go: the `expired` paths, relative to the root."""

    feed: Feed
    base: str
    root: Path
    outside: Path
    expired: set[str] = field(default_factory=set)
    young: set[str] = field(default_factory=set)


def make(chance: random.Random, name: str, root: Path, outside: Path) -> Scenario:
    """Make a random tree."""
    frequency, form = chance.choice(FORMS)
    zones = FIXED if "HOUR" in form else ZONES  # local time that repeats gives two instances one path
    template, zone = form.format(name=name), chance.choice(zones)
    limit = timedelta(days=chance.choice((1, 2, 7, 40)))
    feed = kept_feed(
        name,
        frequency,
        limit=f"days({limit.days})",
        locations={"data": template},
        start=datetime(2014, 1, 1, tzinfo=ZoneInfo(zone)).astimezone(UTC),
        timezone=zone,
        sweep_limits={"share": 1.0, "instances": 1_000_000},
    )
    before, _, _ = template.partition("${")
    scenario = Scenario(feed=feed, base=before.rpartition("/")[0].strip("/"), root=root, outside=outside)
    for moment in _moments(chance, frequency, limit):
        wall = moment.astimezone(ZoneInfo(zone))
        path = _render(template, wall)
        if (root / path).exists():
            continue
        _fill(chance, root / path, outside)
        times = scenario.expired if _nominal(template, wall) < NOW - limit else scenario.young
        times.add(path)
    for path in sorted(scenario.expired | scenario.young):
        for other in _look_alikes(chance, path):
            _put_beside(chance, root, root / other, outside)
    return scenario


def make_neighbour(chance: random.Random, scenario: Scenario, links: Sequence[Path]) -> tuple[Feed, bool]:
    """Make a feed near another one, its place written in some way, and tell whether data of one are among the other's.

    `links` lead to the root of the scenario.
    """
    name, locations = scenario.feed.name, scenario.feed.locations
    assert locations is not None
    template, frequency = str(locations.data), scenario.feed.frequency.render()
    choices = [
        (template, frequency, True),
        (f"{template}/inner", frequency, True),
        (template.replace(name, f"{name}-more", 1), frequency, False),
        (template.replace("${YEAR}", "beside/${YEAR}", 1), frequency, False),
    ]
    if template.endswith("/${MONTH}/${DAY}"):
        choices.append((template.removesuffix("/${DAY}"), "months(1)", True))
    place, frequency, is_shared = chance.choice(choices)
    before = chance.choice(["", *(f"file://{host}{link}" for link in links for host in ("", "localhost"))])
    zone = scenario.feed.timezone
    start = datetime(2014, 1, 1, tzinfo=ZoneInfo(zone)).astimezone(UTC)
    neighbour = kept_feed(
        f"{name}-neighbour",
        frequency,
        limit="months(100)",
        locations={"data": before + place},
        start=start,
        timezone=zone,
    )
    return neighbour, is_shared


def _moments(chance: random.Random, frequency: str, limit: timedelta) -> Iterator[datetime]:
    """Moments around the limit, and far on both sides of it."""
    step = {"d": timedelta(days=1), "h": timedelta(hours=1), "m": timedelta(minutes=30)}[frequency[0]]
    if frequency.startswith("hours(6)"):
        step = timedelta(hours=6)
    if frequency.startswith("months"):
        step = timedelta(days=31)
    around = NOW - limit
    for _ in range(chance.randint(3, 9)):
        yield (
            around
            + chance.choice((-1, 1)) * step * chance.choice((0, 1, 1, 2, 3, 10))
            - timedelta(days=chance.choice((0, 0, 40, 300)))
        )


def _render(template: str, wall: datetime) -> str:
    values = {"YEAR": wall.year, "MONTH": wall.month, "DAY": wall.day, "HOUR": wall.hour, "MINUTE": wall.minute}
    path = template
    for variable, value in values.items():
        path = path.replace(f"${{{variable}}}", f"{value:0{4 if variable == 'YEAR' else 2}d}")
    return path.strip("/")


def _nominal(template: str, wall: datetime) -> datetime:
    """The start of the period that a path names; of an hour that occurs twice, the second time."""
    cut = wall.replace(second=0, microsecond=0, tzinfo=None)
    for variable, first in (("MINUTE", 0), ("HOUR", 0), ("DAY", 1)):
        if f"${{{variable}}}" not in template:
            cut = cut.replace(**{variable.lower(): first})  # type: ignore[arg-type]
    return max(cut.replace(tzinfo=wall.tzinfo, fold=fold).astimezone(UTC) for fold in (0, 1))


def _look_alikes(chance: random.Random, path: str) -> Iterator[str]:
    """Paths like one of an instance, which are none."""
    parent, _, name = path.rpartition("/")
    digits = [part for part in path.split("/") if any(letter.isdigit() for letter in part)]
    changed = chance.choice(digits)
    forms = [
        f"{changed}_backup",
        f"{changed} ",
        f" {changed}",
        f"{changed}\n",
        f"+{changed[1:]}",
        f"-{changed[1:]}",
        changed.translate(_ARABIC),
        changed.translate(_WIDE),
        f"{changed}.tmp",
        f".{changed}",
        f"_{changed}",
        f"{changed}x" * (250 // (len(changed) + 1)),
        f"..{changed}",
        f"{changed}..",
        changed.replace("0", "O", 1),
        changed.lstrip("0") or "0",
        f"{changed}0",
        f"{changed}\t",
        "%" + changed,
        "*",
        "?" * len(changed),
        "a" * 255,
    ]
    impossible = {"2015-06-31", "2015-02-29", "2015-13-01", "2015-00-10", "20150631", "0000-01-01"}
    for form in chance.sample(forms, 5):
        other = path.replace(changed, form, 1)
        if other != path and form != changed:
            yield other
    yield f"{parent}/{chance.choice(sorted(impossible))}{'-00' if name.count('-') == 3 else ''}"


def _fill(chance: random.Random, folder: Path, outside: Path) -> None:
    """Put something into an instance: files, a flag, hidden files, links of all kinds, folders; sometimes nothing."""
    folder.mkdir(parents=True)
    for number in range(chance.randint(0, 2)):
        (folder / f"part-{number}").write_bytes(chance.randbytes(chance.randint(0, 40)))
    what = chance.randint(0, 7)
    if what == 1:
        (folder / "_SUCCESS").touch()
    elif what == 2:
        (folder / "link").symlink_to(outside)
    elif what == 3:
        os.link(outside / "treasure", folder / "hard")
    elif what == 4:
        (folder / "sub").mkdir(mode=0o711)
        (folder / "sub/.hidden").write_text("h")
    elif what == 5:
        (folder / "loop").symlink_to(folder)
    elif what == 6:
        folder.chmod(0o750)


def _put_beside(chance: random.Random, root: Path, path: Path, outside: Path) -> None:
    """Put something that is no instance at a path, if nothing is there and a folder can be made."""
    if os.path.lexists(path) or root not in path.parents:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        match chance.randint(0, 3):
            case 0:
                path.symlink_to(outside)
            case 1:
                path.write_text("not mine")
            case _:
                path.mkdir()
                (path / "file").write_text("not mine")
    except OSError:
        return
