"""A change of what a method paints must raise its revision, which stands for its code."""

import json

import numpy as np
import pytest
import revisions

KNOWN = json.loads(revisions.FILE.read_text(encoding="utf-8"))
APART = 0.01  # other machines round otherwise, and a merge may then fall another way
REMEDY = "write revisions.json anew: python tests/revisions.py"


@pytest.mark.parametrize("name", revisions.NAMES)
def test_images_change_with_the_revision_alone(name):
    assert name in KNOWN, f"{name} is new: {REMEDY}"
    revision, picture = revisions.painted(name)
    assert revision == KNOWN[name]["revision"], f"{name}'s revision was raised: {REMEDY}"
    known = np.array(KNOWN[name]["picture"]).reshape(picture.shape)
    apart = abs(picture - known).max()
    assert apart < APART, f"{name} paints otherwise ({apart:.3f}): raise its revision, {REMEDY}"


def test_what_counts_as_a_change_is_less_than_what_methods_differ_by():
    pictures = [np.array(facts["picture"]) for facts in KNOWN.values()]
    for i, one in enumerate(pictures):
        for other in pictures[:i]:
            assert abs(one - other).max() > 2 * APART
