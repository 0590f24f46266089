#include "schedule/scattered.hpp"

#include <algorithm>
#include <utility>

#include "common/error.hpp"
#include "schedule/rewrite.hpp"

namespace mpi_gdr {

PieceMap::PieceMap(Pieces pieces) : pieces_(std::move(pieces)) {
  for (const Piece& piece : pieces_) {
    begins_.push_back(total_);
    total_ += piece.count;
  }
}

std::uint64_t PieceMap::offset_of(std::uint64_t element) const {
  const std::size_t k = piece_of(element);
  return pieces_[k].offset + (element - begins_[k]);
}

std::uint64_t PieceMap::contiguous(std::uint64_t element) const {
  const std::size_t k = piece_of(element);
  return begins_[k] + pieces_[k].count - element;
}

std::size_t PieceMap::piece_of(std::uint64_t element) const {
  MPI_GDR_CHECK(element < total_);
  const auto behind = std::upper_bound(begins_.begin(), begins_.end(), element);
  return static_cast<std::size_t>(behind - begins_.begin()) - 1;  // earlier pieces that begin here are empty
}

namespace {

class PieceWriter {
 public:
  PieceWriter(const Schedule& from, int rank, const Scattered& where)
      : from_(from),
        rank_(rank),
        ranks_(where.ranks),
        input_(where.input.begin(), where.input.end()),
        output_(where.output.begin(), where.output.end()),
        writer_(from) {
    MPI_GDR_CHECK(!from.staged);
  }

  SchedulePtr run() {
    return rewrite(writer_, from_,
                   [this](const Step& step, const std::vector<Slice>& sources) { write(step, sources); });
  }

 private:
  const PieceMap* map(Buffer buffer, int owner) const {
    const std::vector<PieceMap>& maps = buffer == Buffer::Input ? input_ : output_;
    if ((buffer != Buffer::Input && buffer != Buffer::Output) || maps.empty()) return nullptr;
    return &maps[std::min(static_cast<std::size_t>(owner < 0 ? rank_ : owner), maps.size() - 1)];
  }
  static std::uint64_t offset_of(const PieceMap* map, std::uint64_t element) {
    return map ? map->offset_of(element) : element;
  }
  std::uint64_t contiguous(const Slice& slice, std::uint64_t at) const {
    std::uint64_t length = slice.count - at;
    if (const PieceMap* const own = map(slice.buffer, slice.owner))
      length = std::min(length, own->contiguous(slice.offset + at));
    const Original* const other = from_.original(slice);
    if (const PieceMap* const its = other ? map(other->buffer, slice.owner) : nullptr)
      length = std::min(length, its->contiguous(other->offset + at));
    return length;
  }
  Slice cut(Slice slice, std::uint64_t at, std::uint64_t length) {
    const Original* const other = from_.original(slice);
    slice.offset = offset_of(map(slice.buffer, slice.owner), slice.offset + at);
    slice.count = length;
    slice.original = -1;
    if (!other) return slice;
    return writer_.mirror(
        slice, {other->buffer, offset_of(map(other->buffer, slice.owner), other->offset + at), length});
  }

  void write(Step step, const std::vector<Slice>& sources) {
    if (!ranks_.empty() && step.peer >= 0) step.peer = ranks_[static_cast<std::size_t>(step.peer)];
    if (step.kind == StepKind::Signal || step.kind == StepKind::Wait) return writer_.step(step, {});
    const bool has_dst = step.kind != StepKind::Send;
    const std::uint64_t count = has_dst ? step.dst.count : sources[0].count;
    for (std::uint64_t at = 0; at < count;) {
      std::uint64_t length = count - at;
      if (has_dst) length = contiguous(step.dst, at);
      for (const Slice& source : sources) length = std::min(length, contiguous(source, at));
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
  const std::vector<int>& ranks_;
  const std::vector<PieceMap> input_, output_;
  ScheduleWriter writer_;
};

}  // namespace

SchedulePtr scattered(const Schedule& schedule, int rank, const Scattered& where) {
  return PieceWriter(schedule, rank, where).run();
}

}  // namespace mpi_gdr
