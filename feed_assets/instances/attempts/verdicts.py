"""Decide whether what an attempt has written is good enough to be published, and tell the figures as facts.

Differs from Airflow's and BDRE's checks of written data: nothing of a failed one is visible.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_DOWN, Decimal
from pathlib import PurePosixPath

from feed_assets.catalog.run_metadata import CONDITION, HOLDS, RULE
from feed_assets.engines.port import Judged
from feed_assets.entities.content.quality import OnFail, Quality
from feed_assets.instances.errors import QualityError
from feed_assets.plan.edges import Key
from feed_assets.plan.rendering import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was found about the rows of an output: the feed and its instance, and the quality that it demands."""

    output: str
    feed_key: Key
    nominal_time: datetime
    quality: Quality
    judged: Judged

    @property
    def rows(self) -> int:
        return self.judged.rows

    @property
    def bad(self) -> int:
        return self.judged.bad

    @property
    def good(self) -> int:
        return self.rows - self.bad

    @property
    def percent(self) -> Decimal:
        """The share of good rows in percent, rounded down to the digits of the threshold: on the same side of it."""
        share = Decimal(self.good * 100) / self.rows if self.rows else Decimal(100)
        digits = max(3, -int(self.quality.needed.as_tuple().exponent))
        return share.quantize(Decimal(1).scaleb(-digits), ROUND_DOWN).normalize()

    @property
    def has_passed(self) -> bool:
        """Whether the rows are good enough, and every condition on all of them holds."""
        return self.quality.has_passed(rows=self.rows, good=self.good) and not self.judged.conditions

    @property
    def is_published(self) -> bool:
        """Whether the instance may be published."""
        return self.has_passed or self.quality.on_fail is OnFail.WARN

    @property
    def summary(self) -> str:
        """The figures in a clause: `970 of 1,000 rows are good (97 %), 95 % must be; broken: warm 20, named 10`. If the
        rows are good enough, what is not comes first: `volume: sum(x) is 0; 5 of 5 rows are good (100 %)`.
        """
        quality = self.quality
        least = f", and at least {counted(quality.min_rows, 'row')}" if quality.min_rows else ""
        rules = ", ".join(f"{name} {number:,}" for name, number in self.judged.broken.items() if number)
        failed = [f"{name}: {reason}" for name, reason in self.judged.conditions.items()]
        are = "is" if self.rows == 1 else "are"
        figures = f"{self.good:,} of {counted(self.rows, 'row')} {are} good ({self.percent:f} %)"
        broken = [f"broken: {rules}"] if rules else []
        if failed and quality.has_passed(rows=self.rows, good=self.good):
            return "; ".join([*failed, figures, *broken])
        return "; ".join([f"{figures}, {quality.needed:f} % must be{least}", *broken, *failed])

    @property
    def facts(self) -> dict[str, str]:
        """The figures as facts, with the names that BDRE gives them."""
        return {
            "records.count": str(self.rows),
            "good.records.count": str(self.good),
            "rejected.records.count": str(self.bad),
            "good.records.percent": f"{self.percent:f}",
            "good.records.threshold": f"{self.quality.needed:f}",
            "did.dq.pass": str(self.has_passed).lower(),
            **{f"{RULE}{name}": str(number) for name, number in self.judged.broken.items()},
            **{
                f"{CONDITION}{name}": self.judged.conditions.get(name, HOLDS)
                for name in (*self.quality.aggregates, *self.quality.compare)
            },
        }


def find_refusal(
    process: str, cluster: str, nominal_time: datetime, verdicts: Mapping[str, Verdict]
) -> QualityError | None:
    """Return why an instance of a process publishes nothing, because of the rows of its outputs; None if it may."""
    refused = [each for each in verdicts.values() if not each.is_published]
    if not refused:
        return None
    return QualityError(
        process=process,
        nominal_time=nominal_time,
        refused={f"{each.output!r} (feed {each.feed_key[0]!r})": each.summary for each in refused},
        quarantines=[each.quality.quarantine for each in verdicts.values() if each.quality.quarantine is not None],
        feed=refused[0].feed_key[0],
        feed_time=refused[0].nominal_time,
        cluster=cluster,
    )


def name_kept(files: Iterable[str], folders: Sequence[str]) -> dict[str, str]:
    """Return the names under which the staged files below some folders are published: without folders, each once.

    >>> name_kept(["judged/a=/part-0", "judged/a=x/part-0", "judged/a=/.part-0.crc"], ["judged"])
    {'judged/a=/part-0': 'part-0', 'judged/a=x/part-0': '1-part-0'}
    """
    names: dict[str, str] = {}
    taken: set[str] = set()
    for file in sorted(files):
        name = PurePosixPath(file).name
        if name.startswith((".", "_")) or not any(file.startswith(f"{folder}/") for folder in folders):
            continue
        names[file] = f"{len(names)}-{name}" if name in taken else name
        taken.add(names[file])
    return names
