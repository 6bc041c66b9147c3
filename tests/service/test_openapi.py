"""The description is true: requests are read as it says, and answers have the form it says."""

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockxmc.service.annif_rest import AnnifRequests
from blockxmc.service.answers import Requests
from blockxmc.service.problems import Problem
from blockxmc.service.settings import Limits

MODEL = "/v1/models/packages"
LIMITS = Limits(texts=3, text_chars=20, labels=3, k=9, row_features=4)
SHAPES = {
    "suggest": Requests(LIMITS).suggest,
    "explain": Requests(LIMITS).explain,
    "update": Requests(LIMITS).update,
    "labels": Requests(LIMITS).labels,
    "annif": AnnifRequests(LIMITS).batch,
}
# Values near the borders of what is allowed, and every kind of JSON value.
plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 10),
    st.floats(-2, 1e7),
    st.sampled_from([5.0, 2**31, "f1", "", "a" * 21, 1e31]),
)
row = st.fixed_dictionaries(
    {"indices": st.lists(plain, max_size=5)}, optional={"values": st.lists(plain, max_size=5), "more": plain}
)
values = st.one_of(plain, st.lists(plain, max_size=4), st.lists(st.lists(plain, max_size=4), max_size=4), row)
values = st.one_of(values, st.lists(row, max_size=4), st.lists(st.fixed_dictionaries({"text": plain}), max_size=4))
names = ["text", "texts", "rows", "row", "k", "threshold", "allow", "deny", "labels", "documents", "other"]
bodies = st.one_of(values, st.dictionaries(st.sampled_from(names), values, max_size=4))
good = st.fixed_dictionaries({"text": st.text(max_size=21)}, optional=dict.fromkeys(names[4:], values))


@pytest.mark.parametrize("name", SHAPES)
@given(body=st.one_of(bodies, good))
def test_a_body_is_read_where_its_schema_allows_it(name, body):
    shape = SHAPES[name]
    allowed = jsonschema.Draft202012Validator(shape.schema()).is_valid(body)
    if allowed:
        assert shape.read(body).keys() == body.keys()
    else:
        with pytest.raises(Problem, match=r"must|lacks|unknown"):
            shape.read(body)


@pytest.fixture(scope="module")
def description(client):
    return client.get("/openapi.json").json()


def test_every_address_is_described(client, description):
    described = {
        (path.replace("project_id", "name"), method) for path, calls in description["paths"].items() for method in calls
    }
    described = {
        (path.replace("{block}", "{number}").replace("{label}", "{number}"), method) for path, method in described
    }
    routes = {
        (route.path, method.lower()) for route in client.service.app.routes for method in route.methods - {"HEAD"}
    }
    page = {("/", "get"), ("/{file}", "get"), ("/openapi.json", "get"), ("/metrics", "get")}
    assert described == routes - page


CALLS = [
    ("/v1/models", {}, None),
    ("/v1/models/{name}", {"name": "packages"}, None),
    ("/v1/models/{name}/suggest", {"name": "packages"}, {"texts": ["python library", ""]}),
    ("/v1/models/{name}/explain", {"name": "packages"}, {"text": "python library", "labels": ["perl", 0]}),
    ("/v1/models/{name}/update", {"name": "packages"}, {"texts": ["a"], "labels": [["b"]]}),
    ("/v1/models/{name}/blocks", {"name": "packages"}, None),
    ("/v1/models/{name}/blocks/{block}", {"name": "packages", "block": 0}, None),
    ("/v1/models/{name}/labels", {"name": "packages"}, None),
    ("/v1/models/{name}/labels/{label}", {"name": "packages", "label": 0}, None),
    ("/v1/models/{name}/map", {"name": "packages"}, None),
    ("/v1/", {}, None),
    ("/v1/projects", {}, None),
    ("/v1/projects/{project_id}", {"project_id": "packages"}, None),
    ("/v1/projects/{project_id}/suggest", {"project_id": "packages"}, "text=python"),
    ("/v1/projects/{project_id}/suggest-batch", {"project_id": "packages"}, {"documents": [{"text": "python"}]}),
    ("/healthz", {}, None),
    ("/readyz", {}, None),
]


def test_every_call_is_tried(description):
    assert [path for path, _, _ in CALLS] == list(description["paths"])


@pytest.mark.parametrize(("path", "places", "body"), CALLS)
def test_answers_have_the_form_that_is_described(client, description, path, places, body):
    call = next(iter(description["paths"][path].values()))
    address = path.format(**places)
    form = {"content-type": "application/x-www-form-urlencoded"}
    if body is None:
        answers = [client.get(address), client.get(address.replace("packages", "none"))]
    elif isinstance(body, str):
        answers = [client.post(address, content=body, headers=form), client.post(address, content="", headers=form)]
    else:
        answers = [client.post(address, json=body), client.post(address, json={"wrong": 1})]
        jsonschema.validate(body, resolved(call["requestBody"]["content"]["application/json"]["schema"], description))
    expected = [403 if path.endswith("update") else 200]
    assert [answer.status_code for answer in answers[:1]] == expected
    for answer in answers:
        response = call["responses"].get(str(answer.status_code), call["responses"]["default"])
        schema = response["content"][answer.headers["content-type"]]["schema"]
        jsonschema.validate(answer.json(), resolved(schema, description))


def resolved(schema, description):
    return schema | {"components": description["components"]}
