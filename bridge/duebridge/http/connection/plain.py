"""HTTP/1.1 and nothing else: offers of other protocols, and trailers, are read and not followed."""

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

CONNECT = b"CONNECT"
OFFER = b"upgrade"


class PlainProtocol(HttpToolsProtocol):
    """uvicorn's protocol, for which a request with `Upgrade` is one of HTTP/1.1 like any other.

    A server may ignore that offer (RFC 9110, 7.8), which Java's client makes with each request.
    But httptools takes whatever follows such a head for the other protocol's, a body too, and has
    no setting for it. So its parser is replaced there, and the new one gets the head once more,
    without the offer. A whole head is needed for that and no more: packets may end anywhere.

    Fields of a trailer are kept apart from the headers, which the application may not have read.
    """

    def data_received(self, data: bytes) -> None:
        """Parse bytes; what is no HTTP/1.1 is refused with `send_400_response`."""
        rest = memoryview(data)
        try:
            while rest:
                rest = self._after_offer(rest)
        except httptools.HttpParserError:
            self.send_400_response("")

    def on_headers_complete(self) -> None:
        """Begin a request, unless its head will come again, without its offer."""
        if not self.has_offer():
            super().on_headers_complete()
            self.headers = []  # another list than the application's

    def on_message_complete(self) -> None:
        """End a request."""
        if not self.has_offer():
            super().on_message_complete()

    def has_offer(self) -> bool:
        """Whether the head in hand offers another protocol, so that the parser stops behind it."""
        return self.parser.should_upgrade() and self.parser.get_method() != CONNECT

    def _after_offer(self, data: memoryview) -> memoryview:
        """Parse up to an offer, and its head without it; return what follows."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as stopped:
            if not self.has_offer():
                raise httptools.HttpParserError("a tunnel") from None
            head, self.parser = self._plain_head(), self._new_parser()
            self.parser.feed_data(head)
            return data[stopped.args[0] :]
        return memoryview(b"")

    def _plain_head(self) -> bytes:
        """Return the head in hand without its offer."""
        version = self.parser.get_http_version().encode()
        fields = [b"%s: %s\r\n" % field for field in self.headers if field[0] != OFFER]
        line = b"%s %s HTTP/%s\r\n" % (self.parser.get_method(), self.url, version)
        return b"".join((line, *fields, b"\r\n"))

    def _new_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        # As uvicorn's: what follows a request with `Connection: close` is not looked at.
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser
