// Records that wait on disk until they are read, so that they take no memory.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "runtime/core/descriptor.hpp"

namespace paceline::io {

/// A file without a name, which is gone when the process ends, however it ends. Records come back
/// in the order in which they were put. Used by one thread; members throw IoError.
class Spool {
 public:
  /// `directory`: in its file system the records take space.
  explicit Spool(const std::string& directory);

  void put(std::span<const std::byte> record);
  /// Returns the next records, one after the other: at most `most` bytes or one record; empty: none
  /// are left. After the first call no more records may be put.
  [[nodiscard]] std::vector<std::byte> next(std::size_t most);

 private:
  void write(std::span<const std::byte> bytes);

  std::string path_;  ///< for messages
  Descriptor file_;
  std::vector<std::byte> buffer_;   ///< bytes not written yet
  std::vector<std::size_t> sizes_;  ///< bytes of each record
  std::size_t taken_ = 0;           ///< number of records given back
};

}  // namespace paceline::io
