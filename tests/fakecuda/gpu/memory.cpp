#include "gpu/memory.hpp"

#include "gpu/weak_memory.hpp"

namespace fakecuda {
namespace {

constexpr std::size_t kMostOfAThread = 256;  // words

}  // namespace

const MemoryRules* memory_rules = nullptr;

void set_memory_rules(const MemoryRules* rules) { memory_rules = rules; }

void weak_load(const Thread& thread, Order order, ptx::u64 address, void* out, std::size_t bytes,
               bool foreign) {
  const auto* const from = reinterpret_cast<const void*>(address);
  weak_memory()->read(from, out, bytes, foreign && order == Order::Weak);
  thread.stores->of_block.lay_over(from, out, bytes);
  thread.stores->of_threads[thread.tid].lay_over(from, out, bytes);
}

void weak_store(Thread& thread, Order order, ptx::u64 address, const void* in, std::size_t bytes) {
  auto* const to = reinterpret_cast<void*>(address);
  StoreBuffer& own = thread.stores->of_threads[thread.tid];
  if (order == Order::Weak) {
    own.put(to, in, bytes);
    if (own.words() > kMostOfAThread) weak_fence(thread, Scope::Device);
    return;
  }
  own.drop(to, bytes);
  thread.stores->of_block.drop(to, bytes);
  weak_memory()->write_through(to, in, bytes);
}

void weak_fence(Thread& thread, Scope scope) {
  BlockStores& stores = *thread.stores;
  stores.of_threads[thread.tid].drain_into(stores.of_block);
  if (scope == Scope::Block) return;
  weak_memory()->take(stores.of_block);
  if (scope == Scope::Device) return;
  weak_memory()->release();
  weak_memory()->acquire();
}

}  // namespace fakecuda
