// Ctrl-C while a call of ours waits: handlers of Python run on its main thread, which must ask for them.
#pragma once

#include <exception>

namespace mpigdr::torch_binding {

// What a Python handler of a pending signal has raised (KeyboardInterrupt), else null. On the main thread
// only; on others null at once. Takes the GIL.
std::exception_ptr pending_interrupt();
// Throws it.
void check_interrupt();

}  // namespace mpigdr::torch_binding
