// Wire format of messages between mailboxes: batches of several messages, with a header that the
// receiver checks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/core/mailbox.hpp"

namespace paceline::fabric {

struct BatchHeader {
  std::uint64_t run = 0;       ///< the same in all batches of a run
  std::uint64_t sequence = 0;  ///< counts the sender's batches to this receiver, from 0
  std::uint64_t consumed = 0;  ///< acknowledgement: cost of the receiver's messages that were read
  Address from;
  Address to;
  std::uint32_t messages = 0;
  std::uint32_t bytes = 0;  ///< bytes of the messages and their size fields
};

/// A batch that is being filled. Its header is added last.
class BatchWriter {
 public:
  BatchWriter();
  /// Adds a message. Throws std::length_error where the batch would reach 4 GiB.
  void add(std::span<const std::byte> message);
  [[nodiscard]] std::uint32_t messages() const { return messages_; }
  /// Bytes of the messages and their size fields: the batch's cost in a window.
  [[nodiscard]] std::size_t cost() const;
  /// Returns the whole batch and leaves the writer empty. Fills in `messages` and `bytes` of
  /// `header`.
  [[nodiscard]] std::vector<std::byte> take(BatchHeader header);

 private:
  std::vector<std::byte> bytes_;
  std::uint32_t messages_ = 0;
};

/// Cost of one message of so many bytes, as in BatchWriter::cost().
[[nodiscard]] std::size_t cost_of(std::size_t message_bytes);

/// A received batch that was checked.
struct ReadBatch {
  BatchHeader header;
  std::vector<std::span<const std::byte>> messages;  ///< views into the batch
};
/// Checks a batch that `me` received. Returns nullopt for an invalid one, and sets `fault` to the
/// reason.
[[nodiscard]] std::optional<ReadBatch> read_batch(std::span<const std::byte> batch,
                                                  std::uint64_t run, Address me,
                                                  std::string& fault);

/// Puts the batches of one sender in order, and keeps early ones.
class BatchOrder {
 public:
  /// Place of a batch in the order.
  enum class Place : std::uint8_t { next, early, repeated };
  [[nodiscard]] Place place(std::uint64_t sequence) const;
  void keep(std::uint64_t sequence, std::vector<std::byte> batch);
  void accept_next() { ++next_; }
  /// Returns the next batch, if it was kept.
  [[nodiscard]] std::optional<std::vector<std::byte>> take_kept();
  [[nodiscard]] std::uint64_t next() const { return next_; }
  [[nodiscard]] bool incomplete() const { return !kept_.empty(); }

 private:
  struct Kept {
    std::uint64_t sequence;
    std::vector<std::byte> batch;
  };
  std::uint64_t next_ = 0;
  std::vector<Kept> kept_;  ///< few batches, in any order
};

}  // namespace paceline::fabric
