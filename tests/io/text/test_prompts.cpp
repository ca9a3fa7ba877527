// The prompt file: every accepted form of a line, and a message with its place for every other.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "io/text/prompts.hpp"
#include "runtime/core/error.hpp"
#include "tests/io/text/expect_error.hpp"
#include "tests/io/text/fixtures.hpp"
#include "tests/io/text/tiny_tokenizer.hpp"

namespace {

using paceline::DataError;
using paceline::IoError;
using paceline::TokenId;
using paceline::io::ChatTemplate;
using paceline::io::Overlong;
using paceline::io::PromptKeys;
using paceline::io::PromptOptions;
using paceline::io::PromptSet;
using paceline::io::Tokenizer;
using Ids = std::vector<TokenId>;

class Prompts : public testing::Test {
 protected:
  [[nodiscard]] PromptSet parse(const std::string& text, const PromptOptions& options = {}) const {
    return paceline::io::parse_prompts(text, "p.jsonl", &tokenizer_, &chat_, options);
  }
  static PromptSet parse_ids(const std::string& text, const PromptOptions& options = {}) {
    return paceline::io::parse_prompts(text, "p.jsonl", nullptr, nullptr, options);
  }

  /// Options in which fields go by other names.
  static PromptOptions named(
      const std::vector<std::pair<std::optional<std::string> PromptKeys::*, const char*>>& keys) {
    PromptOptions options;
    for (const auto& [key, field] : keys) options.keys.*key = field;
    return options;
  }

  Tokenizer tokenizer_ = Tokenizer::parse(tiny::document().dump(), "tiny");
  ChatTemplate chat_ = ChatTemplate::recognise(
      "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + "
      "message['content'] + '<|im_end|>\\n'}}{% endfor %}{% if add_generation_prompt %}"
      "{{ '<|im_start|>assistant\\n' }}{% endif %}",
      "", "t");
};

TEST_F(Prompts, TextIsEncodedAsItIs) {
  const PromptSet set =
      parse("{\"prompt\": \"hello\"}\n\n  \r\n{\"uid\": \"a\", \"prompt\": \"he\"}");
  ASSERT_EQ(set.prompts.size(), 2U);
  EXPECT_EQ(set.prompts[0].uid, paceline::content_uid(Ids{260, 259}));
  EXPECT_EQ(set.prompts[0].tokens, (Ids{260, 259})) << "with the tokenizer's bos";
  EXPECT_EQ(set.prompts[0].extra_json, "{\"prompt\":\"hello\"}") << "for trainers";
  EXPECT_EQ(set.prompts[0].ground_truth, "");
  EXPECT_EQ(set.prompts[1].uid, "a");
  EXPECT_EQ(parse(R"({"prompt": "hello"})", {.add_special_tokens = false}).prompts[0].tokens,
            Ids{259});
  EXPECT_EQ(parse("\xEF\xBB\xBF{\"prompt\":\"he\"}\r\n").prompts.size(), 1U) << "byte order mark";
}

TEST_F(Prompts, MessagesAreRenderedWithTheAnswersHeader) {
  const Ids expected =
      tokenizer_.encode("<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n");
  for (const char* key : {"prompt", "messages"}) {
    const PromptSet set =
        parse(std::string("{\"") + key +
              "\": [{\"role\": \"user\", \"content\": \"hello\", \"name\": null}]}");
    EXPECT_EQ(set.prompts[0].tokens, expected);
  }
}

TEST_F(Prompts, TokenIdsNeedNoTokenizer) {
  for (const char* key : {"prompt_tokens", "input_ids", "tokens"}) {
    const PromptSet set = parse_ids(std::string("{\"") + key + "\": [5, 0, 70000]}");
    EXPECT_EQ(set.prompts[0].tokens, (Ids{5, 0, 70000}));
    EXPECT_EQ(set.prompts[0].extra_json, "{}");
  }
  EXPECT_ERROR(DataError, (void)parse_ids(R"({"prompt": "text"})"),
               "p.jsonl:1:12: 'prompt': text needs a tokenizer", "token ids");
  EXPECT_ERROR(DataError, (void)parse_ids(R"({"messages": [{"role": "user", "content": ""}]})"),
               "p.jsonl:1:14: 'messages': text needs a tokenizer");
}

TEST_F(Prompts, PlansEstimateLengthsWithoutATokenizer) {
  PromptOptions options;
  options.estimate = true;
  const auto read = [&](const std::string& text) {
    return paceline::io::parse_prompts(text, "p.jsonl", nullptr, nullptr, options);
  };
  const PromptSet set = read(
      "{\"prompt\": \"eighteen characters\"}\n{\"prompt_tokens\": [5, 6]}\n"
      "{\"messages\": [{\"role\": \"user\", \"content\": \"12345678\"}]}");
  EXPECT_TRUE(set.estimated);
  EXPECT_EQ(set.prompts[0].tokens.size(), 5U);
  EXPECT_EQ(set.prompts[1].tokens, (Ids{5, 6}));
  EXPECT_EQ(set.prompts[2].tokens.size(), (8 + 16) / 4U);
  const std::string told = R"({"messages": [{"role": "user", "content": "12345678"}], )";
  for (const char* tools :
       {R"("tools": [{"name": "f"}]})",
        R"("chat_template_kwargs": {"date_string": "d", "tools": [{"name":"f"}]}})"})
    EXPECT_EQ(read(told + tools).prompts[0].tokens.size(), (8 + 16 + 14) / 4U + 1) << tools;
  EXPECT_EQ(read(told + R"("tools": null})").prompts[0].tokens.size(), (8 + 16) / 4U);
  EXPECT_FALSE(read(R"({"prompt_tokens": [5, 6]})").estimated);
  EXPECT_FALSE(parse(R"({"prompt": "hello"})", {.estimate = true}).estimated) << "it has one";
}

TEST_F(Prompts, ChatOptionsOfALineAreHonoured) {
  const std::string messages = R"("messages": [{"role": "user", "content": "he"}])";
  const auto render = [&](const ChatTemplate& chat, const std::string& fields,
                          const paceline::io::ChatSettings& configured = {}) {
    PromptOptions options;
    options.chat = configured;
    const PromptSet set = paceline::io::parse_prompts("{" + messages + fields + "}", "p.jsonl",
                                                      &tokenizer_, &chat, options);
    EXPECT_EQ(set.prompts.at(0).extra_json.find("{\"messages\":[{\"role\""), 0U);
    return tokenizer_.decode(set.prompts.at(0).tokens, false);
  };
  const ChatTemplate qwen3 = fixtures::chat("qwen3");
  const std::string thinking = "<|im_start|>user\nhe<|im_end|>\n<|im_start|>assistant\n";
  const std::string plain = thinking + "<think>\n\n</think>\n\n";
  EXPECT_EQ(render(qwen3, ""), thinking);
  EXPECT_EQ(render(qwen3, R"(,"enable_thinking":true)"), thinking);
  EXPECT_EQ(render(qwen3, R"(,"enable_thinking":false)"), plain);
  EXPECT_EQ(render(qwen3, R"(,"chat_template_kwargs":{"enable_thinking":false})"), plain);
  EXPECT_EQ(render(qwen3, R"(,"chat_template_kwargs":{"x":null,"add_generation_prompt":true})"),
            thinking);
  EXPECT_EQ(render(qwen3, R"(,"tools":[])"), thinking) << "none";
  EXPECT_EQ(render(qwen3, R"(,"tools":null,"enable_thinking":null,"date_string":null)"), thinking);
  EXPECT_EQ(render(qwen3, "", {.enable_thinking = false, .date = {}, .continue_final_message = {}}),
            plain);
  EXPECT_EQ(render(qwen3, R"(,"enable_thinking":true)",
                   {.enable_thinking = false, .date = {}, .continue_final_message = {}}),
            thinking);

  const ChatTemplate kimi = fixtures::chat("kimi");
  const std::string tools = R"([{"type": "function","x":1.0}])";
  const std::string told =
      R"(<|im_system|>tool_declare<|im_middle|>[{"type": "function", "x": 1.0}]<|im_end|>)";
  EXPECT_EQ(render(kimi, ",\"tools\":" + tools), told + render(kimi, ""));
  EXPECT_EQ(render(kimi, ",\"chat_template_kwargs\":{\"tools\":" + tools + "}"),
            told + render(kimi, ""));
  EXPECT_EQ(render(kimi, R"(,"tools":[])"), render(kimi, ""));

  const ChatTemplate llama = fixtures::chat("llama32");
  EXPECT_NE(render(llama, "").find("\nToday Date: 26 Jul 2024\n"), std::string::npos);
  EXPECT_NE(render(llama, R"(,"date_string":"1 Jan 2025")").find("\nToday Date: 1 Jan 2025\n"),
            std::string::npos);
  EXPECT_NE(
      render(llama, "", {.enable_thinking = {}, .date = "2 Feb 2025", .continue_final_message = {}})
          .find(": 2 Feb 2025\n"),
      std::string::npos);
}

TEST_F(Prompts, ChatOptionsThatCannotBeHonouredAreRefused) {
  const ChatTemplate qwen3 = fixtures::chat("qwen3");
  const ChatTemplate llama = fixtures::chat("llama32");
  const auto with = [&](const ChatTemplate& chat, const std::string& fields,
                        const PromptOptions& options = {}) {
    return paceline::io::parse_prompts(
        R"({"messages":[{"role":"user","content":"he"}],)" + fields + "}", "p.jsonl", &tokenizer_,
        &chat, options);
  };
  const std::pair<const char*, const char*> cases[] = {
      {R"("tools":[{"type":"function"}])",
       "p.jsonl:1:54: 'tools': tools are not rendered by this model's chat template"},
      {R"("tools":{"type":"function"})", "'tools': expected a list of objects, found an object"},
      {R"("chat_template":"x")", "'chat_template': cannot be honoured (expected null"},
      {R"("add_generation_prompt":0)", "'add_generation_prompt': expected true or false, found 0"},
      {R"("continue_final_message":true,"chat_template_kwargs":{"add_generation_prompt":true})",
       "'add_generation_prompt': add_generation_prompt and continue_final_message exclude each "
       "other"},
      {R"("chat_template_kwargs":{"tools":[1]})",
       "p.jsonl:1:78: 'tools': expected a list of objects, found an array of 1"},
      {R"("chat_template_kwargs":{"chat_template":"x"})", "'chat_template': cannot be honoured"},
      {R"("chat_template_kwargs":{"enable_thinkin":false})",
       "p.jsonl:1:87: 'enable_thinkin': is not an option that is honoured; did you mean "
       "'enable_thinking'?"},
      {R"("chat_template_kwargs":{"documents":1})",
       "there are enable_thinking, date_string, add_generation_prompt, continue_final_message"},
      {R"("chat_template_kwargs":[])", "p.jsonl:1:69: 'chat_template_kwargs': expected an object"},
      {R"("chat_template_kwargs":{"a":1,"a":2})", "p.jsonl:1:76: the key 'a' is there twice"},
      {R"("enable_thinking":"false")", "expected true or false, found \"false\""},
      {R"("enable_thinking":true,"chat_template_kwargs":{"enable_thinking":false})",
       "'enable_thinking': is given twice on the line, and differently"},
      {R"("date_string":"1 Jan 2025")",
       "p.jsonl:1:60: 'date_string': this model's chat template does not read a date"},
  };
  for (const auto& [fields, message] : cases) {
    EXPECT_ERROR(DataError, (void)with(qwen3, fields), message);
  }
  EXPECT_ERROR(DataError, (void)with(llama, R"("enable_thinking":false)"),
               "'enable_thinking': this model's chat template does not read enable_thinking");
  EXPECT_ERROR(DataError, (void)with(llama, R"("date_string":5)"), "expected text, found 5");
  for (const char* date : {"", "a\\nb", "<|eot_id|>"}) {
    EXPECT_ERROR(DataError, (void)with(llama, "\"date_string\":\"" + std::string(date) + "\""),
                 "'date_string': expected a date on one line, such as '26 Jul 2024'");
  }

  // The configuration's mistakes are the configuration's.
  PromptOptions configured;
  configured.chat.enable_thinking = false;
  EXPECT_ERROR(paceline::UsageError, (void)with(llama, "\"x\":1", configured),
               "prompts.chat: this model's chat template does not read enable_thinking");
  EXPECT_ERROR(paceline::UsageError,
               (void)paceline::io::parse_prompts(R"({"tokens":[1]})", "p.jsonl", nullptr, &qwen3,
                                                 configured),
               "prompts.chat: p.jsonl holds no messages to render");

  // Text meets no template; token ids have met theirs.
  EXPECT_ERROR(DataError, (void)parse(R"({"prompt":"he","enable_thinking":false})"),
               "p.jsonl:1:34: 'enable_thinking': cannot be honoured: the prompt is text");
  EXPECT_ERROR(DataError, (void)parse(R"({"prompt":"he","tools":[1]})"), "cannot be honoured");
  EXPECT_ERROR(DataError, (void)parse(R"({"prompt":"he","continue_final_message":true})"),
               "'continue_final_message': cannot be honoured: the prompt is text");
  EXPECT_EQ(parse(R"({"prompt":"he","tools":null})").prompts.size(), 1U);
  EXPECT_EQ(parse(R"({"prompt":"he","add_generation_prompt":true,"continue_final_message":false})")
                .prompts.size(),
            1U);
  EXPECT_EQ(
      parse_ids(R"({"tokens":[1],"tools":[1],"enable_thinking":false})").prompts[0].extra_json,
      R"({"tools":[1],"enable_thinking":false})");
}

// What `transformers` makes of it: test_chat.cpp.
TEST_F(Prompts, ALastMessageMayGoOn) {
  const auto read = [&](const std::string& last, const std::string& fields,
                        std::optional<bool> configured = {}) {
    PromptOptions options;
    options.chat.continue_final_message = configured;
    return parse(R"({"uid":"u","messages":[{"role":"user","content":"he"},{"role":")" + last +
                     R"(","content":"ll"}])" + fields + "}",
                 options);
  };
  const auto text = [&](const PromptSet& set) {
    return tokenizer_.decode(set.prompts.at(0).tokens, false);
  };
  const std::string user = "<|im_start|>user\nhe<|im_end|>\n";
  const std::string open = user + "<|im_start|>assistant\nll";
  const std::string closed = open + "<|im_end|>\n";
  const std::string turn = closed + "<|im_start|>assistant\n";
  const char* yes = R"(,"continue_final_message":true)";
  const char* no = R"(,"chat_template_kwargs":{"continue_final_message":false})";
  EXPECT_EQ(text(read("assistant", "")), turn);
  EXPECT_EQ(read("assistant", "").closed, (std::vector<std::string>{"u"})) << "to be warned of";
  EXPECT_EQ(text(read("assistant", no)), turn);
  EXPECT_TRUE(read("assistant", no).closed.empty()) << "as the line wants it";
  EXPECT_EQ(text(read("assistant", "", false)), turn);
  EXPECT_TRUE(read("assistant", "", false).closed.empty());
  EXPECT_EQ(text(read("assistant", yes)), open);
  EXPECT_TRUE(read("assistant", yes).closed.empty());
  EXPECT_EQ(text(read("assistant", "", true)), open);
  EXPECT_EQ(text(read("assistant", no, true)), turn) << "the line decides";
  EXPECT_EQ(text(read("assistant", R"(,"add_generation_prompt":true)", true)), turn);
  EXPECT_EQ(text(read("assistant", R"(,"add_generation_prompt":false)")), closed);
  EXPECT_TRUE(read("assistant", R"(,"add_generation_prompt":false)").closed.empty());

  // The configuration is for answers; a line may let a user go on too.
  const std::string asked = user + "<|im_start|>user\nll";
  EXPECT_EQ(text(read("user", "", true)), asked + "<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_TRUE(read("user", "").closed.empty());
  EXPECT_EQ(text(read("user", yes)), asked);
}

TEST_F(Prompts, TextThatBeginsWithSpecialTokensGetsNoMore) {
  const TokenId bos = 260;
  const std::string written = tokenizer_.decode(Ids{bos}, false);
  const auto tokens = [&](const std::string& text, const PromptOptions& options = {}) {
    return parse(R"({"prompt":")" + text + "\"}", options).prompts[0].tokens;
  };
  PromptOptions always;
  always.add_special_tokens = true;
  PromptOptions never;
  never.add_special_tokens = false;
  EXPECT_EQ(tokens("hello"), (Ids{bos, 259}));
  EXPECT_EQ(tokens(written + "hello"), (Ids{bos, 259})) << "as a template rendered it";
  EXPECT_EQ(tokens(written + "hello", always), (Ids{bos, bos, 259}));
  EXPECT_EQ(tokens("hello", never), (Ids{259}));
  EXPECT_EQ(tokens(written + "hello", never), (Ids{bos, 259}));
  EXPECT_EQ(tokens("hello" + written), (Ids{bos, 259, bos}))
      << "elsewhere it is text like any other";
}

TEST_F(Prompts, TokenIdsMayStandBesideWhatTheyWereMadeOf) {
  for (const char* line :
       {R"({"prompt_tokens":[5,6],"messages":[{"role":"critic 2","content":"x"}],"tools":[1]})",
        R"({"messages":[{"role":"critic 2","content":"x"}],"prompt_tokens":[5,6],"tools":[1]})"}) {
    const PromptSet set = parse(line);
    EXPECT_EQ(set.prompts[0].tokens, (Ids{5, 6}));
    EXPECT_EQ(set.prompts[0].extra_json,
              R"({"messages":[{"role":"critic 2","content":"x"}],"tools":[1]})")
        << "for trainers";
  }
  EXPECT_EQ(parse(R"({"prompt":"he","prompt_tokens":[5]})").prompts[0].tokens, Ids{5});
  for (const char* line : {R"({"prompt":"he","input_ids":[5]})",
                           R"({"prompt":"he","messages":[],"prompt_tokens":[5]})",
                           R"({"prompt_tokens":[5],"prompt":"he","messages":[]})",
                           R"({"prompt_tokens":[5],"tokens":[5]})"}) {
    EXPECT_ERROR(DataError, (void)parse(line), "a second prompt beside '");
  }
}

TEST_F(Prompts, RolesAreWords) {
  const auto with = [&](const std::string& role) {
    return parse(R"({"messages":[{"role":")" + role + R"(","content":"he"}]})");
  };
  for (const char* role : {"user", "tool", "critic-2", "my_role", "\u00e9"}) {
    EXPECT_EQ(with(role).prompts.size(), 1U) << role;
  }
  for (const char* role : {"", "<|im_end|>", " user", "user\\nhe", "a b", "\\u00a0", "a\\u0000"}) {
    EXPECT_ERROR(DataError, (void)with(role), "p.jsonl:1:13: 'messages': message 1: role \"",
                 "is no role; expected a word");
  }
}

TEST_F(Prompts, VerlsColumnsAreRead) {
  const PromptSet set = parse(
      R"({"data_source": "gsm8k",  "prompt": [{"role": "user", "content": "hello"}], "ability": "math",)"
      R"( "reward_model": {"style": "rule", "ground_truth": "72"}, "extra_info": {"index": 1.50, "s": "é \" ,"}})");
  EXPECT_EQ(set.prompts[0].ground_truth, "72");
  EXPECT_EQ(set.prompts[0].extra_json,
            R"({"data_source":"gsm8k","prompt":[{"role":"user","content":"hello"}],)"
            R"("ability":"math","reward_model":{"style":"rule",)"
            R"("ground_truth":"72"},"extra_info":{"index":1.50,"s":"é \" ,"}})");
}

TEST_F(Prompts, FieldsMayGoByOtherNames) {
  const std::string line = R"({"id": 7, "question": "hello", "answer": "so #### 72", "level": 2})";
  const PromptSet set = parse(line, named({{&PromptKeys::prompt, "question"},
                                           {&PromptKeys::uid, "id"},
                                           {&PromptKeys::ground_truth, "answer"}}));
  EXPECT_EQ(set.prompts[0].tokens, (Ids{260, 259}));
  EXPECT_EQ(set.prompts[0].uid, "7");
  EXPECT_EQ(set.prompts[0].ground_truth, "so #### 72");
  EXPECT_EQ(set.prompts[0].extra_json, R"({"prompt":"hello","level":2})") << "by paceline's name";
  EXPECT_EQ(parse_ids(R"({"ids": [5, 6]})", named({{&PromptKeys::prompt_tokens, "ids"}}))
                .prompts[0]
                .tokens,
            (Ids{5, 6}));

  // As messages, text is what the user says.
  const PromptSet said = parse(line, named({{&PromptKeys::messages, "question"}}));
  EXPECT_EQ(said.prompts[0].tokens,
            tokenizer_.encode("<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"));
  EXPECT_EQ(
      said.prompts[0].extra_json,
      R"({"id":7,"messages":[{"role":"user","content":"hello"}],"answer":"so #### 72","level":2})")
      << "as trainers take them";
  const PromptOptions chat = named({{&PromptKeys::messages, "chat"}});
  EXPECT_EQ(parse(R"({"chat": [{"role": "user", "content": "hello"}]})", chat).prompts[0].tokens,
            said.prompts[0].tokens);
  EXPECT_ERROR(DataError, (void)parse(R"({"chat": 5})", chat),
               "p.jsonl:1:10: 'chat': expected text or a list of messages, found 5");
}

TEST_F(Prompts, ANamedFieldIsInEveryLine) {
  const PromptOptions options =
      named({{&PromptKeys::prompt, "question"}, {&PromptKeys::ground_truth, "answer"}});
  EXPECT_ERROR(DataError, (void)parse(R"({"questions": "he", "answer": "1"})", options),
               "p.jsonl:1:1: no 'question' (prompts.keys.prompt); did you mean 'questions'?");
  EXPECT_ERROR(
      DataError,
      (void)parse("{\"question\": \"he\", \"answer\": \"1\"}\n{\"question\": \"he\", \"x\": 1}",
                  options),
      "p.jsonl:2:1: no 'answer' (prompts.keys.ground_truth); the line has 'question', 'x'");
  EXPECT_ERROR(DataError, (void)parse("{}", options), "p.jsonl:1:1: no 'question'");
  EXPECT_EQ(parse(R"({"question": "he", "answer": null})", options).prompts[0].ground_truth, "");
}

TEST_F(Prompts, ANamedFieldIsTheOnlyOneOfItsKind) {
  const PromptOptions options = named({{&PromptKeys::prompt, "question"}});
  EXPECT_ERROR(DataError, (void)parse(R"({"question": "he", "prompt": "he"})", options),
               "p.jsonl:1:30: 'prompt': is beside 'question', which prompts.keys.prompt names");
  EXPECT_ERROR(DataError, (void)parse(R"({"question": "he", "tokens": [1]})", options),
               "p.jsonl:1:30: 'tokens': a second prompt beside 'question'; expected one");
  EXPECT_ERROR(DataError, (void)parse(R"({"question": 5})", options),
               "p.jsonl:1:14: 'question': expected text or a list of messages, found 5");
  // Names may change places.
  const PromptSet swapped =
      parse(R"({"prompt": "1", "ground_truth": "he"})",
            named({{&PromptKeys::prompt, "ground_truth"}, {&PromptKeys::ground_truth, "prompt"}}));
  EXPECT_EQ(swapped.prompts[0].ground_truth, "1");
}

TEST_F(Prompts, OtherFieldsKeepTheirOrderAndSpelling) {
  const PromptSet set = parse(
      "{\"z\": 1E5, \"prompt\": \"he\", \"a\": [ 1 , {\"k\" : null} ], \"big\": "
      "123456789012345678901234567890,"
      " \"q\\u0022\": \"\\u00e9 x\"}");
  EXPECT_EQ(
      set.prompts[0].extra_json,
      "{\"z\":1E5,\"prompt\":\"he\",\"a\":[1,{\"k\":null}],\"big\":123456789012345678901234567890,"
      "\"q\\\"\":\"\\u00e9 x\"}");
}

TEST_F(Prompts, GroundTruthMayBeAnyJson) {
  EXPECT_EQ(parse(R"({"prompt":"he","ground_truth":"x"})").prompts[0].ground_truth, "x");
  EXPECT_EQ(parse(R"({"prompt":"he","ground_truth":12.50})").prompts[0].ground_truth, "12.50");
  EXPECT_EQ(parse(R"({"prompt":"he","ground_truth":[1, 2]})").prompts[0].ground_truth, "[1,2]");
  EXPECT_EQ(parse(R"({"prompt":"he","ground_truth":null})").prompts[0].ground_truth, "");
  EXPECT_EQ(
      parse(R"({"prompt":"he","reward_model":{"ground_truth":["a"]}})").prompts[0].ground_truth,
      "[\"a\"]");
  EXPECT_EQ(parse(R"({"prompt":"he","reward_model":"x"})").prompts[0].ground_truth, "");
  EXPECT_ERROR(
      DataError,
      (void)parse(R"({"prompt":"he","ground_truth":"1","reward_model":{"ground_truth":"2"}})"),
      "p.jsonl:1:50: 'reward_model': a second ground truth");
  EXPECT_ERROR(DataError,
               (void)parse("{\"prompt\":\"he\"}\n"
                           R"({"prompt":"he","ground_truth":"a\u0000b"})"),
               "p.jsonl:2:31: 'ground_truth': holds a NUL");
  EXPECT_ERROR(DataError,
               (void)parse(R"({"prompt":"he","reward_model":{"ground_truth":"\u0000"}})"),
               "p.jsonl:1:31: 'reward_model': holds a NUL");
  EXPECT_ERROR(DataError, (void)parse(R"({"prompt":"he","reward_model":{"a":1,"a":2}})"),
               "p.jsonl:1:38: the key 'a' is there twice");
}

TEST_F(Prompts, UidsMayBeIntegersAndAreUnique) {
  EXPECT_EQ(parse(R"({"prompt":"he","uid":17})").prompts[0].uid, "17");
  EXPECT_ERROR(
      DataError,
      (void)parse("{\"prompt\":\"he\",\"uid\":\"x\"}\n\n{\"uid\":\"x\",\"prompt\":\"he\"}"),
      "p.jsonl:3:8: uid 'x' was on line 1 already");
  EXPECT_ERROR(DataError, (void)parse(R"({"prompt":"he","uid":""})"),
               "p.jsonl:1:22: 'uid': expected text");
  EXPECT_ERROR(DataError, (void)parse(R"({"prompt":"he","uid":1.5})"),
               "'uid': expected text or an integer");
  EXPECT_ERROR(DataError, (void)parse(R"({"prompt":"he","uid":"a\u0000b"})"), "'uid': holds a NUL");
}

/// The uids of the prompts, in order.
std::vector<std::string> uids(const PromptSet& set) {
  std::vector<std::string> uids;
  for (const auto& prompt : set.prompts) uids.push_back(prompt.uid);
  return uids;
}

TEST_F(Prompts, WithoutUidALineIsKnownByItsPrompt) {
  const std::string a = R"({"prompt_tokens":[5,6],"ability":"x"})";
  const std::string b = R"({"uid":null,"tokens":[7]})";
  const std::string named = R"({"uid":"mine","tokens":[5,6]})";
  const std::string of_a = "e8a11593007ebbc72a2f";  // what it is by definition, for ever
  const std::string of_b = paceline::content_uid(Ids{7});
  EXPECT_EQ(uids(parse_ids(a + "\n" + b)), (std::vector{of_a, of_b}));
  EXPECT_EQ(uids(parse_ids(b + "\n\n" + named + "\n" + a)),
            (std::vector<std::string>{of_b, "mine", of_a}))
      << "wherever it stands, and whatever else does";
  EXPECT_EQ(uids(parse_ids(R"({"input_ids":[5,6],"uid":null})")), std::vector{of_a})
      << "the field and its other members are no part of it";
  EXPECT_EQ(uids(parse_ids(a + "\n" + b + "\n" + a + "\n" + a)),
            (std::vector{of_a, of_b, of_a + "-2", of_a + "-3"}))
      << "equal ones are counted";
  EXPECT_EQ(
      uids(parse_ids(R"({"tokens":[1,5,6]})", {.overlong = Overlong::truncate, .max_tokens = 2})),
      std::vector{of_a})
      << "of the tokens that are sampled from";
}

TEST_F(Prompts, AUidByContentIsNoOtherLines) {
  const std::string plain = R"({"tokens":[5,6]})";
  const std::string given = R"({"uid":")" + paceline::content_uid(Ids{5, 6}) + R"(","tokens":[7]})";
  EXPECT_ERROR(DataError, (void)parse_ids(given + "\n" + plain), "p.jsonl:2:11: uid '",
               "would be made of this prompt, and line 1 gives it; give this line a uid");
  EXPECT_ERROR(DataError, (void)parse_ids(plain + "\n" + given), "p.jsonl:2:8: uid '",
               "is made of the prompt of line 1, which has none; give that line a uid");
}

TEST_F(Prompts, OverlongPromptsFollowTheOption) {
  const std::string text = "{\"tokens\":[1,2,3,4],\"uid\":\"long\"}\n{\"tokens\":[1,2]}\n";
  EXPECT_ERROR(DataError, (void)parse(text, {.max_tokens = 3}),
               "p.jsonl:1:11: 'tokens': prompt 'long' has 4 tokens, the limit is 3",
               "skip | truncate");
  const PromptSet skipped = parse(text, {.overlong = Overlong::skip, .max_tokens = 3});
  ASSERT_EQ(skipped.prompts.size(), 1U);
  EXPECT_EQ(skipped.prompts[0].uid, paceline::content_uid(Ids{1, 2}));
  EXPECT_EQ(skipped.skipped, std::vector<std::string>{"long"});
  EXPECT_ERROR(DataError, (void)parse(R"({"tokens":[1,2,3,4]})", {.max_tokens = 3}),
               "p.jsonl:1:11: 'tokens': the prompt has 4 tokens, the limit is 3");
  const PromptSet cut = parse(text, {.overlong = Overlong::truncate, .max_tokens = 3});
  EXPECT_EQ(cut.prompts[0].tokens, (Ids{2, 3, 4})) << "the last tokens stay";
  EXPECT_EQ(cut.truncated, std::vector<std::string>{"long"});
  EXPECT_EQ(parse(text, {.max_tokens = 4}).prompts.size(), 2U);
  EXPECT_ERROR(DataError, (void)parse(text, {.overlong = Overlong::skip, .max_tokens = 1}),
               "p.jsonl: every prompt is over-long");
}

TEST_F(Prompts, TokenIdsLieInTheVocabulary) {
  EXPECT_NO_THROW((void)parse(R"({"tokens":[262]})"));
  EXPECT_ERROR(DataError, (void)parse(R"({"tokens":[1, 263]})"),
               "p.jsonl:1:11: 'tokens': token 2: id 263 is outside the vocabulary (0 to 262)");
  EXPECT_NO_THROW((void)parse(R"({"tokens":[299]})", {.vocab_size = 300}));
  EXPECT_ERROR(DataError, (void)parse_ids(R"({"tokens":[300]})", {.vocab_size = 300}), "0 to 299");
  EXPECT_ERROR(DataError, (void)parse_ids(R"({"tokens":[-1]})"), "id -1 is outside");
  EXPECT_ERROR(DataError, (void)parse_ids(R"({"tokens":[-0]})"),
               "token 1: expected a token id, found -0");
  EXPECT_ERROR(DataError, (void)parse_ids(R"({"tokens":[2147483648]})"),
               "id 2147483648 is outside");
  EXPECT_ERROR(DataError, (void)parse_ids(R"({"tokens":[1.0]})"),
               "token 1: expected a token id, found 1.0");
  EXPECT_ERROR(DataError, (void)parse_ids(R"({"tokens":["1"]})"), "token 1: expected a token id");
  EXPECT_ERROR(DataError, (void)parse_ids(R"({"tokens":"1"})"),
               "expected a list of token ids, found \"1\"");
  EXPECT_ERROR(DataError, (void)parse(R"({"tokens":[1]})", {.vocab_size = 259}),
               "does not fit the model");
  EXPECT_ERROR(DataError, (void)parse(R"({"prompt":"a<tag>"})", {.vocab_size = 262}),
               ":1:11: 'prompt'", "its text has token '<tag>' (id 262)", "vocabulary (0 to 261)");
  EXPECT_NO_THROW((void)parse(R"({"prompt":"a"})", {.vocab_size = 262}));
}

TEST_F(Prompts, EmptyPromptsAreErrors) {
  for (const char* prompt :
       {"\"prompt\":\"\"", "\"prompt\":[]", "\"messages\":[]", "\"tokens\":[]"}) {
    EXPECT_ERROR(DataError, (void)parse(std::string("{") + prompt + "}"),
                 "p.jsonl:1:", "the prompt is empty");
  }
  EXPECT_ERROR(DataError, (void)parse(""), "p.jsonl: there are no prompts");
  EXPECT_ERROR(DataError, (void)parse("\n \n"), "p.jsonl: there are no prompts");
}

TEST_F(Prompts, ExactlyOnePromptALine) {
  EXPECT_ERROR(DataError, (void)parse(R"({"uid":"x"})"),
               "p.jsonl:1:1: no prompt: expected one of 'prompt'");
  EXPECT_ERROR(DataError, (void)parse(R"({"prompt":"he","tokens":[1]})"),
               "p.jsonl:1:25: 'tokens': a second prompt beside 'prompt'");
  EXPECT_ERROR(DataError, (void)parse(R"({"prompt":"he","prompt":"ll"})"),
               "p.jsonl:1:16: the key 'prompt' is there twice");
}

TEST_F(Prompts, MessagesOfAnotherFormAreErrors) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"prompt":5})", "p.jsonl:1:11: 'prompt': expected text or a list of messages, found 5"},
      {R"({"messages":"x"})", "'messages': expected a list of messages, found \"x\""},
      {R"({"prompt":[1,2]})",
       "message 1: expected {\"role\": ..., \"content\": ...}, found 1; token ids go"},
      {R"({"prompt":[{"role":"user"}]})", "message 1: expected a 'content'"},
      {R"({"prompt":[{"content":"x"}]})", "message 1: expected a 'role'"},
      {R"({"prompt":[{"role":"user","content":[{"type":"text"}]}]})",
       "message 1: 'content': expected text, found an array of 1"},
      {R"({"prompt":[{"role":"user","content":"x","tool_calls":[]}]})",
       "message 1: 'tool_calls' is not rendered"},
  };
  for (const auto& [line, message] : cases) EXPECT_ERROR(DataError, (void)parse(line), message);

  const ChatTemplate unknown = ChatTemplate::recognise("{{ x }}", "", "dir/tokenizer_config.json");
  const std::string line = R"({"prompt":[{"role":"user","content":"x"}]})";
  EXPECT_ERROR(DataError,
               (void)paceline::io::parse_prompts(line, "p.jsonl", &tokenizer_, &unknown, {}),
               "p.jsonl:1:11: 'prompt': dir/tokenizer_config.json: the chat template", "token ids");
  EXPECT_ERROR(DataError,
               (void)paceline::io::parse_prompts(line, "p.jsonl", &tokenizer_, nullptr, {}),
               "there is no chat template");
}

TEST_F(Prompts, WhatTheParserPassesOverIsRefused) {
  const std::string mark = "\xEF\xBB\xBF";
  const std::string good = "{\"prompt\":\"he\"}\n";
  EXPECT_EQ(parse(mark + good).prompts.size(), 1U);
  EXPECT_ERROR(DataError, (void)parse(good + mark + good), "p.jsonl:2:1: a byte order mark within");
  EXPECT_ERROR(DataError, (void)parse(mark + mark + good), "p.jsonl:1:1: a byte order mark within");
  EXPECT_ERROR(DataError, (void)parse(std::string(65'531, '\n') + mark + "{}"),
               "p.jsonl:65532:1: a byte order mark within");
  EXPECT_ERROR(DataError, (void)parse(good + " " + mark + good), "p.jsonl:2:2: malformed JSON");
  EXPECT_ERROR(DataError, (void)parse(good + mark), "p.jsonl:2:1: a byte order mark within");
  EXPECT_ERROR(DataError, (void)parse(good + "{\"prompt\":\"he\"}" + std::string(1, '\0') + "x"),
               "p.jsonl:2:16: malformed JSON: a NUL character");
}

TEST_F(Prompts, MalformedLinesNameLineAndColumn) {
  const std::string good = "{\"prompt\":\"he\"}\n";
  EXPECT_ERROR(DataError, (void)parse(good + "{\"prompt\": \"he\""),
               "p.jsonl:2:", "malformed JSON");
  EXPECT_ERROR(DataError, (void)parse(good + "{\"prompt\": he}"), "p.jsonl:2:12: malformed JSON",
               "invalid literal");
  EXPECT_ERROR(DataError, (void)parse("{\"prompt\": \"\xFF\"}"), "p.jsonl:1:", "UTF-8");
  EXPECT_ERROR(DataError, (void)parse(R"({"prompt": "\ud800"})"), "p.jsonl:1:", "surrogate");
  EXPECT_ERROR(DataError, (void)parse("{\"prompt\":\"he\"} x"), "p.jsonl:1:17: malformed JSON");
  EXPECT_ERROR(DataError, (void)parse("[1]"),
               "p.jsonl:1:1: expected one JSON object a line, found an array of 1");
  EXPECT_ERROR(DataError, (void)parse("\"he\""), "expected one JSON object a line, found \"he\"");
  EXPECT_ERROR(DataError, (void)parse("{\"prompt\":\"he\",\"x\":" + std::string(100'000, '[')),
               "p.jsonl:1:83: nested deeper than 64 levels");
  EXPECT_ERROR(DataError, (void)parse("{\"prompt\":\"he\",\"x\":1e999}"),
               "p.jsonl:1:", "out of range");
  EXPECT_ERROR(DataError, (void)parse("PAR1\x15\x04"),
               "p.jsonl: this is a Parquet file; expected JSON Lines: python3 -m "
               "paceline_run.prompts p.jsonl OUT.jsonl makes them of it");
  EXPECT_ERROR(DataError, (void)parse("\x1f\x8b\x08\x00"), "p.jsonl: this is compressed by gzip; ",
               "python3 -m paceline_run.prompts p.jsonl OUT.jsonl");
  EXPECT_ERROR(DataError, (void)parse("\x28\xb5\x2f\xfd."), "compressed by zstd", "zstd -d");
  EXPECT_ERROR(DataError,
               (void)paceline::io::read_prompts("/nonexistent.jsonl", nullptr, nullptr, {}),
               "/nonexistent.jsonl: cannot be read: No such file");
}

}  // namespace
