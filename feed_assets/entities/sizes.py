"""Sizes: numbers of bytes as people write them, `500MB`, `10GiB`."""

import re
from dataclasses import dataclass

_SYNTAX = re.compile(r"([1-9][0-9]*) ?([KMGTP]i?)?B?", re.ASCII)  # 10GiB, 500 MB, 4096
_PREFIXES = "KMGTP"
_UNITS = (
    ("B", 1),
    *((f"{prefix}iB", 1024**power) for power, prefix in enumerate(_PREFIXES, 1)),
    *((f"{prefix}B", 1000**power) for power, prefix in enumerate(_PREFIXES, 1)),
)
_LONGEST_COUNT = 18


@dataclass(frozen=True, slots=True, order=True)
class Size:
    """A number of bytes, at least 1."""

    bytes: int

    def __str__(self) -> str:
        return self.render()

    def render(self) -> str:
        """Return the shortest exact text.

        >>> Size(10 * 1024**3).render(), Size(1500).render(), Size(2_000_000).render()
        ('10GiB', '1500B', '2MB')
        """
        exact = [(self.bytes // unit, name) for name, unit in _UNITS if self.bytes % unit == 0]
        count, name = min(exact, key=lambda each: each[0])
        return f"{count}{name}"


def parse_size(text: str) -> Size | None:
    """Parse a whole number of `B`, `KB` (1000), `KiB` (1024) and so on to `PB`; None if the text is not a size.

    >>> parse_size("10GiB"), parse_size("4096"), parse_size("1.5GB")
    (Size(bytes=10737418240), Size(bytes=4096), None)
    """
    found = _SYNTAX.fullmatch(text.strip())
    if found is None or len(found[1]) > _LONGEST_COUNT:
        return None
    return Size(int(found[1]) * dict(_UNITS)[f"{found[2] or ''}B"])
