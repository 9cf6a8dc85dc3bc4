#include "trireme/cli/help_text.h"

#include <gtest/gtest.h>

namespace trireme::cli {
namespace {

TEST(HelpText, IsWrappedWhereWordsEnd) {
  const std::string text =
      "Usage: trireme train\n"
      "  --resume TEXT      Continue the newest checkpoint of the run's folder\n"
      "\nExamples:\n"
      "  trireme generate --from runs/latest --prompt 'two words'\n"
      "  trireme train --resume                        go on with the last run\n";
  EXPECT_EQ(wrapped_help(text, 0), text);
  EXPECT_EQ(wrapped_help(text, 200), text);
  EXPECT_EQ(wrapped_help(text, 46),
            "Usage: trireme train\n"
            "  --resume TEXT      Continue the newest\n"
            "                     checkpoint of the run's\n"
            "                     folder\n"
            "\nExamples:\n"
            "  trireme generate --from runs/latest \\\n"
            "      --prompt 'two words'\n"
            "  trireme train --resume\n"
            "      go on with the last run\n");
}

}  // namespace
}  // namespace trireme::cli
