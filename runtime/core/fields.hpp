// The fields of a plain struct, in order, for code that has to treat every one of them: a field
// that is added later cannot be forgotten.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

namespace paceline {
namespace detail {

/// Stands for a field of any type, in expressions that are not evaluated.
struct AnyField {
  template <typename T>
  operator T() const;  // NOLINT: implicit, as a field's value is
};

inline constexpr std::size_t kMostFields = 20;

template <typename T, std::size_t... I>
constexpr bool has_fields(std::index_sequence<I...> /*count*/) {
  return requires { T{(static_cast<void>(I), AnyField{})...}; };
}

template <typename T, std::size_t N = kMostFields>
constexpr std::size_t field_count() {
  static_assert(!has_fields<T>(std::make_index_sequence<kMostFields + 1>()), "too many fields");
  if constexpr (N == 0 || has_fields<T>(std::make_index_sequence<N>())) {
    return N;
  } else {
    return field_count<T, N - 1>();
  }
}

}  // namespace detail

/// Calls f with references to all fields of `of`: an aggregate without a base class and arrays, of
/// at most 20 fields.
template <typename T, typename F>
constexpr void with_fields(T& of, F&& f) {
  static_assert(std::is_aggregate_v<T>);
  constexpr std::size_t count = detail::field_count<std::remove_const_t<T>>();
  if constexpr (count == 0) {
    f();
  } else if constexpr (count == 1) {
    auto& [a] = of;
    f(a);
  } else if constexpr (count == 2) {
    auto& [a, b] = of;
    f(a, b);
  } else if constexpr (count == 3) {
    auto& [a, b, c] = of;
    f(a, b, c);
  } else if constexpr (count == 4) {
    auto& [a, b, c, d] = of;
    f(a, b, c, d);
  } else if constexpr (count == 5) {
    auto& [a, b, c, d, e] = of;
    f(a, b, c, d, e);
  } else if constexpr (count == 6) {
    auto& [a, b, c, d, e, g] = of;
    f(a, b, c, d, e, g);
  } else if constexpr (count == 7) {
    auto& [a, b, c, d, e, g, h] = of;
    f(a, b, c, d, e, g, h);
  } else if constexpr (count == 8) {
    auto& [a, b, c, d, e, g, h, i] = of;
    f(a, b, c, d, e, g, h, i);
  } else if constexpr (count == 9) {
    auto& [a, b, c, d, e, g, h, i, j] = of;
    f(a, b, c, d, e, g, h, i, j);
  } else if constexpr (count == 10) {
    auto& [a, b, c, d, e, g, h, i, j, k] = of;
    f(a, b, c, d, e, g, h, i, j, k);
  } else if constexpr (count == 11) {
    auto& [a, b, c, d, e, g, h, i, j, k, l] = of;
    f(a, b, c, d, e, g, h, i, j, k, l);
  } else if constexpr (count == 12) {
    auto& [a, b, c, d, e, g, h, i, j, k, l, m] = of;
    f(a, b, c, d, e, g, h, i, j, k, l, m);
  } else if constexpr (count == 13) {
    auto& [a, b, c, d, e, g, h, i, j, k, l, m, n] = of;
    f(a, b, c, d, e, g, h, i, j, k, l, m, n);
  } else if constexpr (count == 14) {
    auto& [a, b, c, d, e, g, h, i, j, k, l, m, n, p] = of;
    f(a, b, c, d, e, g, h, i, j, k, l, m, n, p);
  } else if constexpr (count == 15) {
    auto& [a, b, c, d, e, g, h, i, j, k, l, m, n, p, q] = of;
    f(a, b, c, d, e, g, h, i, j, k, l, m, n, p, q);
  } else if constexpr (count == 16) {
    auto& [a, b, c, d, e, g, h, i, j, k, l, m, n, p, q, r] = of;
    f(a, b, c, d, e, g, h, i, j, k, l, m, n, p, q, r);
  } else if constexpr (count == 17) {
    auto& [a, b, c, d, e, g, h, i, j, k, l, m, n, p, q, r, s] = of;
    f(a, b, c, d, e, g, h, i, j, k, l, m, n, p, q, r, s);
  } else if constexpr (count == 18) {
    auto& [a, b, c, d, e, g, h, i, j, k, l, m, n, p, q, r, s, t] = of;
    f(a, b, c, d, e, g, h, i, j, k, l, m, n, p, q, r, s, t);
  } else if constexpr (count == 19) {
    auto& [a, b, c, d, e, g, h, i, j, k, l, m, n, p, q, r, s, t, u] = of;
    f(a, b, c, d, e, g, h, i, j, k, l, m, n, p, q, r, s, t, u);
  } else if constexpr (count == 20) {
    auto& [a, b, c, d, e, g, h, i, j, k, l, m, n, p, q, r, s, t, u, v] = of;
    f(a, b, c, d, e, g, h, i, j, k, l, m, n, p, q, r, s, t, u, v);
  }
}

}  // namespace paceline
