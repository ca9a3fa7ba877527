// Chat templates: recognised by what they do, rendered as `transformers` renders them.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "io/text/chat_template.hpp"
#include "io/text/files.hpp"
#include "runtime/core/error.hpp"
#include "tests/io/text/expect_error.hpp"
#include "tests/io/text/fixtures.hpp"

namespace {

using nlohmann::json;
using paceline::DataError;
using paceline::io::ChatFamily;
using paceline::io::ChatMessage;
using paceline::io::ChatTemplate;

std::vector<ChatMessage> messages_of(const json& list) {
  std::vector<ChatMessage> messages;
  for (const json& m : list) messages.push_back({m["role"], m["content"]});
  return messages;
}

/// The first recognised template of a family among the fixtures.
ChatTemplate of_family(ChatFamily family) {
  const json document =
      json::parse(paceline::io::text::read_file(fixtures::folder() + "chat.json"));
  for (const json& c : document["cases"]) {
    auto chat =
        ChatTemplate::recognise(c["template"].get<std::string>(), c["bos"].get<std::string>(), "t",
                                c["eos"].get<std::string>());
    if (chat.family() == family) return chat;
  }
  return {};
}

/// What is rendered of answers goes on with a conversation's text as if all had been rendered.
TEST(ChatTemplate, AnswersGoOnWhereTheTurnEnded) {
  for (const ChatFamily family :
       {ChatFamily::chatml, ChatFamily::qwen25, ChatFamily::qwen3, ChatFamily::llama2,
        ChatFamily::llama3, ChatFamily::llama3_1, ChatFamily::kimi, ChatFamily::r1}) {
    const ChatTemplate chat = of_family(family);
    ASSERT_EQ(chat.family(), family);
    const std::vector<ChatMessage> all = {{"user", "q"}, {"assistant", "a"}, {"user", "again"}};
    const std::string whole = chat.render(all);
    const std::string before = chat.render(std::span(all).first(1));
    const std::vector<ChatMessage> answers = {all.back()};
    for (const bool ended : {true, false}) {
      const std::string rest = chat.render_answer(answers, ended);
      ASSERT_GE(whole.size(), rest.size());
      EXPECT_TRUE(whole.ends_with(rest)) << static_cast<int>(family) << rest << "\n" << whole;
      std::string turn = whole.substr(0, whole.size() - rest.size());
      if (ended) {  // the turn's text, with its mark
        const std::size_t mark = turn.rfind('<');
        EXPECT_TRUE(chat.ends_turn(turn.substr(mark))) << turn;
        turn.resize(mark);
      }
      EXPECT_TRUE(turn.ends_with("a") || turn.ends_with("a ")) << turn;
    }
  }
}

TEST(ChatTemplate, ToolsAnswerAsTheFamilyHasThem) {
  const std::vector<ChatMessage> two = {{"tool", "1"}, {"tool", "\"x\""}};
  for (const ChatFamily family : {ChatFamily::qwen25, ChatFamily::qwen3}) {
    const ChatTemplate chat = of_family(family);
    EXPECT_TRUE(chat.has_tools());
    EXPECT_EQ(chat.render_answer(two, true),
              "\n<|im_start|>user\n<tool_response>\n1\n</tool_response>\n<tool_response>\n"
              "\"x\"\n</tool_response><|im_end|>\n<|im_start|>assistant\n");
  }
  const ChatTemplate llama = of_family(ChatFamily::llama3_1);
  EXPECT_EQ(llama.render_answer(two, false),
            "<|eot_id|><|start_header_id|>ipython<|end_header_id|>\n\n\"1\"<|eot_id|>"
            "<|start_header_id|>ipython<|end_header_id|>\n\n\"\\\"x\\\"\"<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
  for (const ChatFamily family : {ChatFamily::llama2, ChatFamily::kimi, ChatFamily::r1}) {
    const ChatTemplate chat = of_family(family);
    EXPECT_FALSE(chat.has_tools());
    EXPECT_ERROR(DataError, (void)chat.render_answer(two, true),
                 "role 'tool' does not answer an assistant by this model's chat template");
  }
  const std::vector<ChatMessage> ipython = {{"ipython", "1"}};
  EXPECT_EQ(llama.render_answer(ipython, true),
            llama.render_answer(std::vector<ChatMessage>{{"tool", "1"}}, true));
  EXPECT_ERROR(DataError, (void)of_family(ChatFamily::qwen25).render_answer(ipython, true),
               "role 'ipython' does not answer an assistant");
  EXPECT_ERROR(DataError,
               (void)llama.render_answer(std::vector<ChatMessage>{{"assistant", "a"}}, true),
               "role 'assistant' does not answer an assistant");
  EXPECT_ERROR(DataError, (void)ChatTemplate().render_answer(two, true),
               "there is no chat template");
}

TEST(ChatTemplate, RendersEveryKnownTemplateAsTransformersDoes) {
  const json document =
      json::parse(paceline::io::text::read_file(fixtures::folder() + "chat.json"));
  int compared = 0;
  for (const json& c : document["cases"]) {
    const auto chat =
        ChatTemplate::recognise(c["template"].get<std::string>(), c["bos"].get<std::string>(), "t",
                                c["eos"].get<std::string>());
    EXPECT_EQ(chat.refusal(), "") << c["name"];
    if (chat.family() == ChatFamily::none) continue;
    for (const json& r : c["renders"]) {
      const auto messages = messages_of(document["conversations"][r["conversation"].get<int>()]);
      paceline::io::ChatOptions options;
      options.add_generation_prompt = r["generate"];
      if (chat.reads_enable_thinking()) options.enable_thinking = r["thinking"].get<bool>();
      if (r.contains("date")) options.date = r["date"].get<std::string>();
      options.continue_final_message = r.contains("continue");
      ++compared;
      if (r["text"].is_null()) {
        EXPECT_ERROR(DataError, (void)chat.render(messages, options),
                     chat.family() == ChatFamily::llama2
                         ? "is out of turn; after a system prompt, if any, this model's"
                         : "the last message cannot be continued (continue_final_message)");
        continue;
      }
      EXPECT_EQ(chat.render(messages, options), r["text"].get<std::string>())
          << c["name"] << " " << r.dump();
    }
  }
  EXPECT_GT(compared, 1200);
}

TEST(ChatTemplate, RendersToolsAsTransformersDoes) {
  const json document =
      json::parse(paceline::io::text::read_file(fixtures::folder() + "tools.json"));
  // As they were written: the library's own reader sorts names.
  const auto written = nlohmann::ordered_json::parse(
      paceline::io::text::read_file(fixtures::folder() + "tools.json"))["tools"];
  int compared = 0;
  for (const json& c : document["cases"]) {
    const auto chat = ChatTemplate::recognise(c["template"].get<std::string>(),
                                              document["bos"].get<std::string>(), "t",
                                              document["eos"].get<std::string>());
    ASSERT_TRUE(chat.reads_tools()) << c["name"];
    for (const json& r : c["renders"]) {
      paceline::io::ChatOptions options;
      options.add_generation_prompt = r["generate"];
      options.continue_final_message = r["continue"];
      options.tools = written[r["tools"].get<std::size_t>()].dump();
      EXPECT_EQ(chat.render(messages_of(document["conversations"][r["conversation"].get<int>()]),
                            options),
                r["text"].get<std::string>())
          << c["name"] << " " << r.dump();
      ++compared;
    }
  }
  EXPECT_GT(compared, 200);
}

TEST(ChatTemplate, ADefaultSystemPromptMayBeAnyWord) {
  for (const std::string system : {"SYSTEM", "S", "$SYSTEM"}) {
    const std::string jinja =
        "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
        "{{ '<|im_start|>system\\n" +
        system +
        "<|im_end|>\\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\\n' + "
        "message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}"
        "{{ '<|im_start|>assistant\\n' }}{% endif %}";
    const auto chat = ChatTemplate::recognise(jinja, "", "t");
    EXPECT_EQ(chat.family(), ChatFamily::chatml);
    EXPECT_TRUE(chat.render(std::vector<ChatMessage>{{"user", "x"}})
                    .starts_with("<|im_start|>system\n" + system));
  }
}

TEST(ChatTemplate, RefusesToolsThatItWouldNotRender) {
  const std::vector<ChatMessage> hi = {{"user", "hi"}};
  paceline::io::ChatOptions options;
  for (const ChatFamily family :
       {ChatFamily::chatml, ChatFamily::llama2, ChatFamily::llama3, ChatFamily::r1}) {
    for (const char* tools : {"[{}]", "[]"}) {
      options.tools = tools;
      EXPECT_ERROR(DataError, (void)of_family(family).render(hi, options),
                   "tools are not rendered by this model's chat template");
    }
  }
  // What a template of a known family prints of tools is not what its like print.
  const ChatTemplate other = fixtures::chat("qwen25");
  EXPECT_FALSE(other.reads_tools());
  const ChatTemplate kimi = fixtures::chat("kimi");
  // Numbers as Python's json.loads and json.dumps have them.
  options.tools =
      R"([{"a":18446744073709551615,"b":-9223372036854775808,"c":-0.0,"d":2e2},)"
      R"({"a":18446744073709551616,"b":[-9223372036854775809,{"c":1E19}],"c":1e300,"a":123456789)"
      R"(0123456789012345678901234567890}])";
  EXPECT_NE(kimi.render(hi, options)
                .find(R"([{"a": 18446744073709551615, "b": -9223372036854775808, "c": -0.0, "d": )"
                      R"(200.0}, {"a": 1234567890123456789012345678901234567890, "b": )"
                      R"([-9223372036854775809, {"c": 1e+19}], "c": 1e+300}]<|im_end|>)"),
            std::string::npos)
      << kimi.render(hi, options);
}

constexpr const char* plain =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] "
    "+ '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ "
    "'<|im_start|>assistant\\n' }}{% endif %}";

TEST(ChatTemplate, RefusesTemplatesThatDifferAtAll) {
  EXPECT_EQ(ChatTemplate::recognise(plain, "", "t").family(), ChatFamily::chatml);
  const std::string known = plain;
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = known;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  for (const std::string& text :
       {changed("<|im_end|>", "<|end|>"), changed("'\\n' }}{% endfor", "'' }}{% endfor"),
        // Escapes: Python keeps the backslash of one that it does not know.
        changed("assistant", "assi\\stant"), changed("'\\n' }}{% endfor", "'\\r' }}{% endfor"),
        changed("'\\n' }}{% endfor", "'\\12' }}{% endfor"),
        changed("<|im_end|>", "<|im_end\\N{VERTICAL LINE}>"),
        changed("assistant", "assistant\\ud800"), changed("assistant", "assistant\\u00"),
        // What is not printed, or only sometimes.
        "{# x #}\n \n{#- x #} " + known, "\xE3\x80\x80 {{ '' }}" + known,
        known + "{%+ if tools %}{% endif %}", "{% raw %}" + known + "{% endraw %}",
        known + "{% if message.role == 'tool' %}{% endif %}",
        "{% if not tools_in_user_message is defined %}x{% endif %}" + known,
        "{% set tools = messages %}{% if tools %}x{% endif %}" + known,
        changed("{{ '<|im_start|>' +", "{{ 'x' if loop.first else '' }}{{ '<|im_start|>' +"),
        changed("message['content'] +", "message['content'] + ' ' | trim +"),
        changed("{% endfor %}",
                "{% generation %}{% set messages = [] %}{% endgeneration %}{% endfor %}"),
        // What Jinja itself could not read.
        known + "{% if tools %}{{ 'a' message }}{% endif %}",
        known + "{% if tools %}{{ }}{% endif %}", known + "{% if tools %}{% endif x %}",
        known + "{% if tools %}{% else %}{% else %}{% endif %}",
        known + "{% if tools %}{{ (1] }}{% endif %}", known + "{% if tools %}{% rw %}{% endif %}",
        changed("message['content']", "message['content'] | trim"), known + "x",
        changed("{% endfor %}", "{% endfor %} "), known.substr(0, 50), std::string("{{"),
        std::string("{% endif %}"), std::string("{% if %}"), std::string(), std::string("text")}) {
    const auto chat = ChatTemplate::recognise(text, "", "dir/tokenizer_config.json");
    EXPECT_EQ(chat.family(), ChatFamily::none) << text;
    EXPECT_ERROR(DataError, (void)chat.render(std::vector<ChatMessage>{{"user", "x"}}),
                 "dir/tokenizer_config.json: the chat template (fingerprint ",
                 "none of the known ones: ChatML, Qwen2.5", "token ids");
  }
}

TEST(ChatTemplate, TakesTemplatesThatRenderAlike) {
  const std::string known = plain;
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = known;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  for (const std::string& text :
       {known + "\r\n", "{#- {% if #}\n" + known,
        changed("'<|im_start|>'", "\"\\x3c|im\\u005fstart|>\""),
        changed("message['role'] + '\\n'", "message.role + '\n'"),
        changed("assistant\\n", "assi\\\nstant\\n"), changed("{% endfor %}", "\f\n {%- endfor %}"),
        known + "{%- if tools %}{{ {'a': {'b': '}}'}} | tojson }}{% endif %}",
        changed("{{ '<|im_start|>' +", "{% generation %}{{ '<|im_start|>' +")
            .replace(changed("{{ '<|im_start|>' +", "{% generation %}{{ '<|im_start|>' +")
                         .find("{% endfor"),
                     0, "{% endgeneration %}")}) {
    EXPECT_EQ(ChatTemplate::recognise(text, "", "t").family(), ChatFamily::chatml) << text;
  }
}

// A branch for other roles that is not rendered must not let their messages through as if it were
// not there.
TEST(ChatTemplate, RolesOfABranchThatIsNotRenderedAreRefused) {
  std::string text = plain;
  text.replace(text.find("{{ '<|im_start|>' +"), 0,
               "{% if message.role == 'tool' %}{{ 'x' }}{% else %}");
  text.replace(text.find("{% endfor %}"), 0, "{% endif %}");
  const auto chat = ChatTemplate::recognise(text, "", "t");
  ASSERT_EQ(chat.family(), ChatFamily::chatml);
  EXPECT_EQ(chat.render(std::vector<ChatMessage>{{"user", "x"}}),
            "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_ERROR(DataError, (void)chat.render(std::vector<ChatMessage>{{"user", "x"}, {"tool", "y"}}),
               "message 2: role 'tool' is not rendered");
}

TEST(ChatTemplate, NestingWithoutEndIsRefusedNotFollowed) {
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "{% if x %}";
  EXPECT_EQ(ChatTemplate::recognise(deep, "", "t").family(), ChatFamily::none);
}

TEST(ChatTemplate, RefusesWhatItWouldNotRender) {
  const json document =
      json::parse(paceline::io::text::read_file(fixtures::folder() + "chat.json"));
  for (const json& c : document["cases"]) {
    const auto chat = ChatTemplate::recognise(c["template"].get<std::string>(), "", "t", "");
    EXPECT_ERROR(DataError, (void)chat.render({}), "no messages");
    if (chat.family() == ChatFamily::chatml || chat.family() == ChatFamily::llama3) continue;
    const std::vector<ChatMessage> tool = {{"user", "x"}, {"tool", "y"}};
    EXPECT_ERROR(DataError, (void)chat.render(tool), "message 2: role 'tool' is not rendered",
                 "system, user, assistant");
  }
}

class ChatDirectory : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "chatXXXXXX";
    directory_ = mkdtemp(pattern.data());
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(directory_ + "/" + name) << text;
  }
  std::string directory_;
};

TEST_F(ChatDirectory, ReadsAStringANamedOneOrAFileOfItsOwn) {
  const std::vector<ChatMessage> hi = {{"user", "hi"}};
  const std::string rendered = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n";
  write("tokenizer_config.json", json{{"chat_template", plain}, {"bos_token", nullptr}}.dump());
  EXPECT_EQ(ChatTemplate::load(directory_).render(hi), rendered);

  write("tokenizer_config.json",
        json{{"chat_template",
              {{{"name", "rag"}, {"template", "x"}}, {{"name", "default"}, {"template", plain}}}}}
            .dump());
  EXPECT_EQ(ChatTemplate::load(directory_).render(hi), rendered);

  write("chat_template.jinja", "something else");
  EXPECT_ERROR(DataError, (void)ChatTemplate::load(directory_).render(hi), "chat_template.jinja");
}

TEST_F(ChatDirectory, TakesTheBosTokenFromTheConfiguration) {
  const std::string llama =
      "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = "
      "'<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | "
      "trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% "
      "endif %}{{ content }}{% endfor %}{{ "
      "'<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}";
  for (const json& bos : {json("<b>"), json{{"content", "<b>"}}}) {
    write("tokenizer_config.json", json{{"chat_template", llama}, {"bos_token", bos}}.dump());
    EXPECT_EQ(ChatTemplate::load(directory_).render(std::vector<ChatMessage>{{"user", " x "}}),
              "<b><|start_header_id|>user<|end_header_id|>\n\nx<|eot_id|>"
              "<|start_header_id|>assistant<|end_header_id|>\n\n");
  }
}

TEST_F(ChatDirectory, ATemplateThatPrintsBosNeedsOne) {
  const std::string llama =
      "{% for message in messages %}{% if loop.index0 == 0 %}{{ bos_token }}{% endif %}{% if "
      "message['role'] == 'assistant' %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' "
      "}}{{ message['content'] | trim + '<|eot_id|>' }}{% else %}{{ '<|start_header_id|>' + "
      "message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}{% "
      "endif %}{% endfor %}{% if add_generation_prompt %}{{ "
      "'<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}";
  const std::vector<ChatMessage> hi = {{"user", "hi"}};
  write("tokenizer_config.json", json{{"chat_template", llama}}.dump());
  EXPECT_ERROR(DataError, (void)ChatTemplate::load(directory_).render(hi),
               "the chat template prints bos_token, and neither tokenizer_config.json nor "
               "special_tokens_map.json has one");
  write("special_tokens_map.json", json{{"bos_token", {{"content", "<b>"}}}}.dump());
  EXPECT_EQ(ChatTemplate::load(directory_).render(hi).substr(0, 4), "<b><");
  // The map is of old tokenizers, which list no added tokens.
  write(
      "tokenizer_config.json",
      json{{"chat_template", llama}, {"bos_token", "<c>"}, {"added_tokens_decoder", json::object()}}
          .dump());
  EXPECT_EQ(ChatTemplate::load(directory_).render(hi).substr(0, 4), "<c><");
}

TEST_F(ChatDirectory, AnAbsentTemplateIsRefusedWhenItIsNeeded) {
  const ChatTemplate chat = ChatTemplate::load(directory_);
  EXPECT_EQ(chat.family(), ChatFamily::none);
  EXPECT_ERROR(DataError, (void)chat.render(std::vector<ChatMessage>{{"user", "x"}}),
               directory_ + ": no chat_template", "token ids");
}

TEST_F(ChatDirectory, MalformedConfigurationsNameTheirPlace) {
  const std::string file = directory_ + "/tokenizer_config.json";
  write("tokenizer_config.json", "{\"chat_template\": ");
  EXPECT_ERROR(DataError, (void)ChatTemplate::load(directory_), file + ": byte ", "malformed JSON");
  write("tokenizer_config.json", "{\"chat_template\": 5}");
  EXPECT_ERROR(DataError, (void)ChatTemplate::load(directory_),
               file + ": /chat_template: found 5; expected a string");
  write("tokenizer_config.json", R"({"chat_template": [{"name": "x", "template": "y"}]})");
  EXPECT_ERROR(DataError, (void)ChatTemplate::load(directory_),
               "/chat_template: ", "expected one named \"default\"");
  write("tokenizer_config.json", "[]");
  EXPECT_ERROR(DataError, (void)ChatTemplate::load(directory_), "expected an object");
}

TEST(ChatTemplate, TheEmbeddedModelsTemplateIsKnown) {
  for (const char* model : {"target", "draft"}) {
    const std::string directory = PACELINE_SOURCE_DIR "/configs/models/" + std::string(model);
    if (!std::filesystem::exists(directory + "/tokenizer_config.json")) continue;
    const ChatTemplate chat = ChatTemplate::load(directory);
    EXPECT_EQ(chat.refusal(), "");
  }
}

}  // namespace
