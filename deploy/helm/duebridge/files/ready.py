"""Ask each address, print what it says, and end with 1 if one is not ready: `helm test` runs it."""

import sys
from urllib.error import HTTPError
from urllib.request import urlopen


def is_ready(url: str) -> bool:
    """Print and return whether an address answers with 200."""
    try:
        with urlopen(url, timeout=10) as answer:  # noqa: S310 - of the chart alone
            status, body = answer.status, answer.read()
    except HTTPError as error:
        status, body = error.code, error.read()
    except OSError as error:
        status, body = 0, str(error).encode()
    print(url, status, body.decode(errors="replace").strip())  # noqa: T201 - for --logs
    return bool(status == 200)


READY = list(map(is_ready, sys.argv[1:]))  # all of them, also after one that is not
sys.exit(not all(READY))
