"""How the tests' Spark sessions start Java and Python, and the archive of classes that they share.

    make spark-classes ─▶ a session that does a little of everything ─▶ .services/spark-classes.jsa

Loading Spark's classes is half the work of a session that lives for seconds; with the archive
(class data sharing, JEP 350) Java maps them from a file. Without it, or with that of another Java
or Spark, the tests pass too, but take longer.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyspark
from py4j.java_gateway import JavaClass, JavaMember, JavaPackage, JVMView
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from tests.support.checkout import ROOT
from tests.support.servers import COMPILES_ONCE

ARCHIVE = ROOT / ".services" / "spark-classes.jsa"
QUIET = "-Xlog:disable -Xlog:all=error:stderr"  # of an archive that does not fit
WITH_ARCHIVE = f"-XX:SharedArchiveFile={ARCHIVE} {QUIET}" if ARCHIVE.exists() else ""
# The code cache, 48 MB unless told, is full after some 200 queries; Java then fails in any thread.
JAVA_OPTIONS = f"{COMPILES_ONCE} -XX:ReservedCodeCacheSize=240m {WITH_ARCHIVE}"
JAVA_SAYS = "WARNING: Using incubator modules: jdk.incubator.vector\n"  # when it starts
OF_PYTHON = {
    "PYSPARK_PYTHON": str(Path(__file__).with_name("python")),
    "TESTS_PYTHON": sys.executable,
}
OF_ONE_JOB = f"{JAVA_OPTIONS} -XX:+UseSerialGC"  # no threads beside it that tidy a small heap
OF_COMMANDS = {"SPARK_SUBMIT_OPTS": OF_ONE_JOB, **OF_PYTHON}
SETTINGS = {  # of a session whose queries have ten rows
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",  # compiles each query for ten rows
    "spark.python.sql.dataFrameDebugging.enabled": "false",  # calls Java four times
    "spark.sql.lightweightPlanChangeValidation": "false",  # of Spark's own rules, after each
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.ui.explainMode": "simple",  # described at length for nobody
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
A_NAME_MEANS = (JavaClass, JavaMember, JavaPackage)  # for good; a static field may change
AS_WORDS = [f"--spark={name}={value}" for name, value in SETTINGS.items()]  # of a command


def main() -> None:
    """Write the archive, unless it is there for this Java and this Spark."""
    if shutil.which("java") is None:
        return
    java = subprocess.run(["java", "-version"], capture_output=True, check=True).stderr
    fits = sha256(java + pyspark.__file__.encode() + pyspark.__version__.encode()).hexdigest()
    made_for = ARCHIVE.with_suffix(".for")
    if ARCHIVE.exists() and made_for.exists() and made_for.read_text() == fits:
        return
    sys.stderr.write("spark-classes: writing an archive for the tests' sessions, once\n")
    ARCHIVE.unlink(missing_ok=True)
    words = [sys.executable, "-m", "tests.support.spark.launch", "classes"]
    options = f"-XX:ArchiveClassesAtExit={ARCHIVE} {QUIET}"
    env = os.environ | OF_PYTHON | {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_SUBMIT_OPTS": options}
    done = subprocess.run(words, cwd=ROOT, env=env, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.stderr.write(f"spark-classes: the tests go without:\n{done.stderr}\n")
        ARCHIVE.unlink(missing_ok=True)
    else:
        made_for.write_text(fits)


def remember_names() -> None:
    """Let Py4J ask Java once what a name is: a job asks a thousand times.

    Java tries the name as a class of each package that was imported, in each of 300 jars.
    """
    for kind in (JVMView, JavaClass, JavaPackage):
        kind.__getattr__ = _remembering(kind.__getattr__)


def _remembering(look_up: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    def found(self: Any, name: str) -> Any:
        meant = look_up(self, name)
        if isinstance(meant, A_NAME_MEANS):
            self.__dict__[name] = meant
        return meant

    return found


def load_classes() -> None:
    """Do a little of everything that the tests' sessions do."""
    session = SparkSession.builder.master("local[2]").config(map=SETTINGS).getOrCreate()
    made = session.range(100).selectExpr("id", "id % 7 AS part", "array(struct(id)) AS list")
    with TemporaryDirectory() as home:
        made.write.partitionBy("part").parquet(f"{home}/rows")
        rows = session.read.parquet(f"{home}/rows")
        sums = rows.groupBy("part").agg(F.sum("id").alias("sum"))
        rows.join(sums, "part").orderBy("sum").write.json(f"{home}/sums")
        rows.mapInArrow(lambda batches: batches, rows.schema).toArrow()
        stream = session.readStream.schema(rows.schema).parquet(f"{home}/rows").writeStream
        stream = stream.option("checkpointLocation", f"{home}/offsets").trigger(availableNow=True)
        stream.foreachBatch(lambda batch, _: batch.collect()).start().awaitTermination()
    with suppress(PySparkException):  # its options are missing
        session.read.format("duebridge").load()
    session.stop()


if __name__ == "__main__":
    load_classes() if sys.argv[1:] == ["classes"] else main()
