// EXPECT_ERROR(Type, statement, parts...): the statement throws Type with every part in its
// message.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

inline void expect_parts(const std::string& message, std::initializer_list<std::string> parts) {
  for (const std::string& part : parts) {
    EXPECT_NE(message.find(part), std::string::npos)
        << "expected '" << part << "' in the message: " << message;
  }
}

#define EXPECT_ERROR(Type, statement, ...)                      \
  do {                                                          \
    try {                                                       \
      statement;                                                \
      ADD_FAILURE() << "nothing was thrown by: " << #statement; \
    } catch (const Type& error) {                               \
      expect_parts(error.what(), {__VA_ARGS__});                \
    }                                                           \
  } while (false)
