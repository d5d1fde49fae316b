"""Send letters to commands: one process each, with the JSON document on its standard input."""

import json
import os
import shlex
import subprocess

from feed_assets.delivery.port import DELIVERED, SECONDS, Letter, Outcome, Sender, Verdict
from feed_assets.masking import mask

KEY_VARIABLE = "FEED_ASSETS_KEY"

_MOST_SHOWN = 200


class CommandSender(Sender):
    """Runs a command without a shell. It has taken the letter if it ends with 0."""

    def __init__(self, address: str) -> None:
        self._words = shlex.split(address.removeprefix("command:"))

    def send(self, letter: Letter) -> Outcome:
        try:
            done = subprocess.run(
                self._words,
                input=json.dumps(letter.document).encode(),
                capture_output=True,
                timeout=SECONDS,
                env={**os.environ, KEY_VARIABLE: letter.key},
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Outcome(verdict=Verdict.FAILED, error=f"it did not end within {SECONDS:g} s")
        except OSError as exc:
            return Outcome(verdict=Verdict.AWAY, error=mask(f"{type(exc).__name__}: {exc}"))
        if done.returncode == 0:
            return DELIVERED
        said = done.stderr[-_MOST_SHOWN:].decode("utf-8", "replace").strip()
        return Outcome(verdict=Verdict.FAILED, error=mask(f"it ended with {done.returncode}: {said}".rstrip(": ")))
