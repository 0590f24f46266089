#include "schedule/scattered.hpp"

#include <algorithm>
#include <limits>

#include "common/error.hpp"
#include "schedule/rewrite.hpp"

namespace mpigdr {
namespace {

// One buffer's pieces, by the elements that come before them.
class Map {
 public:
  explicit Map(const Pieces& pieces) : pieces_(pieces) {
    for (const Piece& piece : pieces) {
      begins_.push_back(total_);
      total_ += piece.count;
    }
  }
  std::uint64_t moved(std::uint64_t element) const {
    if (pieces_.empty()) return element;
    const std::size_t k = piece_of(element);
    return pieces_[k].offset + (element - begins_[k]);
  }
  // Elements from this one on that stand behind each other.
  std::uint64_t run(std::uint64_t element) const {
    if (pieces_.empty()) return std::numeric_limits<std::uint64_t>::max();
    const std::size_t k = piece_of(element);
    return begins_[k] + pieces_[k].count - element;
  }

 private:
  std::size_t piece_of(std::uint64_t element) const {
    MPIGDR_CHECK(element < total_);
    const auto behind = std::upper_bound(begins_.begin(), begins_.end(), element);
    return static_cast<std::size_t>(behind - begins_.begin()) - 1;  // the last of those: the others are empty
  }

  const Pieces& pieces_;
  std::vector<std::uint64_t> begins_;
  std::uint64_t total_ = 0;
};

class PieceWriter {
 public:
  PieceWriter(const Schedule& from, int rank, const Scattered& where)
      : from_(from),
        rank_(rank),
        input_(where.input.begin(), where.input.end()),
        output_(where.output.begin(), where.output.end()),
        writer_(from) {
    MPIGDR_CHECK(!from.staged);
  }

  SchedulePtr run() {
    return rewrite(writer_, from_,
                   [this](const Step& step, const std::vector<Slice>& sources) { write(step, sources); });
  }

 private:
  const Map* map(Buffer buffer, int owner) const {
    const auto r = static_cast<std::size_t>(owner < 0 ? rank_ : owner);
    if (buffer == Buffer::Input) return &input_[r];
    return buffer == Buffer::Output ? &output_[r] : nullptr;
  }
  // Elements from `at` of the slice on that need no cut.
  std::uint64_t run(const Slice& slice, std::uint64_t at) const {
    std::uint64_t length = slice.count - at;
    if (const Map* const own = map(slice.buffer, slice.owner))
      length = std::min(length, own->run(slice.offset + at));
    if (const Original* const other = from_.original(slice))
      length = std::min(length, map(other->buffer, slice.owner)->run(other->offset + at));
    return length;
  }
  Slice cut(Slice slice, std::uint64_t at, std::uint64_t length) {
    const Original* const other = from_.original(slice);
    const Map* const own = map(slice.buffer, slice.owner);
    slice.offset = own ? own->moved(slice.offset + at) : slice.offset + at;
    slice.count = length;
    slice.original = -1;
    if (!other) return slice;
    const std::uint64_t moved = map(other->buffer, slice.owner)->moved(other->offset + at);
    return writer_.mirror(slice, {other->buffer, moved, length});
  }

  void write(const Step& step, const std::vector<Slice>& sources) {
    if (step.kind == StepKind::Signal || step.kind == StepKind::Wait) return writer_.step(step, {});
    const bool has_dst = step.kind != StepKind::Send;
    const std::uint64_t count = has_dst ? step.dst.count : sources[0].count;
    for (std::uint64_t at = 0; at < count;) {
      std::uint64_t length = count - at;
      if (has_dst) length = run(step.dst, at);
      for (const Slice& source : sources) length = std::min(length, run(source, at));
      Step part = step;
      if (has_dst) part.dst = cut(step.dst, at, length);
      std::vector<Slice> parts;
      for (const Slice& source : sources) parts.push_back(cut(source, at, length));
      writer_.step(part, parts);
      at += length;
    }
  }

  const Schedule& from_;
  const int rank_;
  const std::vector<Map> input_, output_;
  ScheduleWriter writer_;
};

}  // namespace

SchedulePtr scattered(const Schedule& schedule, int rank, const Scattered& where) {
  return PieceWriter(schedule, rank, where).run();
}

}  // namespace mpigdr
