"""Hadoop's settings for S3, by which Spark reads and writes inputs, tables and checkpoints.

They are set in a session that runs: settings to start one with stand in the command line of its
JVM, for all users of the machine to see. Other stores have their own settings, in
spark-defaults.conf or by --spark.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from duebridge.config.file_locations import S3
from duebridge_connectors.spark.files.location import FileLocation, Settings, Stores, is_path_style

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

S3_JAR = "hadoop-aws-*.jar"
_SDK = "2.35.4"
S3_PACKAGES = ",".join(
    [
        "org.apache.hadoop:hadoop-aws:3.5.0",  # the Hadoop of Spark 4.2
        *(f"software.amazon.awssdk:{name}:{_SDK}" for name in ("s3", "s3-transfer-manager", "sts")),
    ]
)
S3_EXCLUDED = "software.amazon.awssdk:bundle"  # 686 MB: all services of AWS
_FS = "fs"
_ALIKE = {  # s3:// is s3a://, for files and for checkpoints of streams
    f"{_FS}.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
    f"{_FS}.AbstractFileSystem.s3.impl": "org.apache.hadoop.fs.s3a.S3A",
}
_NAMES = {
    "region": "endpoint.region",
    "access_key_id": "access.key",
    "secret_access_key": "secret.key",
    "session_token": "session.token",
}
_PROVIDER = "org.apache.hadoop.fs.s3a.{}AWSCredentialsProvider"


def is_s3(places: Iterable[str | None]) -> bool:
    """Return whether Spark needs its S3 connector for one of these paths, URIs or table names."""
    return any(place is not None and place.startswith(("s3://", "s3a://")) for place in places)


def s3_settings(stores: Stores) -> dict[str, str]:
    """Return Hadoop's settings for these stores, and for all others by AWS's variables.

    They hold secrets. Raises `ConfigError` for a missing variable of an option.
    """
    found = dict(_ALIKE) | _of(f"{_FS}.s3a", FileLocation("s3://any").settings())
    for place in stores.places():
        if place.address.kind == S3:
            found |= _of(f"{_FS}.s3a.bucket.{place.address.authority}", place.settings())
    return found


def set_in_session(spark: "SparkSession", settings: Mapping[str, str]) -> None:
    """Set Hadoop's settings; what the session was started with stays."""
    context = spark.sparkContext
    given, hadoop = context.getConf(), context._jsc.hadoopConfiguration()
    for name, value in settings.items():
        if not given.contains(f"spark.hadoop.{name}"):
            hadoop.set(name, value)


def _of(prefix: str, settings: Settings) -> dict[str, str]:
    found = {f"{prefix}.{_NAMES[name]}": settings[name] for name in _NAMES if name in settings}
    if "access_key_id" in settings:
        kind = "Temporary" if "session_token" in settings else "Simple"
        found[f"{prefix}.aws.credentials.provider"] = _PROVIDER.format(kind)
    if endpoint := settings.get("endpoint"):
        found[f"{prefix}.endpoint"] = endpoint
        found[f"{prefix}.connection.ssl.enabled"] = str(endpoint.startswith("https")).lower()
    if settings.keys() & {"endpoint", "path_style"}:
        found[f"{prefix}.path.style.access"] = str(is_path_style(settings)).lower()
    return found
