// A reuse of buffers that goes wrong on compiled programs of many meshes, planned anew: the checker finds each.
#include <gtest/gtest.h>

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/program/check.h"
#include "trireme/program/lifetimes.h"
#include "trireme/program/memory_plan.h"
#include "trireme/train/compile.h"

namespace trireme::program {
namespace {

train::Compiled compiled(const std::string& settings, const train::Registry& registry) {
  train::Config config;
  config.model.family = "gpt2";
  config.model.layers = 4;
  config.model.width = 16;
  config.model.heads = 2;
  config.model.context = 8;
  config.model.vocab = 32;
  config.train.batch = 8;
  if (settings.find("resnet") != std::string::npos) {
    config.model = {};
    config.model.family = "resnet";
    config.model.layers = 18;
    config.model.width = 8;
    config.model.image = 16;
    config.model.classes = 4;
  }
  for (const std::string& setting : split(settings, ' '))
    if (setting.find('=') != std::string::npos) train::apply_setting(config, setting, registry.models);
  train::resolve_model(config, config.model.vocab, registry.models);
  return train::compile(config, registry, {});
}

std::size_t index(BufferId id) { return static_cast<std::size_t>(id); }

// Whether an operand has all of its buffer, as outputs that take a dying input's place do.
bool whole(const Program& program, const Operand& o) {
  return o.buffer != kNone && o.offset == 0 && o.place.axis == kNone && o.type.bytes() > 0 &&
         program.buffers[index(o.buffer)].tier == 0;
}

struct Candidate {
  BufferId from;  // of an output
  BufferId over;  // of an input of the same instruction
  std::size_t instruction;
};

// Outputs that an op may make in the place of an input, which is a state or is read again.
void find(const Program& program, std::vector<Candidate>& live, std::vector<Candidate>& states) {
  std::vector<std::size_t> last_read(program.values.size(), 0);
  std::vector<std::size_t> writes(program.buffers.size(), 0);
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    for (const Operand& o : program.instructions[i].inputs)
      if (o.buffer != kNone) last_read[index(o.value)] = i;
    for (const Operand& o : program.instructions[i].outputs) ++writes[index(o.buffer)];
  }
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    if (instruction.op == nullptr || instruction.accumulate) continue;
    for (const auto& [out, in] : instruction.op->traits.in_place) {
      if (static_cast<std::size_t>(out) >= instruction.outputs.size() ||
          static_cast<std::size_t>(in) >= instruction.inputs.size())
        continue;
      const Operand& output = instruction.outputs[static_cast<std::size_t>(out)];
      const Operand& input = instruction.inputs[static_cast<std::size_t>(in)];
      if (!whole(program, output) || !whole(program, input) || input.buffer == output.buffer) continue;
      if (index(output.buffer) < program.states || input.type.bytes() != output.type.bytes()) continue;
      if (writes[index(output.buffer)] != 1) continue;
      if (program.buffers[index(output.buffer)].bytes > program.buffers[index(input.buffer)].bytes) continue;
      if (std::count_if(instruction.inputs.begin(), instruction.inputs.end(),
                        [&](const Operand& o) { return o.buffer == input.buffer; }) > 1)
        continue;
      const Candidate found{output.buffer, input.buffer, i};
      if (program.buffers[index(input.buffer)].state >= 0)
        states.push_back(found);
      else if (last_read[index(input.value)] > i)
        live.push_back(found);
    }
  }
}

// The program with that decision, placed anew as if it were right.
Program with(Program program, const Candidate& wrong) {
  const auto rename = [&](Operand& o) {
    if (o.buffer == wrong.from) o.buffer = wrong.over;
  };
  for (Instruction& i : program.instructions) {
    for (Operand& o : i.inputs) rename(o);
    for (Operand& o : i.outputs) rename(o);
  }
  for (NamedOutput& o : program.outputs) rename(o.operand);
  program.launch_groups.clear();
  program.capture_regions.clear();
  find_lifetimes(program);
  plan_memory(program);
  return program;
}

// What the checker says; empty: nothing.
std::string fault(const Program& program) {
  try {
    check(program);
  } catch (const Error& e) {
    return e.message();
  }
  return {};
}

// Whether the bytes in question are touched from several streams. A write that was not there before is then not ordered
// with some of them, and of two faults of one instruction the checker names that one first.
bool on_several_streams(const Program& program, const Candidate& wrong) {
  const auto concerned = [&](const Operand& o) { return o.buffer == wrong.from || o.buffer == wrong.over; };
  return std::any_of(program.instructions.begin(), program.instructions.end(), [&](const Instruction& i) {
    return i.stream != program.instructions[wrong.instruction].stream &&
           (std::any_of(i.inputs.begin(), i.inputs.end(), concerned) ||
            std::any_of(i.outputs.begin(), i.outputs.end(), concerned));
  });
}

// Whether the value is to be copied into the state over which it is made: then that copy is onto itself, which comes
// before any reader.
bool is_copied_there(const Program& program, const Candidate& wrong) {
  return std::any_of(program.instructions.begin(), program.instructions.end(), [&](const Instruction& i) {
    return i.kind == Instruction::Kind::copy && i.inputs.front().buffer == wrong.from &&
           i.outputs.front().buffer == wrong.over;
  });
}

class ReuseOf : public ::testing::TestWithParam<const char*> {};

TEST_P(ReuseOf, AWrongOneIsFound) {
  const train::Registry registry;
  const train::Compiled c = compiled(GetParam(), registry);
  std::size_t tried = 0;
  for (const train::Role& role : c.roles)
    for (const Program& program : role.programs) {
      for (const Instruction& i : program.instructions) {
        for (const Operand& o : i.outputs) EXPECT_NE(o.value, kNone) << i.name << " of " << program.name;
        for (const Operand& o : i.inputs)
          EXPECT_TRUE(o.buffer == kNone || o.value != kNone) << i.name << " of " << program.name;
      }
      EXPECT_EQ(fault(program), "") << program.name;
      std::vector<Candidate> live;
      std::vector<Candidate> states;
      find(program, live, states);
      const auto plant = [&](const std::vector<Candidate>& all, const char* said) {
        const std::size_t step = std::max<std::size_t>(1, all.size() / 4);
        for (std::size_t k = 0; k < all.size(); k += step) {
          const std::string found = fault(with(program, all[k]));
          const bool named = found.find(said) != std::string::npos;
          const bool race = found.find("nothing orders them") != std::string::npos;
          const bool onto_itself = found.find("over its own input") != std::string::npos;
          EXPECT_TRUE(named || (race && on_several_streams(program, all[k])) ||
                      (onto_itself && is_copied_there(program, all[k])))
              << program.name << ": " << program.instructions[all[k].instruction].name << " over "
              << program.buffers[index(all[k].over)].name << " is said to be '" << found << "'";
          ++tried;
        }
      };
      plant(live, "has written over it");
      plant(states, "what is not its contents");
    }
  EXPECT_GT(tried, 2U);
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, ReuseOf,
    ::testing::Values("train.micro_batch=2", "parallel.mesh=dp=2 parallel.zero=1", "parallel.mesh=dp=2 parallel.zero=3",
                      "parallel.mesh=tp=2 parallel.sequence=true", "parallel.mesh=tp=2,dp=2 parallel.zero=2",
                      "parallel.mesh=pp=2 train.micro_batch=2",
                      "parallel.mesh=pp=2 train.micro_batch=2 parallel.pipeline=interleaved:2",
                      "parallel.mesh=pp=2 train.micro_batch=2 parallel.pipeline=zero-bubble",
                      "parallel.mesh=pp=2 train.micro_batch=2 parallel.pipeline=pipedream model.tie_embeddings=false",
                      "parallel.mesh=dp=2 parallel.server=sync", "memory.remat=full",
                      "model.width=144 memory.offload=all",
                      "model.width=144 memory.offload=optimizer train.micro_batch=2", "train.precision=bf16",
                      "train.precision=fp16", "parallel.mesh=dp=2 parallel.compress=powersgd:2", "resnet",
                      "resnet parallel.mesh=h=2,w=2", "resnet parallel.mesh=dp=2,h=2 train.micro_batch=2"));

}  // namespace
}  // namespace trireme::program
