#include "io/text/python_json.hpp"

#include <charconv>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "runtime/core/error.hpp"

namespace paceline::io::text {
namespace {

using OrderedJson = nlohmann::ordered_json;

/// Text as repr() of a float: the fewest digits that read back, with an exponent below 1e-4 and
/// from 1e16 on.
std::string float_text(double value) {
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  std::string text(buffer, end);
  const std::size_t e = text.find('e');
  const int exponent = std::atoi(text.c_str() + e + 1);
  if (exponent < -4 || exponent >= 16) return text;  // two digits of exponent at least, as Python's
  const auto fixed =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed).ptr;
  text.assign(buffer, fixed);
  if (text.find('.') == std::string::npos) text += ".0";
  return text;
}

class Writer {
 public:
  explicit Writer(const PythonJsonStyle& style)
      : style_(style),
        comma_(style.indent > 0 || style.compact ? "," : ", "),
        colon_(style.compact ? ":" : ": ") {}

  std::string write(const OrderedJson& value) {
    put(value, 0);
    return std::move(out_);
  }

 private:
  void put(const OrderedJson& value, int level) {
    if (value.is_object()) {
      put_all(value, '{', '}', level, [&](const auto& item) {
        out_ += OrderedJson(item.key()).dump();
        out_ += colon_;
        put(item.value(), level + 1);
      });
    } else if (value.is_array()) {
      put_all(value, '[', ']', level, [&](const auto& item) { put(item.value(), level + 1); });
    } else if (value.is_binary()) {
      out_.append(value.get_binary().begin(), value.get_binary().end());
    } else if (value.is_number_float()) {
      out_ += float_text(value.get<double>());
    } else {
      out_ += value.dump();
    }
  }

  void put_all(const OrderedJson& value, char open, char close, int level, const auto& one) {
    out_ += open;
    bool first = true;
    for (const auto& item : value.items()) {
      if (!first) out_ += comma_;
      first = false;
      break_line(level + 1);
      one(item);
    }
    if (!value.empty()) break_line(level);
    out_ += close;
  }

  void break_line(int level) {
    if (style_.indent > 0) out_ += "\n" + std::string(style_.indent * level, ' ');
  }

  PythonJsonStyle style_;
  std::string comma_;
  std::string colon_;
  std::string out_;
};

/// Builds a value from the parser's events. The library's builder loses integers beyond 64 bits.
class Builder final : public nlohmann::json_sax<OrderedJson> {
 public:
  OrderedJson take() { return std::move(root_); }

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override { return put(value); }
  bool number_float(number_float_t value, const string_t& written) override {
    if (written.find_first_of(".eE") != std::string::npos) return put(value);
    return put(OrderedJson::binary({written.begin(), written.end()}));
  }
  bool string(string_t& value) override { return put(std::move(value)); }
  bool binary(binary_t& /*value*/) override { return false; }  // JSON text has none
  bool start_object(std::size_t /*size*/) override { return begin(OrderedJson::object()); }
  bool key(string_t& value) override {
    key_ = std::move(value);
    return true;
  }
  bool end_object() override { return end(); }
  bool start_array(std::size_t /*size*/) override { return begin(OrderedJson::array()); }
  bool end_array() override { return end(); }
  bool parse_error(std::size_t /*at*/, const std::string& /*last*/,
                   const nlohmann::detail::exception& error) override {
    throw DataError(error.what());
  }

 private:
  /// The place of the next value.
  OrderedJson& place() {
    if (open_.empty()) return root_;
    OrderedJson& within = *open_.back();
    return within.is_array() ? within.emplace_back(nullptr) : within[key_];
  }
  bool put(OrderedJson value) {
    place() = std::move(value);
    return true;
  }
  bool begin(OrderedJson value) {
    OrderedJson& at = place();
    at = std::move(value);
    open_.push_back(&at);  // nothing is added to its parent until it ends
    return true;
  }
  bool end() {
    open_.pop_back();
    return true;
  }

  OrderedJson root_;
  std::vector<OrderedJson*> open_;  ///< objects and arrays that have begun, outermost first
  std::string key_;                 ///< key of the next value
};

}  // namespace

OrderedJson read_as_python(std::string_view json) {
  Builder builder;
  OrderedJson::sax_parse(json.begin(), json.end(), &builder);
  return builder.take();
}

std::string python_json(const OrderedJson& value, const PythonJsonStyle& style) {
  return Writer(style).write(value);
}

}  // namespace paceline::io::text
