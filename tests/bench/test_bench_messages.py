"""`mpi-gdr bench latency|bw|bibw|multi_bw`: received data, formulas, columns. Does not check times."""

import re

import pytest
from support.command import mpi_gdr, mpi_gdr_output

from mpi_backend import selftest
from mpi_backend._tools import raw_mpi
from mpi_backend.bench import messages

# Over torch, then over bare MPI, then with an irecv that corrupts one byte of each message.
EVERY_BENCHMARK = """
import sys
import torch.distributed as dist
from mpi_backend.bench import messages
from mpi_backend.bench.rank import ranks_of

def wrong(backend):
    found = []
    for name in messages.TITLES:
        options = messages.parser_of(name).parse_args(["-n", "2", "-W", "3"][: 2 if name == "latency" else 4])
        options.backend, options.warmup_iters = backend, 1
        ranks = ranks_of(options) if not found else ranks
        rows = [messages.measure(ranks, name, total, options) for total in (1, 5000, 300_000)]
        assert all(row["value"] > 0 for row in rows), rows
        found.append([row["wrong"] for row in rows])
    ranks.close()
    return found

print(f"mpi-gdr {wrong('mpi-gdr')}\\n", end="")  # in one piece: ranks share the pipe
print(f"mpi {wrong('mpi')}\\n", end="")
right = dist.irecv
class Spoiled:
    def __init__(self, tensor, peer):
        self.tensor, self.work = tensor, right(tensor, peer)
    def wait(self):
        self.work.wait()
        self.tensor[0] += 1
dist.irecv = Spoiled
print(f"poisoned {wrong('mpi-gdr')}\\n", end="")
"""


def test_messages_arrive_and_wrong_bytes_are_counted(tmp_path):
    script = tmp_path / "every_benchmark.py"
    script.write_text(EVERY_BENCHMARK)
    output = mpi_gdr_output("run", "-n", "2", str(script))
    none = [[0, 0, 0]] * 4
    # The ping-pong does not use irecv; then three messages one way, both ways, one way.
    poisoned = [[0, 0, 0], [3, 3, 3], [6, 6, 6], [3, 3, 3]]
    for label, expected in (("mpi-gdr", none), ("mpi", none), ("poisoned", poisoned)):
        assert output.count(f"{label} {expected}\n") == 2, output


def test_pairs_and_a_rank_without_one_in_the_columns_of_osu():
    arguments = ("--sizes", "1,4K", "-n", "2", "--window-size", "8")
    output = mpi_gdr_output("bench", "-n", "3", "multi_bw", *arguments)
    assert "# [ pairs: 1 ] [ window size: 8 ]\n" in output
    assert f"# Size    {'MB/s':>20}{'Messages/s':>20}\n" in output
    rows = re.findall(r"^(\d+) +(\d+\.\d\d) +(\d+\.\d\d)$", output, re.MULTILINE)
    assert [row[0] for row in rows] == ["1", "4096"]
    assert output.endswith("# Wrong bytes: 0 OK\n")


class Pair:
    """Rank 0 of four; the pairs took 1 s and 3 s."""

    rank, size, backend, device = 0, 4, "mpi", "cpu"

    def all_gather(self, numbers):
        return [numbers, [3.0], [9.0], [9.0]]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("latency", 1e6 / 20), ("bw", 2 * 10 * 4 * 1000 / 2 / 1e6), ("multi_bw", 2 * 10 * 4 * 1000 / 2 / 1e6)],
)
def test_formulas_are_those_of_osu(name, expected, monkeypatch):
    def time_messages(*exchange, **timeout):
        assert exchange[1:3] == (True, 2)
        return 1.0

    monkeypatch.setattr(raw_mpi, "time_messages", time_messages)
    words = ["-n", "10", "-c", "0"] + (["-W", "4"] if name != "latency" else [])
    row = messages.measure(Pair(), name, 1000, messages.parser_of(name).parse_args([*words, "-w", "0"]))
    assert row["value"] == pytest.approx(expected)
    if name != "latency":
        assert row["messages_per_second"] == pytest.approx(1e3 * expected)


def test_iteration_counts():
    parse = messages.parser_of("bw").parse_args
    assert messages.iteration_counts("bw", 1 << 20, parse(["-w", "7"])) == (20, 7)
    assert messages.iteration_counts("bw", 8, parse(["-i", "10"])) == (10, 3)


def test_table_of_the_comparison():
    def reports(*values):
        return [{"rows": [{"bytes": 8, "value": value}], "unit": "MB/s", "window": 64} for value in values]

    found = {"benchmark": "bw", "ranks": 2, "rounds": 2}
    found["conditions"] = {"cpu": "x", "cores": 2, "library": "y", "torch": "z", "load_average": 0.1}
    found["contenders"] = {"mpi-gdr": reports(20.0, 30.0), "mpi": reports(10.0, 10.0)}
    lines = messages.markdown(found)
    assert lines[2:] == [
        "| bytes | mpi-gdr MB/s | MPI MB/s | mpi-gdr / MPI |",
        "|--:|--:|--:|--:|",
        "| 8 | 25 (20..30) | 10 (10..10) | 2.5 (2..3) |",
    ]


@pytest.mark.full
def test_json_of_a_comparison_with_bare_mpi():
    compared = ("--compare", "mpi,fake", "--rounds", "1", "--json", "-")
    result = mpi_gdr("bench", "-n", "2", "latency", "--sizes", "64", "-n", "2", *compared)
    found = selftest.last_json(result.stdout)
    assert result.returncode == 0 and list(found["contenders"]) == ["mpi-gdr", "mpi", "fake"], result.stderr
    assert [report["wrong"] for (report,) in found["contenders"].values()] == [0, 0, None]
