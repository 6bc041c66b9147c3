"""What labels are about: names with texts (one or several), for labels that few rows have, or none."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

from blockxmc._core.matrix import as_csr
from blockxmc._core.progress import thread_count
from blockxmc._kernels import WordLearner
from blockxmc.data._source import PathLike, bare_name, read_names
from blockxmc.data.dataset import Dataset
from blockxmc.data.extra import ExtendedVectorizer, words_only
from blockxmc.data.label_names import bare_uris, clean_names
from blockxmc.data.skos import is_skos, read_skos
from blockxmc.data.tfidf import TextVectorizer, inverse_frequency
from blockxmc.data.words import decoded, encoded
from blockxmc.errors import BlockXMCError, DataFormatError

Texts = dict[Any, list[str]]


def read_label_texts(path: PathLike, labels: Collection[Any] = ()) -> Texts:
    """Names and texts of labels from a file (plain, .gz or .xz).

    JSON (``.json``): an object from names to texts, or lists of texts. Else lines: a name and its texts, with tabs between
    them, or a name that speaks for itself. A thesaurus (``.ttl``, ``.rdf``, ``.nt``, ``.jsonld``): SKOS, whose concepts
    are called as the training ``labels`` are, see ``read_skos``.

    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "labels.tsv"
    >>> _ = file.write_text("cow\\tcows moo\\ndog\\n")
    >>> read_label_texts(file)
    {'cow': ['cows moo'], 'dog': ['dog']}
    """
    if is_skos(path):
        return clean_label_texts(read_skos(path, labels))
    lines = read_names(path)
    if bare_name(path).endswith(".json"):
        try:
            given: Any = json.loads("\n".join(lines))
        except (ValueError, RecursionError) as error:
            raise DataFormatError(f"{path}: not JSON: {error}; give an object from names to texts") from error
        if not isinstance(given, dict):
            raise DataFormatError(f'{path}: must hold an object from names to texts, like {{"cow": "cows moo"}}')
    else:
        given = {}
        for number, line in enumerate(lines, 1):
            found, *texts = line.split("\t")
            [name] = bare_uris([found])
            if name in given:
                raise DataFormatError(f"{path}: line {number}: {name!r} is there twice; give each label one line")
            if name:
                given[name] = texts or [found]
    try:
        return clean_label_texts(given)
    except BlockXMCError as error:
        raise DataFormatError(f"{path}: {error}") from error


def texts_of_labels(given: Any, labels: Any, label_names: Any = None) -> Texts:
    """The texts of labels by name: those given, or with ``"auto"`` and ``"names"`` the names that these labels have.

    >>> texts_of_labels("names", [["b"], ["a"]]), texts_of_labels({"c": "sea"}, [["b"]]), texts_of_labels(None, [["b"]])
    ({'a': ['a'], 'b': ['b']}, {'c': ['sea']}, {})
    """
    if given is None:
        return {}
    if not isinstance(given, str) or given not in ("auto", "names"):
        return clean_label_texts(given)
    names = label_names if label_names is not None else getattr(labels, "columns", None)
    if names is None:
        names = {name for row in labels for name in row} if isinstance(labels, list) else ()
    own = sorted(name for name in names if isinstance(name, str))
    if given == "names" and not own:
        raise BlockXMCError('label_texts="names" needs labels that are text: give a dict from labels to texts')
    return {name: [name] for name in own}


def flat(texts: Texts) -> list[str]:
    """All texts of all labels."""
    return [text for own in texts.values() for text in own]


def clean_label_texts(given: Any) -> Texts:
    """Texts by name, from such a mapping or a list of names; names are stripped as in training data.

    >>> clean_label_texts({" cow ": "cows moo", "dog": ["dogs", "hounds"]}), clean_label_texts(["cow"])
    ({'cow': ['cows moo'], 'dog': ['dogs', 'hounds']}, {'cow': ['cow']})
    """
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        wanted = '"auto", "names", None, a dict from names to texts, or a list of names'
        raise BlockXMCError(f"label_texts must be {wanted}, got {given!r:.60}")
    # A Series is from names to texts, too.
    pairs = given.items() if isinstance(given, Mapping) or hasattr(given, "items") else ((name, name) for name in given)
    out: Texts = {}
    for name, text in pairs:
        texts = [text] if isinstance(text, str) else text
        if not (isinstance(texts, (list, tuple)) and all(isinstance(each, str) for each in texts)):
            raise BlockXMCError(
                f"label_texts: the text of {name!r:.60} is {text!r:.60}; it must be text, or a list of it"
            )
        for clean in clean_names([name]):
            if clean in out:
                raise BlockXMCError(f"label_texts: {clean!r:.60} is there twice; give all its texts in one list")
            out[clean] = list(texts)
    if not any(text.strip() for texts in out.values() for text in texts):
        raise BlockXMCError("label_texts holds no text")
    return out


def features_of_labels(
    vectorizer: TextVectorizer, about: Texts, names: Sequence[Any], n_jobs: int | None
) -> sparse.csr_array:
    """Labels x features: of each word the largest value that it has in any text of the label.

    A row that is like one of several names is then as near to the label as if this were its only name.

    >>> vectorizer = TextVectorizer().fit(["red apple", "green apple", "old car"])
    >>> features_of_labels(vectorizer, {"a": ["apple", "car"], "c": ["apple"]}, "abc", 1).toarray().round(1).tolist()
    [[1.0, 1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0, 0.0]]
    """
    texts = [about.get(name, []) for name in names]
    words = words_only(vectorizer, [text for each in texts for text in each], n_jobs)
    label_of_text = np.repeat(np.arange(len(texts)), [len(each) for each in texts])
    labels = label_of_text[np.repeat(np.arange(words.shape[0]), np.diff(words.indptr))]
    order = np.lexsort((words.indices, labels))
    labels, features, values = labels[order], words.indices[order], words.data[order]
    first = np.flatnonzero(np.diff(labels, prepend=-1) | np.diff(features, prepend=-1))
    largest = np.maximum.reduceat(values, first) if first.size else values
    shape = len(texts), words.shape[1]
    return as_csr(sparse.csr_array((largest, (labels[first], features[first])), shape=shape))


def knowing(vectorizer: TextVectorizer, texts: Sequence[str], n_jobs: int | None) -> TextVectorizer:
    """The vectorizer with new words of label texts behind its own; itself where there is no room for more words.

    No text is counted: words of these alone are as rare as words of label texts are after ``fit``.

    >>> knowing(TextVectorizer().fit(["red apple", "green apple"]), ["red car"], 1).feature_names
    ['apple', 'green', 'red', 'car']
    """
    counts, options = vectorizer.counts, vectorizer.options
    if counts is None or options.max_features is not None or isinstance(vectorizer, ExtendedVectorizer):
        return vectorizer
    learner, threads = WordLearner(), thread_count(n_jobs)
    vectorizer._feed(learner, texts, threads, keep=False)
    words, ends, *_ = learner.finish(1, 2**31 - 1, threads)
    new = sorted(set(decoded(words, ends)) - set(vectorizer.feature_names))
    seen = np.array([len(counts.before.get(word, ())) for word in new], np.int64)
    more, more_ends = encoded(new)
    last = vectorizer._ends[-1] if vectorizer._ends.size else 0
    out = TextVectorizer(options)
    out._set_words(
        np.concatenate([vectorizer._words, more]),
        np.concatenate([vectorizer._ends, last + more_ends]),
        np.concatenate([vectorizer.idf, inverse_frequency(counts.n_texts, seen)]),
    )
    out.counts = replace(counts, in_texts=np.concatenate([counts.in_texts, seen]))
    return out


def new_labels(
    given: Any, known: Collection[Any], vectorizer: TextVectorizer, n_jobs: int | None
) -> tuple[Texts, TextVectorizer, sparse.csr_array]:
    """The texts of labels that are to be added, in order, what knows their words, and their features; or one clear line.

    >>> about, vectorizer, _ = new_labels({"cow": "cows moo"}, ["cat"], TextVectorizer().fit(["cats purr"]), 1)
    >>> about, vectorizer.feature_names
    ({'cow': ['cows moo']}, ['cats', 'purr', 'cows', 'moo'])
    """
    texts = dict(sorted(clean_label_texts(given).items(), key=lambda item: str(item[0])))
    if there := sorted(set(texts) & set(known)):
        raise BlockXMCError(f"add_labels: the model has the label {there[0]!r:.60} already; leave it out")
    if not all(isinstance(name, str) for name in (*texts, *known)):
        raise BlockXMCError("add_labels needs labels that are text, the new ones and those of the model")
    vectorizer = knowing(vectorizer, flat(texts), n_jobs)
    features = features_of_labels(vectorizer, texts, list(texts), n_jobs)
    for name, words in zip(texts, np.diff(features.indptr), strict=True):
        if not words:
            raise BlockXMCError(f"add_labels: the texts of {name!r:.60} hold no word that the model can know")
    return texts, vectorizer, features


def with_labels(data: Dataset, names: Iterable[Any]) -> Dataset:
    """The data set with labels of these names, too, behind its own; no row has those that are new.

    >>> import numpy as np
    >>> eye = sparse.csr_array(np.eye(2, dtype=np.float32))
    >>> with_labels(Dataset(eye, eye, label_names=["a", "b"]), ["c", "b"]).label_names
    ['a', 'b', 'c']
    """
    known = list(data.label_names or ())
    seen = set(known)
    new = list(dict.fromkeys(name for name in names if name not in seen))
    if not new:
        return data
    Y = as_csr(data.Y)
    wider = sparse.csr_array((Y.data, Y.indices, Y.indptr), shape=(Y.shape[0], Y.shape[1] + len(new)))
    return replace(data, Y=wider, label_names=known + new)
