import os

import pytest
from slurm.cluster import Cluster, absent


@pytest.fixture(scope="session")
def slurm(tmp_path_factory):
    """A real SLURM; the tests skip where it is not installed, and fail where it is required."""
    lost = absent()
    if lost:
        reason = f"needs SLURM ({', '.join(lost)} absent)"
        if "slurm" in os.environ.get("CATOME_REQUIRE", ""):
            pytest.fail(reason)
        pytest.skip(reason)
    cluster = Cluster(tmp_path_factory.mktemp("slurm"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
