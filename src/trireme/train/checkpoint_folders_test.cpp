#include "trireme/train/checkpoint_folders.h"

#include <gtest/gtest.h>

#include "support/folder.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

TEST(CheckpointFolders, AnotherOfTheSameStepIsReplacedAsAWhole) {
  const test::Folder run;
  run.write("checkpoints/step-00000004/old", "of other weights");
  run.write("checkpoints/step-00000004.partial/new", "of these");
  put_in_place(run.path(), 4);
  EXPECT_EQ(checkpoint_steps(run.path()), std::vector<std::int64_t>{4});
  EXPECT_TRUE(fs::exists(run.path("checkpoints/step-00000004/new")));
  EXPECT_FALSE(fs::exists(run.path("checkpoints/step-00000004/old")));
  EXPECT_FALSE(fs::exists(unfinished_folder(run.path(), 4)));
}

// What is left where names cannot be exchanged, of a process that was killed between two renames and after them.
TEST(CheckpointFolders, AReplacedOneIsThereUntilTheNewOneIs) {
  const test::Folder run;
  run.write("checkpoints/step-00000004.replaced/old", "good");
  run.write("checkpoints/step-00000004.partial/new", "complete, perhaps");
  run.write("checkpoints/step-00000006.replaced/old", "was good");
  run.write("checkpoints/step-00000006/new", "good");
  run.write("checkpoints/notes.replaced", "a person's");
  EXPECT_EQ(checkpoint_steps(run.path()), std::vector<std::int64_t>{6});
  restore_replaced(run.path());
  remove_unfinished(run.path());
  EXPECT_EQ(checkpoint_steps(run.path()), (std::vector<std::int64_t>{6, 4}));
  EXPECT_TRUE(fs::exists(run.path("checkpoints/step-00000004/old")));
  EXPECT_TRUE(fs::exists(run.path("checkpoints/step-00000006/new")));
  EXPECT_FALSE(fs::exists(run.path("checkpoints/step-00000004.partial")));
  EXPECT_FALSE(fs::exists(run.path("checkpoints/step-00000006.replaced")));
  EXPECT_TRUE(fs::exists(run.path("checkpoints/notes.replaced")));
}

}  // namespace
}  // namespace trireme::train
