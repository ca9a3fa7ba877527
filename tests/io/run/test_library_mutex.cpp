// The lock over HDF5: recursive, in order, and given up between two pieces of what is read.
#include <algorithm>
#include <atomic>
#include <thread>

#include "io/hdf5/atomic_file.hpp"
#include "io/hdf5/file.hpp"
#include "tests/io/run/fixture.hpp"

namespace paceline::io {
namespace {

class LibraryLock : public Scratch {};

TEST(LibraryMutex, ThreadsComeInTheirOrder) {
  h5::LibraryMutex mutex;
  std::vector<int> order;
  std::vector<std::thread> threads;
  std::atomic<int> came = 0;
  mutex.lock();
  mutex.lock();
  EXPECT_FALSE(mutex.wanted());
  mutex.give_way();  // to nobody
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      mutex.give_way();  // has nothing to give
      ++came;
      mutex.lock();
      order.push_back(t);
      mutex.unlock();
    });
    while (came == t || !mutex.wanted()) std::this_thread::yield();
  }
  mutex.unlock();
  EXPECT_TRUE(order.empty()) << "it is locked once more";
  mutex.give_way();
  order.push_back(2);
  EXPECT_EQ(order.front(), 0);
  mutex.unlock();
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(order.size(), 3U);
  EXPECT_LT(std::find(order.begin(), order.end(), 0), std::find(order.begin(), order.end(), 1));
}

TEST_F(LibraryLock, AReaderLetsInWhoWaits) {
  const auto lock = h5::lock_hdf5();
  const auto deeper = h5::lock_hdf5();
  const std::vector<std::uint8_t> bytes(std::size_t{5} << 19, 7);
  h5::File file = h5::File::create(at("bytes"), h5::File::Kind::final);
  h5::Dataset dataset = h5::Dataset::create<std::uint8_t>(file, "bytes", {bytes.size()});
  dataset.append(bytes.size(), bytes.data());
  bool was_in = false;
  std::thread writer([&] {
    const auto own = h5::lock_hdf5();
    was_in = true;
  });
  while (!lock.mutex()->wanted()) std::this_thread::yield();
  EXPECT_FALSE(was_in);
  std::vector<std::uint8_t> read(bytes.size() - 1);
  dataset.read(1, read.size(), read.data());
  EXPECT_TRUE(was_in);
  EXPECT_TRUE(std::equal(read.begin(), read.end(), bytes.begin()));
  writer.join();
  file.close();
}

}  // namespace
}  // namespace paceline::io
