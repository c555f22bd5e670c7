"""What of the configuration may hold a secret, and how it is shown all the same.

A secret that came by a reference stays that reference (`${VAR}`), its default masked; any other is
`***`. Where it is not certain what a text means, too much is masked rather than too little.
"""

import re
from urllib.parse import unquote

from bridge.references import is_reference, take_out, with_default

MASK = "***"
_SECRET_NAME = re.compile(
    r"pass|pwd|secret|token|credential|jaas|auth|\.pem$|ssl_options"
    r"|key(?!.*(location|file|path))|sasl.*config",
    re.IGNORECASE,
)
_SECRET_INSIDE = re.compile(r"(pass|pwd|secret|token|credential)\w*['\"]?\s*[=:]", re.IGNORECASE)
# Only where a parameter begins: else a long text without any takes the square of its length.
_PARAMETER = re.compile(r"(?<![^?&;])(?P<name>[^?&;=]*+)=(?P<value>[^&;]*)")
_FIRST, _LAST = 0xE000, 0xF8FF  # private characters, each in the place of a reference


def masked_secret(value: object) -> str:
    """Return what is shown of a value that is secret as a whole."""
    if isinstance(value, str) and is_reference(value):
        return with_default(value, lambda _: MASK)
    return MASK


def masked_option(name: str, value: object) -> object:
    """Return what is shown of an option of a broker's client."""
    if _SECRET_NAME.search(name):
        return masked_secret(value)
    if not isinstance(value, str):
        return value
    return MASK if _SECRET_INSIDE.search(value) else masked_url(value)


def masked_url(text: str) -> str:
    """Return a URL without its password and without secret parameters."""
    references: list[str] = []

    def stand_in(reference: str) -> str:
        references.append(reference)
        return chr(_FIRST + len(references) - 1)

    is_ambiguous = any(_FIRST <= ord(each) <= _LAST for each in text)
    bare = take_out(text, stand_in)
    if is_ambiguous or len(references) > _LAST - _FIRST:
        return MASK
    return _put_back(_masked(bare, references), references)


def _masked(bare: str, references: list[str]) -> str:
    """Return a URL without secrets, its references still characters, save those in a secret."""
    before, at, after = bare.rpartition("@")
    scheme, slashes, userinfo = before.partition("://")
    if not slashes:
        scheme, userinfo = "", before
    if "?" in userinfo:  # is the @ in a password, or in a parameter?
        return f"{scheme}{slashes}{MASK}"
    user, colon, password = userinfo.partition(":")
    if not colon:  # of redis://secret@host nobody knows what it was meant to be
        user, password = "", userinfo

    def secret(piece: str) -> str:
        return masked_secret(references[ord(piece) - _FIRST] if _stands_in(piece) else piece)

    def parameter(match: re.Match[str]) -> str:
        is_secret = _SECRET_NAME.search(unquote(match["name"]))
        return f"{match['name']}={secret(match['value'])}" if is_secret else match[0]

    shown = f"{scheme}{slashes}{user}{colon}{secret(password)}@" if at else ""
    return shown + _PARAMETER.sub(parameter, after)


def _put_back(shown: str, references: list[str]) -> str:
    return "".join(
        with_default(references[ord(each) - _FIRST], masked_url) if _stands_in(each) else each
        for each in shown
    )


def _stands_in(piece: str) -> bool:
    return len(piece) == 1 and _FIRST <= ord(piece) <= _LAST
