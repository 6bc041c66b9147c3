"""A folder in which Annif's command line works: vocabulary, corpora, projects; and NLTK data for other backends."""

import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

BASE = "http://example.org/package/"
PROJECTS = """\
[DEFAULT]
language=en
vocab=packages
access=public

[blockxmc]
name=blockxmc
backend=blockxmc

[learning]
name=blockxmc that learns
backend=blockxmc
allow_learn=1

[omikuji]
name=Bonsai with the settings of Finto AI
backend=omikuji
analyzer=snowball(english)
cluster_balanced=False
cluster_k=100
max_depth=3
min_df=5
ngram=2

[remote]
name=a blockxmc service
backend=http
endpoint={endpoint}

[dummy]
name=Annif itself
backend=dummy
analyzer=simple
"""


def uri(name):
    return BASE + quote(name, safe="+.-")


def write_corpus(path, texts, labels):
    """Annif's TSV: a text, a tab, URIs in angle brackets."""
    lines = [
        f"{' '.join(text.split())}\t{' '.join(f'<{uri(name)}>' for name in names)}\n"
        for text, names in zip(texts, labels, strict=True)
        if names
    ]
    Path(path).write_text("".join(lines))


def write_folder(folder, names, endpoint="http://127.0.0.1:9/v1/projects/none/suggest"):
    """projects.cfg and vocab.tsv."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "projects.cfg").write_text(PROJECTS.format(endpoint=endpoint))
    (folder / "vocab.tsv").write_text("".join(f"<{uri(name)}>\t{name}\n" for name in sorted(names)))


def write_punkt(folder, texts):
    """A sentence splitter of these texts by NLTK's own trainer, where NLTK_DATA=folder finds it."""
    from nltk.tokenize.punkt import PunktTrainer, save_punkt_params

    place = folder / "tokenizers" / "punkt_tab" / "english"
    place.parent.mkdir(parents=True, exist_ok=True)
    trainer = PunktTrainer()
    trainer.train("\n".join(texts), finalize=True)
    save_punkt_params(trainer.get_params(), str(place))


def surroundings(folder):
    """Environment variables for Annif in this folder."""
    return os.environ | {"NLTK_DATA": str(Path(folder, "nltk").absolute()), "ANNIF_PROJECTS": "projects.cfg"}


def annif(folder, *args, given=None, code=0):
    """What a real ``annif`` command prints."""
    program = Path(sys.executable).with_name("annif")
    ended = subprocess.run(
        [program, *map(str, args)], cwd=folder, env=surroundings(folder), input=given, capture_output=True, text=True
    )
    assert ended.returncode == code, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr
