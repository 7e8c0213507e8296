"""Spark for the tests that need it: a real cluster of two executors, each a process of its own, on this machine."""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sklar

MASTER = "local-cluster[2,1,1024]"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    sql = pytest.importorskip("pyspark.sql", reason="PySpark is not installed")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Java is not installed")
    folder = tmp_path_factory.mktemp("spark")
    # One address that every sandbox has, and a Java that starts quickly: nothing here runs long enough to be optimized.
    settings = {
        "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "127.0.0.1",
        "SPARK_WORKER_DIR": str(folder / "work"), "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }  # fmt: skip
    os.environ.update(settings)
    package = str(Path(sklar.__file__).parents[1])
    with warnings.catch_warnings():
        # Spark's own start and stop: sockets of its gateway, versions of pandas.
        warnings.simplefilter("ignore")
        session = (
            sql.SparkSession.builder.master(MASTER)
            .appName("sklar tests")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.ui.enabled", False)
            .config("spark.network.timeout", "600s")
            .config("spark.rpc.lookupTimeout", "600s")
            .config("spark.executor.heartbeatInterval", "30s")
            .config("spark.sql.shuffle.partitions", 4)
            .config("spark.sql.execution.arrow.maxRecordsPerBatch", 1000)
            .config("spark.local.dir", str(folder / "local"))
            .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
            .config("spark.executorEnv.PYTHONPATH", package)
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("ERROR")
        yield session
        session.stop()
    for name in settings:
        del os.environ[name]
