"""(m) Files that are taken from an inbox on S3: how many requests each of them makes."""

from collections.abc import Iterator
from pathlib import Path

from benchmarks.probes import run_probe, say
from benchmarks.report import Figure, Part, Scale

AT_MOST = 6


def measure_inboxes(folder: Path, scale: Scale) -> Iterator[Figure]:
    """Count the requests of one take."""
    count = scale.choose(1_000, 200, 20)
    say(f"inboxes: {count:,} files on S3")
    requests = run_probe("inboxes_probe", folder, count)["requests"] / count
    yield Figure(
        part=Part.INBOXES,
        name=f"requests a file; {count:,} files of an inbox on S3, taken into one instance there",
        ours=requests,
        unit="",
        target=f"at most {AT_MOST}",
        is_met=requests <= AT_MOST,
    )
