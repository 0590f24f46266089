"""examples/generate.py: the sharded model generates the tokens of the whole GPT in this process."""

import pytest
import torch
from support import labs

from mpi_backend.demo.data import VOCAB_SIZE, load
from mpi_backend.demo.model import GPT, GPTConfig

PROMPT, TOKENS = 5, 12
SIZES = {"layers": 2, "heads": 4, "channels": 32}


@pytest.fixture
def model_and_prompts():
    """As in the example, untrained."""
    val = load(2_000_000).val
    starts = torch.linspace(0, len(val) - PROMPT, 3).long()
    torch.manual_seed(1337)
    model = GPT(GPTConfig(VOCAB_SIZE, PROMPT + TOKENS, **SIZES))
    return model, val[starts[:, None] + torch.arange(PROMPT)].long()


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.full)])
def test_tokens(model_and_prompts, tmp_path, ranks):
    model, tokens = model_and_prompts
    arguments = ["--train=0", "--temperature=0", "--rounds=1", "--requests=3", f"--prompt={PROMPT}"]
    arguments += [f"--tokens={TOKENS}", *(f"--{name}={value}" for name, value in SIZES.items())]
    _, result = labs.run("generate.py", tmp_path, *arguments, ranks=ranks)
    with torch.no_grad():
        for _ in range(TOKENS):  # the whole text for each token, without a cache
            tokens = torch.cat([tokens, model(tokens)[:, -1:].argmax(dim=2)], dim=1)
    assert result["tokens"] == tokens.tolist() and result["same"] is True
    assert result["logit_difference"] < 1e-5  # untrained, equal tokens prove little
    assert set(result["table"]) == {"alone", "mpi-gdr", "gloo"}
    assert all(0 < row["p50"] <= row["p99"] for row in result["table"].values())
    assert labs.is_picture(tmp_path / "generate.png")
