// Store values without a valid signature of the job are ignored and cannot stop or steer the readers.
#include "bootstrap/peer_watch.hpp"
#include "bootstrap/rendezvous.hpp"
#include "bootstrap/signed_store.hpp"
#include "memory_store.hpp"
#include "test.hpp"

using namespace mpi_gdr;

namespace {

const std::string kSecret(32, '\x11'), kOther(32, '\x22');

Deadline in(std::chrono::milliseconds time) { return std::chrono::steady_clock::now() + time; }

std::unique_ptr<KvStore> signed_by(const Signer& signer, MemoryStore& store) {
  return std::make_unique<SignedStore>(store.clone(), signer);
}

// Each rank's error from the rendezvous, or "".
std::vector<std::string> meet(MemoryStore& store, const std::string& prefix,
                              const std::vector<std::string>& secrets) {
  std::vector<std::string> errors(secrets.size());
  const int size = static_cast<int>(secrets.size());
  unit::on_threads(size, [&](int r) {
    const Signer signer(secrets[r]);
    const auto own = signed_by(signer, store);
    try {
      const auto blobs = rendezvous(*own, prefix, r, size, "blob" + std::to_string(r), in(60s));
      for (std::size_t q = 0; q < blobs.size(); ++q) CHECK(blobs[q] == "blob" + std::to_string(q));
    } catch (const std::exception& e) {
      errors[r] = e.what();
    }
  });
  return errors;
}

}  // namespace

TEST(what_is_signed_is_read_and_nothing_else) {
  MemoryStore store;
  const Signer ours(kSecret), theirs(kOther), no_secret("");
  const auto own = signed_by(ours, store);
  const std::string value("a\0b", 3);
  own->set("k", value);
  CHECK(*own->try_get("k") == value && *own->clone()->try_get("k") == value && !own->try_get("l"));
  CHECK_THROWS(signed_by(theirs, store)->try_get("k"), BadSignature, "'k'");
  CHECK_THROWS(signed_by(no_secret, store)->try_get("k"), BadSignature, "MPI_GDR_SECRET");
  store.set("plain", "value");
  CHECK_THROWS(own->try_get("plain"), BadSignature, "'plain'");
  CHECK(*signed_by(no_secret, store)->try_get("plain") == "value");
  const std::string sealed = *store.try_get("k");
  for (std::size_t length = 0; length < sealed.size(); ++length)
    CHECK_THROWS(ours.open("k", sealed.substr(0, length)), BadSignature, "'k'");
  for (std::size_t i = 0; i < sealed.size(); ++i) {
    std::string bent = sealed;
    bent[i] = static_cast<char>(bent[i] ^ 1);
    CHECK_THROWS(ours.open("k", bent), BadSignature, "'k'");
  }
  CHECK(own->add("n", 2) == 2 && store.add("n", 1) == 3 && own->check("k"));
}

TEST(a_value_is_valid_only_at_its_key_attempt_and_place_in_a_list) {
  const Signer ours(kSecret);
  const std::string item = ours.seal("mpi-gdr/run/0/1/alive/news/1", "v");
  CHECK(ours.open("mpi-gdr/run/0/1/alive/news/1", item) == "v");
  for (const char* key :
       {"mpi-gdr/run/0/1/alive/news/2", "mpi-gdr/run/1/1/alive/news/1", "mpi-gdr/run/0/2/alive/news/1",
        "mpi-gdr/other/0/1/alive/news/1", "mpi-gdr/run/0/1/alive/news/", ""})
    CHECK_THROWS(ours.open(key, item), BadSignature, key);
  // The end of a key cannot pass for the beginning of a value.
  CHECK(ours.seal("ab", "c").substr(0, 49) != ours.seal("a", "bc").substr(0, 49));
}

TEST(a_session_has_a_key_of_its_own) {
  for (const std::string& secret : {std::string(), kSecret}) {
    Signer one(secret), two(secret), foreign(secret);
    const std::string before = one.seal("k", "v");
    one.begin_session("random");
    two.begin_session("random");
    foreign.begin_session("guessed");
    CHECK(two.open("k", one.seal("k", "v")) == "v");
    CHECK_THROWS(foreign.open("k", one.seal("k", "v")), BadSignature, "'k'");
    CHECK_THROWS(one.open("k", before), BadSignature, "'k'");
  }
  Signer with(kSecret), without("");
  with.begin_session("random");
  without.begin_session("random");
  CHECK_THROWS(with.open("k", without.seal("k", "v")), BadSignature, "'k'");
}

TEST(ranks_with_another_secret_or_none_are_reported_to_all) {
  MemoryStore store;
  for (const std::string& error : meet(store, "same", {kSecret, kSecret, kSecret})) CHECK(error.empty());
  const std::vector<std::vector<std::string>> cases = {
      {kSecret, kOther, kSecret}, {kSecret, "", kSecret}, {"", kSecret, ""}};
  for (std::size_t c = 0; c < cases.size(); ++c) {
    int named = 0;
    for (const std::string& error : meet(store, "differ" + std::to_string(c), cases[c])) {
      CHECK_CONTAINS(error, "is MPI_GDR_SECRET equal on all ranks?");
      named += error.find("'s record is not signed with the secret") != std::string::npos;
    }
    CHECK(named >= 1);
  }
}

TEST(forged_records_do_not_end_or_steer_a_rendezvous) {
  MemoryStore store;
  store.set("a/all", pack({"forged", "forged"}));
  store.set("a/r0", "forged");
  store.set("a/r1", "forged");
  for (const std::string& error : meet(store, "a", {kSecret, kSecret})) CHECK(error.empty());
  // A forged value in place of an arrived rank's is ignored.
  const Signer signer(kSecret);
  const auto zero = signed_by(signer, store), one = signed_by(signer, store);
  std::atomic<bool> waits{false};
  std::string error;
  std::thread first([&] {
    error = unit::error_of([&] { rendezvous(*zero, "b", 0, 2, "blob", in(60s), [&] { waits = true; }); });
  });
  while (!waits) std::this_thread::yield();
  store.set("b/r0", "forged");
  CHECK_THROWS(rendezvous(*one, "b", 1, 2, "blob", in(60s)), Error, "rank 0's record is not signed");
  first.join();
  CHECK_CONTAINS(error, "rank 0's record is not signed");
}

TEST(forged_news_is_ignored) {
  MemoryStore store;
  const Signer signer(kSecret);
  const auto own = signed_by(signer, store);
  PeerWatchOptions options;
  options.processes.resize(2);  // in two domains
  options.prefix = "job/alive";
  std::vector<News> received;
  PeerWatch watch(options, [&](const News& news, bool) { received.push_back(news); });
  auto now = std::chrono::steady_clock::now();
  const auto talk = [&] { watch.talk(*own, now += std::chrono::milliseconds(100)); };
  talk();
  const auto item = [](News::Kind kind, int rank, const std::string& text) {
    return pack({serialise({kind, {rank}, text, false, ""})});
  };
  const std::string lost = item(News::Kind::Ended, 1, "rank 1 is gone"),
                    aborted = item(News::Kind::Aborted, 1, "the end");
  // Forged by an outsider: unsigned, signed with another key, or signed by the job in another attempt.
  const Signer foreign(kOther);
  CHECK(store.add("job/alive/news", 1) == 1);
  for (const std::string& forged :
       {lost, aborted, foreign.seal("job/alive/news/1", lost), signer.seal("before/alive/news/1", lost)}) {
    store.set("job/alive/news/1", forged);
    talk();
    CHECK(received.empty() && watch.lost_among({1}).empty());
  }
  // Forged news are skipped like unwritten news.
  CHECK(own->add("job/alive/news", 1) == 2);
  own->set("job/alive/news/2", lost);
  for (int turn = 0; turn < 40; ++turn) talk();
  CHECK(received.size() == 1 && received[0].text == "rank 1 is gone");
  // A rank that posts news overwrites a value planted there.
  store.set("job/alive/news/3", aborted);
  talk();
  CHECK(own->add("job/alive/news", 1) == 3);
  own->set("job/alive/news/3", item(News::Kind::Aborted, 1, "rank 1 called MPI_Abort"));
  talk();
  CHECK(received.size() == 2 && received[1].text == "rank 1 called MPI_Abort");
}

UNIT_MAIN()
