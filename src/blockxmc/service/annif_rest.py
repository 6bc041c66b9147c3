"""Annif's REST interface on our models, so that its clients and its ``http`` backend work unchanged.

A model is a project, a label is a subject. Where label names are URIs (as Annif's corpora have them) they are the
subjects' URIs; other names are handed out as they are, as URI and as label.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs

from blockxmc._version import __version__
from blockxmc.service.answers import suggest
from blockxmc.service.models import ServedModel
from blockxmc.service.problems import Problem
from blockxmc.service.settings import Limits
from blockxmc.service.shapes import Either, ListOf, Number, Object, Text, Whole, Word

DEFAULT_LIMIT = 10


class AnnifRequests:
    """The bodies and forms of Annif's interface, within the limits of a service."""

    def __init__(self, limits: Limits) -> None:
        text = Text(limits.text_chars)
        self.limit, self.threshold = Whole(1, limits.k), Number()
        document = Object({"text": text, "document_id": Either(Word(None), Text(1000))}, ("text",))
        self.batch = Object({"documents": ListOf(document, limits.texts)}, ("documents",))
        self.text = text

    def form(self, content: bytes) -> dict[str, Any]:
        """text, limit and threshold of a form."""
        try:
            fields = parse_qs(content.decode(), keep_blank_values=True, strict_parsing=False, max_num_fields=100)
        except (UnicodeDecodeError, ValueError):
            raise Problem(400, "the form is not application/x-www-form-urlencoded in UTF-8") from None
        given = {name: values[-1] for name, values in fields.items()}
        if "text" not in given:
            raise Problem(400, "the form lacks the field text")
        return {"text": self.text.read(given["text"], "text"), **self.numbers(given)}

    def numbers(self, given: Any) -> dict[str, Any]:
        """limit and threshold of a form or a query."""
        try:
            limit = int(given.get("limit", DEFAULT_LIMIT))
            threshold = float(given.get("threshold", 0.0))
        except ValueError:
            raise Problem(422, "limit must be a whole number and threshold a number") from None
        return {"k": self.limit.read(limit, "limit"), "threshold": self.threshold.read(threshold, "threshold")}


def about() -> dict[str, str]:
    """Who is speaking."""
    return {"title": "blockxmc: Annif's REST API", "version": __version__}


def project(model: ServedModel) -> dict[str, Any]:
    """A model as Annif describes a project."""
    return {
        "project_id": model.name,
        "name": model.name,
        "language": "und",
        "backend": {"backend_id": "blockxmc"},
        "vocab": {"vocab_id": model.name, "languages": ["und"]},
        "vocab_language": "und",
        "is_trained": True,
        "modification_time": model.provenance.get("created"),
    }


def suggestions(model: ServedModel, body: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """The suggestions of each text in Annif's form. Scores are probabilities; margins are cut to 0..1 as Annif does."""
    return [
        [
            {
                "uri": str(s["label"]),
                "label": str(s["label"]),
                "notation": None,
                "score": min(max(s["score"], 0.0), 1.0),
            }
            for s in result["suggestions"]
        ]
        for result in suggest(model, body)["results"]
    ]
