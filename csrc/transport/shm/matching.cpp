#include "transport/shm/matching.hpp"

#include <algorithm>
#include <utility>

#include "transport/transport.hpp"

namespace mpi_gdr::shm {

void move(Transfer& transfer, Transfers& to) {
  to.splice(to.end(), *transfer.list, transfer.place);
  transfer.list = &to;
}

Transfer* find(Transfers& transfers, std::uint64_t id) {
  const auto found =
      std::find_if(transfers.begin(), transfers.end(), [&](const Transfer& t) { return t.id == id; });
  return found == transfers.end() ? nullptr : &*found;
}

Transfer* Matching::posted(int source, int tag) {
  for (Transfer& receive : posted_[bucket(tag)])
    if (receive.tag == tag && (receive.peer == source || receive.peer == kAnySource)) return &receive;
  return nullptr;
}

bool Matching::take(const Transfer& receive, Unexpected& message) {
  auto& messages = unexpected_[bucket(receive.tag)];
  for (auto m = messages.begin(); m != messages.end(); ++m) {
    if (m->tag != receive.tag || (receive.peer != kAnySource && receive.peer != m->source)) continue;
    message = std::move(*m);
    messages.erase(m);
    return true;
  }
  return false;
}

}  // namespace mpi_gdr::shm
