#include "runtime/sim/post.hpp"

#include <algorithm>
#include <stdexcept>
#include <unordered_map>
#include <utility>

#include "runtime/sim/draws.hpp"

namespace paceline::sim {
namespace {

/// Unread bytes of one sender at which its receiver's mailbox counts as full: the window of the
/// real mailbox (runtime/fabric/ucx_mailbox.hpp).
constexpr std::uint64_t kWindow = 256 << 10;

}  // namespace

class Post::Box final : public Mailbox {
 public:
  Box(Post& post, Address me) : post_(post), me_(me) {}

  void send(Address to, std::span<const std::byte> bytes) override {
    ++traffic_.messages;
    ++traffic_.batches;
    traffic_.bytes += bytes.size();
    post_.send(*this, to, bytes);
  }
  void flush() override {}
  void deliver(std::span<const Address>) override {}
  std::optional<Envelope> poll() override {
    while (!messages_.empty()) {
      Message& next = const_cast<Message&>(messages_.top());  // takes its bytes; it is popped next
      if (next.arrival > post_.world_.clock(owner_).now()) return std::nullopt;
      Envelope envelope{next.from, std::move(next.bytes)};
      const bool again = next.again;
      messages_.pop();
      if (again) continue;
      paths_[number(envelope.from)].read_bytes += envelope.bytes.size();
      return envelope;
    }
    return std::nullopt;
  }
  bool wait(double) override { throw std::logic_error("an actor sleeps between its turns alone"); }
  void wake() override { post_.world_.wake(owner_, 0); }
  [[nodiscard]] bool full(Address to) const override {
    const Path& path = post_.box(to).paths_[number(me_)];
    return path.sent_bytes - path.read_bytes >= kWindow;
  }
  [[nodiscard]] Traffic traffic() const override { return traffic_; }

 private:
  friend class Post;
  /// The way of one sender's messages.
  struct Path {
    double arrival = 0;      ///< arrival of the last message
    std::uint64_t sent = 0;  ///< messages sent
    std::uint64_t sent_bytes = 0;
    std::uint64_t read_bytes = 0;
  };
  struct Message {
    double arrival = 0;
    std::uint64_t number = 0;  ///< index among all messages
    Address from;
    std::vector<std::byte> bytes;
    bool again = false;  ///< a duplicate
    bool operator>(const Message& other) const {
      return arrival != other.arrival ? arrival > other.arrival : number > other.number;
    }
  };
  void put(Message message) {
    post_.world_.wake(owner_, message.arrival);
    messages_.push(std::move(message));
  }

  Post& post_;
  Address me_;
  ActorId owner_ = -1;
  Traffic traffic_;
  std::unordered_map<std::size_t, Path> paths_;  ///< by number() of the sender
  std::priority_queue<Message, std::vector<Message>, std::greater<>> messages_;
};

Post::Post(World& world, Network& network, const MessageFaults& faults)
    : world_(world), network_(network), faults_(faults) {}

Post::~Post() = default;

Mailbox& Post::open(Address at) {
  if (number(at) >= boxes_.size()) boxes_.resize(number(at) + 1);
  std::unique_ptr<Box>& box = boxes_[number(at)];
  if (box == nullptr) box = std::make_unique<Box>(*this, at);
  return *box;
}

void Post::belongs(Address at, ActorId actor) { box(at).owner_ = actor; }

double Post::chance(Address from, Address to, std::uint64_t message, std::uint32_t what) {
  const auto address = [](Address a) {
    return static_cast<std::uint64_t>(a.rank) * 4 + static_cast<std::uint64_t>(a.port);
  };
  return uniform(NoiseKey{faults_.seed, address(from) << 32 | address(to)}, Draw::message,
                 static_cast<std::uint32_t>(message), what);
}

void Post::send(Box& sender, Address to, std::span<const std::byte> bytes) {
  const Address from = sender.me_;
  Box& box = this->box(to);
  Box::Path& path = box.paths_[number(from)];
  const double now = world_.clock(sender.owner_).now();
  const auto carry = [&] {
    return network_.arrival(from.rank, to.rank, static_cast<double>(bytes.size()), now,
                            Network::Kind::message);
  };
  double arrival = carry();
  if (faults_.delayed > 0 && chance(from, to, path.sent, 0) < faults_.delayed)
    arrival += faults_.delay * chance(from, to, path.sent, 1);
  path.arrival = std::max(path.arrival, arrival);
  if (faults_.duplicated > 0 && chance(from, to, path.sent, 2) < faults_.duplicated)
    box.put({std::max(path.arrival, carry()), posted_ + 1, from, {}, true});
  ++path.sent;
  path.sent_bytes += bytes.size();
  box.put({path.arrival, posted_, from, {bytes.begin(), bytes.end()}, false});
  posted_ += 2;
}

}  // namespace paceline::sim
