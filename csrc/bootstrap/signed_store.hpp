// Signs and verifies values of the store, because torch's store serves every process that reaches its port. A
// signature is an HMAC-SHA256 over key and value; keys name run, attempt, generation and list position. add()
// and check() are not signed: forging them can delay or prevent a start, not control it. The secret is
// MPI_GDR_SECRET (unset: values are not signed); once MPI runs, the ranks mix random bytes into it.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "bootstrap/kv_store.hpp"
#include "common/error.hpp"
#include "common/sha256.hpp"

namespace mpi_gdr {

// A value not signed for this key by a rank of the job, or a signed value where this rank has no secret.
class BadSignature : public Error {
 public:
  explicit BadSignature(const std::string& key);
};

// Thread-safe.
class Signer {
 public:
  explicit Signer(std::string_view secret) : secret_(secret) {}
  // The process's signer, with the secret of its environment. Throws InvalidUsage if the secret is malformed.
  static Signer& of_launch();

  // Derives the secret of later signatures from the present one and `random`, which only the ranks share.
  void begin_session(std::string_view random);

  std::string seal(const std::string& key, const std::string& value) const;
  // The value that was sealed for this key. Throws BadSignature.
  std::string open(const std::string& key, const std::string& sealed) const;

 private:
  std::string signature(const std::string& key, std::string_view value) const;  // "": no secret

  mutable std::mutex mutex_;
  std::string secret_;
};

class SignedStore : public KvStore {
 public:
  // `signer` must outlive this store and its clones.
  SignedStore(std::unique_ptr<KvStore> store, const Signer& signer)
      : store_(std::move(store)), signer_(signer) {}

  void set(const std::string& key, const std::string& value) override {
    store_->set(key, signer_.seal(key, value));
  }
  // Throws BadSignature.
  std::optional<std::string> try_get(const std::string& key) override {
    const auto sealed = store_->try_get(key);
    return sealed ? std::optional(signer_.open(key, *sealed)) : std::nullopt;
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override { return store_->add(key, amount); }
  bool check(const std::string& key) override { return store_->check(key); }
  std::unique_ptr<KvStore> clone() override {
    return std::make_unique<SignedStore>(store_->clone(), signer_);
  }

 private:
  const std::unique_ptr<KvStore> store_;
  const Signer& signer_;
};

}  // namespace mpi_gdr
