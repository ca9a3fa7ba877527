#include "io/hdf5/file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <system_error>

#include "io/hdf5/atomic_file.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io::h5 {
namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 20;  ///< bytes read at once

/// Cause of a failure in the error stack; the innermost entry of each kind counts.
struct Cause {
  std::string system;  // text of a failed system call
  std::string inner;   // HDF5's innermost description
};

herr_t visit(unsigned /*n*/, const H5E_error2_t* entry, void* data) {
  auto& cause = *static_cast<Cause*>(data);
  const std::string text = entry->desc != nullptr ? entry->desc : "";
  // The POSIX driver writes "... errno = 28, error message = 'No space left on device', ...".
  const std::size_t at = text.find("errno = ");
  if (at != std::string::npos && cause.system.empty()) {
    const int error = std::atoi(text.c_str() + at + std::strlen("errno = "));
    if (error != 0) cause.system = std::system_category().message(error);
  }
  if (cause.inner.empty()) cause.inner = text;
  return 0;
}

Handle file_access(H5F_libver_t low) {
  Handle list(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_libver_bounds(list.get(), low, H5F_LIBVER_V110);
  // Locks are off, so that file systems without locks work too. A shard's name gives it one writer,
  // and SWMR drops the lock anyway.
  H5Pset_file_locking(list.get(), false, true);
  H5Pset_fclose_degree(list.get(), H5F_CLOSE_STRONG);  // closes datasets with their file
  // Readers of a growing file retry half-written metadata, each time after twice the wait. 20 tries
  // take about a millisecond. The default of 100 never ends on a damaged file.
  H5Pset_metadata_read_attempts(list.get(), 20);
  return list;
}

Handle string_type(std::size_t size) {
  Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
  H5Tset_size(type.get(), std::max<std::size_t>(size, 1));  // no type has size 0
  H5Tset_strpad(type.get(), H5T_STR_NULLPAD);
  H5Tset_cset(type.get(), H5T_CSET_UTF8);
  return type;
}

std::string offsets_of(const std::string& name) { return name + "_offsets"; }

int descriptor_of(hid_t file) {
  void* handle = nullptr;
  if (H5Fget_vfd_handle(file, H5P_DEFAULT, &handle) < 0 || handle == nullptr) return -1;
  return *static_cast<int*>(handle);
}

std::uint64_t bytes_of(hid_t file, const std::string& path) {
  struct stat about {};
  const int fd = descriptor_of(file);
  if (fd < 0 || ::fstat(fd, &about) != 0) throw IoError("cannot read the size of " + path);
  return static_cast<std::uint64_t>(about.st_size);
}

/// Opens an attribute with one value.
Handle open_attribute(hid_t object, const std::string& name, const std::string& place) {
  Handle attribute(must(H5Aopen(object, name.c_str(), H5P_DEFAULT), "read", place), H5Aclose);
  const Handle space(must(H5Aget_space(attribute.get()), "read", place), H5Sclose);
  if (H5Sget_simple_extent_npoints(space.get()) != 1) {
    throw IoError("cannot read " + place + ": not one value");
  }
  return attribute;
}

/// Number of elements of an open dataset, at most as many as its file has room for.
std::uint64_t checked_size(const File& file, hid_t dataset, hid_t memory_type,
                           const std::string& name) {
  const Handle space(must(H5Dget_space(dataset), "read", name), H5Sclose);
  const Handle type(must(H5Dget_type(dataset), "read", name), H5Tclose);
  const Handle creation(must(H5Dget_create_plist(dataset), "read", name), H5Pclose);
  hsize_t size = 0;
  if (H5Sget_simple_extent_ndims(space.get()) != 1 ||
      H5Sget_simple_extent_dims(space.get(), &size, nullptr) < 0) {
    throw IoError("cannot read " + name + ": not a one-dimensional dataset");
  }
  const std::size_t width = H5Tget_size(type.get());
  const int filters = H5Pget_nfilters(creation.get());
  const auto has = [&creation](H5Z_filter_t filter) {
    unsigned flags = 0;
    std::size_t values = 0;
    return H5Pget_filter_by_id2(creation.get(), filter, &flags, &values, nullptr, 0, nullptr,
                                nullptr) >= 0;
  };
  const bool compressed = filters == 2 && has(H5Z_FILTER_SHUFFLE) && has(H5Z_FILTER_DEFLATE);
  if (H5Tget_class(type.get()) != H5Tget_class(memory_type) || width == 0 ||
      (filters != 0 && !compressed)) {
    throw IoError("cannot read " + name + ": not a dataset of the kind that paceline writes");
  }
  constexpr std::uint64_t kMostDeflated = 1032;  // most bytes that deflate makes of one
  const std::uint64_t most = bytes_of(file.id(), file.path()) / width;
  return std::min<std::uint64_t>(size, compressed ? most * kMostDeflated : most);
}

LibraryMutex& library() {
  static LibraryMutex mutex;
  return mutex;
}

}  // namespace

std::unique_lock<LibraryMutex> lock_hdf5() {
  std::unique_lock<LibraryMutex> lock(library());
  static const bool initialised = [] {
    H5dont_atexit();
    return H5open() >= 0;
  }();
  if (!initialised) throw Error(ExitCode::internal, "the HDF5 library could not be initialised");
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);  // a setting of each thread in thread-safe builds
  return lock;
}

void fail(const char* verb, const std::string& path) {
  Cause cause;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, visit, &cause);
  H5Eclear2(H5E_DEFAULT);
  std::string text = !cause.system.empty() ? cause.system : cause.inner;
  if (text.empty()) text = "unknown error of the HDF5 library";
  throw IoError(std::string("cannot ") + verb + " " + path + ": " + text);
}

File File::create(const std::string& path, Kind kind) {
  const Handle access = file_access(kind == Kind::shard ? H5F_LIBVER_LATEST : H5F_LIBVER_V18);
  const Handle creation(H5Pcreate(H5P_FILE_CREATE), H5Pclose);
  H5Pset_obj_track_times(creation.get(), false);
  File file;
  file.path_ = path;
  discard_temporary(path);  // left by a killed process, if at all
  file.handle_ = Handle(
      must(H5Fcreate(temporary_name(path).c_str(), H5F_ACC_EXCL, creation.get(), access.get()),
           "create", path),
      H5Fclose);
  return file;
}

File File::open(const std::string& path) {
  const Handle access = file_access(H5F_LIBVER_EARLIEST);
  File file;
  file.path_ = path;
  file.handle_ = Handle(
      must(H5Fopen(path.c_str(), H5F_ACC_RDONLY | H5F_ACC_SWMR_READ, access.get()), "open", path),
      H5Fclose);
  return file;
}

Handle File::group(const char* name) const {
  const Handle creation(H5Pcreate(H5P_GROUP_CREATE), H5Pclose);
  H5Pset_obj_track_times(creation.get(), false);
  return {must(H5Gcreate2(id(), name, H5P_DEFAULT, creation.get(), H5P_DEFAULT), "write", path_),
          H5Gclose};
}

void File::start_swmr() { must(H5Fstart_swmr_write(id()), "start appending to", path_); }

void File::sync() {
  must(H5Fflush(id(), H5F_SCOPE_GLOBAL), "write", path_);
  const int fd = descriptor_of(id());
  if (fd >= 0 && ::fsync(fd) != 0 && errno != EINVAL) {
    throw IoError("cannot sync " + path_ + ": " + std::system_category().message(errno));
  }
}

void File::close() {
  if (!handle_.valid()) return;
  // The sync comes first, while abandon() still works: a failed H5Fclose leaves a broken id.
  try {
    sync();
  } catch (...) {
    abandon();
    throw;
  }
  must(handle_.reset(), "close", path_);
}

void File::abandon() noexcept {
  if (!handle_.valid()) return;
  const int fd = descriptor_of(id());
  const int scratch = ::memfd_create("abandoned", MFD_CLOEXEC);
  if (fd < 0 || scratch < 0 || ::dup2(scratch, fd) < 0) {
    if (scratch >= 0) ::close(scratch);
    static_cast<void>(handle_.release());  // leaked, because closing it would write
    return;
  }
  ::close(scratch);
  // If a limit on file sizes was the cause, it also applies to scratch memory.
  rlimit limit{};
  ::getrlimit(RLIMIT_FSIZE, &limit);
  rlimit raised = limit;
  raised.rlim_cur = raised.rlim_max;
  ::setrlimit(RLIMIT_FSIZE, &raised);
  H5Fflush(id(), H5F_SCOPE_GLOBAL);
  handle_.reset();
  ::setrlimit(RLIMIT_FSIZE, &limit);
  H5Eclear2(H5E_DEFAULT);
}

Dataset Dataset::create(const File& file, const std::string& name, hid_t memory_type,
                        hid_t file_type, const Shape& shape) {
  const hsize_t size = shape.size;
  const hsize_t limit = shape.growing ? H5S_UNLIMITED : size;
  const Handle space(must(H5Screate_simple(1, &size, &limit), "write", file.path()), H5Sclose);
  const Handle creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  H5Pset_obj_track_times(creation.get(), false);
  const bool compressed = shape.compressed && size > 0;
  if (shape.growing || compressed) {
    const hsize_t chunk = shape.growing ? shape.chunk : std::min<hsize_t>(shape.chunk, size);
    H5Pset_chunk(creation.get(), 1, &chunk);
  }
  if (compressed) {
    constexpr unsigned kFast = 1;
    H5Pset_shuffle(creation.get());
    H5Pset_deflate(creation.get(), kFast);
  }
  Dataset dataset;
  dataset.name_ = file.path();
  dataset.handle_ = Handle(must(H5Dcreate2(file.id(), name.c_str(), file_type, space.get(),
                                           H5P_DEFAULT, creation.get(), H5P_DEFAULT),
                                "write", file.path()),
                           H5Dclose);
  dataset.memory_type_ = Handle(H5Tcopy(memory_type), H5Tclose);
  dataset.size_ = size;
  return dataset;
}

Dataset Dataset::open(const File& file, const std::string& name, hid_t memory_type,
                      std::size_t cache_bytes) {
  const Handle access(H5Pcreate(H5P_DATASET_ACCESS), H5Pclose);
  // The last value must be below 1.0, with which partly read chunks would never be evicted.
  H5Pset_chunk_cache(access.get(), 521, cache_bytes, 0.75);
  Dataset dataset;
  dataset.name_ = file.path() + ":" + name;
  dataset.handle_ = Handle(
      must(H5Dopen2(file.id(), name.c_str(), access.get()), "read", dataset.name_), H5Dclose);
  dataset.memory_type_ = Handle(H5Tcopy(memory_type), H5Tclose);
  dataset.size_ = checked_size(file, dataset.id(), memory_type, dataset.name_);
  return dataset;
}

void Dataset::write(std::uint64_t first, std::uint64_t count, const void* data) {
  if (count == 0) return;
  const hsize_t start = first;
  const hsize_t extent = count;
  const hsize_t end = start + extent;
  if (end > size_) {
    must(H5Dset_extent(id(), &end), "write", name_);
    size_ = end;
  }
  const Handle file_space(must(H5Dget_space(id()), "write", name_), H5Sclose);
  must(H5Sselect_hyperslab(file_space.get(), H5S_SELECT_SET, &start, nullptr, &extent, nullptr),
       "write", name_);
  const Handle memory_space(must(H5Screate_simple(1, &extent, nullptr), "write", name_), H5Sclose);
  must(H5Dwrite(id(), memory_type_.get(), memory_space.get(), file_space.get(), H5P_DEFAULT, data),
       "write", name_);
  written_ = end;
}

void Dataset::read(std::uint64_t first, std::uint64_t count, void* data) const {
  if (count == 0) return;
  if (first > size_ || count > size_ - first) {
    throw IoError("cannot read " + name_ + ": it ends before element " +
                  std::to_string(first + count));
  }
  const std::size_t width = H5Tget_size(memory_type_.get());
  const hsize_t most = std::max<std::size_t>(kReadBytes / width, 1);
  auto* to = static_cast<std::byte*>(data);
  for (hsize_t done = 0; done < count;) {
    library().give_way();
    const hsize_t start = first + done;
    const hsize_t extent = std::min<hsize_t>(most, count - done);
    const Handle file_space(must(H5Dget_space(id()), "read", name_), H5Sclose);
    must(H5Sselect_hyperslab(file_space.get(), H5S_SELECT_SET, &start, nullptr, &extent, nullptr),
         "read", name_);
    const Handle memory_space(must(H5Screate_simple(1, &extent, nullptr), "read", name_), H5Sclose);
    must(H5Dread(id(), memory_type_.get(), memory_space.get(), file_space.get(), H5P_DEFAULT,
                 to + done * width),
         "read", name_);
    done += extent;
  }
}

void Dataset::flush() { must(H5Dflush(id()), "write", name_); }

void write_strings(const File& file, const std::string& name, std::span<const std::string> values) {
  std::string bytes;
  std::vector<std::int64_t> offsets{0};
  offsets.reserve(values.size() + 1);
  for (const std::string& value : values) {
    bytes += value;
    offsets.push_back(static_cast<std::int64_t>(bytes.size()));
  }
  Dataset text = Dataset::create<std::uint8_t>(file, name, {bytes.size()});
  text.append(bytes.size(), bytes.data());
  must(text.close(), "write", file.path());
  Dataset places = Dataset::create<std::int64_t>(file, offsets_of(name), {offsets.size()});
  places.append<std::int64_t>(offsets);
  must(places.close(), "write", file.path());
}

std::vector<std::string> read_strings(const File& file, const std::string& name) {
  const auto bytes = read_all<std::uint8_t>(file, name);
  const auto offsets = read_all<std::int64_t>(file, offsets_of(name));
  const bool sound = !offsets.empty() && offsets.front() == 0 && std::ranges::is_sorted(offsets) &&
                     offsets.back() == static_cast<std::int64_t>(bytes.size());
  if (!sound) {
    throw IoError("cannot read " + file.path() + ":" + name + ": its offsets are damaged");
  }
  std::vector<std::string> values;
  values.reserve(offsets.size() - 1);
  for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
    values.emplace_back(bytes.begin() + offsets[i], bytes.begin() + offsets[i + 1]);
  }
  return values;
}

void write_attribute(hid_t object, const std::string& path, const std::string& name,
                     const std::string& value) {
  if (value.find('\0') != std::string::npos) {
    throw DataError("cannot store " + name + " in " + path +
                    ": it contains a NUL character, which ends a string in HDF5");
  }
  write_attribute(object, path, name, string_type(value.size()).get(), value.c_str());
}

void write_attribute(hid_t object, const std::string& path, const std::string& name,
                     hid_t memory_type, const void* value) {
  const Handle space(must(H5Screate(H5S_SCALAR), "write", path), H5Sclose);
  const Handle attribute(
      must(H5Acreate2(object, name.c_str(), memory_type, space.get(), H5P_DEFAULT, H5P_DEFAULT),
           "write", path),
      H5Aclose);
  must(H5Awrite(attribute.get(), memory_type, value), "write", path);
}

std::string read_string_attribute(hid_t object, const std::string& path, const std::string& name) {
  const std::string place = path + ": attribute " + name;
  const Handle attribute = open_attribute(object, name, place);
  const Handle type(must(H5Aget_type(attribute.get()), "read", place), H5Tclose);
  if (H5Tget_class(type.get()) != H5T_STRING || H5Tis_variable_str(type.get()) != 0) {
    throw IoError("cannot read " + place + ": not a string of fixed length");
  }
  std::string value(H5Tget_size(type.get()), '\0');
  must(H5Aread(attribute.get(), type.get(), value.data()), "read", place);
  value.resize(std::min(value.size(), value.find('\0')));  // cuts off padding
  return value;
}

void read_attribute(hid_t object, const std::string& path, const std::string& name,
                    hid_t memory_type, void* value) {
  const std::string place = path + ": attribute " + name;
  const Handle attribute = open_attribute(object, name, place);
  must(H5Aread(attribute.get(), memory_type, value), "read", place);
}

Handle type_of(const Field& field) {
  const auto ranks = static_cast<unsigned>(field.shape.size());
  return {must(ranks == 0 ? H5Tcopy(field.type)
                          : H5Tarray_create2(field.type, ranks, field.shape.data()),
               "describe", field.name),
          H5Tclose};
}

Handle compound(std::span<const Field> fields, std::size_t size) {
  Handle type(must(H5Tcreate(H5T_COMPOUND, size), "describe", "a compound type"), H5Tclose);
  for (const Field& field : fields) {
    must(H5Tinsert(type.get(), field.name, field.offset, type_of(field).get()), "describe",
         field.name);
  }
  return type;
}

Handle packed(const Handle& type) {
  Handle copy(H5Tcopy(type.get()), H5Tclose);
  must(H5Tpack(copy.get()), "describe", "a compound type");
  return copy;
}

}  // namespace paceline::io::h5
