// Compares collectives that have been outstanding for seconds: their messages may never match because the
// ranks called different ones. One rank announces what it waits in, to all others, over the job's news; each
// of them compares it with its own call of that number, also with one that it has ended or has yet to issue.
//
// Threads: all members from any thread. No lock is held while a group, `announce` or `differs` is called.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
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

  // A collective of this rank is slow. With the progress role; does not wait.
  void note(const Operation& operation) noexcept;
  // Another rank's announcement, of kind Slow. Throws if it is none.
  void hear(const News& news);
  bool idle();  // look() has nothing to do

  // Of those noted: an announcement, unless another rank has announced the same call. Of those heard:
  // `differs` is called once for a group whose call differs, with a sentence that names both.
  void look(const std::vector<Group>& groups, const std::function<void(News)>& announce,
            const std::function<void(GroupState&, const std::string&)>& differs);

 private:
  struct Call {
    std::string key;  // of its group
    int rank = -1;    // that announced it
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

  std::mutex mutex_;  // all below
  std::deque<Noted> noted_;
  std::deque<Call> heard_;      // and not compared yet
  std::deque<Call> announced_;  // by any rank: not announced again
  int announcements_ = 0;       // of all ranks: they share the room for news, so that there is an end of them
};

}  // namespace mpi_gdr
