"""Lets `python -m duebridge` run the command line."""

import sys

from duebridge.cli import main

if __name__ == "__main__":
    sys.exit(main())
