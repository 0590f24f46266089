#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "bootstrap/kv_store.hpp"

namespace mpi_gdr::torch_binding {

class C10dStore : public KvStore {
 public:
  explicit C10dStore(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

  void set(const std::string& key, const std::string& value) override {
    store_->set(key, std::vector<std::uint8_t>(value.begin(), value.end()));
  }
  std::optional<std::string> try_get(const std::string& key) override {
    if (!store_->check({key})) return std::nullopt;  // get() would block
    const std::vector<std::uint8_t> value = store_->get(key);
    return std::string(value.begin(), value.end());
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override { return store_->add(key, amount); }
  bool check(const std::string& key) override { return store_->check({key}); }
  std::unique_ptr<KvStore> clone() override { return std::make_unique<C10dStore>(store_->clone()); }

 private:
  const c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace mpi_gdr::torch_binding
