"""Pages written from the program itself, its commands and its HTTP interface; and the report without long tables."""

import inspect
from pathlib import Path

import click
import typer

# Sections of the report with more rows stay in the report, which is a file to download.
MOST_ROWS = 30


def setup(app):
    """Sphinx calls this once."""
    app.connect("builder-inited", write_pages)
    return {"parallel_read_safe": True, "version": "1"}


def write_pages(app):
    """Write the generated pages, and leave a page alone that would not change, so that Sphinx does not read it again."""
    source = Path(app.srcdir)
    pages = {f"reference/{name}": text for name, text in (commands() | {"http.md": http()}).items()}
    report = (source / "results/experiments/report.md").read_text()
    for name, text in (pages | {"results/experiments/paper.md": shortened(report)}).items():
        path = source / name
        path.parent.mkdir(exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


# ---- the report ----
def shortened(report):
    """The report without its long tables, and where these are."""
    first, *sections = report.split("\n## ")
    kept = [
        f"{first}\nAll of it, long tables included: {{download}}`report.md`, and as CSV [tables.tar.xz](tables.tar.xz).\n"
    ]
    for section in sections:
        rows = sum(line.startswith("|") for line in section.splitlines())
        heading = section.splitlines()[0]
        kept.append(section if rows <= MOST_ROWS else f"{heading}\n\nA table of {rows - 2} rows, in the report.\n")
    return "\n## ".join(kept)


# ---- commands ----
def commands():
    """A page for every command with its arguments and options, as its own ``--help`` has them, and a list of them."""
    from blockxmc.cli import app as program

    group = typer.main.get_command(program)
    pages = {f"commands/{name}.md": _command(name, command) for name, command in group.commands.items()}
    lines = [f"| [{name}](commands/{name}.md) | {_cell(_first(command))} |" for name, command in group.commands.items()]
    listed = "\n".join(
        [
            "# Commands\n",
            "Results go to standard output, progress and messages to standard error."
            " Exit codes: 0 done, 2 bad input or usage, 130 interrupted, 1 a defect of ours.\n",
            "| command | what it does |\n|---|---|",
            *lines,
            "\n```{toctree}\n:hidden:",
            *(name.removesuffix(".md") for name in pages),
            "```\n",
        ]
    )
    return pages | {"commands.md": listed}


def _first(command):
    return inspect.cleandoc(command.help or "").split("\n\n")[0]


def _command(name, command):
    context = click.Context(command, info_name=f"blockxmc {name}")
    usage = command.get_usage(context).replace("Usage: ", "")
    rows = [_row(context, param) for param in command.params]
    return (
        f"# blockxmc {name}\n\n{inspect.cleandoc(command.help or '')}\n\n```text\n{usage}\n```\n\n"
        "| option | meaning |\n|---|---|\n" + "\n".join(rows) + "\n"
    )


def _row(context, param):
    record = param.get_help_record(context)
    if param.param_type_name == "argument":
        names, text = f"`{param.name.upper()}`", getattr(param, "help", None) or ""
    else:
        names, text = f"`{record[0]}`", record[1]
    return f"| {names} | {_cell(text)} |"


def _cell(text):
    return " ".join(text.split()).replace("|", "\\|").replace("<", "\\<").replace("[", "\\[")


# ---- the HTTP interface ----
def http():
    """Every address of the service, from the description that the service itself gives at ``/openapi.json``."""
    from blockxmc.service.annif_rest import AnnifRequests
    from blockxmc.service.answers import Requests
    from blockxmc.service.openapi import describe
    from blockxmc.service.settings import Limits

    limits = Limits()
    spec = describe(Requests(limits), AnnifRequests(limits), token=True)
    parts = [
        "# HTTP interface\n",
        "Written from the service's own `/openapi.json`. How to run it: [](../howto/serving.md).\n",
        "| address | what it does | answers |\n|---|---|---|",
    ]
    bodies = []
    for path, methods in spec["paths"].items():
        for method, operation in methods.items():
            if method not in ("get", "post"):
                continue
            answers = ", ".join(operation["responses"])
            parts.append(f"| `{method.upper()} {path}` | {_cell(operation.get('summary', ''))} | {answers} |")
            content = operation.get("requestBody", {}).get("content", {})
            for kind, media in content.items():
                bodies.append((f"{method.upper()} {path}", kind, _resolved(spec, media["schema"])))
    parts.append("\n## Bodies of requests\n")
    for address, kind, schema in bodies:
        rows = [
            f"| `{name}` | {_kind(value)} | {_cell(value.get('description', ''))} |"
            for name, value in schema.get("properties", {}).items()
        ]
        parts.append(
            f"### `{address}`\n\n`{kind}`\n\n| field | type | meaning |\n|---|---|---|\n" + "\n".join(rows) + "\n"
        )
    return "\n".join(parts)


def _resolved(spec, schema):
    while "$ref" in schema:
        schema = spec["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    return schema


def _kind(schema):
    if "enum" in schema:
        return _cell(" or ".join(f"`{value}`" for value in schema["enum"]))
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return _cell(" or ".join(_kind(part) for part in schema[word]))
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return str(schema.get("type", "any"))
