// Memory that grows and shrinks in place.
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "kernels_test_util.hpp"
#include "runtime/core/error.hpp"

namespace paceline::kernels::test {
namespace {

class ElasticMemoryTest : public EachBackend {
 protected:
  static std::vector<std::byte> pattern(std::size_t bytes, unsigned seed) {
    std::vector<std::byte> values(bytes);
    for (std::size_t i = 0; i < bytes; ++i)
      values[i] = static_cast<std::byte>((i * 31 + seed) % 251 + 1);
    return values;
  }
  static std::vector<std::byte> read(Backend& backend, ElasticBuffer& buffer) {
    std::vector<std::byte> values(buffer.size());
    backend.read(buffer.data(), values);
    return values;
  }
};

TEST_P(ElasticMemoryTest, KeepsItsPlaceAndWhatStays) {
  const auto backend = this->backend();
  // In the heap, a mapping, and neither in whole pages.
  for (const std::size_t unit : {std::size_t{100}, std::size_t{64} << 10, std::size_t{1000003}}) {
    const auto buffer = backend->reserve(2 * unit, 7 * unit);
    const std::byte* const place = buffer->data();
    std::vector<std::byte> expected(2 * unit, std::byte{0});
    EXPECT_EQ(read(*backend, *buffer), expected);
    Random random(static_cast<int>(unit));
    for (int turn = 0; turn < 12; ++turn) {
      const std::vector<std::byte> written = pattern(buffer->size(), turn);
      backend->write(buffer->data(), written);
      const std::size_t bytes = (1 + random.below(7)) * unit - random.below(50);
      expected = written;
      expected.resize(bytes, std::byte{0});
      buffer->resize(bytes);
      ASSERT_EQ(buffer->size(), bytes);
      ASSERT_EQ(buffer->data(), place);
      ASSERT_EQ(read(*backend, *buffer), expected);
    }
    EXPECT_THROW(buffer->resize(8 * unit + (std::size_t{1} << 21)), Error);
  }
}

PACELINE_EACH_BACKEND(ElasticMemoryTest);

/// Bytes of memory that the process has.
std::size_t resident() {
  std::ifstream file("/proc/self/statm");
  std::size_t size = 0;
  std::size_t pages = 0;
  file >> size >> pages;
  return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

TEST(ElasticHostMemory, GivesPagesBackToTheSystem) {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  constexpr std::size_t kSlack = 8 * kMiB;  // of huge pages at the ends, and of the counter
  const auto backend = make_cpu_backend(1);
  const std::size_t before = resident();
  const auto buffer = backend->reserve(64 * kMiB, 192 * kMiB);
  EXPECT_LT(resident(), before + kSlack);  // none before it is used
  for (int turn = 0; turn < 3; ++turn) {
    std::fill_n(buffer->data(), 64 * kMiB, std::byte{1});
    EXPECT_LT(resident(), before + 64 * kMiB + kSlack);
    buffer->resize(192 * kMiB);
    std::fill_n(buffer->data(), 192 * kMiB, std::byte{2});
    EXPECT_GT(resident() + kSlack, before + 192 * kMiB);
    buffer->resize(64 * kMiB);
    EXPECT_LT(resident(), before + 64 * kMiB + kSlack);
  }
}

TEST(ElasticHostMemory, AnEndWithinTheLastPageReadsAsZero) {
  constexpr std::size_t kSize =
      (std::size_t{2} << 20) + 100;  // mapped; the last page has 100 bytes
  const auto backend = make_cpu_backend(1);
  const auto buffer = backend->reserve(kSize, kSize);
  std::fill_n(buffer->data(), kSize, std::byte{1});
  buffer->resize(kSize - 50);
  buffer->resize(kSize);
  EXPECT_EQ(std::count(buffer->data(), buffer->data() + kSize, std::byte{1}),
            static_cast<std::ptrdiff_t>(kSize - 50));
}

}  // namespace
}  // namespace paceline::kernels::test
