// A device whose memory nobody but its staging can touch: the process must not read or write it.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>
#include <vector>

#include "runtime/fabric/device_staging.hpp"

namespace paceline::fabric::test {

class FakeDevice final : public DeviceStaging {
 public:
  /// With so much memory.
  explicit FakeDevice(std::size_t bytes) : contents(bytes) {
    void* const at = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::runtime_error("no address space");
    base_ = static_cast<std::byte*>(at);
  }
  ~FakeDevice() override { munmap(base_, contents.size()); }
  FakeDevice(const FakeDevice&) = delete;
  FakeDevice& operator=(const FakeDevice&) = delete;

  [[nodiscard]] std::span<std::byte> memory() const { return {base_, contents.size()}; }

  [[nodiscard]] bool is_device(const std::byte* memory) override {
    ++asked;
    return memory >= base_ && memory < base_ + contents.size();
  }
  [[nodiscard]] std::byte* allocate() override {
    stages_.push_back(std::make_unique<std::byte[]>(kBytes));
    return stages_.back().get();
  }
  void to_host(std::byte* host, const std::byte* device, std::size_t bytes) override {
    std::memcpy(host, &contents.at(device - base_), bytes);
    copied += bytes;
  }
  void to_device(std::byte* device, const std::byte* host, std::size_t bytes) override {
    std::memcpy(&contents.at(device - base_), host, bytes);
    copied += bytes;
  }
  [[nodiscard]] std::size_t stages() const { return stages_.size(); }

  std::vector<std::byte> contents;  ///< what the memory holds
  int asked = 0;                    ///< whether some memory is the device's
  std::size_t copied = 0;           ///< bytes, either way

 private:
  std::byte* base_ = nullptr;
  std::vector<std::unique_ptr<std::byte[]>> stages_;
};

}  // namespace paceline::fabric::test
