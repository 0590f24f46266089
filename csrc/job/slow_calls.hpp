// Compares collectives outstanding for seconds: their messages may never match because ranks called different
// ones. One rank announces its call in the job's news; all others compare it with their call of the same
// sequence number, even if completed or still to come. Thread-safe; calls `announce` and `differs` unlocked.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bootstrap/news.hpp"
#include "engine/group_state.hpp"

namespace mpi_gdr {

class SlowCalls {
 public:
  struct Group {
    std::shared_ptr<GroupState> state;
    std::string key;
  };

  // Called by the holder of the progress role when a collective of this rank is slow. Does not block.
  void note(const Operation& operation) noexcept;
  // Takes another rank's announcement, of kind Slow. Throws if it is malformed.
  void receive(const News& news);
  bool idle();  // look() has nothing to do

  // Announces noted calls that no rank has announced; calls `differs`, which fails the group, for mismatches.
  void look(const std::vector<Group>& groups, const std::function<void(News)>& announce,
            const std::function<void(GroupState&, const std::string&)>& differs);

 private:
  struct Call {
    std::string key;  // the group's
    int rank = -1;    // the announcing one
    Channel channel = Channel::Collective;
    CallRecord call;
  };
  struct Noted {
    const GroupState* group;
    Channel channel;
    CallRecord call;
  };
  static std::string pack_call(const Call& call);
  static Call unpack_call(const std::string& details);
  std::vector<News> announcements(const std::vector<Group>& groups);

  std::mutex mutex_;  // guards all below
  std::deque<Noted> noted_;
  std::deque<Call> received_;   // received, not compared yet
  std::deque<Call> announced_;  // by any rank: not repeated
  int announcements_ = 0;       // by all ranks; limited, because news share bounded memory
};

}  // namespace mpi_gdr
