// What lies where a run is written and is no run's: it stays as it is.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "end_to_end/program.h"
#include "support/source_dir.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

const std::string kFolders = source_dir() + "/tests/huggingface/";

class Kept : public Program {
 protected:
  fs::path path(const std::string& name) const { return folder() / name; }
};

TEST_F(Kept, ARunWhoseNameContinuesAnothers) {
  done({"train", "tiny.toml", "--output.dir=runs/exp.new-999999999"});
  done({"train", "tiny.toml", "--output.dir=runs/exp"});
  EXPECT_TRUE(exists("runs/exp.new-999999999/checkpoints/" + step_name(kSteps)));
  EXPECT_EQ(names_in("runs"), (std::vector<std::string>{"exp", "exp.new-999999999", "latest"}));
}

}  // namespace
}  // namespace trireme::testing
