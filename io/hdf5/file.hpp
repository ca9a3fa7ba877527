// RAII over the HDF5 C API: handles, files, 1-D datasets and attributes, with errors as IoError.
// Private to io. Every caller must hold the library lock (lock_hdf5) while it uses these.
#pragma once

#include <hdf5.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "io/hdf5/library_mutex.hpp"

namespace paceline::io::h5 {

/// Serialises HDF5, which is not thread-safe, for the life of the result; recursive within a
/// thread. A long read lets other threads use the library after each piece (Dataset::read()). The
/// first call initialises the library without its exit handler, which crashes on a file whose
/// closing failed (disk full), and without error traces on stderr.
[[nodiscard]] std::unique_lock<LibraryMutex> lock_hdf5();

/// Throws IoError "cannot VERB PATH: cause". The cause is a failed system call's message in the
/// error stack, else HDF5's innermost message.
[[noreturn]] void fail(const char* verb, const std::string& path);

/// Returns `result` if not negative, else calls fail().
template <typename Result>
Result must(Result result, const char* verb, const std::string& path) {
  if (result < 0) fail(verb, path);
  return result;
}

/// Owns one HDF5 id.
class Handle {
 public:
  using Close = herr_t (*)(hid_t);
  Handle() = default;
  Handle(hid_t id, Close close) : id_(id), close_(close) {}
  Handle(Handle&& other) noexcept
      : id_(std::exchange(other.id_, H5I_INVALID_HID)), close_(other.close_) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  ~Handle() { reset(); }
  [[nodiscard]] hid_t get() const { return id_; }
  [[nodiscard]] bool valid() const { return id_ >= 0; }
  hid_t release() { return std::exchange(id_, H5I_INVALID_HID); }
  herr_t reset() {
    const hid_t id = std::exchange(id_, H5I_INVALID_HID);
    return id >= 0 ? close_(id) : 0;
  }

 private:
  hid_t id_ = H5I_INVALID_HID;
  Close close_ = nullptr;
};

/// The native HDF5 type of T. It is predefined, so it is never closed.
template <typename T>
hid_t native() {
  if constexpr (std::is_same_v<T, std::uint8_t>) return H5T_NATIVE_UINT8;
  if constexpr (std::is_same_v<T, std::int16_t>) return H5T_NATIVE_INT16;
  if constexpr (std::is_same_v<T, std::int32_t>) return H5T_NATIVE_INT32;
  if constexpr (std::is_same_v<T, std::uint32_t>) return H5T_NATIVE_UINT32;
  if constexpr (std::is_same_v<T, std::int64_t>) return H5T_NATIVE_INT64;
  if constexpr (std::is_same_v<T, std::uint64_t>) return H5T_NATIVE_UINT64;
  if constexpr (std::is_same_v<T, float>) return H5T_NATIVE_FLOAT;
  if constexpr (std::is_same_v<T, double>) return H5T_NATIVE_DOUBLE;
}

/// An open file. Closing it closes its datasets.
class File {
 public:
  enum class Kind : std::uint8_t {
    shard,  ///< newest format, needed for SWMR
    final,  ///< a format that HDF5 1.8 and later read
  };
  /// Creates temporary_name(path) anew; it is renamed later. Messages name `path`. No timestamps
  /// are stored. These formats have checksums for metadata, so that damage is an error. They have
  /// none for strings of variable length, so these are not used.
  static File create(const std::string& path, Kind kind);
  /// Opens as a SWMR reader, which works while a writer appends, and after the writer was killed.
  static File open(const std::string& path);

  [[nodiscard]] hid_t id() const { return handle_.get(); }
  [[nodiscard]] const std::string& path() const { return path_; }

  Handle group(const char* name) const;  ///< creates a group
  void start_swmr();
  void sync();   ///< flushes and fsyncs
  void close();  ///< throws IoError if HDF5 could not write its buffers

  /// Closes the file and its datasets after a failed write, so that nothing more reaches the disk.
  /// HDF5 would try again to write its buffers, in any order, and may crash on a second failure. So
  /// its descriptor is redirected to scratch memory, where closing succeeds.
  void abandon() noexcept;

 private:
  std::string path_;
  Handle handle_;
};

/// Size and layout of a dataset.
struct Shape {
  std::uint64_t size = 0;   ///< elements at creation
  bool growing = false;     ///< may be extended
  std::uint64_t chunk = 0;  ///< elements, if growing or compressed; else it is contiguous
  bool compressed = false;  ///< by deflate, after shuffling bytes
};

/// A one-dimensional dataset.
class Dataset {
 public:
  Dataset() = default;
  /// Creates a dataset. `memory_type`: type of elements in memory; `file_type`: in the file. Both
  /// are only used during the call.
  static Dataset create(const File& file, const std::string& name, hid_t memory_type,
                        hid_t file_type, const Shape& shape);
  template <typename T>
  static Dataset create(const File& file, const std::string& name, const Shape& shape) {
    return create(file, name, native<T>(), native<T>(), shape);
  }
  /// Opens a dataset. `cache_bytes`: size of the chunk cache; 0: selections of unfiltered chunks
  /// are read directly from the file. Throws on elements of another kind, and on other filters than
  /// Shape::compressed describes.
  static Dataset open(const File& file, const std::string& name, hid_t memory_type,
                      std::size_t cache_bytes);

  [[nodiscard]] hid_t id() const { return handle_.get(); }
  /// Number of elements. For an opened dataset, at most as many as its file has room for: a damaged
  /// size must not take memory without bound.
  [[nodiscard]] std::uint64_t size() const { return size_; }
  /// Writes [first, first + count); a growing dataset is extended to this end.
  void write(std::uint64_t first, std::uint64_t count, const void* data);
  /// Writes after the end of the last write.
  void append(std::uint64_t count, const void* data) { write(written_, count, data); }
  template <typename T>
  void append(std::span<const T> values) {
    append(values.size(), values.data());
  }
  /// Reads [first, first + count), a mebibyte at a time. Before each piece, threads that wait for
  /// the library get their turn.
  void read(std::uint64_t first, std::uint64_t count, void* data) const;
  void flush();
  herr_t close() { return handle_.reset(); }

 private:
  Handle handle_;
  Handle memory_type_;
  std::string name_;  // PATH:NAME, or PATH of a new dataset, for messages
  std::uint64_t size_ = 0;
  std::uint64_t written_ = 0;
};

/// Reads all elements of a dataset of T.
template <typename T>
std::vector<T> read_all(const File& file, const std::string& name) {
  const Dataset dataset = Dataset::open(file, name, native<T>(), std::size_t{1} << 20);
  std::vector<T> values(dataset.size());
  dataset.read(0, values.size(), values.data());
  return values;
}

/// Creates a contiguous dataset of these values.
template <typename T>
Dataset write_all(const File& file, const std::string& name, const std::vector<T>& values) {
  Dataset dataset = Dataset::create<T>(file, name, {values.size()});
  dataset.append(values.size(), values.data());
  dataset.flush();
  return dataset;
}

/// Writes UTF-8 strings of any length: NAME u8, their bytes one after the other, and NAME_offsets
/// i64 [n + 1].
void write_strings(const File& file, const std::string& name, std::span<const std::string> values);
[[nodiscard]] std::vector<std::string> read_strings(const File& file, const std::string& name);

/// Attributes of an object; a file's id stands for its root group. Strings are UTF-8, stored with
/// their length. A NUL in one is a DataError, because readers would take it for the end.
void write_attribute(hid_t object, const std::string& path, const std::string& name,
                     const std::string& value);
void write_attribute(hid_t object, const std::string& path, const std::string& name,
                     hid_t memory_type, const void* value);
template <typename T>
requires std::is_arithmetic_v<T>
void write_attribute(hid_t object, const std::string& path, const std::string& name, T value) {
  write_attribute(object, path, name, native<T>(), &value);
}
/// An attribute of the dataset `dataset`.
template <typename T>
void write_attribute_of(const File& file, const std::string& dataset, const std::string& name,
                        const T& value) {
  const Handle handle(H5Dopen2(file.id(), dataset.c_str(), H5P_DEFAULT), H5Dclose);
  write_attribute(handle.get(), file.path(), name, value);
}
[[nodiscard]] std::string read_string_attribute(hid_t object, const std::string& path,
                                                const std::string& name);
void read_attribute(hid_t object, const std::string& path, const std::string& name,
                    hid_t memory_type, void* value);

/// One member of a compound type.
struct Field {
  const char* name;
  std::size_t offset;  ///< byte offset in the struct in memory
  hid_t type;
  const char* unit = nullptr;       ///< unit of its column; null: not stored
  std::vector<hsize_t> shape = {};  ///< shape of an array member; empty: a scalar
};
/// The type of the member alone.
[[nodiscard]] Handle type_of(const Field& field);
/// The compound type of a struct in memory.
[[nodiscard]] Handle compound(std::span<const Field> fields, std::size_t size);
/// A compound type packed for files, in which padding bytes are not stored.
[[nodiscard]] Handle packed(const Handle& type);

}  // namespace paceline::io::h5
