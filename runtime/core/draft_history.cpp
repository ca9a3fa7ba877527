#include "runtime/core/draft_history.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace paceline {

DraftHistory::DraftHistory(const std::vector<DraftRecord>& records) {
  for (const DraftRecord& record : records) update(record.method, record.tried, record.accepted);
}

void DraftHistory::update(std::string_view method, double tried, double accepted) {
  const bool counts = std::isfinite(tried) && accepted >= 0 && accepted <= tried;
  if (!counts || method.empty()) throw std::invalid_argument("a draft record is out of range");
  const auto at = std::ranges::lower_bound(records_, method, {}, &DraftRecord::method);
  if (at == records_.end() || at->method != method) {
    records_.insert(at, {std::string(method), tried, accepted});
  } else {
    at->tried += tried;
    at->accepted += accepted;
  }
}

void DraftHistory::merge(const DraftHistory& other) {
  for (const DraftRecord& record : other.records_)
    update(record.method, record.tried, record.accepted);
}

void DraftHistory::decay(double keep) {
  if (!(keep >= 0 && keep <= 1)) throw std::invalid_argument("a share to keep is out of range");
  for (DraftRecord& record : records_) {
    record.tried *= keep;
    record.accepted *= keep;
  }
}

const DraftRecord* DraftHistory::find(std::string_view method) const {
  const auto at = std::ranges::find(records_, method, &DraftRecord::method);
  return at == records_.end() ? nullptr : &*at;
}

double DraftHistory::rate(std::string_view method, double prior) const {
  const DraftRecord* record = find(method);
  if (record == nullptr) return prior;
  return (record->accepted + kPriorTokens * prior) / (record->tried + kPriorTokens);
}

}  // namespace paceline
