// A KvStore in a directory, for ranks of one machine without torch.
#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "bootstrap/kv_store.hpp"

class FileStore : public mpi_gdr::KvStore {
 public:
  // `done`: called with each key that this rank has written or read.
  explicit FileStore(std::string dir, std::function<void(const std::string&)> done = {})
      : dir_(std::move(dir)), done_(std::move(done)) {}

  void set(const std::string& key, const std::string& value) override {
    const std::string temporary = path(key) + ".tmp" + std::to_string(getpid());
    std::ofstream(temporary, std::ios::binary) << value;
    if (std::rename(temporary.c_str(), path(key).c_str()) != 0)
      throw std::runtime_error("store is gone: " + dir_);
    if (done_) done_(key);
  }
  std::optional<std::string> try_get(const std::string& key) override {
    std::ifstream file(path(key), std::ios::binary);
    if (!file) return std::nullopt;
    if (done_) done_(key);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override {
    const int fd = open(path(key).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) throw std::runtime_error("store is gone: " + dir_);
    flock(fd, LOCK_EX);
    std::int64_t value = 0;
    if (pread(fd, &value, sizeof value, 0) != sizeof value) value = 0;
    value += amount;
    if (pwrite(fd, &value, sizeof value, 0) != sizeof value) throw std::runtime_error("store is full");
    close(fd);
    return value;
  }
  bool check(const std::string& key) override { return access(path(key).c_str(), F_OK) == 0; }
  std::unique_ptr<KvStore> clone() override { return std::make_unique<FileStore>(dir_); }

 private:
  std::string path(const std::string& key) const {
    std::string name = key;
    for (char& c : name)
      if (c == '/') c = '@';
    return dir_ + "/" + name;
  }
  std::string dir_;
  std::function<void(const std::string&)> done_;
};
