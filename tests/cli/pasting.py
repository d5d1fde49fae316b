"""Commands of messages, pasted where they were read."""

from dataclasses import dataclass, field

from click.testing import Result

from tests.cli.project import run
from tests.commands import commands_in, words_of


@dataclass(slots=True)
class Pasting:
    """Runs commands that a text offers, in the folder and with the environment of the test; `done` has what was run."""

    done: list[str] = field(default_factory=list)

    def __call__(self, text: str, verb: str, *, code: int = 0) -> Result:
        """Run the first command with a verb that a text offers, confirm what it asks, and return what it says."""
        offered = [each for each in commands_in(text) if f"{each} ".startswith(f"feed-assets {verb} ")]
        assert offered, f"no `feed-assets {verb}` in: {text}"
        self.done.append(offered[0])
        result = run(*words_of(offered[0]), stdin="y\n")
        assert result.exit_code == code, f"$ {offered[0]}\n{result.output}"
        return result
