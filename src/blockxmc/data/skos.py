"""Thesauri in SKOS (Turtle, RDF/XML, N-Triples, JSON-LD): what their concepts are called, in all languages."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from blockxmc.data._source import PathLike, archive_errors, bare_name, open_raw, unpacked
from blockxmc.errors import DataFormatError

FORMATS = {".ttl": "turtle", ".rdf": "xml", ".nt": "nt", ".jsonld": "json-ld"}


def is_skos(path: PathLike) -> bool:
    """Whether a file is a thesaurus, by its name.

    >>> is_skos("yso.ttl.gz"), is_skos("labels.tsv")
    (True, False)
    """
    return bare_name(path).endswith(tuple(FORMATS))


def read_skos(path: PathLike, labels: Collection[Any] = ()) -> dict[Any, list[str]]:
    """The preferred, alternative and hidden labels of each concept that is not deprecated.

    A concept is called by its URI where one of the training ``labels`` is the URI of a concept; else by that of its
    preferred labels which is a training label, or by the first in the order of languages.
    """
    try:
        import rdflib
        from rdflib.namespace import OWL, SKOS
    except ImportError:
        raise DataFormatError(f"{path}: is a thesaurus: pip install 'blockxmc[skos]' to read it") from None
    with open_raw(path) as raw, archive_errors(path):
        content = unpacked(raw, path).read()
    graph, kind = rdflib.Graph(), next(FORMATS[end] for end in FORMATS if bare_name(path).endswith(end))
    try:
        graph.parse(data=content, format=kind)
    except Exception as error:  # parsers raise errors of their own, of no common kind
        said = " ".join(str(error).split())[:120]
        raise DataFormatError(f"{path}: is no {kind}: {said or type(error).__name__}") from None
    known, names = set(labels), sorted(graph.subject_objects(SKOS.prefLabel), key=lambda pair: _order(pair[1]))
    by_uri = any(str(concept) in known for concept, _ in names)
    called: dict[Any, list[str]] = {}
    for concept, name in names:
        if str(graph.value(concept, OWL.deprecated)).lower() != "true":
            called.setdefault(concept, []).append(str(name))
    if not called:
        raise DataFormatError(f"{path}: holds no skos:prefLabel")
    found: dict[Any, list[str]] = {}
    for concept in sorted(called, key=str):
        own = called[concept]
        key = str(concept) if by_uri else next((name for name in own if name in known), own[0])
        more = [name for kind in (SKOS.altLabel, SKOS.hiddenLabel) for name in graph.objects(concept, kind)]
        found.setdefault(key, []).extend([*own, *map(str, sorted(more, key=_order))])
    return {key: list(dict.fromkeys(texts)) for key, texts in found.items()}


def _order(name: Any) -> tuple[str, str]:
    """By language, then by letters."""
    return getattr(name, "language", None) or "", str(name)
