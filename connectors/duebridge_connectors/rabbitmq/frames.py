"""The layout of AMQP frames, for what is read without pika's decoder.

That raises on a timestamp beyond the year 9999 and on deeply nested arrays, which ends the
connection; it decodes a float as an int and forgets the width of ints.
"""

from struct import Struct
from typing import Final

FRAME: Final = Struct(">BHL").unpack_from  # type, channel, size of the payload
HEAD_BYTES: Final = 7
FRAME_BYTES: Final = 8  # with its end
BODY_SIZE: Final = Struct(">Q").unpack_from
BODY_SIZE_AT: Final = 4  # in a content header's payload
