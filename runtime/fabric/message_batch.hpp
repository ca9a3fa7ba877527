// Messages between mailboxes on the wire: several in a batch, under a header that the receiver
// checks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/core/mailbox.hpp"

namespace paceline::fabric {

struct BatchHeader {
  std::uint64_t run = 0;       ///< the same in all batches of a run
  std::uint64_t sequence = 0;  ///< counts the sender's batches to this receiver, from 0
  std::uint64_t consumed = 0;  ///< acknowledged: cost of messages read from the receiver
  Address from;
  Address to;
  std::uint32_t messages = 0;
  std::uint32_t bytes = 0;  ///< bytes of the messages, with their sizes
};

/// A batch that is being filled; its header is known last.
class BatchWriter {
 public:
  BatchWriter();
  /// `bytes` must be less than 4 GiB.
  void add(std::span<const std::byte> message);
  [[nodiscard]] std::uint32_t messages() const { return messages_; }
  /// Bytes of the messages with their sizes, which is their cost in a window.
  [[nodiscard]] std::size_t cost() const;
  /// The whole batch; `header`'s counts are filled in. Leaves the writer empty.
  [[nodiscard]] std::vector<std::byte> take(BatchHeader header);

 private:
  std::vector<std::byte> bytes_;
  std::uint32_t messages_ = 0;
};

/// The cost of one message, as in BatchWriter::cost().
[[nodiscard]] std::size_t cost_of(std::size_t message_bytes);

/// A received batch, checked.
struct ReadBatch {
  BatchHeader header;
  std::vector<std::span<const std::byte>> messages;  ///< views of the batch
};
/// Checks a batch. `fault` says what is wrong where nothing is returned.
[[nodiscard]] std::optional<ReadBatch> read_batch(std::span<const std::byte> batch,
                                                  std::uint64_t run, Address me,
                                                  std::string& fault);

/// Puts the batches of one sender in order, keeping early ones.
class BatchOrder {
 public:
  /// Whether the batch is the next one.
  enum class Place : std::uint8_t { next, early, repeated };
  [[nodiscard]] Place place(std::uint64_t sequence) const;
  void keep(std::uint64_t sequence, std::vector<std::byte> batch);
  void accept_next() { ++next_; }
  /// The next batch, if it is kept.
  [[nodiscard]] std::optional<std::vector<std::byte>> take_kept();
  [[nodiscard]] std::uint64_t next() const { return next_; }
  [[nodiscard]] bool incomplete() const { return !kept_.empty(); }

 private:
  struct Kept {
    std::uint64_t sequence;
    std::vector<std::byte> batch;
  };
  std::uint64_t next_ = 0;
  std::vector<Kept> kept_;  ///< few, in any order
};

}  // namespace paceline::fabric
