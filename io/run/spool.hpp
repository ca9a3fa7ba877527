// Records that wait on disk until they are wanted, so that they take no memory.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace paceline::io {

/// A file without a name: it is gone with the process, however that ends. Records come back in the
/// order in which they were put. Used by one thread; members throw IoError.
class Spool {
 public:
  /// `directory`: where the file takes its room.
  explicit Spool(const std::string& directory);
  ~Spool();
  Spool(const Spool&) = delete;
  Spool& operator=(const Spool&) = delete;

  void put(std::span<const std::byte> record);
  /// The next records, one after the other, of at most `most` bytes or one record; empty where none
  /// are left. No record is put after the first call.
  [[nodiscard]] std::vector<std::byte> next(std::size_t most);

 private:
  void write(std::span<const std::byte> bytes);

  std::string path_;  ///< for messages
  int file_ = -1;
  std::vector<std::byte> buffer_;   ///< not yet written
  std::vector<std::size_t> sizes_;  ///< of the records
  std::size_t taken_ = 0;           ///< records that were given back
};

}  // namespace paceline::io
