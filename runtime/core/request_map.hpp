// A map by request for the hundreds of requests that a rank works on at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "runtime/core/request.hpp"

namespace paceline {

/// Values by request, in order of requests. It looks up several times as fast as std::map, for it
/// searches keys that lie side by side; adding and erasing move all later keys. References to
/// values stay valid until they are erased, iterators until something is added or erased. Not
/// thread-safe.
template <typename T>
class RequestMap {
 public:
  using value_type = std::pair<const RequestId, T>;

  template <typename Value>
  class Iterator {
   public:
    using iterator_category = std::bidirectional_iterator_tag;
    using value_type = Value;
    using difference_type = std::ptrdiff_t;
    using pointer = Value*;
    using reference = Value&;

    Iterator() = default;
    Value& operator*() const { return **at_; }
    Value* operator->() const { return at_->get(); }
    Iterator& operator++() {
      ++at_;
      return *this;
    }
    Iterator& operator--() {
      --at_;
      return *this;
    }
    friend bool operator==(const Iterator&, const Iterator&) = default;

   private:
    friend class RequestMap;
    explicit Iterator(const std::unique_ptr<RequestMap::value_type>* at) : at_(at) {}
    const std::unique_ptr<RequestMap::value_type>* at_ = nullptr;
  };
  using iterator = Iterator<value_type>;
  using const_iterator = Iterator<const value_type>;

  [[nodiscard]] std::size_t size() const { return keys_.size(); }
  [[nodiscard]] bool empty() const { return keys_.empty(); }
  [[nodiscard]] iterator begin() { return iterator(values_.data()); }
  [[nodiscard]] iterator end() { return iterator(values_.data() + values_.size()); }
  [[nodiscard]] const_iterator begin() const { return const_iterator(values_.data()); }
  [[nodiscard]] const_iterator end() const {
    return const_iterator(values_.data() + values_.size());
  }

  [[nodiscard]] iterator lower_bound(RequestId id) { return iterator(values_.data() + place(id)); }
  [[nodiscard]] iterator find(RequestId id) {
    const std::size_t at = place(id);
    return has(at, id) ? iterator(values_.data() + at) : end();
  }
  [[nodiscard]] const_iterator find(RequestId id) const {
    const std::size_t at = place(id);
    return has(at, id) ? const_iterator(values_.data() + at) : end();
  }
  [[nodiscard]] bool contains(RequestId id) const { return has(place(id), id); }
  /// Throws std::out_of_range where there is none.
  [[nodiscard]] T& at(RequestId id) { return const_cast<T&>(std::as_const(*this).at(id)); }
  [[nodiscard]] const T& at(RequestId id) const {
    const std::size_t at = place(id);
    if (!has(at, id)) throw std::out_of_range("a request that is not in the map");
    return values_[at]->second;
  }

  /// Adds a value made of `arguments`, unless there is one. Returns its place, and whether it is
  /// new.
  template <typename... Arguments>
  std::pair<iterator, bool> try_emplace(RequestId id, Arguments&&... arguments) {
    const std::size_t at = place(id);
    const bool added = !has(at, id);
    if (added) {
      auto value = std::make_unique<value_type>(
          std::piecewise_construct, std::forward_as_tuple(id),
          std::forward_as_tuple(std::forward<Arguments>(arguments)...));
      keys_.reserve(keys_.size() + 1);  // so that neither or both are inserted
      values_.insert(values_.begin() + static_cast<std::ptrdiff_t>(at), std::move(value));
      keys_.insert(keys_.begin() + static_cast<std::ptrdiff_t>(at), key(id));
    }
    return {iterator(values_.data() + at), added};
  }
  T& operator[](RequestId id) { return try_emplace(id).first->second; }

  /// Returns the place after the erased one.
  iterator erase(iterator at) {
    const auto index = at.at_ - values_.data();
    keys_.erase(keys_.begin() + index);
    values_.erase(values_.begin() + index);
    return iterator(values_.data() + index);
  }
  /// Returns the number of values erased.
  std::size_t erase(RequestId id) {
    const iterator at = find(id);
    if (at == end()) return 0;
    erase(at);
    return 1;
  }

 private:
  /// Keys in the order of requests.
  [[nodiscard]] static std::uint64_t key(RequestId id) {
    return std::uint64_t{id.prompt} << 32 | id.sample;
  }
  [[nodiscard]] std::size_t place(RequestId id) const {
    return static_cast<std::size_t>(std::lower_bound(keys_.begin(), keys_.end(), key(id)) -
                                    keys_.begin());
  }
  [[nodiscard]] bool has(std::size_t at, RequestId id) const {
    return at < keys_.size() && keys_[at] == key(id);
  }

  std::vector<std::uint64_t> keys_;                  ///< ascending
  std::vector<std::unique_ptr<value_type>> values_;  ///< [keys]
};

}  // namespace paceline
