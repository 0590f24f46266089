// What a rank writes into the store is signed, and what it reads is believed only if another rank of the job
// has signed it: torch's store serves every process that reaches its port.
//
// A signature is an HMAC-SHA256 over the key and the value. Keys name the run, the attempt, the generation
// and the place in a list, so that a value says nothing at another key. Counters (add()) and whether a key is
// there (check()) are not signed: who forges them can delay a job or keep it from starting, not steer it.
//
// Before MPI runs, the secret of the launch signs (MPI_GDR_SECRET); without one, values are plain. As soon as
// MPI runs, its ranks have random bytes in common, and values are signed in any case.
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

// A value that no rank of the job has signed for this key, or a signed one where this rank has no secret.
class BadSignature : public Error {
 public:
  explicit BadSignature(const std::string& key);
};

// Thread-safe.
class Signer {
 public:
  // `secret`: "" for none.
  explicit Signer(std::string_view secret);
  // The one of this process, with the secret of its environment. Throws InvalidUsage if that is malformed.
  static Signer& of_launch();

  // From now on the key is made of the secret and of these bytes, which only the ranks of the job have.
  void begin_session(std::string_view random);

  std::string seal(const std::string& key, const std::string& value) const;
  // The value that was sealed for this key. Throws BadSignature.
  std::string open(const std::string& key, const std::string& sealed) const;

 private:
  std::string signature(const std::string& key, std::string_view value) const;  // "": there is no secret

  mutable std::mutex mutex_;
  std::string secret_;
};

class SignedStore : public KvStore {
 public:
  // `signer` outlives it and its clones.
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
