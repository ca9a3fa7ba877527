// Fuzzes the recognition of chat templates.
#include <cstdint>
#include <string_view>
#include <vector>

#include "io/text/chat_template.hpp"
#include "runtime/core/error.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace paceline::io;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const ChatTemplate chat = ChatTemplate::recognise(input, "<bos>", "fuzz");
  try {
    (void)chat.render(std::vector<ChatMessage>{{"user", "x"}, {"assistant", std::string(input)}});
  } catch (const paceline::DataError&) {
    // The expected answer to an unknown template.
  }
  return 0;
}
