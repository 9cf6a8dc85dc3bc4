// scripts/witness: finds the same program to be the same, and another one to be another.
#include <gtest/gtest.h>

#include <cstdio>

#include "end_to_end/program.h"
#include "support/source_dir.h"
#include "trireme/core/text.h"

namespace trireme::testing {
namespace {

// A program that changes what another has left behind, by what follows: the metrics, and a file of tensors of the last
// checkpoint, whose numbers begin at `begin`.
constexpr const char* kAfterTheRun = R"(import json, math, pathlib, struct, subprocess, sys
done = subprocess.run([PROGRAM, *sys.argv[1:]])
run = [a.removeprefix('--output.dir=') for a in sys.argv if a.startswith('--output.dir=')]
if done.returncode != 0 or not run:
    sys.exit(done.returncode)
metrics = pathlib.Path(run[0]) / 'metrics.jsonl'
lines = [json.loads(line) for line in metrics.read_text().splitlines()]
last = sorted(p for p in (pathlib.Path(run[0]) / 'checkpoints').iterdir() if p.is_dir())[-1]
(file,) = last.glob('*.safetensors')
raw = bytearray(file.read_bytes())
begin = 8 + struct.unpack('<Q', raw[:8])[0]
)";

// Matrices by columns, all else by rows.
constexpr const char* kInTwoSlices = R"(header = json.loads(raw[8:begin])
manifest = json.loads((last / 'manifest.json').read_text())
data, entries, split = bytearray(), {}, 0
def add(name, dtype, shape, values):
    entries[name] = {'dtype': dtype, 'shape': shape, 'data_offsets': [len(data), len(data) + len(values)]}
    data.extend(values)
for name, tensor in manifest['tensors'].items():
    (piece,) = tensor['slices']
    extent = piece['extent']
    first, end = header[name]['data_offsets']
    values = raw[begin + first:begin + end]
    if not extent or extent[-1] < 2 or len(values) != 4 * math.prod(extent):
        add(name, header[name]['dtype'], header[name]['shape'], values)
        continue
    row, half = 4 * extent[-1], extent[-1] // 2
    rows = [values[at:at + row] for at in range(0, len(values), row)]
    sides = [(0, half), (half, extent[-1])]
    tensor['slices'] = []
    for number, (left, right) in enumerate(sides):
        slice = dict(piece, start=[*piece['start'][:-1], left], extent=[*extent[:-1], right - left])
        if number:
            slice['number'] = number
        tensor['slices'].append(slice)
        add(name + ('#1' if number else ''), header[name]['dtype'], slice['extent'],
            b''.join(r[4 * left:4 * right] for r in rows))
    split += 1
assert split > 3
text = json.dumps(entries).encode()
file.write_bytes(struct.pack('<Q', len(text)) + text + data)
(last / 'manifest.json').write_text(json.dumps(manifest))
)";

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

// One number changed in what a run leaves behind is seen, and said of what it is a number: neither digest stands for
// the other. How a checkpoint is sliced is not.
TEST_F(Witness, SeesEveryNumberThatARunLeaves) {
  // Gives the two lines of digests, or the one where both programs have the same.
  const auto compared = [&](const std::string& change) {
    write("change", "#!/usr/bin/env python3\nPROGRAM = '" + program_path() + "'\n" + kAfterTheRun + change);
    std::filesystem::permissions(folder() / "change", std::filesystem::perms::owner_all);
    int code = 0;
    const std::string out =
        witness(program_path() + " " + (folder() / "change").string() + " --only '^mlp/dp1-zero0$'", code);
    std::vector<std::string> found;
    for (const std::string& line : split(out, '\n'))
      if (line.find("losses ") != std::string::npos) found.push_back(line.substr(line.find("losses ")));
    EXPECT_EQ(code, found.size() == 2 ? 1 : 0) << out;
    EXPECT_EQ(out.find("DIFFERS") != std::string::npos, found.size() == 2) << out;
    return found;
  };
  const auto losses = [](const std::string& line) { return line.substr(0, line.find("  weights ")); };
  const auto weights = [](const std::string& line) { return line.substr(line.find("  weights ")); };
  for (const char* at : {"begin", "len(raw) - 1"}) {
    const std::vector<std::string> flipped = compared(std::string("raw[") + at + "] ^= 1\nfile.write_bytes(raw)\n");
    ASSERT_EQ(flipped.size(), 2U) << at;
    EXPECT_EQ(losses(flipped[0]), losses(flipped[1]));
    EXPECT_NE(weights(flipped[0]), weights(flipped[1]));
  }
  for (const char* key : {"loss", "grad_norm"}) {
    const std::vector<std::string> changed =
        compared(std::string("lines[2]['") + key + "'] *= 1 + 1e-6\n" +
                 "metrics.write_text(''.join(json.dumps(line) + '\\n' for line in lines))\n");
    ASSERT_EQ(changed.size(), 2U) << key;
    EXPECT_NE(losses(changed[0]), losses(changed[1]));
    EXPECT_EQ(weights(changed[0]), weights(changed[1]));
  }
  EXPECT_EQ(compared(kInTwoSlices).size(), 1U);
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
