import json

import pytest
from cli_parts import run
from helpers import blocky

from blockxmc.data import write_xc
from blockxmc.paper.expected import BASES, Sizes, expected, hours

# Sizes of training sets, and the CPU seconds that each base took on them.
TRAINED = [
    (Sizes(4880, 1836, 159, 69, 2.4), 0.44, 2.47, 0.34),
    (Sizes(12920, 500, 983, 18, 19.1), 2.67, 3.80, 2.66),
    (Sizes(15711, 17917, 6563, 41, 4.4), 16.3, 45.1, 14.4),
    (Sizes(10000, 32454, 8901, 141, 6.1), 55.5, 52.8, 25.8),
    (Sizes(14000, 19855, 17502, 19, 9.9), 24.2, 11.9, 13.5),
    (Sizes(10000, 59917, 7431, 114, 5.7), 37.1, 58.4, 23.7),
]


@pytest.mark.parametrize("base", range(len(BASES)))
def test_seconds_are_right_within_a_factor_of_four(base):
    for sizes, *seconds in TRAINED:
        ratio = 3600 * expected(sizes, BASES[base])["base_cpu_hours"] / seconds[base]
        assert 0.25 < ratio < 4, (sizes, ratio)


def test_more_cores_take_less_time():
    assert hours(10.0, 2) > hours(10.0, 16) > hours(10.0, 64)


def test_the_command_tells_hours_of_the_experiment(capsys, tmp_path):
    write_xc(tmp_path / "train.txt", *blocky(n=60))
    code, out, _ = run(capsys, "estimate", tmp_path / "train.txt", "--base", "leml", "--json")
    found = json.loads(out)
    assert code == 0
    assert 0 < found["base_cpu_hours"] < found["protocol_cpu_hours"] < found["with_letter_cpu_hours"]
    assert "to the letter" in run(capsys, "estimate", tmp_path / "train.txt", "--base", "leml")[1]
    code, _, err = run(capsys, "estimate", tmp_path / "train.txt", "--base", "svm")
    assert (code, err) == (2, "error: --base must be one of dismec, pd-sparse, leml, got 'svm'\n")
