#include "app/run_report/pictured.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>

#include "app/commands/run_text.hpp"
#include "io/run/stored_run.hpp"
#include "io/text/base64.hpp"
#include "io/text/printable.hpp"
#include "io/text/prompt_pictures.hpp"
#include "io/text/question.hpp"
#include "runtime/core/error.hpp"

namespace paceline::app {
namespace {

constexpr std::size_t kPrompts = 12;
constexpr std::size_t kResponses = 2;
constexpr std::size_t kMostTextBytes = 4000;                      // limit on a question or response
constexpr std::size_t kMostPictureBytes = std::size_t{64} << 10;  // limit on a picture's file
constexpr std::size_t kMostBytesInAll = std::size_t{1} << 20;     // limit on the sum of these files

/// The MIME type of a picture; empty: the report does not show pictures of this format.
std::string_view type_of(std::span<const std::byte> file) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (text.starts_with("\x89PNG")) return "image/png";
  if (text.starts_with("\xFF\xD8\xFF")) return "image/jpeg";
  if (text.starts_with("RIFF") && text.substr(0, 12).ends_with("WEBP")) return "image/webp";
  return "";
}

/// Embeds the pictures of a run that are within the limits above.
class Embedder {
 public:
  explicit Embedder(const io::StoredRun& run) : files_(run.prompts, run.paths.front()) {}

  void embed(std::uint32_t prompt, std::size_t picture, ReportedPicture& into) {
    std::vector<std::byte> file;
    try {
      file = files_.file(prompt, picture);
    } catch (const Error& error) {
      into.absence = io::printable(error.what());
      return;
    }
    const std::string_view type = type_of(file);
    if (type.empty()) {
      into.absence = "not shown: neither a JPEG, a PNG nor a WebP";
    } else if (file.size() > kMostPictureBytes || taken_ + file.size() > kMostBytesInAll) {
      into.absence = fmt::format(
          "not shown: {} bytes; a report embeds at most {} bytes a picture and {} in all",
          file.size(), kMostPictureBytes, kMostBytesInAll);
    } else {
      taken_ += file.size();
      into.data_uri = fmt::format("data:{};base64,{}", type, io::text::to_base64(file));
    }
  }

 private:
  io::StoredPictures files_;
  std::size_t taken_ = 0;
};

std::string start_of(std::string text) {
  if (text.size() <= kMostTextBytes) return text;
  std::size_t end = kMostTextBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  return text.substr(0, end) + "...";
}

}  // namespace

PicturedPrompts pictured_prompts(const io::StoredRun& run) {
  PicturedPrompts pictured;
  std::optional<RunText> text;
  std::optional<Embedder> embedder;
  std::vector<io::StoredResponse> all = run.finished;
  for (std::uint32_t index = 0; index < run.prompts.size(); ++index) {
    const Prompt& prompt = run.prompts[index];
    if (prompt.pictures.empty()) continue;
    if (pictured.prompts.size() == kPrompts) {
      ++pictured.others;
      continue;
    }
    if (!text) {
      text.emplace(run);
      embedder.emplace(run);
      all.insert(all.end(), run.partial.begin(), run.partial.end());
      std::ranges::sort(all, {}, [](const io::StoredResponse& r) { return r.id(); });
    }
    PicturedPrompt& shown = pictured.prompts.emplace_back();
    shown.index = index;
    shown.uid = io::printable_start(prompt.uid, 64);
    shown.ground_truth = io::printable_start(prompt.ground_truth, 64);
    const std::optional<std::string> question = io::question_of(prompt);
    shown.question = start_of(question && !question->empty() ? io::printable(*question, true)
                                                             : text->of(without_rows(prompt)));
    const std::vector<std::string> names = picture_names(prompt);
    for (std::size_t i = 0; i < prompt.pictures.size(); ++i) {
      ReportedPicture& picture = shown.pictures.emplace_back();
      picture.name = fmt::format("{}, {} x {} patches", names[i], prompt.pictures[i].grid.rows,
                                 prompt.pictures[i].grid.columns);
      embedder->embed(index, i, picture);
    }
    const auto of = std::ranges::equal_range(all, index, {}, &io::StoredResponse::prompt);
    const std::span<const io::StoredResponse> responses(of.begin(), of.end());
    const std::size_t count = std::min(kResponses, responses.size());
    shown.others = responses.size() - count;
    io::read_responses(run, responses.first(count), [&](Trajectory&& response) {
      shown.responses.push_back({response.id.sample,
                                 static_cast<std::uint32_t>(response.tokens.size()),
                                 response.reward, start_of(text->of(response.tokens))});
    });
  }
  return pictured;
}

}  // namespace paceline::app
