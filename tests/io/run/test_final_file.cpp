// The final file: what is in it, and that nothing about the way there can be seen in it.
#include "io/run/final_file.hpp"

#include <algorithm>
#include <cmath>
#include <random>

#include "io/hdf5/file.hpp"
#include "io/hdf5/shards.hpp"
#include "io/run/digest.hpp"
#include "io/run/shard_index.hpp"
#include "io/run/stored_run.hpp"
#include "io/telemetry/telemetry.hpp"
#include "tests/io/run/fixture.hpp"

namespace paceline::io {
namespace {

using FinalFileTest = Scratch;

/// Peak resident memory of this process since the last reset, in bytes.
std::size_t peak_rss() {
  std::ifstream in("/proc/self/status");
  for (std::string word; in >> word;) {
    std::size_t kilobytes = 0;
    if (word == "VmHWM:" && in >> kilobytes) return kilobytes << 10;
  }
  return 0;
}

std::string oracle_digest(const SampleRun& run) {
  std::vector<std::size_t> order(run.prompts.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return run.prompts[a].uid < run.prompts[b].uid; });
  TrajectoryDigest digest;
  for (const std::size_t p : order) {
    for (std::uint32_t s = 0; s < run.manifest.samples; ++s) {
      digest.add(run.prompts[p].uid, run.prompts[p].tokens,
                 sample::finished({static_cast<std::uint32_t>(p), s}));
    }
  }
  return digest.hex();
}

TEST_F(FinalFileTest, HoldsEveryFieldInOrder) {
  const SampleRun run(7, 3);
  const std::string path = at("run");
  {
    const RunDirectory directory(path, run.manifest, run.prompts, false);
    ShardWriter writer(path, 0, 0);
    for (std::size_t i = run.ids.size(); i-- > 0;) writer.append(sample::finished(run.ids[i]));
  }
  const FinalFileReport report = write_final_file(path, run.manifest, run.prompts);
  EXPECT_EQ(report.trajectories, 21U);
  EXPECT_EQ(report.path, path + "/trajectories.h5");
  EXPECT_EQ(report.bytes, std::filesystem::file_size(report.path));
  EXPECT_EQ(report.warnings, std::vector<std::string>{});

  const auto prompts = read_prompts(path);
  ASSERT_EQ(prompts.size(), 7U);
  for (std::size_t i = 0; i < 7; ++i) {
    EXPECT_EQ(prompts[i].uid, run.prompts[i].uid);
    EXPECT_EQ(prompts[i].tokens, run.prompts[i].tokens);
    EXPECT_EQ(prompts[i].ground_truth, run.prompts[i].ground_truth);
    EXPECT_EQ(prompts[i].extra_json, run.prompts[i].extra_json);
  }
  const auto lock = h5::lock_hdf5();
  const h5::File file = h5::File::open(report.path);
  const auto tokens = h5::read_all<TokenId>(file, "trajectories/tokens");
  const auto offsets = h5::read_all<std::int64_t>(file, "trajectories/offsets");
  const auto logprob = h5::read_all<float>(file, "trajectories/logprob");
  const auto sampling = h5::read_all<float>(file, "trajectories/sampling_logprob");
  const auto prompt = h5::read_all<std::int32_t>(file, "trajectories/prompt_index");
  const auto sample_index = h5::read_all<std::int32_t>(file, "trajectories/sample_index");
  const auto reason = h5::read_all<std::uint8_t>(file, "trajectories/finish_reason");
  const auto reward = h5::read_all<float>(file, "trajectories/reward");
  const auto version = h5::read_all<std::uint64_t>(file, "trajectories/weight_version");
  ASSERT_EQ(offsets.size(), 22U);
  EXPECT_EQ(report.tokens, tokens.size());
  for (std::size_t i = 0; i < run.ids.size(); ++i) {
    Trajectory read;
    read.id = {static_cast<std::uint32_t>(prompt[i]), static_cast<std::uint32_t>(sample_index[i])};
    read.tokens.assign(tokens.begin() + offsets[i], tokens.begin() + offsets[i + 1]);
    read.logprob.assign(logprob.begin() + offsets[i], logprob.begin() + offsets[i + 1]);
    read.sampling_logprob.assign(sampling.begin() + offsets[i], sampling.begin() + offsets[i + 1]);
    read.finish_reason = static_cast<FinishReason>(reason[i]);
    read.reward = reward[i];
    read.weight_version = version[i];
    EXPECT_TRUE(same(read, sample::finished(run.ids[i]))) << i;
  }
  EXPECT_EQ(h5::read_string_attribute(file.id(), "", "config_text"), run.manifest.config_text);
  EXPECT_EQ(to_json(read_manifest(report.path)), to_json(run.manifest));
}

TEST_F(FinalFileTest, KeepsTheChosenPromptsAloneUnderNumbersOfTheirOwn) {
  const SampleRun run(7, 3);
  RunManifest manifest = run.manifest;
  manifest.choice = {.enough = 2};
  const std::string path = at("run");
  {
    const RunDirectory directory(path, manifest, run.prompts, false);
    ShardWriter writer(path, 0, 0);
    for (std::size_t i = run.ids.size(); i-- > 0;) {
      if (run.ids[i].prompt == 6) continue;  // not all are there
      Trajectory response = sample::finished(run.ids[i]);
      response.reward = 100.0F * static_cast<float>(run.ids[i].prompt);
      response.reward_extra = "{\"p\":" + std::to_string(run.ids[i].prompt) + "}";
      writer.append(response);
    }
  }
  const auto choose = [](std::span<const StoredResponse> finished) {
    EXPECT_EQ(finished.size(), 18U);
    EXPECT_EQ(finished[4].reward, 100.0F);
    return KeptPrompts{.enough = 2, .prompts = 7, .dropped = 3, .kept = {1, 4}};
  };
  const FinalFileReport report = write_final_file(path, manifest, run.prompts, 64, choose);
  EXPECT_EQ(report.trajectories, 6U);
  EXPECT_EQ(report.rewards, 6U);
  EXPECT_EQ(report.choice->kept, (std::vector<std::uint32_t>{1, 4}));
  const RunManifest written = read_manifest(report.path);
  EXPECT_EQ(written.prompts, 2U);
  EXPECT_EQ(written.choice->prompts, 7U);
  EXPECT_EQ(written.choice->dropped, 3U);
  const StoredRun stored = open_stored_run(report.path);
  ASSERT_EQ(stored.prompts.size(), 2U);
  EXPECT_EQ(stored.prompts[1].uid, run.prompts[4].uid);
  EXPECT_EQ(stored.extras.at({1, 2}), "{\"p\":4}");
  std::size_t read = 0;
  read_responses(stored, stored.finished, [&](Trajectory&& response) {
    const RequestId as_of_run{response.id.prompt == 0 ? 1U : 4U, response.id.sample};
    Trajectory expected = sample::finished(as_of_run);
    expected.id = response.id;
    expected.reward = 100.0F * static_cast<float>(as_of_run.prompt);
    EXPECT_TRUE(same(response, expected)) << read;
    ++read;
  });
  EXPECT_EQ(read, 6U);
  {
    const auto lock = h5::lock_hdf5();
    EXPECT_EQ(h5::read_all<std::int32_t>(h5::File::open(report.path), "prompts/index"),
              (std::vector<std::int32_t>{1, 4}));
  }
  EXPECT_EQ(digest_report(path).expected, 6U);
  EXPECT_TRUE(RunDirectory(path, manifest, run.prompts, true).complete());
  manifest.choice->enough = 3;
  EXPECT_EQ(first_difference(read_manifest(path), manifest), "prompts.enough: 2, now 3");
  manifest.choice.reset();
  EXPECT_EQ(first_difference(read_manifest(path), manifest), "prompts.enough: 2, now \"none\"");
}

TEST_F(FinalFileTest, IsTheSameByteForByteWhateverTheWayThere) {
  const SampleRun run(23, 4);
  const std::string expected = oracle_digest(run);
  std::string first;
  for (std::uint32_t round = 0; round < 6; ++round) {
    std::mt19937 random(round);
    const std::string path = at("run" + std::to_string(round));
    std::vector<RequestId> ids = run.ids;
    if (round > 0) std::shuffle(ids.begin(), ids.end(), random);
    // Up to three attempts of up to four ranks; some responses twice, some stopped half way.
    const std::uint32_t attempts = round == 0 ? 1 : 1 + random() % 3;
    std::size_t next = 0;
    for (std::uint32_t attempt = 0; attempt < attempts; ++attempt) {
      const RunDirectory directory(path, run.manifest, run.prompts, attempt > 0);
      EXPECT_EQ(directory.attempt(), attempt);
      std::vector<std::unique_ptr<ShardWriter>> writers;
      for (std::uint32_t rank = 0; rank < 1 + round % 4; ++rank) {
        writers.push_back(std::make_unique<ShardWriter>(path, attempt, rank));
      }
      const std::size_t end = attempt + 1 == attempts ? ids.size() : next + ids.size() / 3;
      for (; next < end; ++next) {
        ShardWriter& writer = *writers[random() % writers.size()];
        if (random() % 4 == 0) writer.append(sample::prefix(ids[next], 1));
        writer.append(sample::finished(ids[next]));
        if (random() % 5 == 0) writer.flush();
        if (random() % 9 == 0) writers[0]->append(sample::finished(ids[random() % (next + 1)]));
      }
      for (auto& writer : writers) writer->close();
      EXPECT_EQ(digest_report(path).trajectories, next);
    }
    EXPECT_EQ(digest_report(path).hex, expected);  // from the shards
    const FinalFileReport report = write_final_file(path, run.manifest, run.prompts);
    EXPECT_EQ(report.warnings, std::vector<std::string>{});
    EXPECT_EQ(digest_report(path).hex, expected);
    EXPECT_EQ(digest_report(report.path).hex, expected);
    EXPECT_EQ(digest_report(path).expected, run.ids.size());
    const std::string bytes = bytes_of(report.path);
    if (round == 0) {
      first = bytes;
      ::usleep(1100000);  // a timestamp would show
    }
    EXPECT_TRUE(bytes == first) << "round " << round;
  }
}

TEST_F(FinalFileTest, ASmallWindowGivesTheSameContent) {
  const SampleRun run(40, 2);
  std::vector<std::string> digests;
  for (const std::size_t window : {std::size_t{1}, std::size_t{3000}, std::size_t{1} << 25}) {
    const std::string path = at("run" + std::to_string(window));
    {
      const RunDirectory directory(path, run.manifest, run.prompts, false);
      ShardWriter a(path, 0, 0);
      ShardWriter b(path, 0, 1);
      for (const RequestId id : run.ids) (id.sample == 0 ? a : b).append(sample::finished(id));
    }
    write_final_file(path, run.manifest, run.prompts, window);
    digests.push_back(digest_report(path).hex);
  }
  EXPECT_EQ(digests, std::vector<std::string>(3, oracle_digest(run)));
}

TEST_F(FinalFileTest, ExpertsAreInOrderWhateverTheWayThere) {
  SampleRun run(23, 4);
  run.manifest.sampling.keep_routing = true;
  run.manifest.routing = sample::kRouting;
  const std::size_t width = sample::kRouting.width();
  const auto trajectory = [&](RequestId id) {
    return sample::routed(sample::finished(id, sample::length_of(id) + 1),
                          run.prompts[id.prompt].tokens.size());
  };
  std::vector<std::int16_t> prompts, responses;
  for (const RequestId id : run.ids) {
    const Trajectory t = trajectory(id);
    const std::size_t of_prompt = id.sample == 0 ? run.prompts[id.prompt].tokens.size() * width : 0;
    const auto end = t.routing.begin() + static_cast<std::ptrdiff_t>(of_prompt);
    prompts.insert(prompts.end(), t.routing.begin(), end);
    responses.insert(responses.end(), end, t.routing.end());
    responses.insert(responses.end(), width, -1);
  }
  const auto check = [&](const std::string& path) {
    const auto lock = h5::lock_hdf5();
    const h5::File file = h5::File::open(path);
    EXPECT_EQ(h5::read_all<std::int16_t>(file, "prompts/routed_experts"), prompts);
    EXPECT_EQ(h5::read_all<std::int16_t>(file, "trajectories/routed_experts"), responses);
    EXPECT_EQ(h5::read_all<std::uint8_t>(file, "trajectories/routed_layers"),
              sample::kRouting.layers);
  };
  for (const std::size_t window : {std::size_t{1}, std::size_t{300}, std::size_t{1} << 25}) {
    const std::string path = at("run" + std::to_string(window));
    std::vector<RequestId> ids = run.ids;
    std::mt19937 random(static_cast<unsigned>(window));
    std::shuffle(ids.begin(), ids.end(), random);
    {
      const RunDirectory directory(path, run.manifest, run.prompts, false);
      ShardWriter a(path, 0, 0, {}, {.routing = true});
      ShardWriter b(path, 0, 1, {}, {.routing = true});
      for (const RequestId id : ids) {
        ShardWriter& writer = random() % 2 == 0 ? a : b;
        if (random() % 4 == 0) writer.append(sample::prefix(id, 1));
        writer.append(trajectory(id));
        if (random() % 5 == 0) writer.flush();
      }
    }
    const std::string file = write_final_file(path, run.manifest, run.prompts, window).path;
    check(file);
    const std::vector<Reward> reward{{run.ids[5], 3.5F}};
    add_rewards(path, reward);
    check(file);
    EXPECT_EQ(read_manifest(file).routing, sample::kRouting);
  }
  // A response whose experts are damaged is generated again.
  const std::string shard = shard_path(at("run1"), "trajectories", 0, 1);
  hsize_t place = 0;
  {
    const auto lock = h5::lock_hdf5();
    const h5::File whole = h5::File::open(shard);
    const h5::Dataset experts =
        h5::Dataset::open(whole, "routed_experts", h5::native<std::int16_t>(), 0);
    const h5::Handle space(H5Dget_space(experts.id()), H5Sclose);
    hsize_t first = 0;
    unsigned filters = 0;
    haddr_t address = 0;
    hsize_t size = 0;
    ASSERT_GE(H5Dget_chunk_info(experts.id(), space.get(), 0, &first, &filters, &address, &size),
              0);
    place = address;
  }
  std::string bytes = bytes_of(shard);
  bytes[place] ^= 1;
  std::ofstream(shard, std::ios::binary) << bytes;
  const ShardIndex index = read_shard_index(at("run1"), run.manifest);
  EXPECT_EQ(index.finished.size(), run.ids.size() - 1);
  EXPECT_EQ(index.routing.size(), index.finished.size());
  EXPECT_NE(message_of<IoError>([&] {
              (void)write_final_file(at("run1"), run.manifest, run.prompts);
            }).find("--resume generates it again"),
            std::string::npos);
}

TEST_F(FinalFileTest, MasksComeBackWhateverTheWayThere) {
  SampleRun run(23, 4);
  run.manifest.sampling.keep_masks = true;
  const auto check = [&](const StoredRun& stored) {
    std::size_t next = 0;
    read_responses(stored, stored.finished, [&](Trajectory&& t) {
      EXPECT_TRUE(same(t, sample::masked(sample::finished(run.ids[next++]))));
    });
    EXPECT_EQ(next, run.ids.size());
  };
  std::string first;
  for (const std::size_t window : {std::size_t{1}, std::size_t{3000}, std::size_t{1} << 25}) {
    const std::string path = at("run" + std::to_string(window));
    std::vector<RequestId> ids = run.ids;
    std::mt19937 random(static_cast<unsigned>(window));
    std::shuffle(ids.begin(), ids.end(), random);
    {
      const RunDirectory directory(path, run.manifest, run.prompts, false);
      ShardWriter a(path, 0, 0, {}, {.masks = true});
      ShardWriter b(path, 0, 1, {}, {.masks = true});
      for (const RequestId id : ids) {
        ShardWriter& writer = random() % 2 == 0 ? a : b;
        if (random() % 4 == 0) writer.append(sample::masked(sample::prefix(id, 2)));
        writer.append(sample::masked(sample::finished(id)));
        if (random() % 5 == 0) writer.flush();
      }
    }
    check(open_stored_run(path));
    EXPECT_EQ(digest_report(path).hex, oracle_digest(run)) << "they have no part in it";
    const FinalFileReport report = write_final_file(path, run.manifest, run.prompts, window);
    EXPECT_EQ(report.warnings, std::vector<std::string>{});
    check(open_stored_run(path));
    EXPECT_EQ(digest_report(path).hex, oracle_digest(run));
    const std::string bytes = bytes_of(report.path);
    if (first.empty()) first = bytes;
    EXPECT_TRUE(bytes == first) << window;
  }
  // What is not as it was written is noticed.
  const std::string file = at("run1/trajectories.h5");
  hsize_t place = 0;
  {
    const auto lock = h5::lock_hdf5();
    const h5::File whole = h5::File::open(file);
    const h5::Dataset ids =
        h5::Dataset::open(whole, "trajectories/kept_ids", h5::native<TokenId>(), 0);
    const h5::Handle space(H5Dget_space(ids.id()), H5Sclose);
    hsize_t first_element = 0;
    unsigned filters = 0;
    haddr_t address = 0;
    hsize_t size = 0;
    ASSERT_GE(
        H5Dget_chunk_info(ids.id(), space.get(), 0, &first_element, &filters, &address, &size), 0);
    place = address;
  }
  std::string bytes = bytes_of(file);
  bytes[place + 8] ^= 1;
  std::ofstream(file, std::ios::binary) << bytes;
  EXPECT_NE(message_of<IoError>([&] { (void)digest_report(file); }).find("is damaged"),
            std::string::npos);
}

TEST_F(FinalFileTest, MostProbableTokensComeBackWhateverTheWayThere) {
  SampleRun run(23, 4);
  run.manifest.sampling.logprobs = sample::kTop;
  const auto check = [&](const StoredRun& stored) {
    std::size_t next = 0;
    read_responses(stored, stored.finished, [&](Trajectory&& t) {
      EXPECT_TRUE(same(t, sample::with_top(sample::finished(run.ids[next++]))));
    });
    EXPECT_EQ(next, run.ids.size());
  };
  std::string first;
  for (const std::size_t window : {std::size_t{1}, std::size_t{3000}, std::size_t{1} << 25}) {
    const std::string path = at("run" + std::to_string(window));
    std::vector<RequestId> ids = run.ids;
    std::mt19937 random(static_cast<unsigned>(window));
    std::shuffle(ids.begin(), ids.end(), random);
    {
      const RunDirectory directory(path, run.manifest, run.prompts, false);
      ShardWriter a(path, 0, 0, {}, {.logprobs = sample::kTop});
      ShardWriter b(path, 0, 1, {}, {.logprobs = sample::kTop});
      for (const RequestId id : ids) {
        ShardWriter& writer = random() % 2 == 0 ? a : b;
        if (random() % 4 == 0) writer.append(sample::with_top(sample::prefix(id, 2)));
        writer.append(sample::with_top(sample::finished(id)));
        if (random() % 5 == 0) writer.flush();
      }
    }
    check(open_stored_run(path));
    EXPECT_EQ(digest_report(path).hex, oracle_digest(run)) << "they have no part in it";
    const FinalFileReport report = write_final_file(path, run.manifest, run.prompts, window);
    EXPECT_EQ(report.warnings, std::vector<std::string>{});
    check(open_stored_run(path));
    const std::string bytes = bytes_of(report.path);
    if (first.empty()) first = bytes;
    EXPECT_TRUE(bytes == first) << window;
  }
  // Rewards that come later leave them as they are.
  (void)add_rewards(at("run1"), {});
  check(open_stored_run(at("run1")));
}

TEST_F(FinalFileTest, TurnsComeBackWhateverTheWayThere) {
  SampleRun run(23, 4);
  run.manifest.environment = {{"./talk"}, 4, 0};
  const auto check = [&](const StoredRun& stored) {
    std::size_t next = 0;
    read_responses(stored, stored.finished, [&](Trajectory&& t) {
      const Trajectory expected = sample::conversation(sample::finished(run.ids[next++]));
      EXPECT_TRUE(same(t, expected));
      ASSERT_EQ(t.turns.size(), expected.turns.size());
      for (std::size_t i = 0; i < t.turns.size(); ++i) {
        EXPECT_EQ(t.turns[i].given, expected.turns[i].given);
        EXPECT_EQ(t.turns[i].end, expected.turns[i].end);
        EXPECT_EQ(t.turns[i].seconds, expected.turns[i].seconds);
        EXPECT_EQ(t.turns[i].reward, expected.turns[i].reward);
        EXPECT_EQ(t.turns[i].by, GivenBy::tool);
        EXPECT_EQ(t.turns[i].reason, FinishReason::length);
      }
    });
    EXPECT_EQ(next, run.ids.size());
  };
  std::string first;
  for (const std::size_t window : {std::size_t{1}, std::size_t{3000}, std::size_t{1} << 25}) {
    const std::string path = at("run" + std::to_string(window));
    std::vector<RequestId> ids = run.ids;
    std::mt19937 random(static_cast<unsigned>(window));
    std::shuffle(ids.begin(), ids.end(), random);
    {
      const RunDirectory directory(path, run.manifest, run.prompts, false);
      ShardWriter a(path, 0, 0, {}, {.turns = true});
      ShardWriter b(path, 0, 1, {}, {.turns = true});
      for (const RequestId id : ids) {
        ShardWriter& writer = random() % 2 == 0 ? a : b;
        if (random() % 4 == 0) writer.append(sample::conversation(sample::prefix(id, 6)));
        writer.append(sample::conversation(sample::finished(id)));
        if (random() % 5 == 0) writer.flush();
      }
    }
    check(open_stored_run(path));
    const std::string digest = digest_report(path).hex;
    EXPECT_NE(digest, oracle_digest(run)) << "they have a part in it";
    const FinalFileReport report = write_final_file(path, run.manifest, run.prompts, window);
    EXPECT_EQ(report.warnings, std::vector<std::string>{});
    check(open_stored_run(path));
    EXPECT_EQ(digest_report(path).hex, digest);
    const std::string bytes = bytes_of(report.path);
    if (first.empty()) first = bytes;
    EXPECT_TRUE(bytes == first) << window;
    const auto lock = h5::lock_hdf5();
    const h5::File file = h5::File::open(report.path);
    const auto mask = h5::read_all<std::uint8_t>(file, "trajectories/loss_mask");
    const auto tokens = h5::read_all<TokenId>(file, "trajectories/tokens");
    const auto offsets = h5::read_all<std::int64_t>(file, "trajectories/offsets");
    ASSERT_EQ(mask.size(), tokens.size());
    for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
      const auto length = static_cast<std::uint32_t>(offsets[i + 1] - offsets[i]);
      for (std::uint32_t t = 0; t < length; ++t) {
        const bool given = t % 4 >= 2 && t - t % 2 + 2 <= length;
        EXPECT_EQ(mask[static_cast<std::size_t>(offsets[i]) + t], given ? 0 : 1);
      }
    }
  }
  // A partial response comes back with its turns, to be continued.
  const std::string path = at("partial");
  const RunDirectory directory(path, run.manifest, run.prompts, false);
  ShardWriter writer(path, 0, 0, {}, {.turns = true});
  writer.append(sample::conversation(sample::prefix({1, 1}, 6)));
  writer.append(sample::conversation(sample::prefix({1, 1}, 9)));
  writer.close();
  const ResumeState state = directory.read_state();
  ASSERT_EQ(state.partial.size(), 1U);
  EXPECT_EQ(state.partial[0].tokens.size(), 9U);
  EXPECT_EQ(state.partial[0].turns.size(), 2U);
}

TEST_F(FinalFileTest, TheOrderOfThePromptFileDoesNotChangeTheDigest) {
  const SampleRun run(9, 2);
  SampleRun turned = run;
  std::reverse(turned.prompts.begin(), turned.prompts.end());
  turned.manifest.prompts_fingerprint = prompts_fingerprint(turned.prompts);
  const auto digest = [&](const std::string& path, const SampleRun& which, bool reversed) {
    {
      const RunDirectory directory(path, which.manifest, which.prompts, false);
      ShardWriter writer(path, 0, 0);
      for (const RequestId id : run.ids) {
        Trajectory response = sample::finished(id);
        if (reversed) response.id.prompt = 8 - id.prompt;
        writer.append(response);
      }
    }
    write_final_file(path, which.manifest, which.prompts);
    return digest_report(path).hex;
  };
  EXPECT_EQ(digest(at("a"), run, false), digest(at("b"), turned, true));
  EXPECT_NE(prompts_fingerprint(run.prompts), prompts_fingerprint(turned.prompts));
}

TEST_F(FinalFileTest, AMissingResponseIsNamed) {
  const SampleRun run(3, 2);
  const std::string path = at("run");
  {
    const RunDirectory directory(path, run.manifest, run.prompts, false);
    ShardWriter writer(path, 0, 0);
    for (const RequestId id : run.ids) {
      writer.append(id == RequestId{1, 1} ? sample::prefix(id, 3) : sample::finished(id));
    }
  }
  const std::string message =
      message_of<Error>([&] { write_final_file(path, run.manifest, run.prompts); });
  EXPECT_NE(message.find("prompt 1, sample 1"), std::string::npos) << message;
  EXPECT_FALSE(std::filesystem::exists(path + "/trajectories.h5"));
}

TEST_F(FinalFileTest, TwoDifferentResponsesToOneRequestAreReported) {
  const SampleRun run(2, 1);
  const std::string path = at("run");
  {
    const RunDirectory directory(path, run.manifest, run.prompts, false);
    ShardWriter a(path, 0, 0);
    ShardWriter b(path, 0, 1);
    for (const RequestId id : run.ids) a.append(sample::finished(id, 5));
    b.append(sample::finished({1, 0}, 6));
  }
  const FinalFileReport report = write_final_file(path, run.manifest, run.prompts);
  ASSERT_EQ(report.warnings.size(), 1U);
  EXPECT_NE(report.warnings[0].find("prompt 1 sample 0 differs"), std::string::npos);
}

TEST_F(FinalFileTest, PicturesOfPromptsDecideARun) {
  SampleRun run(3, 1);
  run.prompts[1].pictures = {{{1, 2}, {4, 6}, 1}, {{3, ~std::uint64_t{0}}, {2, 2}, 9}};
  run.manifest.prompts_fingerprint = prompts_fingerprint(run.prompts);
  const std::string path = at("run");
  {
    const RunDirectory directory(path, run.manifest, run.prompts, false);
    ShardWriter writer(path, 0, 0);
    for (const RequestId id : run.ids) writer.append(sample::finished(id));
  }
  EXPECT_EQ(open_stored_run(path).prompts[1].pictures, run.prompts[1].pictures) << "of shards";

  SampleRun other = run;
  other.prompts[1].pictures[1].hash[0] += 1;
  other.manifest.prompts_fingerprint = prompts_fingerprint(other.prompts);
  const std::string refusal = message_of<UsageError>(
      [&] { const RunDirectory again(path, other.manifest, other.prompts, true); });
  EXPECT_NE(refusal.find("prompts"), std::string::npos) << refusal;

  (void)write_final_file(path, run.manifest, run.prompts);
  const StoredRun stored = open_stored_run(path);
  EXPECT_TRUE(stored.complete);
  EXPECT_TRUE(stored.prompts[0].pictures.empty());
  EXPECT_EQ(stored.prompts[1].pictures, run.prompts[1].pictures);
}

TEST_F(FinalFileTest, AnEmptyRunAndStringsWithNul) {
  const SampleRun none(0, 1);
  { const RunDirectory directory(at("none"), none.manifest, none.prompts, false); }
  EXPECT_EQ(write_final_file(at("none"), none.manifest, none.prompts).trajectories, 0U);
  EXPECT_EQ(digest_report(at("none")).trajectories, 0U);

  SampleRun odd(2, 1);
  odd.prompts[1].ground_truth = std::string("a\0b", 3);
  odd.manifest.prompts_fingerprint = prompts_fingerprint(odd.prompts);
  {
    const RunDirectory directory(at("odd"), odd.manifest, odd.prompts, false);
    EXPECT_EQ(read_prompts(at("odd"))[1].ground_truth, odd.prompts[1].ground_truth);
  }

  RunManifest bad = none.manifest;
  bad.config_text = std::string("a\0b", 3);
  const std::string message =
      message_of<DataError>([&] { write_final_file(at("none"), bad, none.prompts); });
  EXPECT_NE(message.find("config_text"), std::string::npos) << message;
}

TEST_F(FinalFileTest, RewardsThatComeAfterwardsLeaveTheBytesOfThoseThatCameInTime) {
  const SampleRun run(5, 3);
  std::vector<Reward> late;
  const Reward explained{{1, 2}, 2};
  const std::string extra = R"({"acc": 1, "why": "\u00e9"})";
  for (const bool in_time : {true, false}) {
    const std::string path = at(in_time ? "in time" : "late");
    const RunDirectory directory(path, run.manifest, run.prompts, false);
    ShardWriter writer(path, 0, 0);
    for (const RequestId id : run.ids) {
      Trajectory t = sample::finished(id);
      if (!in_time) t.reward = NAN;
      writer.append(t);
      const float reward = sample::finished(id).reward;
      if (!in_time && !std::isnan(reward)) late.push_back({id, reward});
    }
    if (in_time) writer.reward(explained, extra);
    writer.close();
    const FinalFileReport report = write_final_file(path, run.manifest, run.prompts);
    EXPECT_EQ(report.rewards, in_time ? 9U : 0U);
  }
  EXPECT_EQ(digest_report(at("late")).hex,
            digest_report(at("in time")).hex);  // rewards are no part of it
  EXPECT_NE(bytes_of(at("late/trajectories.h5")), bytes_of(at("in time/trajectories.h5")));
  EXPECT_EQ(late.size(), 9U);

  const RunDirectory complete(at("late"), run.manifest, run.prompts, true);
  ASSERT_TRUE(complete.complete());
  std::size_t unscored = 0;
  read_unscored(complete.read_state().unscored, [&](const Trajectory& t) {
    EXPECT_EQ(t.tokens, sample::finished(t.id).tokens);
    ++unscored;
  });
  EXPECT_EQ(unscored, run.ids.size());
  EXPECT_EQ(add_rewards(at("late"), std::span(late).first(4)).rewards, 4U);
  EXPECT_EQ(complete.read_state().unscored.entries.size(), run.ids.size() - 4);
  const RewardExtras extras{{explained.id, extra}};
  EXPECT_EQ(add_rewards(at("late"), std::span(late).first(4), extras).rewards, 4U);
  EXPECT_EQ(add_rewards(at("late"), std::span(late).subspan(4), extras).rewards, 9U);
  EXPECT_EQ(open_stored_run(at("late")).extras, extras);
  EXPECT_EQ(bytes_of(at("late/trajectories.h5")), bytes_of(at("in time/trajectories.h5")));

  // A flipped bit in a reward shows.
  std::string bytes = bytes_of(at("late/trajectories.h5"));
  const float reward[] = {1, 1.5, 2};  // prompt 1's
  const std::size_t found =
      bytes.find(std::string(reinterpret_cast<const char*>(reward), sizeof reward));
  ASSERT_NE(found, std::string::npos);
  bytes[found] ^= 1;
  std::ofstream(at("late/trajectories.h5"), std::ios::binary) << bytes;
  const std::string message = message_of<IoError>([&] { (void)digest_report(at("late")).hex; });
  EXPECT_NE(message.find("reward: it is damaged"), std::string::npos) << message;

  // And one in what was said beside it.
  bytes = bytes_of(at("in time/trajectories.h5"));
  const std::size_t said = bytes.find(extra);
  ASSERT_NE(said, std::string::npos);
  bytes[said + 8] ^= 1;
  std::ofstream(at("in time/trajectories.h5"), std::ios::binary) << bytes;
  const std::string other = message_of<IoError>([&] { (void)digest_report(at("in time")).hex; });
  EXPECT_NE(other.find("reward_extra: it is damaged"), std::string::npos) << other;
}

// One flipped bit in each part of an index row: the response is made again, and nothing else.
TEST_F(FinalFileTest, ADamagedIndexRowCostsOneResponse) {
  const SampleRun run(6, 1);
  const RequestId victim{3, 0};
  const std::size_t places[] = {0, 8, 16, 20, 24, 28, 32, 36};  // of the packed row's fields
  for (const std::size_t place : places) {
    const std::string path = at("run" + std::to_string(place));
    { const RunDirectory directory(path, run.manifest, run.prompts, false); }
    std::string shard;
    {
      ShardWriter writer(path, 0, 0);
      shard = writer.path();
      for (const RequestId id : run.ids) writer.append(sample::finished(id, 9));
    }
    const std::uint64_t checksum =
        read_shard_index(path, run.manifest).finished[victim.prompt].checksum;
    std::string bytes = bytes_of(shard);
    const std::size_t found =
        bytes.find(std::string(reinterpret_cast<const char*>(&checksum), sizeof checksum));
    ASSERT_NE(found, std::string::npos);
    bytes[found - 16 + place] ^= 1;  // after offset and weight version
    std::ofstream(shard, std::ios::binary) << bytes;

    const std::string message =
        message_of<IoError>([&] { write_final_file(path, run.manifest, run.prompts); });
    EXPECT_NE(message.find("prompt 3, sample 0"), std::string::npos) << message;
    const RunDirectory directory(path, run.manifest, run.prompts, true);
    const ResumeState state = directory.read_state();
    EXPECT_EQ(state.finished.size(), 5U) << place;
    EXPECT_TRUE(state.partial.empty()) << place;
    ASSERT_EQ(state.warnings.size(), 1U);
    {
      ShardWriter writer(path, directory.attempt(), 0);
      writer.append(sample::finished(victim, 9));
    }
    EXPECT_EQ(write_final_file(path, run.manifest, run.prompts).warnings, state.warnings);
    TrajectoryDigest expected;
    std::vector<std::size_t> order = {0, 1, 2, 3, 4, 5};
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return run.prompts[a].uid < run.prompts[b].uid;
    });
    for (const std::size_t p : order) {
      expected.add(run.prompts[p].uid, run.prompts[p].tokens,
                   sample::finished({static_cast<std::uint32_t>(p), 0}, 9));
    }
    EXPECT_EQ(digest_report(path).hex, expected.hex());
  }
}

TEST_F(FinalFileTest, ADamagedFinalFileHasNoDigest) {
  const SampleRun run(5, 2);
  const std::string path = at("run");
  {
    const RunDirectory directory(path, run.manifest, run.prompts, false);
    {
      ShardWriter writer(path, 0, 0);
      for (const RequestId id : run.ids) writer.append(sample::finished(id));
    }
    write_final_file(path, run.manifest, run.prompts);
    write_telemetry(path, {});
    directory.tidy();
  }
  const std::string expected = digest_report(path).hex;
  const std::string file = path + "/trajectories.h5";
  const std::string whole = bytes_of(file);
  int refused = 0;
  for (std::size_t at = 0; at < whole.size(); at += 23) {
    std::string bytes = whole;
    bytes[at] ^= 4;
    std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
    try {
      EXPECT_EQ(digest_report(path).hex, expected) << at;  // nothing that counts
    } catch (const IoError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 50);
}

TEST_F(FinalFileTest, AConfigurationOfAnyLengthIsKept) {
  SampleRun run(1, 1);
  run.manifest.config_text = std::string(200000, 'c') + "\u00e9";
  const std::string path = at("run");
  {
    const RunDirectory directory(path, run.manifest, run.prompts, false);
    ShardWriter writer(path, 0, 0);
    writer.append(sample::finished({0, 0}));
  }
  const FinalFileReport report = write_final_file(path, run.manifest, run.prompts);
  EXPECT_EQ(read_manifest(report.path).config_text, run.manifest.config_text);
}

TEST_F(FinalFileTest, SixteenThousandResponsesMergeInBoundedMemory) {
  const SampleRun run(1000, 16);
  const std::string path = at("run");
  constexpr std::uint32_t kLength = 800;  // 16,000 x 800 x 12 bytes: 154 MB
  const int status = in_child([&] {
    const RunDirectory directory(path, run.manifest, run.prompts, false);
    std::vector<std::unique_ptr<ShardWriter>> writers;
    for (std::uint32_t rank = 0; rank < 4; ++rank) {
      writers.push_back(std::make_unique<ShardWriter>(path, 0, rank));
    }
    for (std::size_t i = 0; i < run.ids.size(); ++i) {
      const RequestId id = run.ids[i * 7919 % run.ids.size()];
      writers[i % 4]->append(sample::finished(id, kLength));
    }
    writers.clear();
    std::ofstream("/proc/self/clear_refs") << "5";  // resets the peak
    const std::size_t before = peak_rss();
    const FinalFileReport report =
        write_final_file(path, run.manifest, run.prompts, std::size_t{8} << 20);
    const std::size_t after_merge = peak_rss();
    const std::string digest = digest_report(path).hex;
    const std::size_t after_digest = peak_rss();
    std::printf("merged %.0f MB into %.0f MB; peak grew by %.1f MB, with the digest %.1f MB\n",
                static_cast<double>(report.tokens) * 12e-6,
                static_cast<double>(report.bytes) * 1e-6,
                static_cast<double>(after_merge - before) * 1e-6,
                static_cast<double>(after_digest - before) * 1e-6);
    std::fflush(stdout);
    if (report.trajectories != 16000 || digest.size() != 32) return 1;
    if (kSanitizer) return 0;
    return after_merge - before < (std::size_t{32} << 20) &&
                   after_digest - before < (std::size_t{72} << 20)
               ? 0
               : 2;
  });
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace paceline::io
