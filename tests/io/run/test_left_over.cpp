// What a run left unfinished, as a later run finds it.
#include "io/run/left_over.hpp"

#include "io/run/final_file.hpp"
#include "tests/io/run/fixture.hpp"

namespace paceline::io {
namespace {

using Spans = std::vector<VersionSpan>;
using LeftOver = Scratch;

TEST(VersionSpans, GoOnFromThoseOfEarlierRuns) {
  const EarlierSpans earlier = {{{1, 0}, {{3, 7}, {5, 8}}}};
  EXPECT_EQ(spans_of({0, 0}, 4, earlier, 9), (Spans{{4, 9}}));
  EXPECT_EQ(spans_of({1, 0}, 9, earlier, 9), (Spans{{3, 7}, {5, 8}, {9, 9}}));
  EXPECT_EQ(spans_of({1, 0}, 9, earlier, 8), (Spans{{3, 7}, {9, 8}})) << "the same version";
  EXPECT_EQ(spans_of({1, 0}, 5, earlier, 9), (Spans{{3, 7}, {5, 8}})) << "nothing was added";
}

TEST_F(LeftOver, IsReadByTheUidsOfPrompts) {
  const SampleRun run(5, 3);
  const std::string path = at("run");
  BegunResponses taken;  // one that waits still, one that is finished, one that went on
  taken.responses = {sample::prefix({1, 1}, 1), sample::prefix({2, 0}, 1),
                     sample::prefix({3, 1}, 1)};
  taken.responses[0].weight_version = 4;
  for (const Trajectory& t : taken.responses) taken.spans[t.id] = {{1, 4}};
  {
    const RunDirectory directory(path, run.manifest, run.prompts, false);
    ShardWriter writer(path, 0, 0);
    writer.append(sample::prefix({2, 0}, 1));
    writer.append(sample::finished({2, 0}));  // it is finished
    writer.append(sample::prefix({3, 1}, 1));
    writer.append(sample::prefix({3, 1}, 2));
    writer.append(sample::prefix({4, 2}, 1));
    writer.close();
    EXPECT_EQ(write_left_over(path, run.manifest, run.prompts, taken), 3U);
    EXPECT_EQ(write_left_over(path, run.manifest, run.prompts, taken), 3U) << "in its place";
    for (const RequestId id : run.ids) {
      ShardWriter more(path, id.prompt + 1, id.sample);
      more.append(sample::finished(id));
    }
    (void)write_final_file(path, run.manifest, run.prompts);
  }
  // Others in another order.
  std::vector<Prompt> prompts = {run.prompts[4], run.prompts[0], run.prompts[3]};
  RunManifest now = run.manifest;
  now.weight_version += 1;
  now.model_fingerprint = "another";
  now.prompts = 3;
  now.prompts_fingerprint = prompts_fingerprint(prompts);
  const BegunResponses begun = read_left_over(path, now, prompts);
  ASSERT_EQ(begun.responses.size(), 2U);
  EXPECT_EQ(begun.responses[0].id, (RequestId{0, 2}));
  EXPECT_EQ(begun.responses[1].id, (RequestId{2, 1}));
  EXPECT_EQ(begun.responses[1].tokens, sample::prefix({3, 1}, 2).tokens);
  const std::uint64_t version = run.manifest.weight_version;
  EXPECT_EQ(begun.spans.at({0, 2}), (Spans{{1, version}}));
  EXPECT_EQ(begun.spans.at({2, 1}), (Spans{{1, 4}, {2, version}}));
  EXPECT_EQ(begun.fingerprint().size(), 32U);
  const BegunResponses all = read_left_over(path, run.manifest, run.prompts);
  ASSERT_EQ(all.responses.size(), 3U);
  EXPECT_EQ(all.responses[0].id, (RequestId{1, 1}));
  EXPECT_EQ(all.spans.at({1, 1}), (Spans{{1, 4}}));
  EXPECT_NE(begun.fingerprint(), read_left_over(path, run.manifest, run.prompts).fingerprint());

  now.by_line = {"max_tokens", "seed", "temperature"};
  prompts[0].extra_json = R"({"temperature":0.5,"max_tokens":9})";
  prompts[2].extra_json = R"({"seed":null,"max_tokens":9})";
  EXPECT_EQ(read_left_over(path, now, prompts).responses.size(), 1U) << "a line's own temperature";
  now.repeated = {"temperature"};
  EXPECT_EQ(read_left_over(path, now, prompts).responses.size(), 2U) << "the run's own, repeated";
  now.repeated.clear();
  prompts[0].extra_json = run.prompts[4].extra_json;
  prompts[2].extra_json = run.prompts[3].extra_json;
  now.by_line.clear();
  now.samples = 2;
  EXPECT_EQ(read_left_over(path, now, prompts).responses.size(), 1U) << "there is no third sample";
  prompts[2].pictures.resize(1);
  EXPECT_TRUE(read_left_over(path, now, prompts).responses.empty()) << "another picture";
  prompts[2].pictures.clear();
  prompts[2].tokens.push_back(1);
  EXPECT_TRUE(read_left_over(path, now, prompts).responses.empty()) << "another prompt";
  now.sampling.temperature = 0.5F;
  EXPECT_EQ(message_of<UsageError>([&] { (void)read_left_over(path, now, prompts); }),
            "prompts.begun: " + path +
                " began its responses by other settings: sampling.temperature: 0.7, now 0.5");
  EXPECT_THROW((void)read_left_over(at("none"), now, prompts), UsageError);
  std::filesystem::remove_all(path + "/left");
  EXPECT_TRUE(read_left_over(path, now, prompts).responses.empty());
  EXPECT_EQ(BegunResponses().fingerprint(), "");
}

}  // namespace
}  // namespace paceline::io
