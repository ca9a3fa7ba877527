#include "io/text/stages.hpp"

#include <algorithm>

#include "io/text/unicode.hpp"

namespace paceline::io::text {

std::string replace_all(std::string_view text, std::string_view what, std::string_view with) {
  std::string out;
  while (true) {
    const std::size_t at = text.find(what);
    out += text.substr(0, at);
    if (at == std::string_view::npos) return out;
    out += with;
    text.remove_prefix(at + what.size());
  }
}

bool Normalizer::prepends() const {
  return std::ranges::any_of(steps_, [](const Step& step) { return step.kind == Kind::prepend; });
}

std::string Normalizer::run(std::string_view text) const {
  std::string out(text);
  for (const Step& step : steps_) {
    switch (step.kind) {
      case Kind::nfc:
        out = normalize_nfc(out);
        break;
      case Kind::prepend:
        if (!out.empty()) out.insert(0, step.text);
        break;
      case Kind::replace:
        out = replace_all(out, step.text, step.with);
        break;
    }
  }
  return out;
}

void Metaspace::split(std::string_view piece, bool begins,
                      const std::function<void(std::string_view)>& word) const {
  std::string text = replace_all(piece, " ", replacement);
  const bool wants_space = prepend == Prepend::always || (prepend == Prepend::first && begins);
  if (wants_space && !text.starts_with(replacement)) text.insert(0, replacement);
  std::string_view rest = text;
  while (cuts) {
    const std::size_t next = rest.find(replacement, 1);
    if (next == std::string_view::npos) break;
    word(rest.substr(0, next));
    rest.remove_prefix(next);
  }
  word(rest);
}

}  // namespace paceline::io::text
