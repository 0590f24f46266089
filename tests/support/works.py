"""What torch's Works say of themselves."""

import torch.distributed as dist


def exception_of(work):
    """Work.exception(); torch 2.11 cannot convert it for Python, so there it is what wait() raises."""
    if "exception_ptr" not in dist.Work.exception.__doc__:
        return work.exception()
    try:
        work.wait()
    except RuntimeError as error:
        return error
    return None
