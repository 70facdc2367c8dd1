#include <ATen/ops/zeros.h>
#include <attn/weights.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "support/files.h"

namespace attn {
namespace {

namespace fs = std::filesystem;
using testing::read_file;

/// A folder of its own, removed at the end.
class Folder {
 public:
  Folder() : path_(::testing::TempDir() + "attn_folder_" + std::to_string(getpid())) {
    fs::remove_all(path_);
    fs::create_directory(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  std::size_t files() const {
    return std::distance(fs::directory_iterator(path_), fs::directory_iterator());
  }

 private:
  std::string path_;
};

NamedTensors megabytes(int64_t count) { return {{"w", at::zeros({count << 18})}}; }

TEST(AtomicSave, AFullDiskLeavesTheOldFileWholeAndNothingElse) {
  const Folder folder;
  const std::string path = folder / "w.safetensors";
  save_weights(megabytes(1), path);
  const std::string before = read_file(path);
  // No file may grow beyond 2 MiB: writing 4 MiB then fails as on a full disk.
  rlimit old_limit{};
  getrlimit(RLIMIT_FSIZE, &old_limit);
  const rlimit small{2 << 20, old_limit.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const auto old_handler = signal(SIGXFSZ, SIG_IGN);
  std::string text = "saved";
  try {
    save_weights(megabytes(4), path);
  } catch (const WeightsError& error) {
    text = error.what();
  }
  setrlimit(RLIMIT_FSIZE, &old_limit);
  signal(SIGXFSZ, old_handler);
  EXPECT_NE(text.find("[save_weights] path: cannot be written (File too large)"), std::string::npos)
      << text;
  EXPECT_EQ(read_file(path), before);
  EXPECT_EQ(folder.files(), 1U);
}

TEST(AtomicSave, AKillLeavesTheOldFileWhole) {
  const Folder folder;
  const std::string path = folder / "w.pt";
  save_weights(megabytes(1), path);
  const std::string before = read_file(path);
  const NamedTensors larger = megabytes(64);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    // Killed in the middle of the data.
    const auto die = [](uint64_t done, uint64_t) {
      if (done > 0) raise(SIGKILL);
    };
    save_weights(larger, path, SaveOptions().progress(die));
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(read_file(path), before);
}

TEST(AtomicSave, AnErrorOnTheWayLeavesTheOldFileWholeAndNothingElse) {
  const Folder folder;
  const std::string path = folder / "w.safetensors";
  save_weights(megabytes(1), path);
  const std::string before = read_file(path);
  const auto fail = [](uint64_t, uint64_t) { throw std::runtime_error("stop"); };
  EXPECT_THROW(save_weights(megabytes(2), path, SaveOptions().progress(fail)), std::runtime_error);
  EXPECT_EQ(read_file(path), before);
  EXPECT_EQ(folder.files(), 1U);
}

TEST(AtomicSave, KeepsPermissionsAndFollowsLinks) {
  const Folder folder;
  const std::string path = folder / "w.pt", link = folder / "link.pt";
  save_weights(megabytes(1), path);
  chmod(path.c_str(), 0640);
  fs::create_symlink("w.pt", link);
  save_weights({{"w", at::zeros({3})}}, link);
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(read_weights(path).at(0).second.numel(), 3);
  EXPECT_EQ(fs::status(path).permissions(), fs::perms(0640));
}

TEST(AtomicSave, NamesAPlaceWhereNothingCanBeWritten) {
  const Folder folder;
  for (const auto& [path, part] :
       {std::pair{folder / "absent/w.pt", "No such file or directory"},
        std::pair{folder / "folder.pt", "expected a file, got a directory"},
        std::pair{folder / "device.pt", "device, pipe or socket"}}) {
    fs::create_directory(folder / "folder.pt");
    if (!fs::exists(folder / "device.pt")) fs::create_symlink("/dev/null", folder / "device.pt");
    try {
      save_weights(megabytes(1), path);
      ADD_FAILURE() << path;
    } catch (const WeightsError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace attn
