// transport/nccl/api.hpp against NCCL's header: values, layouts, and parameters as the processor's ABI passes
// them.
#include <nccl.h>

#include <cstddef>
#include <type_traits>

#include "test.hpp"
#include "transport/nccl/api.hpp"

namespace {

namespace ours = mpi_gdr::nccl;

#define SAME(own, theirs) static_assert(static_cast<int>(ours::own) == static_cast<int>(theirs))
SAME(kSuccess, ncclSuccess);
SAME(kInvalidArgument, ncclInvalidArgument);
SAME(kInvalidUsage, ncclInvalidUsage);
SAME(kRemoteError, ncclRemoteError);
SAME(kInProgress, ncclInProgress);
SAME(kSum, ncclSum);
SAME(kProd, ncclProd);
SAME(kMax, ncclMax);
SAME(kMin, ncclMin);
SAME(kAvg, ncclAvg);
SAME(kInt8, ncclInt8);
SAME(kUint8, ncclUint8);
SAME(kInt32, ncclInt32);
SAME(kUint32, ncclUint32);
SAME(kInt64, ncclInt64);
SAME(kUint64, ncclUint64);
SAME(kFloat16, ncclFloat16);
SAME(kFloat32, ncclFloat32);
SAME(kFloat64, ncclFloat64);
SAME(kBfloat16, ncclBfloat16);
SAME(kDevice, ncclScalarDevice);
SAME(kHostImmediate, ncclScalarHostImmediate);

#define SAME_PLACE(own, theirs)                                                  \
  static_assert(offsetof(ours::Config, own) == offsetof(ncclConfig_t, theirs) && \
                sizeof(ours::Config::own) == sizeof(ncclConfig_t::theirs))
SAME_PLACE(size, size);
SAME_PLACE(magic, magic);
SAME_PLACE(version, version);
SAME_PLACE(blocking, blocking);
SAME_PLACE(cga_cluster_size, cgaClusterSize);
SAME_PLACE(min_ctas, minCTAs);
SAME_PLACE(max_ctas, maxCTAs);
SAME_PLACE(net_name, netName);
SAME_PLACE(split_share, splitShare);
static_assert(sizeof(ours::Config) <= sizeof(ncclConfig_t));
static_assert(ours::Config().magic == NCCL_API_MAGIC && ours::Config().blocking == NCCL_CONFIG_UNDEF_INT);

template <typename Own, typename Theirs>
constexpr bool kPassedAlike =
    sizeof(Own) == sizeof(Theirs) && std::is_pointer_v<Own> == std::is_pointer_v<Theirs> &&
    std::is_class_v<Own> == std::is_class_v<Theirs> && !std::is_floating_point_v<Theirs>;
template <typename Own, typename Theirs>
constexpr bool kCalledAlike = false;
template <typename Returned, typename... Own, typename Result, typename... Theirs>
  requires(sizeof...(Own) == sizeof...(Theirs))
constexpr bool kCalledAlike<Returned(Own...), Result(Theirs...)> =
    kPassedAlike<Returned, Result> && (kPassedAlike<Own, Theirs> && ...);

namespace functions {
using namespace mpi_gdr::nccl;
#define FUNCTION(result, name, ...) using name = result(__VA_ARGS__);
MPI_GDR_NCCL_FUNCTIONS(FUNCTION)
#undef FUNCTION
}  // namespace functions
#define FUNCTION(result, name, ...) static_assert(kCalledAlike<functions::name, decltype(nccl##name)>);
MPI_GDR_NCCL_FUNCTIONS(FUNCTION)
static_assert(!kCalledAlike<functions::Reduce, decltype(ncclBroadcast)>);

}  // namespace

TEST(it_agrees_with_the_header) { CHECK(NCCL_MAJOR == 2); }

UNIT_MAIN()
