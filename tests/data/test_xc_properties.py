"""The compiled XC reader against the plain one, on made-up files."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from xc_reference import compare, exact_float32

from blockxmc.data import read_xc

number = st.one_of(
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(allow_nan=False, allow_infinity=False, places=5).map(str),
    st.integers(0, 10**25).map(str),
    st.tuples(st.integers(0, 10**20), st.integers(-60, 45)).map(lambda p: f"{p[0]}e{p[1]}"),
    st.floats(width=64, min_value=1e-40, max_value=1e38).map(repr),
)
token = st.one_of(
    st.tuples(st.integers(0, 30), number).map(lambda p: f"{p[0]}:{p[1]}"),
    st.tuples(st.integers(0, 30), st.integers(0, 99)).map(lambda p: f"{p[0]}:0.{p[1]}"),
)
labels = st.lists(st.integers(0, 12), max_size=5).map(lambda ids: ",".join(map(str, ids)))
gap = st.sampled_from([" ", "\t", "  "])
row = st.tuples(labels, gap, st.lists(token, max_size=6), gap, st.sampled_from(["", " ", "\r"])).map(
    lambda p: p[0] + p[1] + p[3].join(p[2]) + p[4]
)
noise = st.text(alphabet="0123456789:,.-+eEnaif \t\r\n\0x", max_size=12)


@settings(max_examples=150)
@given(st.lists(st.one_of(row, row, row, noise), max_size=8), st.booleans(), st.integers(1, 3), st.booleans())
def test_same_as_the_reference(rows: list[str], header: bool, threads: int, final: bool) -> None:
    text = "\n".join(rows) + ("\n" if final else "")
    if header:
        text = f"{len(rows)} 31 13\n{text}"
    with tempfile.TemporaryDirectory() as folder:
        compare(lambda path: read_xc(path, n_jobs=threads), Path(folder) / "f.txt", text.encode())


@settings(max_examples=150)
@given(st.one_of(number, st.floats(width=32, allow_nan=False, allow_infinity=False).map(lambda x: f"{x:.30e}")))
def test_floats_are_correctly_rounded(text: str) -> None:
    want = exact_float32(text.encode())
    if not np.isfinite(want):
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "f.txt"
        file.write_text(f"1 2 1\n0 0:1 1:{text}\n")
        X = read_xc(file).X
    assert X[0, 1].view(np.uint32) & 0x7FFFFFFF == want.view(np.uint32) & 0x7FFFFFFF
    assert X[0, 1] == want
