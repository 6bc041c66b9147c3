"""The description of the service for machines (OpenAPI 3.1), made from the shapes that read requests."""

from __future__ import annotations

from typing import Any

from blockxmc._version import __version__
from blockxmc.service.annif_rest import AnnifRequests
from blockxmc.service.answers import Requests

JSON = "application/json"
# Who watches the service needs no token.
_OPEN: dict[str, Any] = {"security": []}
_TEXT: dict[str, Any] = {"type": "string"}
_WHOLE: dict[str, Any] = {"type": "integer"}
_NUMBER: dict[str, Any] = {"type": "number"}
_LABEL: dict[str, Any] = {"type": ["string", "integer"]}


def _object(optional: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [n for n in properties if n not in optional]}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return schema | {"type": [*kinds, "null"]}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


_SUBJECT = _object(uri=_TEXT, label=_TEXT, notation=_or_null(_TEXT), score=_NUMBER)
_SUGGESTION = _object(id=_WHOLE, label=_LABEL, score=_NUMBER)
_FEATURE = _object(feature=_WHOLE, name=_or_null(_TEXT), value=_NUMBER, part=_NUMBER)
_VISITED = _object(block=_WHOLE, probability=_NUMBER, has_label={"type": "boolean"})
_WORDS = _or_null(_TEXT)
_NEIGHBOR = _object(
    row=_WHOLE,
    similarity=_NUMBER,
    has_label={"type": "boolean"},
    labels=_list(_LABEL),
    id=_WORDS,
    title=_WORDS,
    text=_WORDS,
)
_RESULT = _object(suggestions=_list(_SUGGESTION), known={"type": "boolean"})
_NUMBERS = {"type": "object", "additionalProperties": _or_null(_NUMBER)}
_LISTED = _object(id=_WHOLE, label=_LABEL, training_rows=_WHOLE)
# Schemas of what is answered.
_ANSWERS = {
    "Problem": _object(type=_TEXT, title=_TEXT, status=_WHOLE, detail=_TEXT),
    "Suggestions": _object(model=_TEXT, version=_TEXT, results=_list(_RESULT)),
    "Explanations": _object(
        model=_TEXT,
        version=_TEXT,
        explanations=_list(
            _object(
                id=_WHOLE,
                label=_LABEL,
                fate=_TEXT,
                rank=_or_null(_WHOLE),
                rank_before_reranker=_or_null(_WHOLE),
                score=_or_null(_NUMBER),
                probability=_or_null(_NUMBER),
                constant=_NUMBER,
                features=_list(_FEATURE),
                other_features=_NUMBER,
                terms=_NUMBERS,
                blocks=_list(_VISITED),
                neighbors=_list(_NEIGHBOR),
            )
        ),
    ),
    "Card": _object(
        name=_TEXT,
        version=_TEXT,
        served_since=_TEXT,
        estimator=_TEXT,
        classifier=_TEXT,
        takes_text={"type": "boolean"},
        example=_or_null(_TEXT),
        labels=_WHOLE,
        features=_WHOLE,
        training_rows=_WHOLE,
        model_mb=_NUMBER,
        blocks=_or_null(_WHOLE),
        lam=_or_null(_NUMBER),
        captured=_or_null(_NUMBER),
        f1_threshold=_or_null(_NUMBER),
        probabilities={"type": "boolean"},
        held_out=_NUMBERS,
        cost=_NUMBERS,
        provenance={"type": "object"},
    ),
    "Models": _object(models=_list(_ref("Card")), updates={"type": "boolean"}),
    "Blocks": _object(blocks=_list(_object(block=_WHOLE, rows=_WHOLE, labels=_WHOLE, typical=_list(_LABEL)))),
    "Block": _object(block=_WHOLE, rows=_WHOLE, n_labels=_WHOLE, labels=_list(_LISTED)),
    "Labels": _object(labels=_list(_LISTED)),
    "Label": _object(
        id=_WHOLE,
        label=_LABEL,
        training_rows=_WHOLE,
        blocks=_list(_WHOLE),
        co_labels=_or_null(_list(_LISTED)),
    ),
    "Map": _object(
        rows=_WHOLE,
        columns=_list(_WHOLE),
        offsets=_list(_WHOLE),
        label_clusters=_list(_list(_list(_WHOLE))),
        dots=_list(_list(_WHOLE)),
        share_of_dots=_NUMBER,
    ),
    "Updated": _object(model=_TEXT, version=_TEXT),
    "State": _object(status=_TEXT),
    "About": _object(title=_TEXT, version=_TEXT),
    "Project": _object(
        project_id=_TEXT,
        name=_TEXT,
        language=_TEXT,
        backend={"type": "object"},
        vocab={"type": "object"},
        vocab_language=_TEXT,
        is_trained={"type": "boolean"},
        modification_time=_or_null(_TEXT),
    ),
    "Projects": _object(projects=_list(_ref("Project"))),
    "Subjects": _object(results=_list(_SUBJECT)),
    "Batch": _list(
        _object(("document_id",), results=_list(_SUBJECT), document_id=_or_null(_TEXT)),
    ),
}


def describe(requests: Requests, annif: AnnifRequests, *, token: bool) -> dict[str, Any]:
    """The whole description."""
    bodies = {"SuggestRequest": requests.suggest, "ExplainRequest": requests.explain, "UpdateRequest": requests.update}
    bodies["LabelsRequest"] = requests.labels
    schemas = {name: shape.schema() for name, shape in bodies.items()} | _ANSWERS
    schemas["AnnifBatchRequest"] = annif.batch.schema()
    limit, threshold = annif.limit.schema(), annif.threshold.schema()
    form = _object(("limit", "threshold"), text=annif.text.schema(), limit=limit, threshold=threshold)
    limits = [_query("limit", limit), _query("threshold", threshold)]
    number = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}
    model, project = _path("name"), _path("project_id")
    one = "/v1/models/{name}"
    search = [model, _query("q", {"type": "string", "maxLength": 200}), _query("limit", _upto(100))]
    found: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "blockxmc", "version": __version__, "license": {"name": "Apache-2.0"}},
        "paths": {
            "/v1/models": {"get": _call("The served models.", "Models")},
            one: {"get": _call("The card of a model.", "Card", [model])},
            f"{one}/suggest": {"post": _call("Labels of texts or rows.", "Suggestions", [model], "SuggestRequest")},
            f"{one}/explain": {"post": _call("Why labels fit.", "Explanations", [model], "ExplainRequest")},
            f"{one}/update": {"post": _call("Teach new rows.", "Updated", [model], "UpdateRequest")},
            f"{one}/blocks": {"get": _call("All blocks.", "Blocks", [model])},
            f"{one}/blocks/{{block}}": {"get": _call("One block.", "Block", [model, _path("block", number)])},
            f"{one}/labels": {"get": _call("Search labels.", "Labels", search)}
            | {"post": _call("Add labels by their names.", "Updated", [model], "LabelsRequest")},
            f"{one}/labels/{{label}}": {"get": _call("One label.", "Label", [model, _path("label", number)])},
            f"{one}/map": {"get": _call("Rows and labels by block.", "Map", [model])},
            "/v1/": {"get": _call("Annif: who is speaking.", "About")},
            "/v1/projects": {"get": _call("Annif: the models as projects.", "Projects")},
            "/v1/projects/{project_id}": {"get": _call("Annif: one project.", "Project", [project])},
            "/v1/projects/{project_id}/suggest": {"post": _form("Annif: subjects of a text.", [project], form)},
            "/v1/projects/{project_id}/suggest-batch": {
                "post": _call("Annif: subjects of texts.", "Batch", [project, *limits], "AnnifBatchRequest")
            },
            "/healthz": {"get": _call("Whether the service runs.", "State") | _OPEN},
            "/readyz": {"get": _call("Whether models are loaded.", "State") | _OPEN},
        },
        "components": {"schemas": schemas},
    }
    if token:
        found["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        found["security"] = [{"token": []}]
    return found


def _call(
    summary: str, answer: str, parameters: list[dict[str, Any]] | None = None, body: str | None = None
) -> dict[str, Any]:
    problem = {"description": "A problem.", "content": {"application/problem+json": {"schema": _ref("Problem")}}}
    found: dict[str, Any] = {
        "summary": summary,
        "parameters": parameters or [],
        "responses": {
            "200": {"description": summary, "content": {JSON: {"schema": _ref(answer)}}},
            "default": problem,
        },
    }
    if body is not None:
        found["requestBody"] = {"required": True, "content": {JSON: {"schema": _ref(body)}}}
    return found


def _form(summary: str, parameters: list[dict[str, Any]], form: dict[str, Any]) -> dict[str, Any]:
    content = {"application/x-www-form-urlencoded": {"schema": form}}
    return _call(summary, "Subjects", parameters) | {"requestBody": {"required": True, "content": content}}


def _path(name: str, schema: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": schema or _TEXT}


def _query(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": schema}


def _upto(most: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": 1, "maximum": most}
