"""docs/slurm.md: its batch script runs unchanged, on CPUs."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from slurm_user import PROGRAMS, User, reports

PAGE = Path(__file__).parents[2] / "docs" / "slurm.md"
# sbatch's options precede the script's: a user with four CPUs on a node.
SIZES = ["--ntasks-per-node=2", "--cpus-per-task=2"]


def script_of_page() -> str:
    """Without the line that the page marks for GPUs."""
    (script,) = re.findall(r"^```bash\n(.*?srun.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    lines = script.splitlines(keepends=True)
    kept = [line for line in lines if "leave it out on CPUs" not in line]
    assert len(kept) == len(lines) - 1 and "gpus" not in "".join(kept)
    return "".join(kept)


def prepare_home(user: User) -> None:
    """Creates what the page assumes: an environment in ~/venv, and the script in the job's folder."""
    (user.home / "venv").symlink_to(sys.prefix)
    shutil.copy(PROGRAMS / "train.py", user.home)


def test_the_batch_script(user: User):
    prepare_home(user)
    with user.sbatch(script_of_page(), *SIZES) as job:
        assert job.finish(60).status == 0, user.output()
    ranks = reports(user.output())
    assert [rank["host"] for rank in ranks] == ["n1", "n1", "n2", "n2"]
    assert len({rank["weight"] for rank in ranks}) == 1 and max(rank["loss"] for rank in ranks) < 0.1
    assert all((rank["threads"], rank["secret"]) == ("1", True) for rank in ranks)
    assert "WARN" not in user.output()
