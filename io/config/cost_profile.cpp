#include "io/config/cost_profile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "io/config/codecs.hpp"
#include "io/config/yaml_tree.hpp"

namespace paceline::io {
namespace {

constexpr std::string_view kHead =
    "# Costs that paceline profile measured: seconds, by rows (engine.profile in a "
    "configuration).\n"
    "# points: [rows, seconds] where nothing is attended to; per_position: for each row and each\n"
    "# position that it attends to.\n";

const Real<double>& positive() {
  static const Real<double> codec{"a number above 0", [](double v) { return v > 0; }};
  return codec;
}
const Real<double>& not_negative() {
  static const Real<double> codec{"a number of at least 0", [](double v) { return v >= 0; }};
  return codec;
}

/// A key of a map: reads its value.
struct Field {
  std::string_view name;
  bool required;
  std::function<void(const YamlNode&)> read;
};

/// Reads a map whose keys these are. What `read` throws says which key.
void read_map(const YamlNode& node, const std::vector<Field>& fields) {
  std::vector<std::string_view> names;
  names.reserve(fields.size());
  for (const Field& field : fields) names.push_back(field.name);
  if (node.kind != YamlNode::Kind::map) throw BadValue(node, "a map with " + list_names(names));
  for (const YamlEntry& entry : node.entries) {
    const auto field = std::find_if(fields.begin(), fields.end(),
                                    [&](const Field& f) { return f.name == entry.key; });
    if (field == fields.end()) {
      const std::string_view near = nearest_name(std::string_view(entry.key).substr(0, 64), names);
      BadValue bad(node, list_names(names),
                   near.empty() ? "" : "did you mean '" + std::string(near) + "'?");
      bad.line = entry.line;
      bad.column = entry.column;
      bad.found = show(entry.key);
      throw bad;
    }
    try {
      field->read(entry.value);
    } catch (BadValue& bad) {
      bad.part = entry.key + (bad.part.empty() || bad.part[0] == '[' ? "" : ".") + bad.part;
      if (bad.line == 0) {
        bad.line = entry.line;
        bad.column = entry.column;
      }
      throw;
    }
  }
  for (const Field& field : fields) {
    const bool there = std::any_of(node.entries.begin(), node.entries.end(),
                                   [&](const YamlEntry& e) { return e.key == field.name; });
    if (field.required && !there) throw BadValue(node, "the key " + std::string(field.name));
  }
}

template <typename T, typename Codec>
Field field(std::string_view name, T& to, Codec codec) {
  return {name, true, [&to, codec](const YamlNode& node) { to = codec.read(node, ""); }};
}

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
    read_map(node,
             {field("backend", c.backend, Text{}), field("isa", c.isa, Text{}),
              field("tp", c.tp, Count{1, kMost}), field("threads", c.threads, Count{1, kMost}),
              field("fingerprint", c.fingerprint, Text{})});
  };
  const auto drafters = [&](const YamlNode& node) {
    if (node.kind != YamlNode::Kind::list) throw BadValue(node, "a list of drafters");
    for (const YamlNode& item : node.items) {
      DrafterCosts& drafter = table.drafters.emplace_back();
      read_map(item,
               {field("name", drafter.name, Text{}), curve("first", drafter.first, true),
                curve("round", drafter.round, true), curve("catch_up", drafter.catch_up, false)});
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
                  curve("prefill", table.prefill, true),
                  {"drafters", false, drafters},
                  {"transfer", false, transfer}});
  return table;
}

/// Four digits: more than any measurement tells.
std::string figure(double value) { return fmt::format("{:.4g}", value); }

std::string curve_text(const CostCurve& curve, const std::string& indent) {
  std::string text =
      indent + "per_position: " + figure(curve.per_position()) + "\n" + indent + "points:\n";
  for (const CostCurve::Point& p : curve.points())
    text += indent + "  - [" + format_number(p.rows) + ", " + figure(p.seconds) + "]\n";
  return text;
}

}  // namespace

CostTable parse_cost_profile(const std::string& text, const std::string& name) {
  try {
    return read_table(parse_yaml(text, name));
  } catch (const BadValue& bad) {
    const std::string place =
        bad.line == 0 ? name
                      : name + ":" + std::to_string(bad.line) + ":" + std::to_string(bad.column);
    throw UsageError(place + ": " + (bad.part.empty() ? "a cost profile" : bad.part) +
                     ": expected " + bad.expected + ", found " + bad.found +
                     (bad.hint.empty() ? "" : "; " + bad.hint));
  }
}

CostTable read_cost_profile(const std::string& path) {
  return parse_cost_profile(read_yaml_file(path, "the cost profile"), path);
}

std::string cost_profile_text(const CostTable& table) {
  const CostConditions& c = table.conditions;
  std::string text = std::string(kHead) + "conditions:\n  backend: " + quote_yaml(c.backend) +
                     "\n  isa: " + quote_yaml(c.isa) + "\n  tp: " + std::to_string(c.tp) +
                     "\n  threads: " + std::to_string(c.threads) +
                     "\n  fingerprint: " + quote_yaml(c.fingerprint) + "\ndecode:\n" +
                     curve_text(table.decode, "  ") +
                     "drafted_position: " + figure(table.drafted_position) + "\nprefill:\n" +
                     curve_text(table.prefill, "  ");
  if (!table.drafters.empty()) text += "drafters:\n";
  for (const DrafterCosts& drafter : table.drafters) {
    text += "  - name: " + quote_yaml(drafter.name) + "\n    first:\n" +
            curve_text(drafter.first, "      ") + "    round:\n" +
            curve_text(drafter.round, "      ");
    if (!drafter.catch_up.empty())
      text += "    catch_up:\n" + curve_text(drafter.catch_up, "      ");
  }
  if (table.transfer) {
    text += "transfer:\n  latency: " + figure(table.transfer->latency) +
            "\n  bandwidth: " + figure(table.transfer->bandwidth) + "\n";
  }
  return text;
}

void write_cost_profile(const std::string& path, const CostTable& table) {
  const std::string part = path + ".part";
  std::ofstream file(part, std::ios::binary | std::ios::trunc);
  file << cost_profile_text(table);
  file.close();
  if (!file || std::rename(part.c_str(), path.c_str()) != 0) {
    const std::string why = std::strerror(errno);
    std::remove(part.c_str());
    throw IoError(path + ": cannot write the cost profile: " + why);
  }
}

}  // namespace paceline::io
