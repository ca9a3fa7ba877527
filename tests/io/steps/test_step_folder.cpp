#include "io/steps/step_folder.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "runtime/core/error.hpp"

namespace paceline::io {
namespace {

namespace fs = std::filesystem;

class Folder : public testing::Test {
 protected:
  Folder() : path_(fs::temp_directory_path() / ("steps-" + std::to_string(getpid()))) {
    fs::remove_all(path_);
    fs::create_directory(path_);
  }
  ~Folder() override { fs::remove_all(path_); }
  void put(const std::string& file) const { std::ofstream(path_ / file) << "x\n"; }
  std::string next() const {
    const auto step = StepFolder(path_.string()).next();
    return step ? step->name : "none";
  }
  fs::path path_;
};

TEST(StepOrder, NumbersCountAsNumbers) {
  EXPECT_TRUE(step_before("step-9", "step-10"));
  EXPECT_FALSE(step_before("step-10", "step-9"));
  EXPECT_TRUE(step_before("a2b10", "a2b11"));
  EXPECT_TRUE(step_before("a", "a1"));
  EXPECT_TRUE(step_before("07", "8"));
  EXPECT_TRUE(step_before("01", "1") != step_before("1", "01"));
  EXPECT_FALSE(step_before("x", "x"));
}

TEST_F(Folder, RefusesAStepWhoseOutputHasNoPlace) {
  put("s1.yaml");
  const StepFolder folder(path_.string());
  const auto step = folder.next();
  ASSERT_TRUE(step);
  folder.require_place(*step);
  put("s1.part");
  EXPECT_THROW(folder.require_place(*step), UsageError);
  folder.refuse(*step, "it has no place", true);
  EXPECT_TRUE(fs::exists(path_ / "s1.part")) << "the user's own";
  EXPECT_EQ(next(), "none");
  fs::remove(path_ / "s1.part");
  fs::create_directory(path_ / "s1.part");
  folder.require_place(*step);
}

TEST_F(Folder, GivesTheFirstThatIsNeitherMetNorRefused) {
  const StepFolder folder(path_.string());
  EXPECT_EQ(next(), "none");
  for (const char* file : {"s10.yaml", "s9.yaml", "s2.yaml", ".s1.yaml", "s1.yaml.tmp", "notes"})
    put(file);
  ASSERT_EQ(mkfifo((path_ / "s0.yaml").c_str(), 0600), 0);
  const auto second = folder.next();
  ASSERT_TRUE(second);
  EXPECT_EQ(second->name, "s2");
  EXPECT_EQ(second->request, (path_ / "s2.yaml").string());
  fs::create_directory(second->part);
  for (const char* name : {"s2", "s9"}) {
    fs::create_directory(path_ / (name + std::string(".ahead")));
    put(name + std::string(".ahead/run.json"));
  }
  put("s9.ahead/trajectories.h5");  // a finished run is nobody's hints
  put("s2.upcoming");
  EXPECT_EQ(next(), "s2");  // begun
  EXPECT_EQ(folder.upcoming("s2")->name, "s9");
  folder.meet(*second);
  EXPECT_FALSE(fs::exists(path_ / "s2.ahead"));
  EXPECT_FALSE(fs::exists(path_ / "s2.upcoming"));
  EXPECT_TRUE(fs::is_directory(path_ / "s2"));
  EXPECT_EQ(next(), "s9");
  folder.refuse(*folder.next(), "weights that are none", false);
  std::string why;
  std::getline(std::ifstream(path_ / "s9.error"), why);
  EXPECT_EQ(why, "weights that are none");
  EXPECT_TRUE(fs::exists(path_ / "s9.ahead/trajectories.h5"));
  EXPECT_EQ(next(), "s10");
  fs::remove(path_ / "s9.error");
  EXPECT_EQ(next(), "s9");
}

TEST_F(Folder, AnnouncedRequestsAreNoRequests) {
  const StepFolder folder(path_.string());
  put("s1.yaml");
  EXPECT_FALSE(folder.upcoming("s1"));
  for (const char* file : {"s4.upcoming", "s3.upcoming", ".s2.upcoming"}) put(file);
  EXPECT_EQ(folder.upcoming("s1")->request, (path_ / "s3.upcoming").string());
  EXPECT_EQ(next(), "s1");
  put("s5.yaml");
  EXPECT_EQ(folder.upcoming("s1")->request, (path_ / "s5.yaml").string());
  put("s3.yaml");
  EXPECT_EQ(folder.upcoming("s1")->request, (path_ / "s3.yaml").string());
  for (const char* made : {"s1", "s3", "s5"}) fs::create_directory(path_ / made);
  EXPECT_EQ(next(), "none");
  EXPECT_EQ(folder.upcoming("s1")->name, "s4");
}

TEST_F(Folder, KeepsWhatAnEarlierJobBegan) {
  put("a.yaml");
  const StepFolder folder(path_.string());
  const StepRequest step = *folder.next();
  fs::create_directory(step.part);
  folder.refuse(step, "why", true);
  EXPECT_TRUE(fs::exists(step.part));
  folder.refuse(step, "why", false);
  EXPECT_FALSE(fs::exists(step.part));
}

TEST_F(Folder, IsClosedByAFile) {
  const StepFolder folder(path_.string());
  EXPECT_FALSE(folder.closed());
  put("stop");
  EXPECT_TRUE(folder.closed());
}

TEST(StepFolder, MustBeThere) {
  EXPECT_THROW(StepFolder("/nowhere/at/all"), UsageError);
  EXPECT_THROW(StepFolder("/dev/null"), UsageError);
}

}  // namespace
}  // namespace paceline::io
