"""The house: imports point one way, from a later room to an earlier one, lazy imports included; files stay small."""

import ast
from pathlib import Path

import pytest

import blockxmc

ROOT = Path(blockxmc.__file__).parent
# What stands on a line may import from its own line and from those above it (DESIGN: "one direction of flow").
LINES = [
    ["errors", "_kernels", "_version", "_core"],
    ["data"],
    ["metrics"],
    ["partition"],
    ["linear"],
    ["routing"],
    ["model"],
    ["learners"],
    ["training"],
    ["encoder"],
    ["classifier", "text", "baselines"],
    ["storage"],
    ["tuning"],
    ["distributed", "service", "annif", "plots"],
    ["paper"],
    ["cli", "__main__"],
]
# Names of the paper's systems where users look for them: imported on first use, and by type checkers.
DOORS = {"baselines": {"paper"}, "data": {"paper"}}
LINE_OF = {room: number for number, rooms in enumerate(LINES) for room in rooms}


def modules():
    """Module name (without the package's) -> path; the package root itself stands outside: it only names things."""
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        if parts:
            found[".".join(parts)] = path
    return found


MODULES = modules()


def imports_of(path):
    """Every module of the package that a file imports, wherever the import stands."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for name in node.names:
                if name.name.startswith("blockxmc."):
                    yield name.name.removeprefix("blockxmc.")
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").split(".")[0] == "blockxmc":
            base = (node.module or "").removeprefix("blockxmc").lstrip(".")
            for name in node.names:
                yield from home_of(base, name.name)


def home_of(base, name):
    whole = f"{base}.{name}" if base else name
    if whole in MODULES or whole == "_kernels":
        yield whole
    elif base:
        yield base
    elif name == "__version__":
        yield "_version"
    else:
        yield blockxmc._HOME[name].removeprefix("blockxmc.")


EDGES = {name: sorted(set(imports_of(path)) - {name}) for name, path in MODULES.items()}


def test_every_room_has_its_line():
    assert {name.split(".")[0] for name in MODULES} <= set(LINE_OF)


@pytest.mark.parametrize("name", sorted(MODULES))
def test_imports_point_upstream(name):
    own = LINE_OF[name.split(".")[0]]
    doors = DOORS.get(name, set())
    against = [other for other in EDGES[name] if (room := other.split(".")[0]) not in doors and LINE_OF[room] > own]
    assert not against, f"{name} imports from downstream: {against}"


def test_only_the_command_line_names_the_paper():
    naming = {name for name, path in MODULES.items() if "blockxmc.paper" in path.read_text()}
    elsewhere = {name for name in naming if name.split(".")[0] not in ("paper", "cli")}
    assert elsewhere == {*DOORS, "storage.registry"}  # both by name only, until somebody asks for a system


def test_no_module_imports_itself_by_way_of_others():
    done, path = set(), []

    def visit(name):
        assert name not in path, " -> ".join([*path[path.index(name) :], name])
        if name in done or name not in EDGES:
            return
        path.append(name)
        for other in EDGES[name]:
            # A package's own names are those of its modules: importing the package from inside is no detour.
            if not name.startswith(other + "."):
                visit(other)
        path.pop()
        done.add(name)

    for name in sorted(EDGES):
        visit(name)


def test_the_root_holds_what_users_import():
    files = {path.stem for path in ROOT.glob("*.py")}
    assert files <= {"__init__", "__main__", "_version", "annif", "baselines", "classifier", "errors", "plots", "text"}


@pytest.mark.parametrize("name", sorted(MODULES))
def test_files_and_functions_can_be_held_in_the_head(name):
    text = MODULES[name].read_text()
    assert text.count("\n") <= 420, "a wall is missing: split the file"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            arguments = [a for a in node.args.args + node.args.kwonlyargs if a.arg not in ("self", "cls")]
            lines = node.end_lineno - node.lineno + 1
            assert lines <= 60 or _is_command(name, node), f"{node.name} has {lines} lines"
            few = len(arguments) <= 8 or node.name == "__init__" or _is_command(name, node)
            assert few, f"{node.name} has {len(arguments)} parameters"


def _is_command(name, node):
    """A command of the command line lists its options as parameters."""
    return name == f"cli.{node.name}"
