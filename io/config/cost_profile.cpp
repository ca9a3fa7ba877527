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

constexpr const char* kWhat = "the cost profile";

constexpr std::string_view kHead =
    "# Costs that paceline profile measured: seconds, by rows (engine.profile in a "
    "configuration).\n"
    "# points: [rows, seconds] where nothing is attended to; attention: [positions, seconds] "
    "beside\n"
    "# those, by the number of positions that all rows together attend to.\n";

/// A list of pairs of numbers. The second may be 0 if nothing is read from memory.
template <typename Point>
Field points(std::string_view name, bool required, std::vector<Point>& to, const char* what,
             const Real<double>& second) {
  return {name, required, [&to, what, &second](const YamlNode& list) {
            if (list.kind != YamlNode::Kind::list || list.items.empty())
              throw BadValue(list, fmt::format("a list of [{}, seconds]", what));
            for (const YamlNode& item : list.items) {
              if (item.kind != YamlNode::Kind::list || item.items.size() != 2)
                throw BadValue(item, fmt::format("two numbers, [{}, seconds]", what));
              to.push_back({positive().read(item.items[0], ""), second.read(item.items[1], "")});
            }
          }};
}

CostCurve read_curve(const YamlNode& node) {
  std::vector<CostCurve::Point> rows;
  std::vector<CostCurve::Attention> attention;
  const auto old = [](const YamlNode& value) {
    throw BadValue(value, "attention, a list of [positions, seconds], in its place",
                   "an earlier version measured this; run `paceline profile` again");
  };
  double context = 0;
  read_map(node, {{"per_position", false, old},
                  {"context", false,
                   [&](const YamlNode& value) { context = not_negative().read(value, ""); }},
                  points("attention", false, attention, "positions", not_negative()),
                  points("points", true, rows, "rows", positive())});
  return CostCurve(std::move(rows), std::move(attention), context);
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
      read_map(item, {field("name", drafter.name, Text{}),
                      {"model", false,
                       [&](const YamlNode& value) { drafter.model = Text{}.read(value, ""); }},
                      curve("first", drafter.first, false),
                      curve("round", drafter.round, false),
                      curve("catch_up", drafter.catch_up, false),
                      curve("next", drafter.next, false)});
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

/// Text of a curve; empty: it was not measured.
std::string curve_text(const char* name, const CostCurve& curve, const std::string& outer) {
  if (curve.empty()) return "";
  const std::string indent = outer + "  ";
  std::string text = outer + name + ":\n" + indent + "points:\n";
  for (const CostCurve::Point& p : curve.points())
    text += indent + "  - [" + format_number(p.rows) + ", " + figure(p.seconds) + "]\n";
  if (curve.context() > 0) text += indent + "context: " + format_number(curve.context()) + "\n";
  if (!curve.attention().empty()) text += indent + "attention:\n";
  for (const CostCurve::Attention& a : curve.attention())
    text += indent + "  - [" + format_number(a.positions) + ", " + figure(a.seconds) + "]\n";
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
    text +=
        "  - name: " + quote_yaml(drafter.name) + "\n" +
        (drafter.model.empty() ? "" : "    model: " + quote_yaml(drafter.model) + "\n") +
        curve_text("first", drafter.first, "    ") + curve_text("round", drafter.round, "    ") +
        curve_text("catch_up", drafter.catch_up, "    ") + curve_text("next", drafter.next, "    ");
  }
  if (table.transfer) {
    text += "transfer:\n  latency: " + figure(table.transfer->latency) +
            "\n  bandwidth: " + figure(table.transfer->bandwidth) + "\n";
  }
  return text;
}

void require_cost_profile_writable(const std::string& path) { require_replaceable(path, kWhat); }

void write_cost_profile(const std::string& path, const CostTable& table) {
  replace_file(path, cost_profile_text(table), kWhat);
}

}  // namespace paceline::io
