#include "runtime/costs/transfer_measurement.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "runtime/core/quantile.hpp"

namespace paceline {
namespace {

constexpr int kManyBlocks = 64;  ///< blocks of the move that shows the bandwidth
constexpr int kRounds = 25;      ///< limit on the rounds; each moves both sizes
/// First key of the measurement's moves; keys of a run's own moves begin at 1.
constexpr std::uint64_t kFirstKey = std::uint64_t{1} << 63U;

/// Moves of one size.
struct Size {
  int blocks = 1;
  double bytes = 0;  ///< bytes that a rank receives
  std::vector<double> times;

  [[nodiscard]] double seconds() const { return quantile(times, 0.25); }
};

class Measurement {
 public:
  Measurement(const TransferEnd& end, Mailbox& mailbox, const Clock& clock, const SumOverRanks& sum)
      : end_(end), mailbox_(mailbox), clock_(clock), sum_(sum) {
    many_.blocks = std::min(end.blocks, kManyBlocks);
  }

  std::optional<TransferCosts> run(double seconds) {
    double spent = 0;
    for (int round = 0; round <= kRounds && (round < 2 || spent < seconds); ++round) {
      for (Size* size : {&one_, &many_}) {
        const std::optional<double> took = move(*size);
        if (!took) return std::nullopt;
        spent += *took;
        if (round > 0) size->times.push_back(*took);  // the first round connects
      }
    }
    TransferCosts costs;
    const double more = many_.seconds() - one_.seconds();
    costs.bandwidth = many_.blocks > 1 && more > 0 ? (many_.bytes - one_.bytes) / more
                                                   : many_.bytes / many_.seconds();
    costs.latency = std::max(0.0, one_.seconds() - one_.bytes / costs.bandwidth);
    return costs;
  }

 private:
  /// Mean seconds of the ranks that receive; nullopt if the move failed.
  [[nodiscard]] std::optional<double> move(Size& size) {
    std::array<double, 4> all{};  // seconds, bytes, ranks that receive, failures
    const double begin = clock_.now();
    if (end_.share != nullptr) {
      protocol::MoveKv command{key_, end_.peer, end_.receives ? 0 : 1, {}};
      for (int b = 0; b < size.blocks; ++b) command.blocks.push_back(end_.owner.name(b));
      if (end_.owner.owners > 1) command.owner = end_.owner.index;
      end_.share->obey(command);
      std::optional<bool> complete;
      while (!(complete = end_.share->ended(key_))) mailbox_.wait(0.1);
      if (!*complete) all[3] = 1;
    }
    ++key_;
    if (end_.share != nullptr && end_.receives)
      all = {clock_.now() - begin, size.blocks * end_.block_bytes, 1, all[3]};
    sum_(all);
    if (all[2] == 0 || all[3] > 0) return std::nullopt;
    size.bytes = all[1] / all[2];
    return std::max(1e-9, all[0] / all[2]);
  }

  const TransferEnd& end_;
  Mailbox& mailbox_;
  const Clock& clock_;
  const SumOverRanks& sum_;
  std::uint64_t key_ = kFirstKey;
  Size one_;
  Size many_;
};

}  // namespace

std::optional<TransferCosts> measure_transfers(const TransferEnd& end, Mailbox& mailbox,
                                               const Clock& clock, double seconds,
                                               const SumOverRanks& sum) {
  return Measurement(end, mailbox, clock, sum).run(seconds);
}

}  // namespace paceline
