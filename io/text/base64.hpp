// Base64.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace paceline::io::text {

[[nodiscard]] std::string to_base64(std::span<const std::byte> bytes);

/// The bytes of a non-empty text in standard base64 with padding (RFC 4648, section 4); nullopt:
/// the text is something else.
[[nodiscard]] std::optional<std::string> from_base64(std::string_view text);

}  // namespace paceline::io::text
