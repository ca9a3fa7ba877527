// Runs something that must fail, and gives its message.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "runtime/core/error.hpp"

namespace paceline::test {

/// The message of the Expected error that `action` throws; a test failure when it throws another or
/// none.
template <typename Expected, typename Action>
std::string message_of(const Action& action) {
  try {
    action();
  } catch (const Expected& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another exception: " << error.what();
    return "";
  }
  ADD_FAILURE() << "no exception";
  return "";
}

}  // namespace paceline::test
