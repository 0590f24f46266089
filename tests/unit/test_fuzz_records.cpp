// Data of other processes and users is mutated at random: it is read within its bounds or refused with an
// Error. AddressSanitizer checks the rest.
#include "bootstrap/board.hpp"
#include "bootstrap/launch_mode.hpp"
#include "bootstrap/news.hpp"
#include "bootstrap/process_id.hpp"
#include "bootstrap/rendezvous.hpp"
#include "bootstrap/signed_store.hpp"
#include "collectives/selection_table.hpp"
#include "diagnostics/call_check.hpp"
#include "job/member.hpp"
#include "memory_store.hpp"
#include "test.hpp"
#include "transport/shm/arena.hpp"
#include "transport/shm/node_memory.hpp"
#include "transport/shm/ring.hpp"

using namespace mpi_gdr;

namespace {

constexpr int kTurns = 20000;

class Mutator {
 public:
  // One to four changes of the text, or of one of its packed fields.
  std::string operator()(std::string text) {
    if (below(2) == 0) return bent(std::move(text));
    try {
      std::vector<std::string> fields = unpack(text);
      if (fields.empty()) return bent(std::move(text));
      std::string& field = fields[below(fields.size())];
      switch (below(5)) {
        case 0:
          field = kNumbers[below(std::size(kNumbers))];
          break;
        case 1:
          fields.erase(fields.begin() + static_cast<std::ptrdiff_t>(below(fields.size())));
          break;
        case 2:
          fields.push_back(fields[below(fields.size())]);
          break;
        default:
          field = (*this)(field);
      }
      return pack(fields);
    } catch (const Error&) {  // is not packed
      return bent(std::move(text));
    }
  }
  std::size_t below(std::size_t limit) { return random_() % limit; }

  std::string bent(std::string text) {
    for (std::size_t changes = 1 + below(4); changes > 0; --changes) {
      const std::size_t at = below(text.size() + 1), length = below(text.size() + 1 - at);
      switch (below(6)) {
        case 0:
          if (at < text.size()) text[at] = static_cast<char>(text[at] ^ 1 << below(8));
          break;
        case 1:
          text.resize(at);
          break;
        case 2:
          if (text.size() < 10000) text.insert(at, text.substr(at, length));
          break;
        case 3:
          text.erase(at, length);
          break;
        case 4:  // a digit, perhaps of a length
          if (at < text.size() && text[at] >= '0' && text[at] <= '9')
            text.replace(at, 1, kNumbers[below(std::size(kNumbers))]);
          break;
        default:
          text.insert(at, kNumbers[below(std::size(kNumbers))]);
      }
    }
    return text;
  }

 private:
  static constexpr const char* kNumbers[] = {
      "",    "-1", "0",   "9",         "4294967296", "18446744073709551615", "99999999999999999999999",
      "1e9", " 1", "0x7", "2147483648"};
  std::mt19937_64 random_{20261122};
};

// Returns how many mutations of `valid` were refused. Anything but an Error ends the test.
int refused(const std::string& valid, const std::function<void(const std::string&)>& read,
            int turns = kTurns) {
  Mutator mutate;
  int count = 0;
  read(valid);
  for (int turn = 0; turn < turns; ++turn) {
    try {
      read(mutate(valid));
    } catch (const Error& e) {
      CHECK(e.code() != ErrorCode::Internal && std::strlen(e.what()) > 0);
      ++count;
    }
  }
  CHECK(count > 0);
  return count;
}

bool names_own_process(const std::string& ticket) {
  try {
    const auto fields = unpack(ticket);
    return !fields.empty() && fields[0] == std::to_string(getpid());
  } catch (const Error&) {
    return true;  // it is refused before a process is opened
  }
}

}  // namespace

TEST(fields_have_types_and_bounds) {
  const std::string text = pack({"-7", "7", "1", "", "x\n"});
  RecordReader record("a record", text);
  CHECK(record.number<int>("a", -7, 0) == -7 && record.number<std::uint64_t>("b") == 7 && record.flag("c"));
  CHECK(record.blank() && !record.blank());
  CHECK_THROWS(RecordReader("a record", text).number<int>("a", 0), Error,
               "a record: a is '-7', expected a whole number in 0..2147483647");
  CHECK_THROWS(RecordReader("a record", text).number<std::uint64_t>("a"), Error, "a is '-7'");
  CHECK_THROWS(RecordReader("a record", text).flag("a"), Error, "a is '-7', expected 0 or 1");
  CHECK_THROWS(record.number<int>("e"), Error, "e is 'x?'");
  CHECK_THROWS(record.text("f"), Error, "f is missing");
  record.end();
  CHECK_THROWS(RecordReader("a record", text).end(), Error, "5 field(s) too many");
  for (const char* malformed : {"3:ab", "x"})
    CHECK_THROWS(RecordReader("a record", malformed), Error, "a record is malformed");
  for (const char* number : {"", " 1", "1 ", "+1", "0x1", "1.0", "99999999999999999999", "2147483648"})
    CHECK_THROWS(RecordReader("a record", pack({number})).number<int>("n"), Error, "expected a whole number");
}

TEST(proposals) {
  const Proposal p{.launcher = Launcher{"mpiexec", 1, 4},
                   .host = "n1|boot|7",
                   .namespaces = "pid:[1]net:[2]",
                   .nonce = "0123456789abcdef",
                   .mpi_version = "MPICH Version: 5.0.2",
                   .process = {"n1", 1ull << 63, 4711, 99},
                   .shared_memory = 1ull << 40};
  refused(serialise(p), [](const std::string& text) {
    const Proposal read = parse_proposal(text);
    CHECK(read.nonce.size() <= 16 && read.process.pid >= 0 && read.process.pid <= kMaxPid);
    CHECK(!read.launcher || (read.launcher->rank >= -1 && read.launcher->size >= -1));
    serialise(read);
  });
}

TEST(members) {
  const Member m{{{"MPI_GDR_LANES", "4", "4"}, {"table", "all_reduce ...", "a file"}},
                 true,
                 false,
                 true,
                 "n1|b|7",
                 "0,1",
                 "j",
                 "t",
                 "end 0\n"};
  refused(packed(m), [](const std::string& text) { packed(unpacked_member(text)); });
  for (std::size_t length = 0; length < packed(m).size(); ++length)
    CHECK_THROWS(unpacked_member(packed(m).substr(0, length)), Error, "a member's record of a group");
}

TEST(news_of_the_job) {
  const std::string valid =
      serialise({News::Kind::Left, {0, 3}, "rank 3 has left", true, pack({"group", "1", "2"})});
  CHECK(parse_news(valid, 4) && !parse_news(valid, 3));
  Mutator mutate;
  int none = 0;
  for (int turn = 0; turn < kTurns; ++turn) {
    const auto news = parse_news(mutate(valid), 4);
    if (!news) {
      ++none;
      continue;
    }
    CHECK(news->kind <= News::Kind::Back && !news->ranks.empty());
    for (const int rank : news->ranks) CHECK(rank >= 0 && rank < 4);
  }
  CHECK(none > 0 && none < kTurns);
}

TEST(boards) {
  Board board;
  for (const char* text : {"one", "", "three and more"}) CHECK(board.post(text));
  const auto reader = BoardReader::open(board.ticket());
  CHECK(reader);
  Mutator mutate;
  for (int turn = 0; turn < kTurns; ++turn) {
    std::size_t place = turn % 2 ? mutate.below(64) : mutate.below(Board::kBytes * 2);
    for (const std::string& text : reader->read(place)) CHECK(text.size() <= Board::kLongest);
  }
}

TEST(meetings) {
  refused(
      pack({"zero", "one", "two"}),
      [](const std::string& all) {
        MemoryStore store;
        store.add("m/n", 1);
        store.set("m/all", all);
        CHECK(rendezvous(store, "m", 0, 3, "zero", std::chrono::steady_clock::now()).size() == 3);
      },
      2000);
}

TEST(signed_values) {
  const Signer signer(std::string(32, 's'));
  const std::string sealed = signer.seal("key", "value");
  Mutator mutate;
  for (int turn = 0; turn < kTurns; ++turn) {
    const std::string bent = mutate(sealed);
    if (bent != sealed) CHECK_THROWS(signer.open("key", bent), BadSignature, "key");
  }
}

TEST(tickets_of_shared_memory) {
  // The pid must stay: a mutation could otherwise open another process.
  const shm::Arena arena(1 << 20);
  Mutator mutate;
  int none = 0;
  for (int turn = 0; turn < kTurns; ++turn) {
    const std::string ticket = mutate(arena.ticket());
    if (names_own_process(ticket) && !shm::ArenaView::of(ticket)) ++none;
  }
  CHECK(none > kTurns / 2);
  auto other = std::make_unique<shm::Segment>(&arena, 4096);
  for (int turn = 0; turn < 300; ++turn) {
    auto own = std::make_unique<shm::Segment>(nullptr, 4096);
    const std::vector<std::string> tickets = {own->ticket(), mutate(other->ticket())};
    if (!names_own_process(tickets[1])) continue;
    try {
      shm::NodeMemory::create(std::move(own), 0, tickets, std::chrono::steady_clock::now(), {});
    } catch (const Error& e) {  // the other rank does not answer
      CHECK(e.code() == ErrorCode::Timeout);
    }
  }
}

TEST(rows_of_the_selection_table) {
  refused("all_reduce reach=node ranks=2-16 0-64K flag\nbarrier dissemination\n",
          [](const std::string& text) {
            for (const SelectionRow& row : parse_table(text, "a file")) to_text(row);
          });
  refused("all_reduce:0-4K:flag#barrier:native",
          [](const std::string& text) { parse_overrides(text, "MPI_GDR_SELECT"); });
}

TEST(texts_of_proc) {
  const std::string stat = "4711 (a) b) S 1 4711 4711 0 -1 4194560 9 0 0 0 1 2 0 0 20 0 3 0 987654 1";
  const std::string status = "Name:\tx\nCoreDumping:\t1\nThreads:\t2\n";
  CHECK(parse_process_stat(stat).state == 'S' && parse_process_stat(stat).started == 987654);
  for (std::size_t length = 0; length < stat.rfind("987654"); ++length)
    CHECK(parse_process_stat(stat.substr(0, length)).started == 0);
  CHECK(dumps_core(status) && !dumps_core(status.substr(0, status.find("1\n"))));
  Mutator mutate;
  for (int turn = 0; turn < kTurns; ++turn) {
    const std::string bent = mutate.bent(stat);
    CHECK(bent.find(')') != bent.npos || parse_process_stat(bent).state == '?');
    dumps_core(mutate.bent(status));
  }
}

TEST(call_headers) {
  CallHeader valid{};
  valid.calls = 1;
  std::strcpy(valid.name, "all_reduce");
  std::mt19937_64 random(1);
  int count = 0;
  for (int turn = 0; turn < kTurns; ++turn) {
    CallHeader header = valid;
    auto* const bytes = reinterpret_cast<unsigned char*>(&header);
    for (int change = 0; change < 8; ++change)
      bytes[random() % sizeof header] = static_cast<unsigned char>(random());
    if (turn % 2)
      std::memset(header.name, 'x', sizeof header.name + sizeof header.dtype + sizeof header.detail);
    try {
      check_received(header, 3);
      CHECK(std::strlen(header.name) < sizeof header.name &&
            std::strlen(header.detail) < sizeof header.detail);
      for (const CallHeader::Call& call : header.call)
        CHECK(!name(call.collective).empty() && !name(call.dtype).empty() && !name(call.op).empty());
    } catch (const Error& e) {
      CHECK(e.code() == ErrorCode::Remote);
      ++count;
    }
  }
  CHECK(count > 0 && count < kTurns);
}

TEST(records_of_a_ring) {
  constexpr std::size_t kBytes = 4096;
  const std::unique_ptr<std::byte, void (*)(void*)> memory(
      static_cast<std::byte*>(std::aligned_alloc(64, kBytes)), std::free);
  std::mt19937_64 random(2);
  for (int turn = 0; turn < kTurns; ++turn) {
    std::memset(memory.get(), 0, kBytes);
    std::atomic<std::uint64_t> tail{0};
    std::atomic<std::uint32_t> sleepers{0};
    shm::RingWriter writer(memory.get(), kBytes, &tail, &sleepers);
    shm::RingReader reader(memory.get(), kBytes, &tail, &sleepers);
    for (int record = 0; record < 3; ++record)
      if (std::byte* const to = writer.reserve(64); to) writer.publish({.payload = 64, .kind = 1});
    for (int change = 0; change < 4; ++change)
      memory.get()[random() % 400] = static_cast<std::byte>(random());
    try {
      shm::RecordHeader header;
      for (int record = 0; record < 8; ++record) {
        const std::byte* const payload = reader.peek(header);
        if (!payload) break;
        CHECK(payload + header.payload <= memory.get() + kBytes);
        reader.pop();
      }
    } catch (const Error& e) {
      CHECK(e.code() == ErrorCode::Internal);
    }
  }
}

UNIT_MAIN()
