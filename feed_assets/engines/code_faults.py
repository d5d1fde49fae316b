"""What is wrong with the code of a workflow, found before it runs."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeFault:
    """A fault: its reason and the next step, and the line of the file if it has one.

    It `is_certain` unless code of another machine, or another reader of the code, may know better.
    """

    reason: str
    next_step: str
    file: Path | None = None
    line: int | None = None
    is_certain: bool = True
