"""What the records in a row's images say together."""

from __future__ import annotations

import math
from array import array
from typing import Any

from experiments.painting.store import ImageStore, Prompt


def image_facts(store: ImageStore, chosen: list[Prompt]) -> dict[str, Any]:
    """From the records in a row's images: the mean share of source tokens merged, and on what
    devices, in what batches, with which versions they were painted."""
    shares, painted_on = array("d"), {}
    for record in store.records(chosen):
        if "merged_share" in record:
            shares.append(record["merged_share"])
        facts = {"device": record["device"], "batch_size": record["batch_size"]}
        for key, value in (facts | record["versions"]).items():
            painted_on.setdefault(key, set()).add(value)
    return {
        # Exactly, as the order in which images lie depends on which task packed them.
        "merged_share": math.fsum(shares) / len(shares) if shares else None,
        "painted_on": {key: sorted(values) for key, values in painted_on.items()},
    }
