
#include "common/env.hpp"
#include "test.hpp"

using namespace mpi_gdr;

namespace {
Env one(const char* name, const char* value) {
  return Env([=](const char* asked) { return std::string(asked) == name ? value : nullptr; });
}
}  // namespace

TEST(defaults_hold_when_nothing_is_set) {
  const Env env([](const char*) -> const char* { return nullptr; });
  CHECK(env.debug == LogLevel::Warn && env.chunk_bytes == 256 * 1024 && !env.timeout_seconds);
  for (const Env::Variable& v : env.table()) CHECK(!v.from_environment && v.value == v.default_value);
}

TEST(values_are_read) {
  CHECK(one("MPI_GDR_DEBUG", "trace").debug == LogLevel::Trace);
  CHECK(one("MPI_GDR_DEBUG", "detail").debug == LogLevel::Detail);
  CHECK(one("MPI_GDR_FLIGHT_SIGNAL", "SIGUSR1").flight_signal == SIGUSR1);
  CHECK(one("MPI_GDR_FLIGHT_SIGNAL", "off").flight_signal == 0);
  CHECK(one("MPI_GDR_FLIGHT_LOG", "0").flight_log == 0);
  CHECK(one("MPI_GDR_TIMEOUT", "1.5").timeout_seconds == 1.5);
  CHECK(one("MPI_GDR_CHUNK_BYTES", "2M").chunk_bytes == 2u << 20);
  CHECK(one("MPI_GDR_GROUP_MEMORY", "0").group_memory == 0u);
  CHECK(one("MPI_GDR_DEVICE_GROUP_MEMORY", "0").device_group_memory == 0u);
  CHECK(one("MPI_GDR_DEVICE_GROUP_MEMORY", "2G").device_group_memory == std::uint64_t{2} << 30);
  CHECK(one("MPI_GDR_GROUP_MEMORY", "3G").group_memory == std::uint64_t{3} << 30);
  CHECK(one("MPI_GDR_BOOTSTRAP", "store").bootstrap == BootstrapMode::Store);
  CHECK(one("MPI_GDR_ALLREDUCE_ALGO", "ring").algorithm[0] == "ring");
  CHECK(one("MPI_GDR_LANES", "16").lanes == 16);
}

TEST(a_value_has_one_spelling) {
  const std::vector<std::array<const char*, 3>> spellings = {{"MPI_GDR_CHUNK_BYTES", "262144", "256K"},
                                                             {"MPI_GDR_GROUP_MEMORY", "1024m", "1G"},
                                                             {"MPI_GDR_LANES", "007", "7"},
                                                             {"MPI_GDR_DEBUG", "detail", "DETAIL"},
                                                             {"MPI_GDR_SIMD", "AVX2", "avx2"}};
  for (const auto& [name, text, value] : spellings) {
    const Env env = one(name, text);
    const auto row = std::ranges::find(env.table(), name, &Env::Variable::name);
    CHECK(row != env.table().end() && row->value == value && row->from_environment);
  }
}

TEST(bad_values_name_the_variable) {
  CHECK_THROWS(one("MPI_GDR_DEBUG", "loud"), Error,
               "MPI_GDR_DEBUG=loud is not valid: expected WARN, INFO, DETAIL or TRACE");
  CHECK_THROWS(one("MPI_GDR_LANES", "17"), Error, "MPI_GDR_LANES=17 is not valid: expected 1..16");
  CHECK_THROWS(one("MPI_GDR_LANES", "4x"), Error, "MPI_GDR_LANES=4x");
  CHECK_THROWS(one("MPI_GDR_CHUNK_BYTES", "-1"), Error, "MPI_GDR_CHUNK_BYTES=-1");
  for (const char* text : {"0", "K", "1T", "1KB", "4 K", "1025G", "99999999999999999999"})
    CHECK_THROWS(one("MPI_GDR_CHUNK_BYTES", text), Error, "MPI_GDR_CHUNK_BYTES=");
  CHECK_THROWS(one("MPI_GDR_TIMEOUT", "nan"), Error, "MPI_GDR_TIMEOUT=nan");
}

TEST(the_secret_is_never_shown) {
  const std::string digits = "00ffA1b2" + std::string(56, '7');
  const Env env = one("MPI_GDR_SECRET", digits.c_str());
  CHECK(env.secret == std::string("\0\xff\xa1\xb2", 4) + std::string(28, '\x77'));
  for (const Env::Variable& v : env.table()) {
    CHECK(v.value.find("ffA1") == std::string::npos);
    if (v.name == "MPI_GDR_SECRET") CHECK(v.value == "(set)" && v.from_environment);
  }
  for (const std::string& bad : {digits.substr(1), digits + "0", "g" + digits.substr(1), std::string("0x")}) {
    CHECK_THROWS(one("MPI_GDR_SECRET", bad.c_str()), Error,
                 "MPI_GDR_SECRET is not valid: expected 64 hexadecimal");
    try {
      one("MPI_GDR_SECRET", bad.c_str());
    } catch (const Error& e) {
      CHECK(std::string(e.what()).find("7777") == std::string::npos);
    }
  }
}

TEST(unknown_names_are_reported_with_the_nearest) {
  const char* environment[] = {"MPI_GDR_DEBUG=INFO", "MPI_GDR_ALGREDUCE_ALGO=ring", "PATH=/bin",
                               "MPI_GDR_LANE=2",     "MPI_GDR_BUILD_CUDA=on",       nullptr};
  const auto unknown = Env::unknown_variables(environment);
  CHECK(unknown.size() == 2);
  CHECK(unknown[0].first == "MPI_GDR_ALGREDUCE_ALGO" && unknown[0].second == "MPI_GDR_ALLREDUCE_ALGO");
  CHECK(unknown[1].second == "MPI_GDR_LANES");
}

UNIT_MAIN()
