#include "bootstrap/signed_store.hpp"

#include <algorithm>

#include "common/env.hpp"

namespace mpi_gdr {
namespace {

constexpr std::string_view kMark = "mpi-gdr signed 1\n";

}  // namespace

BadSignature::BadSignature(const std::string& key)
    : Error(ErrorCode::Remote, "the value of '" + key +
                                   "' in the store is not signed with this launch's secret: "
                                   "is MPI_GDR_SECRET equal on all ranks?") {}

Signer& Signer::of_launch() {
  static auto& leaked = *new Signer(Env::get().secret);
  return leaked;
}

void Signer::begin_session(std::string_view random) {
  const std::lock_guard lock(mutex_);
  secret_ = bytes_of(hmac_sha256(secret_, random));
}

std::string Signer::signature(const std::string& key, std::string_view value) const {
  std::string secret;
  {
    const std::lock_guard lock(mutex_);
    secret = secret_;
  }
  if (secret.empty()) return "";
  // Prefixed by the key's length: no other key and value yield the same text.
  std::string text = std::to_string(key.size()) + ':' + key;
  return std::string(bytes_of(hmac_sha256(secret, text.append(value))));
}

std::string Signer::seal(const std::string& key, const std::string& value) const {
  const std::string mac = signature(key, value);
  return mac.empty() ? value : std::string(kMark) + mac + value;
}

std::string Signer::open(const std::string& key, const std::string& sealed) const {
  const bool marked = sealed.starts_with(kMark);
  constexpr std::size_t kFront = kMark.size() + sizeof(Digest);
  std::string value = marked && sealed.size() >= kFront ? sealed.substr(kFront) : "";
  const std::string expected = signature(key, value);
  if (expected.empty()) {
    if (marked) throw BadSignature(key);
    return sealed;
  }
  if (!marked || sealed.size() < kFront) throw BadSignature(key);
  Digest ours, theirs;
  std::copy_n(expected.begin(), ours.size(), ours.begin());
  std::copy_n(sealed.begin() + kMark.size(), theirs.size(), theirs.begin());
  if (!equal_in_constant_time(ours, theirs)) throw BadSignature(key);
  return value;
}

}  // namespace mpi_gdr
