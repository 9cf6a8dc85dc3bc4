// scripts/witness: finds the same program to be the same, and another one to be another.
#include <gtest/gtest.h>

#include <cstdio>

#include "end_to_end/program.h"
#include "support/source_dir.h"

namespace trireme::testing {
namespace {

class Witness : public Program {
 protected:
  // Gives what it prints and, in `code`, how it ends.
  std::string witness(const std::string& arguments, int& code) const {
    const std::string command = source_dir() + "/scripts/witness " + arguments + " 2>&1";
    FILE* pipe = popen(command.c_str(), "r");
    std::string out;
    for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) out += static_cast<char>(c);
    code = WEXITSTATUS(pclose(pipe));
    return out;
  }
};

// Of every axis one run: slices along any dimension are put together.
TEST_F(Witness, ComparesRunsOnAnyMesh) {
  int code = 0;
  const std::string runs = " --only '^(mlp/(dp1-zero0|tp2|pp2-dp2-zero2|prune)|convnet/h2)$'";
  const std::string program = program_path();
  const std::string same = witness(program + " " + program + runs, code);
  EXPECT_EQ(code, 0) << same;
  EXPECT_NE(same.find("5 runs compared, 0 differ or failed"), std::string::npos) << same;
  // The same program, asked for another seed.
  write("other", "#!/bin/sh\ncommand=$1; shift\nexec " + program + " \"$command\" \"$@\" --train.seed=8\n");
  std::filesystem::permissions(folder() / "other", std::filesystem::perms::owner_all);
  const std::string differs = witness(program + " " + (folder() / "other").string() + runs, code);
  EXPECT_EQ(code, 1) << differs;
  EXPECT_NE(differs.find("5 runs compared, 5 differ or failed"), std::string::npos) << differs;
}

TEST_F(Witness, CoversEveryAxisAndSchedule) {
  int code = 0;
  const auto covers = [&](const char* device, std::initializer_list<const char*> settings) {
    const std::string list = witness(program_path() + " --list --device " + device, code);
    EXPECT_EQ(code, 0) << list;
    for (const char* setting : settings) EXPECT_NE(list.find(setting), std::string::npos) << device << ": " << setting;
  };
  covers("cuda",
         {"mesh=dp=2", "mesh=tp=", "mesh=pp=", "mesh=h=", "mesh=w=", ",tp=", ",dp=", ",h=", ",w=", "pipeline=gpipe",
          "pipeline=interleaved:2", "precision=bf16", "precision=fp16", "offload=", "remat="});
  covers("cpu", {"mesh=tp=",
                 "mesh=pp=",
                 "mesh=h=",
                 "mesh=w=",
                 ",tp=",
                 ",dp=",
                 ",w=",
                 "sequence=true",
                 "pipeline=sequential",
                 "pipeline=gpipe",
                 "pipeline=zero-bubble",
                 "pipeline=interleaved:2",
                 "pipeline=pipedream ",
                 "pipeline=pipedream-2bw",
                 "stage_dtype=",
                 "activations=sharded",
                 "precision=bf16",
                 "precision=fp16",
                 "precision=fp8",
                 "prune.method=",
                 "train.quantize=",
                 "async_tp=true",
                 "batch_stats=local",
                 "compress_warmup=",
                 "server=sync",
                 "offload=",
                 "remat="});
}

}  // namespace
}  // namespace trireme::testing
