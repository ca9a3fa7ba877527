#include "io/config/cost_profile.hpp"

#include <fmt/format.h>

#include <limits>
#include <utility>
#include <vector>

#include "io/config/codecs.hpp"
#include "io/config/yaml_record.hpp"
#include "io/config/yaml_tree.hpp"

namespace paceline::io {
namespace {

constexpr std::string_view kHead =
    "# Costs that paceline profile measured: seconds, by rows (engine.profile in a "
    "configuration).\n"
    "# points: [rows, seconds] where nothing is attended to; per_position: for each row and each\n"
    "# position that it attends to.\n";

CostCurve::Point read_point(const YamlNode& node) {
  if (node.kind != YamlNode::Kind::list || node.items.size() != 2)
    throw BadValue(node, "two numbers, [rows, seconds]");
  return {positive().read(node.items[0], ""), positive().read(node.items[1], "")};
}

CostCurve read_curve(const YamlNode& node) {
  double per_position = 0;
  std::vector<CostCurve::Point> points;
  read_map(node, {field("per_position", per_position, not_negative()),
                  {"points", true, [&](const YamlNode& list) {
                     if (list.kind != YamlNode::Kind::list || list.items.empty())
                       throw BadValue(list, "a list of [rows, seconds]");
                     for (const YamlNode& item : list.items) points.push_back(read_point(item));
                   }}});
  return CostCurve(std::move(points), per_position);
}

Field curve(std::string_view name, CostCurve& to, bool required) {
  return {name, required, [&to](const YamlNode& node) { to = read_curve(node); }};
}

CostTable read_table(const YamlNode& root) {
  constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max();
  CostTable table;
  const auto conditions = [&](const YamlNode& node) {
    CostConditions& c = table.conditions;
    read_map(node, {field("backend", c.backend, Text{}), field("isa", c.isa, Text{}),
                    field("tp", c.tp, Count{1, kMost}),
                    field("threads", c.threads, Count{1, kMost}), field("model", c.model, Text{})});
  };
  const auto drafters = [&](const YamlNode& node) {
    if (node.kind != YamlNode::Kind::list) throw BadValue(node, "a list of drafters");
    for (const YamlNode& item : node.items) {
      DrafterCosts& drafter = table.drafters.emplace_back();
      read_map(item,
               {field("name", drafter.name, Text{}), curve("first", drafter.first, false),
                curve("round", drafter.round, false), curve("catch_up", drafter.catch_up, false)});
    }
  };
  const auto transfer = [&](const YamlNode& node) {
    TransferCosts& t = table.transfer.emplace();
    read_map(node, {field("latency", t.latency, not_negative()),
                    field("bandwidth", t.bandwidth, positive())});
  };
  read_map(root, {{"conditions", true, conditions},
                  curve("decode", table.decode, true),
                  field("drafted_position", table.drafted_position, not_negative()),
                  curve("prefill", table.prefill, false),
                  {"drafters", false, drafters},
                  {"transfer", false, transfer}});
  return table;
}

/// Nothing where nothing was measured.
std::string curve_text(const char* name, const CostCurve& curve, const std::string& outer) {
  if (curve.empty()) return "";
  const std::string indent = outer + "  ";
  std::string text = outer + name + ":\n" + indent +
                     "per_position: " + figure(curve.per_position()) + "\n" + indent + "points:\n";
  for (const CostCurve::Point& p : curve.points())
    text += indent + "  - [" + format_number(p.rows) + ", " + figure(p.seconds) + "]\n";
  return text;
}

}  // namespace

CostTable parse_cost_profile(const std::string& text, const std::string& name) {
  return explain(name, "a cost profile", [&] { return read_table(parse_yaml(text, name)); });
}

std::string cost_profile_text(const CostTable& table) {
  const CostConditions& c = table.conditions;
  std::string text = std::string(kHead) + "conditions:\n  backend: " + quote_yaml(c.backend) +
                     "\n  isa: " + quote_yaml(c.isa) + "\n  tp: " + std::to_string(c.tp) +
                     "\n  threads: " + std::to_string(c.threads) +
                     "\n  model: " + quote_yaml(c.model) + "\n" +
                     curve_text("decode", table.decode, "") +
                     "drafted_position: " + figure(table.drafted_position) + "\n" +
                     curve_text("prefill", table.prefill, "");
  if (!table.drafters.empty()) text += "drafters:\n";
  for (const DrafterCosts& drafter : table.drafters) {
    text += "  - name: " + quote_yaml(drafter.name) + "\n" +
            curve_text("first", drafter.first, "    ") +
            curve_text("round", drafter.round, "    ") +
            curve_text("catch_up", drafter.catch_up, "    ");
  }
  if (table.transfer) {
    text += "transfer:\n  latency: " + figure(table.transfer->latency) +
            "\n  bandwidth: " + figure(table.transfer->bandwidth) + "\n";
  }
  return text;
}

void write_cost_profile(const std::string& path, const CostTable& table) {
  replace_file(path, cost_profile_text(table), "the cost profile");
}

}  // namespace paceline::io
