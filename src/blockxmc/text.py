"""TextClassifier: texts and label names in, label names out."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, Self, overload

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, clone
from sklearn.utils import ClassifierTags, Tags
from sklearn.utils.validation import check_is_fitted

from blockxmc._core import saving
from blockxmc._core.base import TopK, XMCEstimator
from blockxmc._core.matrix import take_rows
from blockxmc._core.targets import form_of_matrix
from blockxmc._core.versions import draft, lock_of, of_one_version, swapped
from blockxmc.classifier import BlockwiseClassifier
from blockxmc.data.dataset import Dataset
from blockxmc.data.extra import ExtendedVectorizer, Extra, beside, large_values
from blockxmc.data.label_texts import features_of_labels, flat, new_labels, texts_of_labels, with_labels
from blockxmc.data.text import as_rows, as_texts, training_set
from blockxmc.data.tfidf import TextOptions, TextVectorizer
from blockxmc.encoder import learn_on
from blockxmc.encoder.answers import WithEncoder
from blockxmc.encoder.fit import fit_beside
from blockxmc.encoder.model import Encoded
from blockxmc.errors import BlockXMCError, UpdateError
from blockxmc.model.explanations import Explanation
from blockxmc.model.sources import Sources, sources_of
from blockxmc.model.suggestions import Suggestion as Suggestion
from blockxmc.model.suggestions import UntrainedSuggestion as UntrainedSuggestion
from blockxmc.model.suggestions import best_labels
from blockxmc.model.suggestions import least_score as least_score
from blockxmc.training.dataset import fit_dataset, require_option
from blockxmc.training.learning_on import row_mask
from blockxmc.training.new_labels import with_new_labels

# Parameters that say nothing about words.
NO_WORDS = ("classifier", "extra", "encoder")


# No ClassifierMixin: scikit-learn's splitters for classifiers refuse lists of label names.
class TextClassifier(BaseEstimator):  # type: ignore[misc]
    """Suggest labels for texts: TF-IDF features, and any classifier of the library on them.

    Texts are a list, an array or a Series of strings. You can always pass a single string; you then get the answer for
    one text instead of a list.

    Parameters
    ----------
    classifier : the classifier that is trained on the features; None means ``BlockwiseClassifier()``.
    analyzer : ``"word"`` (of two or more letters), ``"char"`` or ``"char_wb"`` (sequences of letters, across or within
        words).
    ngram_range : shortest and longest sequence of words (or letters) that is a feature.
    min_df : number of texts in which a feature must occur; ``"auto"``: two, or one if there are fewer than 100 texts.
    max_features : number of features to keep, the most frequent ones; None: all.
    lowercase : whether to ignore upper and lower case.
    stop_words : words that are not features: None, ``"english"`` or a list.
    extra : a function from a list of texts to an array with one row per text (sentence embeddings, metadata), or a
        scikit-learn transformer of texts. Its columns become features beside the words, which have rows of unit length:
        scale them to what they should count. A function is not saved: ``load(path, extra=function)``.
    encoder : a small transformer that looks at the best labels of each text again: an :class:`Encoder`, or its folder or
        name. ``encoder_`` is what was fitted, or None where held-out rows gain nothing by it.

    Examples
    --------
    >>> from blockxmc import TextClassifier
    >>> texts = ["cats purr and sleep", "dogs bark and run", "cats and dogs play"] * 5
    >>> labels = [["cat"], ["dog"], ["cat", "dog"]] * 5
    >>> clf = TextClassifier().fit(texts, labels)
    >>> clf.suggest("a cat that purrs: cats purr", k=1)[0].label
    'cat'
    >>> clf.predict(["dogs bark", "cats sleep"])
    [['dog'], ['cat']]
    """

    encoder_: Encoded | None = None

    def __init__(
        self,
        classifier: Any = None,
        analyzer: str = "word",
        ngram_range: tuple[int, int] = (1, 1),
        min_df: int | str = "auto",
        max_features: int | None = None,
        lowercase: bool = True,
        stop_words: Any = None,
        extra: Any = None,
        encoder: Any = None,
    ) -> None:
        self.classifier = classifier
        self.analyzer = analyzer
        self.ngram_range = ngram_range
        self.min_df = min_df
        self.max_features = max_features
        self.lowercase = lowercase
        self.stop_words = stop_words
        self.extra = extra
        self.encoder = encoder

    @classmethod
    def from_parts(cls, classifier: XMCEstimator, vectorizer: TextVectorizer) -> Self:
        """The fitted model that these fitted parts are."""
        model = cls(clone(classifier), **vars(vectorizer.options))
        if isinstance(vectorizer, ExtendedVectorizer):
            model.extra = vectorizer.extra.source
        model.classifier_, model.vectorizer_ = classifier, vectorizer
        return model

    # ---- fitting ----
    def fit(
        self,
        texts: Any,
        labels: Any = None,
        sample_weight: Any = None,
        *,
        y: Any = None,
        label_names: Any = None,
        label_texts: Any = "auto",
        ids: Any = None,
        titles: bool = True,
        **fit_options: Any,
    ) -> Self:
        """Learn from texts and their labels: a list of names per text, or a 0-1 matrix with a column per label.

        Spaces around names are removed, and empty names left out, as in files. ``label_names`` names the columns of a
        matrix; without it, the columns of a DataFrame name them, or they are numbered. A model that learned from a matrix
        answers ``predict`` with a matrix. ``y`` is scikit-learn's name for ``labels``. ``sample_weight``: how much each
        text counts. Further options are passed to the classifier's ``fit``.

        ``label_texts`` says what labels are about: ``"auto"``, their names, where held-out rows gain by it
        (``names_teach_`` says what they gained); ``"names"``, their names in any case; None, nothing; or a dict from names
        to texts (one or a list: synonyms, translations), or a list of names. It helps labels with few texts. A label
        without any training text can be suggested, too, and is marked as an :class:`UntrainedSuggestion`.

        The model keeps the ``ids`` (one per text) and the first words of the texts, or with ``keep_rows`` the whole texts,
        compressed: ``explain`` shows them beside texts like the one at hand. ``titles=False`` keeps neither.

        >>> texts, labels = ["cats purr", "dogs bark", "cats sleep", "dogs run"], [["cat"], ["dog"], ["cat"], ["dog"]]
        >>> clf = TextClassifier().fit(texts, labels, label_texts={"cow": "cows moo"})
        >>> clf.suggest("cows moo", k=1)[0].label, clf.suggest("cows moo", k=1)[0].trained
        ('cow', False)
        """
        classifier = self._new_classifier()
        if sample_weight is not None:
            fit_options["sample_weight"] = sample_weight
        for name in fit_options:
            require_option(classifier, name, BlockwiseClassifier)
        (texts, labels), vectorizer = as_rows(texts, y if labels is None else labels), self._new_vectorizer()
        auto = isinstance(label_texts, str) and label_texts == "auto"
        taken = label_texts if not auto or getattr(classifier, "takes_names", False) else None
        about = texts_of_labels(taken, labels, label_names)
        many: Any = {"n_jobs": classifier.n_jobs, "verbose": classifier.verbose}
        dataset = training_set(texts, labels, vectorizer, label_names, flat(about), **many)
        dataset = with_labels(dataset, about)
        if self.extra is not None:
            dataset = self._with_extra(texts, dataset)
            vectorizer = dataset.vectorizer or vectorizer
        if about:
            require_option(classifier, "label_features", BlockwiseClassifier, "label_texts")
            own = features_of_labels(vectorizer, about, dataset.label_names or (), classifier.n_jobs)
            fit_options |= {"label_features": own, "use_label_features": "auto" if auto else "always"}
        self.classifier_ = fit_dataset(classifier, dataset, **fit_options)
        if (form := form_of_matrix(labels)) is not None:
            self.classifier_.targets_ = replace(self.classifier_.targets_, kind=form)
        self.vectorizer_ = vectorizer
        if titles and getattr(getattr(self.classifier_, "model_", None), "neighbors", None) is not None:
            self.classifier_.sources_ = Sources.of(sources_of(texts, ids), whole=self.classifier_.keep_rows)
        self.encoder_ = fit_beside(self, texts, dataset.Y, fit_options | {"label_texts": label_texts}, about)
        return self

    def _with_extra(self, texts: list[str], dataset: Dataset) -> Dataset:
        """The data set with the extra columns."""
        extra, columns = Extra.fitted(self.extra, texts)
        assert dataset.vectorizer is not None
        vectorizer = ExtendedVectorizer.of(dataset.vectorizer, extra)
        X = beside(dataset.X, large_values(columns))
        return replace(dataset, X=X, feature_names=vectorizer.feature_names, vectorizer=vectorizer)

    def estimate(self, texts: Any, labels: Any, *, label_names: Any = None) -> dict[str, float]:
        """Estimate time, memory and model size of ``fit``, without counting words: see the classifier's ``estimate``."""
        classifier = self._new_classifier()
        dataset = training_set(texts, labels, self._new_vectorizer(), label_names)
        if not isinstance(classifier, BlockwiseClassifier):
            raise BlockXMCError(f"there is no estimate for {type(classifier).__name__}: use BlockwiseClassifier")
        return classifier.estimate(dataset.X, dataset.Y)

    def _new_classifier(self) -> XMCEstimator:
        classifier = BlockwiseClassifier() if self.classifier is None else clone(self.classifier)
        if not isinstance(classifier, XMCEstimator):
            name = type(classifier).__name__
            raise BlockXMCError(f"classifier must be one of this library: use BlockwiseClassifier(base={name}(...))")
        return classifier

    def _new_vectorizer(self) -> TextVectorizer:
        options = {name: value for name, value in self.get_params(deep=False).items() if name not in NO_WORDS}
        return TextVectorizer(TextOptions(**options))

    def update(self, texts: Any, labels: Any, *, ids: Any = None, **options: Any) -> Self:
        """Add new texts and labels (and their ``ids``) without a full training: see the classifier's ``update``.

        New words become features. Known words keep their idf.

        >>> from blockxmc import BlockwiseClassifier
        >>> texts, labels = ["cats purr", "dogs bark", "cats sleep", "dogs run"], [["cat"], ["dog"], ["cat"], ["dog"]]
        >>> clf = TextClassifier(BlockwiseClassifier(keep_rows=True)).fit(texts, labels)
        >>> clf.update(["cows moo", "cows graze"], [["cow"], ["cow"]]).suggest("cows", k=1)[0].label
        'cow'
        """
        texts, labels = as_rows(texts, labels)
        sources = sources_of(texts, ids)
        with lock_of(self):
            classifier = self._updatable()
            before = classifier.n_train_rows_
            vectorizer, X = self.vectorizer_.extended(texts, classifier.n_jobs, before)
            if classifier.names_ is not None:
                more, _ = classifier.targets_.extended(labels, options.get("label_names"))
                new = [] if more.names is None else more.names[classifier.targets_.n_labels :].tolist()
                about = {name: [str(name)] for name in new}
                options["label_features"] = features_of_labels(vectorizer, about, new, classifier.n_jobs)
            classifier.update(X, labels, **options)
            encoder = learn_on.added(self.encoder_, classifier, texts, before)
            if classifier.sources_ is not None:
                classifier.sources_ = classifier.sources_.extended(before, sources)
            swapped(self, classifier_=classifier, vectorizer_=vectorizer, encoder_=encoder)
        return self

    def add_labels(self, label_texts: Any) -> Self:
        """Add labels that no text has yet by their names, at once and without training: a dict from names to texts.

        Their suggestions are marked (:class:`UntrainedSuggestion`); ``update`` teaches them, where rows are kept.

        >>> texts, labels = ["cats purr", "dogs bark", "cats sleep", "dogs run"], [["cat"], ["dog"], ["cat"], ["dog"]]
        >>> clf = TextClassifier().fit(texts, labels, label_texts="names").add_labels({"cow": ["cows moo", "cattle"]})
        >>> clf.suggest("cows moo", k=1)[0].label, clf.suggest("cows moo", k=1)[0].trained
        ('cow', False)
        """
        with lock_of(self):
            check_is_fitted(self)
            known, jobs = self.classes_.tolist(), self.classifier_.n_jobs
            about, vectorizer, own = new_labels(label_texts, known, self.vectorizer_, jobs)
            classifier = with_new_labels(self.classifier_, list(about), own)
            encoder = learn_on.named(self.encoder_, [texts[0] for texts in about.values()], classifier._threads)
            swapped(self, classifier_=classifier, vectorizer_=vectorizer, encoder_=encoder)
        return self

    def forget(self, rows: Any) -> Self:
        """Remove texts, by their numbers, from the model: see the classifier's ``forget``.

        Words that no other text has are forgotten, too.
        """
        with lock_of(self):
            classifier = self._updatable()
            dropped = row_mask(rows, classifier.n_train_rows_)
            X, Y = classifier._learned().kept.rows(classifier.n_features_in_, classifier.targets_.n_labels)
            vectorizer = self.vectorizer_.without(take_rows(X, np.flatnonzero(~dropped)), dropped)
            classifier.forget(dropped)
            encoder = learn_on.dropped(self.encoder_, classifier, dropped, Y)
            swapped(self, classifier_=classifier, vectorizer_=vectorizer, encoder_=encoder)
        return self

    def _updatable(self) -> BlockwiseClassifier:
        """A copy of the classifier that can change while the classifier answers."""
        check_is_fitted(self)
        if not isinstance(self.classifier_, BlockwiseClassifier):
            raise UpdateError(f"a {type(self.classifier_).__name__} cannot be updated: use BlockwiseClassifier")
        self.classifier_._learned()  # refuses a model that keeps no rows, before words are counted
        return draft(self.classifier_)

    # ---- answers ----
    @overload
    def suggest(
        self, texts: str, k: int = 5, threshold: Any = None, allow: Any = None, deny: Any = None, encoder: bool = True
    ) -> list[Suggestion]: ...

    @overload
    def suggest(
        self, texts: Any, k: int = 5, threshold: Any = None, allow: Any = None, deny: Any = None, encoder: bool = True
    ) -> list[list[Suggestion]]: ...

    @of_one_version
    def suggest(
        self, texts: Any, k: int = 5, threshold: Any = None, allow: Any = None, deny: Any = None, encoder: bool = True
    ) -> Any:
        """At most k labels of each text, best first, with their scores; for one text, its list.

        A text of which the model knows no word gets no suggestion: an empty list.

        With a ``threshold``, only labels with a higher score are suggested: a number, or ``"f1"`` for the labels that
        raise the text's expected F1, as in ``predict``. ``allow`` and ``deny`` limit which labels may be suggested.
        ``encoder=False`` answers by the linear model alone.
        """
        listed, one = as_texts(texts)
        X, _ = self._features(listed)
        answering = self._answering(listed, encoder)
        least = least_score(answering, threshold)
        ids, scores = best_labels(answering, X, k, allow, deny)
        ids = np.where((scores > least(scores)) & (np.diff(X.indptr) > 0)[:, None], ids, -1)
        names, counts = self.classes_, self.classifier_.label_counts_
        rows = [
            [
                (Suggestion if counts[j] else UntrainedSuggestion)(names.item(j), s)
                for j, s in zip(*row, strict=True)
                if j >= 0
            ]
            for row in zip(ids.tolist(), scores.tolist(), strict=True)
        ]
        return rows[0] if one else rows

    @of_one_version
    def predict(self, texts: Any) -> Any:
        """The label set of each text, as a list of names (for one text, its list), or a matrix if labels were one.

        A text of which the model knows no word gets no label.
        """
        X, one = self._features(texts)
        rows: Any = self._answering(texts).predict(X) if X.shape[0] else []
        known = (np.diff(X.indptr) > 0)[:, None]
        if isinstance(rows, list):
            rows = [row if has else [] for row, has in zip(rows, known, strict=True)]
        else:
            rows = rows * known if isinstance(rows, np.ndarray) else type(rows)(rows.multiply(known))
        return rows[0] if one else rows

    @of_one_version
    def predict_topk(self, texts: Any, k: int = 5, allow: Any = None, deny: Any = None, encoder: bool = True) -> TopK:
        """Label ids (int64, n x k) and scores (float32): best first, padded with -1 / -inf; for one text, 1-d arrays."""
        X, one = self._features(texts)
        ids, scores = best_labels(self._answering(texts, encoder), X, k, allow, deny)
        return (ids[0], scores[0]) if one else (ids, scores)

    def _answering(self, texts: Any, encoder: bool = True) -> Any:
        """What answers these texts, given their features."""
        if self.encoder_ is None or not encoder:
            return self.classifier_
        return WithEncoder(self.classifier_, self.encoder_, as_texts(texts)[0])

    @of_one_version
    def predict_proba(self, texts: Any) -> Any:
        """Probabilities of the candidates of each text (CSR, a column per label)."""
        return self._by_label("predict_proba", texts)

    @of_one_version
    def decision_function(self, texts: Any) -> Any:
        """Scores of the candidates of each text (CSR, a column per label)."""
        return self._by_label("decision_function", texts)

    @of_one_version
    def explain(self, text: str, label: Any = None, k: int = 5, most_features: int | None = None) -> list[Explanation]:
        """Explain why labels are suggested for a text, by its words: see the classifier's ``explain``."""
        row, _ = self._features(text)
        options: dict[str, Any] = {"feature_names": self.vectorizer_.feature_names, "most_features": most_features}
        found: list[Explanation] = self._answering(text).explain(row, label=label, k=k, **options)
        return found

    @of_one_version
    def score(self, texts: Any, labels: Any, sample_weight: Any = None) -> float:
        """Precision at 1."""
        texts, labels = as_rows(texts, labels)
        return float(self._answering(texts).score(self._features(texts)[0], labels, sample_weight))

    # ---- what is known of the labels ----
    @property
    def names_teach_(self) -> dict[str, float] | None:
        """How much label texts count, and what held-out rows gained: see the classifier's ``names_teach_``."""
        check_is_fitted(self)
        return getattr(self.classifier_, "names_teach_", None)

    @property
    def label_names_(self) -> Any:
        """Names of the labels by id."""
        check_is_fitted(self)
        return self.classifier_.label_names_

    @property
    def classes_(self) -> Any:
        """Names of the labels by id, as scikit-learn calls them."""
        check_is_fitted(self)
        return self.classifier_.classes_

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """The words (and extra columns) of the features by number, as scikit-learn's vectorizers give them."""
        check_is_fitted(self)
        return np.array(self.vectorizer_.feature_names, dtype=object)

    # ---- the rest ----
    @of_one_version
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to a directory (manifest + arrays, no pickle); see :func:`blockxmc.load`."""
        check_is_fitted(self)
        saving.save(self, path)

    def _features(self, texts: Any) -> tuple[Any, bool]:
        """The features of the texts, and whether it was one text."""
        check_is_fitted(self)
        listed, one = as_texts(texts)
        return self.vectorizer_.transform(listed, self.classifier_.n_jobs), one

    def _by_label(self, method: str, texts: Any) -> Any:
        """What a method of the classifier says of each text and label (CSR)."""
        X, _ = self._features(texts)
        if not X.shape[0]:
            return sparse.csr_array((0, self.classifier_.targets_.n_labels), dtype=np.float32)
        return getattr(self._answering(texts), method)(X)

    def __sklearn_tags__(self) -> Tags:
        """A list of texts in, several labels per text out."""
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.one_d_array, tags.input_tags.two_d_array = True, False
        tags.target_tags.required = tags.target_tags.multi_output = True
        # Splitters see an unfitted model, and refuse lists of names of a classifier; scorers see a fitted one.
        if "classifier_" in vars(self) and self.classifier_.targets_.kind != "names":
            tags = replace(tags, estimator_type="classifier", classifier_tags=ClassifierTags(multi_label=True))
        return tags
