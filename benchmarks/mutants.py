"""`python -m benchmarks.mutants`: mutation tests of the code that decides and performs deletions. The mutated modules,
and the tests that must fail, are in pyproject.toml under `tool.mutmut`. Survivors are printed on stderr; the exit code
is 1 if a module is below the target. A mutant is also killed if a test runs for ever.
"""

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter

from rich.console import Console
from rich.table import Table

from benchmarks.probes import ROOT, say

TARGET = 95.0
_NOTICED = frozenset({"killed", "timeout"})
# "    feed_assets.storage.local.walk.x_walk_below__mutmut_3: survived"
_RESULT = re.compile(r"^\s+(?P<name>(?P<module>feed_assets[\w.]*)\.x\S+): (?P<status>.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One mutant, and its outcome."""

    name: str
    module: str
    status: str


def main(arguments: Sequence[str] | None = None) -> int:
    """Make all mutants afresh, run the tests on each, and print a table of the modules."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description="Mutation testing of deletion.")
    parser.add_argument("--children", type=int, default=2, help="how many are tried at the same time (%(default)s)")
    options = parser.parse_args(arguments)
    shutil.rmtree(ROOT / "mutants", ignore_errors=True)
    began = perf_counter()
    done = subprocess.run([*_MUTMUT, "run", "--max-children", str(options.children)], cwd=ROOT, check=False)
    if done.returncode != 0:
        say("[red]The run has broken off: does every test pass without a change?[/red]")
        return 2
    mutants = list(parse_results(_read("results", "--all", "true")))
    for mutant in mutants:
        if mutant.status != "killed":
            say(f"{mutant.status}: {mutant.name}\n{_changed_lines(_read('show', mutant.name))}")
    return print_scores(mutants, perf_counter() - began)


def parse_results(listing: str) -> Iterator[Mutant]:
    """Yield the mutants listed by `mutmut results --all true`."""
    for found in _RESULT.finditer(listing):
        yield Mutant(name=found["name"], module=found["module"], status=found["status"])


def print_scores(mutants: Sequence[Mutant], seconds: float) -> int:
    """Print killed, total and score of each module; return 1 if one is below the target, or there are no mutants."""
    table = Table(title=f"Mutants noticed, of those made ({seconds / 60:.1f} min)")
    for heading in ("module", "noticed", "made", "score"):
        table.add_column(heading, justify="left" if heading == "module" else "right")
    scores = []
    for module in [*sorted({mutant.module for mutant in mutants}), "all"]:
        of_module = [mutant for mutant in mutants if module in (mutant.module, "all")]
        noticed = sum(mutant.status in _NOTICED for mutant in of_module)
        scores.append(100 * noticed / max(len(of_module), 1))
        table.add_row(module, str(noticed), str(len(of_module)), f"{scores[-1]:.1f} %")
    Console().print(table)
    return 1 if min(scores) < TARGET else 0


_MUTMUT = (sys.executable, "-m", "mutmut")


def _read(*arguments: str) -> str:
    return subprocess.run([*_MUTMUT, *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def _changed_lines(diff: str) -> str:
    lines = [line for line in diff.splitlines() if re.match(r"[-+](?![-+]{2} )", line)]
    return "\n".join(f"  {line}" for line in lines).replace("[", r"\[")


if __name__ == "__main__":
    sys.exit(main())
