#include "runtime/sim/network.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace paceline::sim {
namespace {

constexpr std::size_t kPorts = 6;  // ports of a rank: three classes of links, two kinds of traffic

/// Number of transmissions that a port remembers: about as many as a rank is sent while another
/// rank makes one step. Older ones delay nothing any more.
constexpr std::size_t kRemembered = 64;

}  // namespace

double Network::Port::free_from(double at, double seconds) const {
  // The search begins at the end, for a send is almost always after all known ones.
  auto next = busy_.end();
  while (next != busy_.begin() && std::prev(next)->end > at) --next;
  for (; next != busy_.end() && next->begin < at + seconds; ++next) at = std::max(at, next->end);
  return at;
}

void Network::Port::take(double begin, double seconds) {
  auto next = busy_.end();
  while (next != busy_.begin() && std::prev(next)->begin > begin) --next;
  busy_.insert(next, {begin, begin + seconds});
  if (busy_.size() > kRemembered) busy_.pop_front();
}

Network::Network(const Links& links, std::vector<int> node_of_rank)
    : links_(links),
      node_of_rank_(std::move(node_of_rank)),
      ports_(node_of_rank_.size() * kPorts) {}

double Network::arrival(int from, int to, double bytes, double now, Kind kind) {
  const bool same_node = node_of_rank_[from] == node_of_rank_[to];
  const std::size_t link_class = from == to ? 0 : same_node ? 1 : 2;
  const Link& link = from == to ? links_.rank : same_node ? links_.node : links_.network;
  const std::size_t port = link_class * 2 + (kind == Kind::blocks ? 1 : 0);
  Port& out = ports_[from * kPorts + port].out;
  Port& in = ports_[to * kPorts + port].in;
  const double seconds = bytes / link.bandwidth;
  double begin = now;
  for (double before = -1; begin != before;) {  // until both ports are free
    before = begin;
    begin = out.free_from(begin, seconds);
    begin = std::max(begin, in.free_from(begin + link.latency, seconds) - link.latency);
  }
  out.take(begin, seconds);
  in.take(begin + link.latency, seconds);
  return begin + seconds + link.latency;
}

}  // namespace paceline::sim
