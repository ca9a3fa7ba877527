#include "runtime/sim/network.hpp"

#include <algorithm>
#include <utility>

namespace paceline::sim {
namespace {

constexpr std::size_t kPorts = 6;  // of a rank: three classes of links, two kinds of traffic

}  // namespace

Network::Network(const Links& links, std::vector<int> node_of_rank)
    : links_(links),
      node_of_rank_(std::move(node_of_rank)),
      ports_(node_of_rank_.size() * kPorts) {}

double Network::arrival(int from, int to, double bytes, double now, Kind kind) {
  const bool same_node = node_of_rank_[from] == node_of_rank_[to];
  const std::size_t link_class = from == to ? 0 : same_node ? 1 : 2;
  const Link& link = from == to ? links_.rank : same_node ? links_.node : links_.network;
  const std::size_t port = link_class * 2 + (kind == Kind::blocks ? 1 : 0);
  Ports& sender = ports_[from * kPorts + port];
  Ports& receiver = ports_[to * kPorts + port];
  const double begin = std::max({now, sender.out, receiver.in - link.latency});
  const double end = begin + bytes / link.bandwidth;
  sender.out = end;
  receiver.in = end + link.latency;
  return end + link.latency;
}

}  // namespace paceline::sim
