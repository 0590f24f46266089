// The device library on a CUDA whose calls fail, on an old driver, and on devices without peer access.
#include <dlfcn.h>

#include "cuda_calls.hpp"
#include "cudart/host_work.hpp"
#include "node_areas.hpp"
#include "peer_rank.hpp"

using namespace fakecuda_test;

namespace {

namespace fs = std::filesystem;

// Every later call of `function` fails in this process, which must not have used CUDA yet.
void inject_failure(const char* function, int with = 999) {
  ::setenv("FAKECUDA_FAILS", function, 1);
  ::setenv("FAKECUDA_FAILS_WITH", std::to_string(with).c_str(), 1);
}

constexpr int kOutOfMemory = 2;

// A folder with the device library and `driver` as its driver.
class Elsewhere {
 public:
  explicit Elsewhere(const fs::path& driver) {
    const fs::path here = fs::read_symlink("/proc/self/exe").parent_path();
    char name[] = "/tmp/mpi_gdr_driver_XXXXXX";
    CHECK(::mkdtemp(name));
    folder_ = name;
    fs::create_symlink(here / "libmpi_gdr_cuda.so", devices());
    fs::create_symlink(driver, folder_ / "libcuda.so.1");
  }
  ~Elsewhere() { fs::remove_all(folder_); }
  fs::path devices() const { return folder_ / "libmpi_gdr_cuda.so"; }

 private:
  fs::path folder_;
};

}  // namespace

TEST(a_device_whose_first_calls_fail_is_none) {
  for (const char* const function :
       {"cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuCtxGetCurrent", "cuCtxSetCurrent",
        "cudaDeviceGetAttribute", "cudaDeviceGetStreamPriorityRange", "cudaEventCreateWithFlags",
        "cudaFuncGetAttributes"})
    run([function] {
      inject_failure(function);
      CHECK_THROWS(load_device(0), Error, function);
    });
}

TEST(which_devices_see_network_writes_in_order) {
  const struct {
    const char *ordering, *capability, *c2c, *flush;
    bool sees;
  } kinds[] = {{"0", "9", "0", "0", false},  {"100", "8", "0", "0", false}, {"200", "8", "0", "0", false},
               {"100", "9", "0", "0", true}, {"200", "9", "0", "0", true},  {"100", "9", "1", "0", false},
               {"0", "8", "0", "1", true},   {"100", "9", "1", "1", false}};
  for (const auto& kind : kinds)
    run([&] {
      ::setenv("FAKECUDA_ORDERING", kind.ordering, 1);
      ::setenv("FAKECUDA_CAPABILITY", kind.capability, 1);
      ::setenv("FAKECUDA_C2C", kind.c2c, 1);
      ::setenv("FAKECUDA_FLUSH", kind.flush, 1);
      CHECK(load_device(0).orders_remote_writes() == kind.sees);
    });
}

TEST(calls_that_fail_are_named_and_leave_no_error_behind) {
  const auto expect = [](const char* function, const std::function<void(Device&)>& use) {
    run([=] {
      inject_failure(function);
      Device& device = load_device(0);
      CHECK_THROWS(use(device), Error, function);
      CHECK(cudaGetLastError() == cudaSuccess);
    });
  };
  expect("cudaStreamCreateWithPriority", [](Device& device) { device.make_queue(); });
  expect("cudaStreamIsCapturing", [](Device& device) { device.capturing(nullptr); });
  expect("cudaMalloc", [](Device& device) { device.allocate(10); });
  expect("cudaFree", [](Device& device) { device.release(device.allocate(10)); });
  expect("cudaDeviceSynchronize", [](Device& device) { device.synchronize(); });
  expect("cudaHostAlloc", [](Device& device) { device.make_flags(10); });
  expect("cudaHostGetDevicePointer", [](Device& device) { device.make_flags(10); });
  expect("cudaIpcGetMemHandle", [](Device& device) { device.export_memory(device.allocate(10)); });
  expect("cudaHostRegister",
         [](Device& device) { device.register_host(std::aligned_alloc(4096, 4096), 4096); });
  expect("cudaEventRecord", [](Device& device) { device.order(*device.make_queue(), *device.make_queue()); });
  expect("cudaStreamWaitEvent",
         [](Device& device) { device.order(*device.make_queue(), *device.make_queue()); });
  expect("cudaMemcpyAsync", [](Device& device) {
    char byte = 0;
    device.make_queue()->copy(device.allocate(1), &byte, 1);
  });
  expect("cuStreamWaitValue64",
         [](Device& device) { device.make_queue()->wait_flag(&device.make_flags(1)[0], 0); });
  expect("cuStreamWriteValue64",
         [](Device& device) { device.make_queue()->write_flag(&device.make_flags(1)[0], 0); });
  expect("cudaLaunchKernel", [](Device& device) {
    void* const memory = device.allocate(4);
    const void* const sources[] = {memory};
    device.make_queue()->reduce(ReduceArgs{DataType::Float32, ReduceOp::Sum, memory, sources, 1, 1});
  });
  expect("cudaStreamSynchronize", [](Device& device) { device.make_queue()->synchronize(); });
}

TEST(without_memory_there_is_no_memory) {
  run([] {
    inject_failure("cudaMalloc", kOutOfMemory);
    CHECK_THROWS(load_device(0).allocate(10), NoMemory, "10 bytes on device 0");
    CHECK(cudaGetLastError() == cudaSuccess);
  });
  run([] {
    inject_failure("cudaHostAlloc", kOutOfMemory);
    CHECK_THROWS(load_device(0).make_flags(3), NoMemory, "pinned flags");
  });
}

CUDA_TEST(flags_that_the_device_sees_elsewhere_are_refused) {
  ::setenv("FAKECUDA_ELSEWHERE", "1", 1);
  CHECK_THROWS(load_device(0).make_flags(3), Error, "device 0 does not see host memory where the host does");
}

TEST(an_old_driver_is_reported) {
  run([] {
    ::setenv("FAKECUDA_DRIVER", "11080", 1);
    std::string why;
    CHECK(load_library().device_count(why) == 0 && why.find("driver version is insufficient") != why.npos);
    CHECK_THROWS(load_device(0), Error, "no device is available");
  });
  run([] {
    CHECK_THROWS(load_device(1), Error, "device=1 is not in 0..0");
    CHECK_CONTAINS(load_library().describe(0), "sm_90");
  });
}

TEST(a_machine_without_a_driver_that_will_do) {
  const auto expect = [](const fs::path& driver, const char* part) {
    run([=] {
      const Elsewhere elsewhere(driver);
      const LoadedLibrary loaded = load_device_library(elsewhere.devices());
      std::string why;
      CHECK(loaded.devices && loaded.devices->device_count(why) == 0);
      CHECK_CONTAINS(why, part);
      CHECK_THROWS(loaded.devices->device(0), Error, part);
    });
  };
  expect("/proc/self/maps", "no NVIDIA driver (libcuda.so.1) on this machine");
  Dl_info other{};
  CHECK(::dladdr(reinterpret_cast<void*>(&std::terminate), &other));
  expect(fs::canonical(other.dli_fname), "libcuda.so.1 has no cuInit");
}

// At process exit the driver may be gone before its objects.
TEST(what_goes_when_the_driver_is_gone_goes_in_silence) {
  const auto go = [](const char* call) {
    run([call] {
      Device& device = load_device(0);
      auto queue = device.make_queue();
      auto flags = device.make_flags(1);
      auto node = std::make_unique<ipc::DeviceNode>(device, 0, unit::make_areas(1)[0]);
      fakecuda::inject_failure(call);
      queue.reset();
      flags.reset();
      node.reset();
    });
  };
  for (const char* const call : {"cuCtxGetCurrent", "cudaStreamDestroy", "cudaFreeHost", "cudaFree"})
    go(call);
}

// The group then has no shared memory, and reports why.
TEST(memory_that_cannot_be_mapped_is_refused) {
  const auto expect = [](const char* setting, const char* value, const char* part) {
    run_processes<SharedAreas>(2, std::chrono::seconds(50), [&](int rank, World& world) {
      ::setenv("FAKECUDA_DEVICES", "2", 1);
      if (rank == 1) ::setenv(setting, value, 1);
      Device& device = load_device(rank);
      auto node = std::make_unique<ipc::DeviceNode>(device, rank, world.data.of(2));
      node->publish();
      world.meet(2);
      std::string why;
      const bool attached = node->attach(why);
      CHECK(attached == (rank == 0) && (attached || why.find(part) != why.npos));
      CHECK(node->detach());
      world.meet(2);
      node->reclaim();
      node.reset();
      world.meet(2);
    });
  };
  expect("FAKECUDA_FAILS", "cudaIpcOpenMemHandle", "rank 0: cudaIpcOpenMemHandle on device 1: unknown error");
  expect("FAKECUDA_FAILS", "cudaHostRegister", "rank 0: cudaHostRegister");
  expect("FAKECUDA_ELSEWHERE", "1", "device 1 does not see host memory where the host does");
  for (const char* const whom : {"1", "2"})
    expect("FAKECUDA_OTHER_BYTES", whom, "rank 0: this device cannot write and read that rank's memory");
  expect("FAKECUDA_PEERS", "0", "peer access is not supported");
}

TEST(ranks_on_one_device_detect_whether_they_take_turns) {
  for (const char* const slice_us : {"0", "100"})
    for (const bool alone : {false, true})
      run_processes<SharedAreas>(2, std::chrono::seconds(50), [&](int rank, World& world) {
        ::setenv("FAKECUDA_DEVICES", "2", 1);
        ::setenv("FAKECUDA_SLICE_US", slice_us, 1);
        PeerRank self(rank, 2, world, alone ? rank : 1);
        CHECK(self.node->takes_turns() == (*slice_us != '0' && !alone));
        self.node.reset();
        self.meet();
      });
}

UNIT_MAIN()
