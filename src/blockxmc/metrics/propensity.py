"""The customary constants of the propensity model, found by the sizes of the data or by their name."""

from __future__ import annotations

import re

# A and B of sets without their own.
USUAL = (0.55, 1.5)
WIKIPEDIA, AMAZON = (0.5, 0.4), (0.6, 2.6)
# Sets with their own, by their number of labels, and by the letters and digits of their names (as archives unpack, too).
# AmazonCat-13K and Wiki10-31K have the usual ones.
BY_LABELS = {
    325_056: WIKIPEDIA,
    501_070: WIKIPEDIA,
    312_330: WIKIPEDIA,
    670_091: AMAZON,
    2_812_281: AMAZON,
    131_073: AMAZON,
    1_305_265: AMAZON,
}
BY_NAME = (
    (r"amazoncat", USUAL),
    (r"wiki10", USUAL),
    (r"(lf)?amazon(titles)?(670k|3m|131k|13m)?(bow)?", AMAZON),
    (r"(lf)?wiki(lshtc|pedia|titles|seealso|seealsotitles)?(325k|500k|320k)?(bow)?", WIKIPEDIA),
)


def plain_name(name: str) -> str:
    """The letters and digits of a name.

    >>> plain_name("Amazon-670K.bow")
    'amazon670kbow'
    """
    return re.sub("[^a-z0-9]", "", name.lower())


def customary_propensity(n_labels: int, name: str = "") -> tuple[float, float]:
    """A and B that published PSP of a data set uses: by its number of labels, else by its name, else the usual ones.

    >>> customary_propensity(670_091), customary_propensity(10, "WikiLSHTC"), customary_propensity(10, "bibtex")
    ((0.6, 2.6), (0.5, 0.4), (0.55, 1.5))
    """
    if n_labels in BY_LABELS:
        return BY_LABELS[n_labels]
    plain = plain_name(name)
    return next((found for pattern, found in BY_NAME if plain and re.fullmatch(pattern, plain)), USUAL)
