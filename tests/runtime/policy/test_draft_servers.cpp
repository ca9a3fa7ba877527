#include <gtest/gtest.h>

#include "runtime/core/error.hpp"
#include "runtime/policy/place/draft_servers.hpp"

namespace paceline::policy {
namespace {

using Ranks = std::vector<int>;

TEST(DraftServers, OneANodeUnlessAnotherNumberIsAskedFor) {
  const Ranks nodes{0, 0, 0, 1, 1, 1, 2};
  EXPECT_EQ(place_draft_servers(nodes, std::nullopt), (Ranks{2, 5, 6}));
  EXPECT_EQ(place_draft_servers(nodes, 0), Ranks{});
  EXPECT_EQ(place_draft_servers(nodes, 2), (Ranks{2, 5}));
  EXPECT_EQ(place_draft_servers(nodes, 5), (Ranks{2, 5, 6, 1, 4}));
  EXPECT_EQ(place_draft_servers(nodes, 7), (Ranks{2, 5, 6, 1, 4, 0, 3})) << "every rank once";
  EXPECT_THROW((void)place_draft_servers(nodes, 8), UsageError);
}

}  // namespace
}  // namespace paceline::policy
