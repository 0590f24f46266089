"""examples/generate.py: the tokens of the cut model are those of the whole GPT in this process."""

import json
from pathlib import Path

import pytest
import torch
from support import processes

EXAMPLES = Path(__file__).parents[2] / "examples"
PROMPT, TOKENS = 5, 12
SIZES = {"layers": 2, "heads": 4, "channels": 32}


@pytest.fixture
def model_and_prompts(monkeypatch):
    """As the example begins with them, untrained."""
    monkeypatch.syspath_prepend(EXAMPLES / "gpt")
    from data import VOCAB_SIZE, load
    from model import GPT, GPTConfig

    val = load(2_000_000).val
    starts = torch.linspace(0, len(val) - PROMPT, 3).long()
    torch.manual_seed(1337)
    model = GPT(GPTConfig(VOCAB_SIZE, PROMPT + TOKENS, **SIZES))
    return model, val[starts[:, None] + torch.arange(PROMPT)].long()


def check(ranks, model, tokens, out):
    arguments = ["--train=0", "--temperature=0", "--requests=3", f"--prompt={PROMPT}", f"--tokens={TOKENS}"]
    arguments += ["--rounds=1", "--device=cpu", f"--out={out}", *(f"--{k}={v}" for k, v in SIZES.items())]
    command = [*processes.MPI_GDR_RUN, "-n", str(ranks), EXAMPLES / "generate.py", *arguments]
    processes.run(command).expect(0)
    result = json.loads((out / "result.json").read_text())
    with torch.no_grad():
        for _ in range(TOKENS):  # the whole text again for each token, without any cache
            tokens = torch.cat([tokens, model(tokens)[:, -1:].argmax(dim=2)], dim=1)
    assert result["tokens"] == tokens.tolist() and result["same"] is True
    assert result["logit_difference"] < 1e-5
    assert set(result["table"]) == {"alone", "mpi-gdr", "gloo"}
    for row in result["table"].values():
        assert 0 < row["p50"] <= row["p99"]
    assert (out / "generate.png").stat().st_size > 0


def test_two_ranks(model_and_prompts, tmp_path):
    check(2, *model_and_prompts, tmp_path)


@pytest.mark.full
def test_four_ranks(model_and_prompts, tmp_path):
    check(4, *model_and_prompts, tmp_path)
