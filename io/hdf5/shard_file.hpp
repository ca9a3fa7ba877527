// Common part of both kinds of shards: creation, publication, failed writes, closing.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string>

#include "io/hdf5/file.hpp"
#include "io/hdf5/shards.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {

/// A shard that is being written. Order of calls: create, add(), publish(), then guarded() for
/// every write. The caller must hold the library lock to create, add, publish and destroy;
/// guarded() and close() take it themselves.
class ShardFile {
 public:
  /// Creates DIR/shards/<kind>-<attempt>-<rank>.h5 under its temporary name, with the attributes
  /// attempt and rank. Throws IoError, as all members do.
  ShardFile(const std::string& directory, const std::string& kind, std::uint32_t attempt,
            std::uint32_t rank);
  /// Removes a shard that was never published.
  ~ShardFile();
  ShardFile(const ShardFile&) = delete;
  ShardFile& operator=(const ShardFile&) = delete;

  /// Adds a growing dataset of elements that have `type` in memory; padding is not stored. The
  /// reference stays valid.
  h5::Dataset& add(const char* name, hid_t type, std::uint64_t chunk);
  /// Adds a growing dataset of structs with these members.
  h5::Dataset& add(const char* name, std::span<const h5::Field> fields, std::size_t size,
                   std::uint64_t chunk);
  /// Sets a function that guarded() calls with the seconds of each successful step, including the
  /// wait for the lock.
  void set_watch(std::function<void(double seconds)> watch) { watch_ = std::move(watch); }
  /// Makes the shard visible to others, who can see it grow from here on (publish_shard).
  void publish();

  /// Runs a step that writes. If it fails, the file stays as at the last flush, and this and every
  /// later call throw.
  template <typename Step>
  void guarded(const Step& step) {
    check();
    const auto begin = std::chrono::steady_clock::now();
    {
      const auto lock = h5::lock_hdf5();
      try {
        step();
      } catch (const IoError& error) {
        fail(error.what());
      }
    }
    if (watch_)
      watch_(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  /// Runs a last step and closes. Does nothing if the file is closed or has failed.
  template <typename Step>
  void close(const Step& last) {
    if (!open_) return;
    guarded([&] {
      last();
      close_file();
    });
  }

  /// Throws the failure of an earlier step, if there was one.
  void check() const;
  [[nodiscard]] bool is_open() const { return open_; }
  [[nodiscard]] h5::File& file() { return file_; }

 private:
  [[noreturn]] void fail(const std::string& what);
  void close_file();
  void close_datasets();

  h5::File file_;
  std::deque<h5::Dataset> datasets_;
  bool published_ = false;
  bool open_ = true;
  std::function<void(double)> watch_;
  std::string failure_;  ///< message of the failed write; empty: none
};

}  // namespace paceline::io
