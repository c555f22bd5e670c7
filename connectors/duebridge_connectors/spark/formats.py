"""What an input of a job may be: known before Spark is loaded."""

from duebridge.config.fields import did_you_mean
from duebridge.errors import ConfigError

TABLE = "table"
FORMATS = ("parquet", "csv", "json", "orc", TABLE)


def check_format(name: str) -> None:
    """Raise `ConfigError` for a format that no job reads."""
    if name not in FORMATS:
        known, close = ", ".join(FORMATS), did_you_mean(name, FORMATS)
        raise ConfigError(f"format: expected one of {known}; got {name!r}{close}")
