// FNV-1a, 64 bits: unlike std::hash, equal on all ranks and in all releases. Not cryptographic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>

namespace mpi_gdr {

class Fnv1a {
 public:
  void add_word(std::uint64_t word) { value_ = (value_ ^ word) * 1099511628211u; }
  void add(const void* data, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i) add_word(static_cast<const unsigned char*>(data)[i]);
  }
  void add(std::string_view text) { add(text.data(), text.size()); }
  std::uint64_t value() const { return value_; }
  std::string hex() const {
    std::ostringstream text;
    text << std::hex << value_;
    return text.str();
  }

 private:
  std::uint64_t value_ = 14695981039346656037u;
};

}  // namespace mpi_gdr
