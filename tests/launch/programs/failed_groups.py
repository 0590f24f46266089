"""Two ranks whose groups are aborted, time out or get a message of another length. Prints "done" last."""

import datetime
import threading

import torch
import torch.distributed as dist
from calls import error_of

ErrorType = torch._C._distributed_c10d.ErrorType
SUCCESS, TIMEOUT, COMM_ERROR = 0, 1, 2  # c10d::WorkResult


def new_group():
    group = dist.new_group()
    return group, group._get_backend(torch.device("cpu")), 1 - dist.get_rank()


def abort_while_another_thread_waits():
    group, backend, peer = new_group()
    assert backend.get_error() == ErrorType.SUCCESS
    finished = dist.all_reduce(torch.ones(2), group=group, async_op=True)
    finished.wait()
    work = group.recv([torch.empty(3)], peer, 0)  # no rank sends
    result, errors, waiting = work.get_future_result(), [], threading.Event()

    def wait():
        waiting.set()
        errors.append(error_of(work.wait))

    thread = threading.Thread(target=wait)
    thread.start()
    waiting.wait()
    backend.abort()
    thread.join(60)
    assert not thread.is_alive() and "aborted by the user" in errors[0], errors
    assert work.is_completed() and not work.is_success() and "aborted" in error_of(work.wait)
    if "exception_ptr" not in dist.Work.exception.__doc__:  # torch 2.11 cannot convert an exception_ptr
        assert "aborted" in str(work.exception())
    assert finished.is_success() and finished.get_future_result().wait() == SUCCESS
    assert result.wait() == COMM_ERROR and backend.get_error() == ErrorType.COMM_ERROR
    assert "aborted by the user" in error_of(lambda: dist.all_reduce(torch.ones(1), group=group))
    backend.abort()
    dist.destroy_process_group(group)
    backend.shutdown()


def timeouts_of_wait_and_of_the_group():
    group, backend, peer = new_group()
    work = group.recv([torch.empty(3)], peer, 0)
    result = work.get_future_result()
    text = error_of(lambda: work.wait(datetime.timedelta(seconds=0.3)))
    assert "timed out" in text and "recv" in text, text
    assert result.wait() == TIMEOUT and backend.get_error() == ErrorType.TIMEOUT
    dist.destroy_process_group(group)

    group, backend, peer = new_group()
    group.set_timeout(datetime.timedelta(seconds=0.3))
    assert backend.options._timeout == datetime.timedelta(seconds=0.3)
    work = group.recv([torch.empty(3)], peer, 0)
    assert "timed out" in error_of(work.wait)
    dist.destroy_process_group(group)


def a_message_longer_than_its_tensor():
    group, _, peer = new_group()
    if dist.get_rank() == 0:
        dist.send(torch.ones(4), peer, group=group)
        return
    text = error_of(lambda: dist.recv(torch.ones(10), peer, group=group))
    assert "recv: rank 0 sent 16 bytes with tag 0" in text and "holds 40" in text, text
    later = error_of(lambda: dist.all_reduce(torch.ones(1), group=group))
    assert "all_reduce: the group failed earlier: recv" in later, later


def an_aborted_group_harms_no_other():
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [2.0] * 3


dist.init_process_group("mpi-gdr", timeout=datetime.timedelta(seconds=100))
abort_while_another_thread_waits()
timeouts_of_wait_and_of_the_group()
a_message_longer_than_its_tensor()
an_aborted_group_harms_no_other()
dist.destroy_process_group()
print("done")
