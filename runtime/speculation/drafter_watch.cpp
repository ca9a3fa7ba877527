#include "runtime/speculation/drafter_watch.hpp"

#include <utility>

#include "runtime/core/counted.hpp"

namespace paceline::speculation {
namespace {

constexpr double kWarnSeconds = 60;  // least seconds between two warnings of one kind
/// After this many messages without usable drafts in one step, further messages of the step are
/// dropped unread. A rank that works well sends far fewer.
constexpr int kMostUseless = 1000;

}  // namespace

DrafterWatch::DrafterWatch(int rank, double patience, const Clock& clock, Warn warn)
    : rank_(rank), patience_(patience), clock_(clock), warn_(std::move(warn)) {}

void DrafterWatch::step_ended() {
  useless_ = 0;
  if (unanswered_since_ < 0 || silent_) return;
  const double seconds = clock_.now() - unanswered_since_;
  if (seconds < patience_) return;
  silent_ = true;
  trouble(silences_,
          "has said nothing for " + duration_text(seconds) + "; decoding goes on without it");
}

void DrafterWatch::reads(bool reads) {
  if (!reads && reads_)
    trouble(overflows_, "does not read its messages; no more are sent until it does");
  reads_ = reads;
}

void DrafterWatch::told() {
  if (unanswered_since_ < 0) unanswered_since_ = clock_.now();
}

bool DrafterWatch::floods() {
  if (useless_ < kMostUseless) return false;
  if (useless_ == kMostUseless) {
    ++useless_;
    trouble(floods_, "floods: " + std::to_string(kMostUseless) +
                         " useless messages within a step; further ones are dropped unread");
  } else {
    ++floods_.count;
  }
  return true;
}

void DrafterWatch::nonsense(const char* what) {
  trouble(nonsense_, std::string("sends ") + what + "; they are dropped");
}

void DrafterWatch::heard(Worth worth) {
  if (worth != Worth::drafts) ++useless_;
  if (worth == Worth::none) return;
  if (silent_) {
    silent_ = false;
    warn("answers again after " + duration_text(clock_.now() - unanswered_since_));
  }
  unanswered_since_ = -1;
}

void DrafterWatch::sum_up() const {
  std::string text;
  const auto add = [&](const Trouble& what, const char* name) {
    if (what.count == 0) return;
    text += (text.empty() ? "" : ", ") + std::to_string(what.count) + " " + name;
  };
  add(nonsense_, "messages or drafts without sense");
  add(floods_, "messages dropped in floods");
  add(silences_, "silences");
  add(overflows_, "times with a full mailbox");
  if (!text.empty()) warn_("drafter rank " + std::to_string(rank_) + ", totals: " + text);
}

void DrafterWatch::trouble(Trouble& what, const std::string& text) {
  const double now = clock_.now();
  if (what.count++ > 0 && now - what.warned < kWarnSeconds) return;
  what.warned = now;
  warn(text);
}

void DrafterWatch::warn(const std::string& text) const {
  warn_("drafter rank " + std::to_string(rank_) + " " + text);
}

}  // namespace paceline::speculation
