// A receiver's table: the kinds of messages that it takes, who may send each kind, and a handler.
#pragma once

#include <cstdint>
#include <utility>
#include <variant>

#include "runtime/core/mailbox.hpp"
#include "runtime/protocol/messages.hpp"

namespace paceline::protocol {

/// A row of the table, for messages of type Kind.
template <typename Kind, typename May, typename Handler>
struct MessageRow {
  May may;         ///< (Address from, const Kind&) -> bool: whether the sender may send this
  Handler handle;  ///< (Address from, Kind&)
};

template <typename Kind, typename May, typename Handler>
[[nodiscard]] MessageRow<Kind, May, Handler> on(May may, Handler handle) {
  return {std::move(may), std::move(handle)};
}

inline constexpr auto anybody = [](const Address&, const auto&) { return true; };
inline constexpr auto the_coordinator = [](const Address& from, const auto&) {
  return from == Address::coordinator();
};

enum class Receipt : std::uint8_t {
  handled,
  refused,  ///< there is a row, but not for this sender
  unknown,  ///< there is no row
};

/// Gives the message to the row of its kind. Put the most frequent kinds first: rows are tried in
/// turn.
template <typename... Kinds, typename... Mays, typename... Handlers>
Receipt receive(const Address& from, Message& message, MessageRow<Kinds, Mays, Handlers>... rows) {
  Receipt receipt = Receipt::unknown;
  const auto matches =
      [&]<typename Kind, typename May, typename Handler>(MessageRow<Kind, May, Handler>& row) {
        Kind* kind = std::get_if<Kind>(&message);
        if (kind == nullptr) return false;
        receipt = row.may(from, std::as_const(*kind)) ? Receipt::handled : Receipt::refused;
        if (receipt == Receipt::handled) row.handle(from, *kind);
        return true;
      };
  (void)(matches(rows) || ...);
  return receipt;
}

}  // namespace paceline::protocol
