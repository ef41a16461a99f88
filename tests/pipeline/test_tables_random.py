"""Nasty journals: every row of every table is the one that the plain reading of JOURNAL gives."""

import os
from random import SystemRandom
from typing import Final

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.comparing import differences, smallest, told
from tests.pipeline.journals import EXAMPLES
from tests.pipeline.nasty import nasty

THOROUGH: Final = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
JOURNALS: Final = 2000 if THOROUGH else 300
FIRST: Final = SystemRandom().randrange(2**32) if THOROUGH else 0

EXAMPLES.journals |= {str(seed): nasty(seed) for seed in range(FIRST, FIRST + JOURNALS)}


@pytest.mark.timeout(600)  # To make a journal that differs small takes some runs.
def test_every_row_of_every_journal_is_the_one_that_the_oracle_expects(
    spark: SparkSession,
) -> None:
    journals = EXAMPLES.journals

    found = differences(journals, EXAMPLES.tables(spark))

    assert not found, (
        f"{len(found)} of {len(journals)} differ: {', '.join(sorted(found)[:10])}; "
        f"the smallest:\n{told(*smallest(spark, journals, found))}"
    )
