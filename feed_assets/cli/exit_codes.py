"""The exit codes of all commands; docs/commands.md explains them."""

FAILED = 1
WRONG_USAGE = 2
OUR_MISTAKE = 3
DIFFERENT = 4
