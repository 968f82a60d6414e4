"""BLAKE3, where it is installed.

A machine that only trains may have nothing but torch and numpy: there, sizes are checked and hashes are not.
"""

from functools import cache
from importlib.util import find_spec
from typing import Any

from penstock.errors import MissingExtra


@cache
def have_digests() -> bool:
    """Whether hashes can be computed here."""
    return find_spec("blake3") is not None


def digest(data: Any) -> bytes:
    """The 32 bytes of the hash of a buffer."""
    try:
        from blake3 import blake3
    except ImportError as error:
        raise MissingExtra("hashing shards needs BLAKE3: pip install blake3") from error
    result: bytes = blake3(data).digest()
    return result
