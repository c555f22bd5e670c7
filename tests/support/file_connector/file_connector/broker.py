"""The broker type file: its settings, its targets, its limits."""

from pathlib import Path
from typing import Literal

from duebridge.errors import ConfigError, EnvelopeError
from duebridge.ports.broker import BrokerType
from duebridge.ports.checks import FindingSubject, failure, ok
from duebridge.ports.settings import AtUse, BrokerSettings, TargetSettings, Text


class FileSettings(BrokerSettings):
    """A directory."""

    type: Literal["file"]
    directory: AtUse[Text]
    """An absolute path."""


class FileTarget(TargetSettings):
    """A file in the directory."""

    path: Text
    """Its name."""

    def faults(self):
        """Yield what is wrong with a target that is no glob."""
        if Path(self.path).name != self.path:
            yield ("path",), f"expected the name of a file; got {self.path!r}"


class File(BrokerType):
    """What duebridge knows of files."""

    settings = FileSettings
    target = FileTarget
    event_prefix = "ce-"

    def check_envelope(self, envelope, headers, settings):
        """Refuse what a line cannot carry."""
        if envelope.properties != type(envelope.properties)():
            raise EnvelopeError("properties: expected none on a file route")

    def check_settings(self, settings, publish_deadline_s):
        """Refuse a relative directory."""
        if not Path(settings["directory"]).is_absolute():
            raise ConfigError(f"directory: expected / first; got {settings['directory']!r}")

    def open_publisher(self, settings, publish_deadline_s):
        """Return a publisher; here a client would be imported."""
        from file_connector.publisher import FilePublisher

        self.check_settings(settings, publish_deadline_s)
        return FilePublisher(Path(settings["directory"]))

    def examine(self, place, settings, destinations, deadline_s):
        """Return a finding for each file."""
        directory = Path(settings["directory"])
        return [
            ok(FindingSubject.ROUTE, to.place, "exists")
            if (directory / to.target.path).is_file()
            else failure(FindingSubject.BROKER, to.place, f"no file {to.target.path}", "create it")
            for to in destinations
        ]


FILE = File()
