"""What calling match_pattern costs: the jobs and tasks of its sample, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.spark.jobs import count_jobs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_jobs_and_tasks_are_counted_in_every_job_group(spark: SparkSession) -> None:
    with count_jobs() as ran:
        spark.range(10, numPartitions=3).toLocalIterator()
        spark.sparkContext.parallelize(range(3), 3).count()
        with count_jobs() as inside:
            spark.sparkContext.parallelize(range(2), 2).count()
    assert [job.tasks for job in inside.jobs] == [2]
    assert sum(job.tasks == 3 for job in ran.jobs) >= 1
    assert inside.jobs[0] in ran.jobs
    with count_jobs() as ran:
        _ = spark.range(10).schema
    assert len(ran) == 0
