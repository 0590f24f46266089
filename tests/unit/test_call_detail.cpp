// Call details in messages, formatted from numbers.
#include "common/call_detail.hpp"
#include "test.hpp"

using namespace mpi_gdr;

TEST(a_tensor_and_what_is_done_with_it) {
  CallDetail detail;
  CHECK(detail.empty() && detail.str().empty());
  const std::int64_t sizes[] = {64, 3, 1, 1, 1, 1, 2, 2};
  detail.show("float32", sizes, 2);
  CHECK(!detail.empty() && detail.str() == "float32[64, 3]");
  detail.op = "sum";
  detail.root = 0;
  CHECK(detail.str() == "float32[64, 3] op=sum root=0");
  detail.show("bool", sizes, 0);
  CHECK(detail.str() == "bool[] op=sum root=0");
  detail.show("bool", sizes, 6);
  CHECK(detail.str() == "bool[64, 3, 1, 1, 1, 1] op=sum root=0");
  detail.show("bool", sizes, 8);
  CHECK(detail.str() == "bool[64, 3, 1, 1, 1, 1, ...] op=sum root=0");
}

TEST(a_list) {
  CallDetail detail;
  detail.tensors = 3;
  CHECK(!detail.empty() && detail.str() == "3 tensors");
  const std::int64_t size = 7;
  detail.show("int64", &size, 1);
  CHECK(detail.str() == "3 tensors, from int64[7]");
}

TEST(a_message) {
  CallDetail detail;
  const std::int64_t size = 7;
  detail.show("int64", &size, 1);
  detail.message = detail.send = true;
  detail.peer = 3;
  detail.tag = 5;
  CHECK(detail.str() == "int64[7] to=3 tag=5");
  detail.send = false;
  CHECK(detail.str() == "int64[7] from=3 tag=5");
  detail.peer = -1;
  CHECK(detail.str() == "int64[7] from=any tag=5");
}

TEST(text_of_its_own_comes_first) {
  CallDetail detail;
  detail.text = "sparse float32[9] nnz=2";
  detail.op = "sum";
  CHECK(detail.str() == "sparse float32[9] nnz=2 op=sum");
}

UNIT_MAIN()
