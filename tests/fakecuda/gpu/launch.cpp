#include <algorithm>

#include "gpu/fault.hpp"
#include "gpu/thread.hpp"
#include "gpu/weak_memory.hpp"

namespace fakecuda {
namespace {

// xorshift64*: small and portable.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u | 1) {}
  std::uint32_t operator()(std::size_t end) {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return static_cast<std::uint32_t>((state_ * 0x2545f4914f6cdd1du >> 32) * end >> 32);
  }

 private:
  std::uint64_t state_;
};

constexpr std::uint32_t kMostAccesses = 256;  // of a thread per turn
constexpr int kTurns = 64;                    // per step
constexpr std::byte kPoison{0xcd};

class Block {
 public:
  Block(const Kernel& kernel, const std::byte* params, unsigned index, unsigned blocks, unsigned threads,
        int multiprocessor)
      : multiprocessor(multiprocessor), shared_(kernel.shared_bytes, kPoison) {
    if (weak_memory()) stores_ = std::make_unique<BlockStores>(threads);
    threads_.reserve(threads);
    for (unsigned i = 0; i < threads; ++i)
      threads_.emplace_back(kernel, params, shared_.data(), i, threads, index, blocks, stores_.get());
    resume_all();
  }
  ~Block() {
    if (stores_) weak_memory()->take(stores_->of_block);
  }
  Thread::Stop turn(Random& random) {
    const std::size_t at = random(ready_.size());
    const std::uint32_t thread = ready_[at]->tid;
    const Thread::Stop why = ready_[at]->run(random(kMostAccesses));
    if (why == Thread::Stop::AtBarrier || why == Thread::Stop::Ended) {
      ready_[at] = ready_.back();
      ready_.pop_back();
      if (stores_) stores_->of_threads[thread].drain_into(stores_->of_block);
      ended_ += why == Thread::Stop::Ended;
      if (ready_.empty() && !ended()) {
        if (ended_ != 0) fault("a barrier that not all threads of the block come to");
        resume_all();
      }
    }
    return why;
  }
  bool ended() const { return ended_ == threads_.size(); }
  std::size_t ready() const { return ready_.size(); }

  const int multiprocessor;

 private:
  void resume_all() {
    for (Thread& thread : threads_) ready_.push_back(&thread);
  }

  std::vector<std::byte> shared_;
  std::unique_ptr<BlockStores> stores_;  // null: memory is strong
  std::vector<Thread> threads_;
  std::vector<Thread*> ready_;  // neither ended nor at a barrier
  std::size_t ended_ = 0;
};

}  // namespace

class Launch::Blocks {
 public:
  Blocks(const Kernel& kernel, unsigned blocks, unsigned threads, std::vector<std::byte> params,
         Multiprocessors& room, std::uint64_t seed)
      : kernel_(kernel),
        params_(std::move(params)),
        count_(blocks),
        threads_(threads),
        of_a_block_(room_of(threads, kernel.registers, kernel.shared_bytes)),
        room_(room),
        random_(seed) {
    if (blocks == 0 || threads == 0 || threads > kernel.most_threads)
      fault("a launch without threads, or with more than its bounds allow");
    if (params_.size() != kernel.param_bytes) fault("parameters of another size than the kernel's");
  }
  ~Blocks() {
    if (!ended()) fault("a kernel that is dropped before its end");
  }

  State step() {
    enter();
    for (int turn = 0; turn < kTurns && !resident_.empty(); ++turn) {
      const std::size_t at = random_(resident_.size());
      Block& block = *resident_[at];
      polls_ = block.turn(random_) == Thread::Stop::Polls ? polls_ + 1 : 0;
      if (block.ended()) {
        room_.leave(block.multiprocessor, of_a_block_);
        resident_[at] = std::move(resident_.back());
        resident_.pop_back();
        enter();
      } else if (polls_ != 0 && polls_ >= ready()) {
        polls_ = 0;
        return State::Waiting;
      }
    }
    return ended() ? State::Ended : resident_.empty() ? State::Waiting : State::Running;
  }

 private:
  bool ended() const { return entered_ == count_ && resident_.empty(); }
  std::size_t ready() const {
    std::size_t all = 0;
    for (const auto& block : resident_) all += block->ready();
    return all;
  }
  void enter() {
    while (entered_ < count_) {
      const int multiprocessor = room_.enter(of_a_block_);
      if (multiprocessor < 0) return;
      resident_.push_back(
          std::make_unique<Block>(kernel_, params_.data(), entered_++, count_, threads_, multiprocessor));
    }
  }

  const Kernel& kernel_;
  const std::vector<std::byte> params_;
  const unsigned count_, threads_;
  const Room of_a_block_;
  Multiprocessors& room_;
  Random random_;
  unsigned entered_ = 0;
  std::vector<std::unique_ptr<Block>> resident_;
  std::size_t polls_ = 0;  // consecutive turns that polled
};

Launch::Launch(const Kernel& kernel, unsigned blocks, unsigned threads, std::vector<std::byte> params,
               Multiprocessors& room, std::uint64_t seed)
    : blocks_(std::make_unique<Blocks>(kernel, blocks, threads, std::move(params), room, seed)) {}
Launch::~Launch() = default;
Launch::State Launch::step() { return blocks_->step(); }

}  // namespace fakecuda
