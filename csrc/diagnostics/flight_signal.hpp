// Writes the flight log and the trace when the process is sent a signal. The handler only adds to an eventfd
// (signal-safety(7)); a thread that waits for it writes the files. One per process, as is the disposition of
// a signal. A program that handles the signal itself keeps it, whether it says so before or after.
#pragma once

#include <memory>
#include <thread>

#include "diagnostics/flight_writer.hpp"
#include "diagnostics/trace.hpp"

namespace mpi_gdr {

class FlightSignal {
 public:
  // Does nothing if the signal is not at its default, or there is no eventfd. One of the others may be null.
  FlightSignal(int signal, std::shared_ptr<FlightWriter> writer, std::shared_ptr<const Trace> trace = {});
  ~FlightSignal();  // gives the signal its default back, unless the program has taken it by now
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
