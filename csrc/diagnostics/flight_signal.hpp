// Writes the flight log and the trace on a signal. The handler only writes to an eventfd (signal-safety(7)).
// One per process. A program's own handler is respected, whether installed before or after.
#pragma once

#include <memory>
#include <thread>

#include "diagnostics/flight_writer.hpp"
#include "diagnostics/trace.hpp"

namespace mpi_gdr {

class FlightSignal {
 public:
  // Does nothing if the signal has a handler, or without an eventfd. `writer` or `trace` may be null.
  FlightSignal(int signal, std::shared_ptr<FlightWriter> writer, std::shared_ptr<const Trace> trace = {});
  ~FlightSignal();  // restores the default, unless the program has installed a handler
  FlightSignal(const FlightSignal&) = delete;
  FlightSignal& operator=(const FlightSignal&) = delete;

  bool installed() const { return thread_.joinable(); }

 private:
  void run();

  const int signal_;
  const std::shared_ptr<FlightWriter> writer_;
  const std::shared_ptr<const Trace> trace_;
  int event_ = -1;
  std::thread thread_;
};

}  // namespace mpi_gdr
