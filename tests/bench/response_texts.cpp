#include "tests/bench/response_texts.hpp"

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

namespace paceline::bench {

std::vector<Text> make_group(int siblings, std::size_t tokens, int shared, unsigned seed) {
  std::mt19937 random(seed);
  const auto below = [&](std::size_t n) { return random() % n; };
  const auto zipf = [&] {
    const double u = std::uniform_real_distribution<double>(0, 1)(random);
    return static_cast<TokenId>(std::pow(150'000.0, u)) - 1;
  };
  const auto phrase = [&] {
    Text text(4 + below(37));
    for (TokenId& token : text) token = zipf();
    return text;
  };
  std::vector<Text> stock(tokens / 200 + 1);
  for (Text& text : stock) text = phrase();
  std::vector<Text> group(siblings);
  for (Text& text : group) {
    while (text.size() < tokens) {
      const Text next =
          static_cast<int>(below(100)) < shared ? stock[below(stock.size())] : phrase();
      text.insert(text.end(), next.begin(), next.end());
    }
    text.resize(tokens);
  }
  return group;
}

std::vector<Responses> read_groups(const std::string& path) {
  std::ifstream file(path);
  std::vector<Responses> groups;
  std::map<std::string, std::size_t> places;
  for (std::string line; std::getline(file, line);) {
    if (line.empty()) continue;
    const nlohmann::json json = nlohmann::json::parse(line);
    const std::string name =
        json.contains("group") ? json["group"].dump() : "#" + std::to_string(groups.size());
    const auto [at, added] = places.try_emplace(name, groups.size());
    if (added) groups.emplace_back();
    Responses& group = groups[at->second];
    group.prompt = json.value("prompt", Text{});
    if (json.contains("tokens")) group.texts.push_back(json["tokens"].get<Text>());
    if (json.contains("responses")) {
      for (const auto& text : json["responses"]) group.texts.push_back(text.get<Text>());
    }
  }
  return groups;
}

int accepted(const draft::DraftOutput& draft, int count, std::span<const TokenId> next) {
  std::int32_t at = -1;
  int length = 0;
  for (int i = 0; i < count && length < static_cast<int>(next.size()); ++i) {
    if (draft.parents[i] == at && draft.tokens[i] == next[length]) {
      at = i;
      ++length;
    }
  }
  return length;
}

}  // namespace paceline::bench
