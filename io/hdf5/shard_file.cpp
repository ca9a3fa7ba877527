#include "io/hdf5/shard_file.hpp"

#include "io/hdf5/atomic_file.hpp"
#include "io/hdf5/shards.hpp"

namespace paceline::io {

ShardFile::ShardFile(const std::string& directory, const std::string& kind, std::uint32_t attempt,
                     std::uint32_t rank)
    : file_(h5::File::create(shard_path(directory, kind, attempt, rank), h5::File::Kind::shard)) {
  try {
    h5::write_attribute(file_.id(), file_.path(), "attempt", attempt);
    h5::write_attribute(file_.id(), file_.path(), "rank", rank);
  } catch (...) {
    file_.abandon();
    discard_temporary(file_.path());
    throw;
  }
}

ShardFile::~ShardFile() {
  if (published_) return;
  file_.abandon();
  close_datasets();
  discard_temporary(file_.path());
}

h5::Dataset& ShardFile::add(const char* name, hid_t type, std::uint64_t chunk) {
  return datasets_.emplace_back(h5::Dataset::create(file_, name, type, type, {0, true, chunk}));
}

h5::Dataset& ShardFile::add(const char* name, std::span<const h5::Field> fields, std::size_t size,
                            std::uint64_t chunk) {
  const h5::Handle type = h5::compound(fields, size);
  return datasets_.emplace_back(
      h5::Dataset::create(file_, name, type.get(), h5::packed(type).get(), {0, true, chunk}));
}

void ShardFile::publish() {
  publish_shard(file_);
  published_ = true;
}

void ShardFile::check() const {
  if (!failure_.empty()) throw IoError(failure_);
}

void ShardFile::fail(const std::string& what) {
  failure_ = what + " (what was flushed before stays readable)";
  open_ = false;
  file_.abandon();
  close_datasets();
  throw IoError(failure_);
}

void ShardFile::close_file() {
  open_ = false;
  close_datasets();
  file_.close();
}

void ShardFile::close_datasets() {
  for (h5::Dataset& dataset : datasets_) dataset.close();
}

}  // namespace paceline::io
