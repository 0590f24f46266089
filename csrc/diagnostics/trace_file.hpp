// The trace as a file: JSON in the Chrome trace event format (object form), which Perfetto and
// chrome://tracing read. docs/tracing.md describes what is in it.
#pragma once

#include <string>

#include "diagnostics/trace.hpp"

namespace mpigdr {

// `reason`: why it is written, for the reader.
std::string chrome_trace(const Trace::Snapshot& shot, const TraceOptions& options, const std::string& reason);

// The file of one rank: %r in `pattern` is its rank, %h the host's name, %p the process id. Without %r, a job
// of several ranks has ".rank<rank>" put in front of the file name's extension: "step.rank3.json".
std::string trace_path(const std::string& pattern, int rank, int size);

}  // namespace mpigdr
