"""Keep a small model of this version for the tests of later ones: python tools/keep_model.py.

Writes tests/data/model-VERSION.zip: a model of 500 bundled texts, and what it answers (tests/unit/test_old_models.py).
Run it once for each release, with the released package.
"""

import json
import tempfile
import zipfile
from collections import Counter
from pathlib import Path

from blockxmc import BlockwiseClassifier, TextClassifier, __version__
from blockxmc.data import load_demo_texts

TARGET = Path(__file__).parents[1] / "tests" / "data" / f"model-{__version__}.zip"
ASKED = ["A Perl module to parse XML", "python library for numbers", "a debugger", "game with pegs, by SDL"]


def main():
    train, _ = load_demo_texts()
    frequent = {label for label, _ in Counter(label for row in train.labels for label in row).most_common(40)}
    rows = [
        (text, [label for label in row if label in frequent])
        for text, row in zip(train.texts, train.labels, strict=True)
    ]
    texts, labels = zip(*[row for row in rows if row[1]][:500], strict=True)
    model = TextClassifier(BlockwiseClassifier(n_blocks=4, n_jobs=1, n_neighbors=4), max_features=150)
    model.fit(list(texts), list(labels))
    suggested = [[[s.label, round(float(s.score), 5)] for s in row] for row in model.suggest(ASKED, k=4)]
    expected = {"texts": ASKED, "suggested": suggested, "predicted": [list(row) for row in model.predict(ASKED)]}
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(TARGET, "w", zipfile.ZIP_DEFLATED) as archive:
        model.save(folder)
        for path in sorted(Path(folder).iterdir()):
            archive.write(path, f"model/{path.name}")
        archive.writestr("expected.json", json.dumps(expected, indent=1))
    print(f"{TARGET}: {TARGET.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
