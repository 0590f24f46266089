"""docs/from-horovod.md: its second program runs unchanged. docs/slurm.md: its scripts are valid shell."""

import re
from pathlib import Path

from support import processes

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)


def test_the_program_of_the_page_trains(tmp_path):
    theirs, ours = blocks("from-horovod.md", "python")
    compile(theirs, "Horovod's", "exec")
    script = tmp_path / "train.py"
    script.write_text(ours)
    output = processes.run([*processes.MPI_GDR_RUN, "-n", "2", script]).expect(0)
    ((ranks, loss),) = re.findall(r"^(\d) ranks, loss (\d+\.\d{4})$", output, re.MULTILINE)
    assert ranks == "2" and 0 < float(loss) < 8  # 8: an untrained model's


def test_batch_scripts_are_shell():
    scripts = blocks("slurm.md", "bash")
    assert ["srun" in script for script in scripts] == [True, False]
    for script in scripts:
        processes.captured(["bash", "-n"], input=script)
