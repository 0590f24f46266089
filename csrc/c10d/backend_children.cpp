#include "bootstrap/rendezvous.hpp"
#include "bootstrap/signed_store.hpp"
#include "c10d/backend.hpp"
#include "c10d/errors.hpp"
#include "c10d/store.hpp"
#include "c10d/this_job.hpp"
#include "c10d/timeouts.hpp"
#include "common/error.hpp"

namespace mpi_gdr::torch_binding {

MpiBackend::BackendPtr MpiBackend::find_child(const c10d::Store* store) {
  std::lock_guard lock(mutex_);
  BackendPtr found;
  std::erase_if(children_, [&](const Child& child) {
    auto backend = child.backend.lock();
    if (backend && child.store.get() == store) found = backend;
    return !backend;
  });
  return found;
}

MpiBackend::BackendPtr MpiBackend::make_child(const StorePtr& store, std::vector<int> world_ranks, int rank,
                                              const c10d::Backend::Options& opts) {
  auto options = c10::make_intrusive<Options>(*options_);
  options->timeout = group_timeout(opts.timeout);
  if (const auto* ours = dynamic_cast<const Options*>(&opts)) {
    options->selection = ours->selection;
    options->bits = ours->bits;
  }
  options->group_name = opts.group_name;
  options->group_desc = opts.group_desc;
  options->global_ranks_in_group.assign(world_ranks.begin(), world_ranks.end());
  const auto size = static_cast<int>(world_ranks.size());
  Job::NewGroup made = this_job().make_group(child_request(*options, rank, std::move(world_ranks)));
  BackendPtr child = c10::make_intrusive<MpiBackend>(rank, size, std::move(made), std::move(options));
  std::lock_guard lock(mutex_);
  children_.push_back({store, c10::weak_intrusive_ptr<c10d::Backend>(child)});
  return child;
}

MpiBackend::BackendPtr MpiBackend::split(const StorePtr& store, const std::vector<int>& ranks,
                                         const OptionsPtr& opts) {
  return with_torch_errors([&]() -> BackendPtr {
    std::vector<int> members;
    int own = -1;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      if (ranks[i] < 0 || ranks[i] >= size_)
        fail(ErrorCode::InvalidUsage, "split: ranks holds ", ranks[i], ", expected ranks of group ",
             group_->name(), ": 0..", size_ - 1);
      if (ranks[i] == rank_) own = static_cast<int>(i);
      members.push_back(world_ranks_[ranks[i]]);
    }
    if (own < 0) return nullptr;
    if (auto child = find_child(store.get())) return child;
    return make_child(store, std::move(members), own, opts ? *opts : *options_);
  });
}

MpiBackend::BackendPtr MpiBackend::merge(const StorePtr& store, const OptionsPtr& opts, const int& rank,
                                         const int& size) {
  return with_torch_errors([&]() -> BackendPtr {
    if (rank < 0 || rank >= size)
      fail(ErrorCode::InvalidUsage, "merge: rank=", rank, ", expected 0..", size - 1);
    if (auto child = find_child(store.get())) return child;
    const c10d::Backend::Options& options = opts ? *opts : *options_;
    // Uses the caller's connection to the store, where calls of other threads may delay this one.
    SignedStore meeting(std::make_unique<C10dStore>(store), Signer::of_launch());
    std::vector<int> members;
    for (const std::string& blob : rendezvous(meeting, "mpi-gdr/merge/" + options.group_name, rank, size,
                                              pack({std::to_string(world_ranks_[rank_])}),
                                              Clock::now() + group_timeout(options.timeout)))
      members.push_back(RecordReader("a rank of a merged group", blob)
                            .number<int>("rank", 0, this_job().membership()->size() - 1));
    return make_child(store, std::move(members), rank, options);
  });
}

}  // namespace mpi_gdr::torch_binding
