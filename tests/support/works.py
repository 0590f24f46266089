import torch.distributed as dist


def exception_of(work):
    """Work.exception(); torch 2.11 cannot convert it, so there it is wait()'s exception."""
    if "exception_ptr" not in dist.Work.exception.__doc__:
        return work.exception()
    try:
        work.wait()
    except RuntimeError as error:
        return error
    return None
