"""Select the files of an instance to copy: by a partition sub-path with globs, and include and exclude patterns."""

import re
from dataclasses import dataclass
from functools import cached_property

from feed_assets.entities.copies.globs import translate_glob

_WILD = re.compile(r"[*?\[{\\]")


@dataclass(frozen=True)
class CopyFilter:
    """A filter on paths relative to the instance.

    `sub_path` names directories or files: every match is copied, with everything below it. `base` is its deepest folder
    without globs; the availability flag of this part is written there. In patterns, `*` and `?` match within one name,
    `**` matches across names, and `{a,b}` and `[a-z]` are alternatives.

    >>> part = CopyFilter(sub_path="region=eu/site=*")
    >>> part.base, part.matches("region=eu/site=1/part-0"), part.matches("region=eu/part-0")
    ('region=eu', True, False)
    >>> CopyFilter(include=("**.csv",), exclude=("tmp/**",)).matches("a/b.csv")
    True
    """

    sub_path: str = ""
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    @cached_property
    def base(self) -> str:
        """The folder of the copied part; "" for the instance itself."""
        literal: list[str] = []
        for part in self._parts:
            if _WILD.search(part):
                break
            literal.append(part)
        return "/".join(literal)

    @cached_property
    def is_everything(self) -> bool:
        """Whether every file matches."""
        return not (self._parts or self.include or self.exclude)

    @cached_property
    def name(self) -> str:
        """The name of the copied part; equal filters have equal names."""
        return "\n".join(["/".join(self._parts), *sorted(self.include), "\0", *sorted(self.exclude)]).strip("\n\0")

    def matches(self, file: str) -> bool:
        """Return whether a file is copied."""
        if self._part is not None and self._part.match(file) is None:
            return False
        if self._included and not any(pattern.fullmatch(file) for pattern in self._included):
            return False
        return not any(pattern.fullmatch(file) for pattern in self._excluded)

    @cached_property
    def _parts(self) -> list[str]:
        return [part for part in self.sub_path.split("/") if part]

    @cached_property
    def _part(self) -> re.Pattern[str] | None:
        return re.compile(f"(?:{translate_glob('/'.join(self._parts))})(?:/|$)") if self._parts else None

    @cached_property
    def _included(self) -> list[re.Pattern[str]]:
        return [re.compile(translate_glob(each)) for each in self.include]

    @cached_property
    def _excluded(self) -> list[re.Pattern[str]]:
        return [re.compile(translate_glob(each)) for each in self.exclude]
