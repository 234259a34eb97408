"""`python -m closedform` is the command `closedform`."""

from closedform.cli import main

main()
