#include "app/run_report/pictured.hpp"

#include <fmt/format.h>

#include <cmath>

#include "app/run_report/svg.hpp"
#include "runtime/core/counted.hpp"

namespace paceline::app {
namespace {

std::string html_of(const ReportedPicture& picture) {
  const std::string shown =
      picture.data_uri.empty()
          ? fmt::format("<span class=\"gone\">{}</span>", escaped(picture.absence))
          : fmt::format("<img src=\"{}\" alt=\"\">", picture.data_uri);
  return fmt::format("<figure>{}<figcaption>{}</figcaption></figure>\n", shown,
                     escaped(picture.name));
}

std::string html_of(const ReportedResponse& response) {
  const std::string reward =
      std::isnan(response.reward) ? "" : fmt::format(", reward {:g}", response.reward);
  return fmt::format("<h4>response {}, {} tokens{}</h4>\n<pre>{}</pre>\n", response.sample,
                     response.tokens, reward, escaped(response.text));
}

std::string html_of(const PicturedPrompt& prompt) {
  const std::string truth =
      prompt.ground_truth.empty() ? "" : ", ground truth " + prompt.ground_truth;
  std::string text =
      fmt::format("<article><h4>{}</h4>\n<div class=\"seen\">\n",
                  escaped(fmt::format("prompt {} ({}){}", prompt.index, prompt.uid, truth)));
  for (const ReportedPicture& picture : prompt.pictures) text += html_of(picture);
  text += fmt::format("</div>\n<pre>{}</pre>\n", escaped(prompt.question));
  for (const ReportedResponse& response : prompt.responses) text += html_of(response);
  if (prompt.others > 0)
    text += fmt::format("<p>... and {} more</p>\n", counted(prompt.others, "response"));
  return text + "</article>\n";
}

}  // namespace

std::string html_of(const PicturedPrompts& pictured) {
  if (pictured.prompts.empty()) return "";
  std::string text = "<section class=\"pictured\"><h3>Prompts with pictures</h3>\n";
  for (const PicturedPrompt& prompt : pictured.prompts) text += html_of(prompt);
  if (pictured.others > 0)
    text += fmt::format("<p>... and {} more</p>\n", counted(pictured.others, "prompt"));
  return text + "</section>\n";
}

}  // namespace paceline::app
