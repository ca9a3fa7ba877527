// Responses of earlier steps, to draft from. io implements the interface; app joins the two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "runtime/core/request.hpp"
#include "runtime/core/types.hpp"

namespace paceline {

inline constexpr std::uint32_t kOldestStep = 64;     ///< most steps that are looked back
inline constexpr std::size_t kMostEarlierSteps = 4;  ///< most steps with responses to a prompt

/// Responses of earlier steps to the prompts of this run, as one of several readers has them.
/// Prompt p belongs to reader p % readers. Reader 0 searches for all readers, so that files are
/// opened once. Searching and reading are done in small parts, between which the thread has other
/// work. Responses that cannot be read are left out. Used by one thread.
class EarlierResponses {
 public:
  virtual ~EarlierResponses() = default;
  /// Takes a whole response of `age` steps ago, >= 1, to prompt id.prompt. Responses to one prompt
  /// of one age differ in id.sample. The tokens are valid during the call.
  using Use = std::function<void(RequestId id, std::uint32_t age, std::span<const TokenId> tokens)>;
  /// Sends another reader the findings of the search for it.
  using Tell = std::function<void(std::uint32_t reader, std::span<const std::byte> found)>;

  /// Asks for the responses to a prompt, newest first.
  virtual void want(std::uint32_t prompt) = 0;
  /// Whether responses to a prompt that was asked for may yet come.
  [[nodiscard]] virtual bool awaits(std::uint32_t prompt) const = 0;
  /// Looks into one run, or reads the responses of one step to one prompt. False: there is nothing
  /// to do until want() or learn() is called.
  virtual bool work(const Tell& tell, const Use& use) = 0;
  /// Takes the findings that reader 0 has sent this reader. False: they make no sense.
  virtual bool learn(std::span<const std::byte> found) = 0;
};

}  // namespace paceline
