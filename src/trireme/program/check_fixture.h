#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "support/probe_ops.h"
#include "trireme/core/error.h"
#include "trireme/program/check.h"

namespace trireme::program {

// Programs by hand: buffers of f32[16] at given offsets and scale instructions between them.
class CheckTest : public ::testing::Test {
 protected:
  BufferId buffer(const std::string& name, std::size_t offset, ir::StateId state = kNone) {
    p.buffers.push_back({name, 64, offset, Category::activations, state, kNone, kNone});
    p.arena_bytes = std::max(p.arena_bytes, offset + 64);
    if (state != kNone) p.state_bytes = std::max(p.state_bytes, offset + 64);
    return static_cast<BufferId>(p.buffers.size()) - 1;
  }

  // A page of a tier, as copies move it.
  BufferId page(const std::string& name, int tier, std::size_t number) {
    const BufferId id = buffer(name, number * kPage);
    Buffer& b = p.buffers.back();
    b.bytes = b.alignment = kPage;
    b.tier = tier;
    std::size_t& end = tier == 0 ? p.arena_bytes : p.tier_bytes[static_cast<std::size_t>(tier)];
    end = std::max(end, (number + 1) * kPage);
    return id;
  }

  Instruction& move(Instruction::Kind kind, BufferId from, BufferId to, std::int32_t stream) {
    Instruction i;
    i.kind = kind;
    i.name = p.buffers[static_cast<std::size_t>(to)].name;
    i.inputs = {{from, type}};
    i.outputs = {{to, type}};
    i.stream = stream;
    p.instructions.push_back(i);
    return p.instructions.back();
  }
  Instruction& store(BufferId from, BufferId to) { return move(Instruction::Kind::store, from, to, kStoreStream); }
  Instruction& load(BufferId from, BufferId to) { return move(Instruction::Kind::load, from, to, kLoadStream); }

  // The quarter of a buffer of 64 bytes that belongs to each of four ranks, from `offset` of the quarter on.
  Operand shard(BufferId b, std::size_t offset = 0, std::size_t bytes = 16) {
    p.mesh = ir::parse_mesh("dp=4");
    return {b, {DType::f32, {static_cast<std::int64_t>(bytes / 4)}}, offset, {0, 4, 16}};
  }

  Instruction& input(BufferId out, std::int32_t stream = 0) {
    Instruction i;
    i.kind = Instruction::Kind::input;
    i.name = p.buffers[static_cast<std::size_t>(out)].name;
    i.outputs = {{out, type}};
    i.stream = stream;
    p.instructions.push_back(i);
    return p.instructions.back();
  }

  Instruction& launch(const char* op, const std::vector<BufferId>& in, BufferId out, std::int32_t stream = 0) {
    Instruction i;
    i.name = p.buffers[static_cast<std::size_t>(out)].name;
    i.op = &registry.at(op);
    for (const BufferId b : in) i.inputs.push_back({b, type});
    i.outputs = {{out, type}};
    i.stream = stream;
    p.instructions.push_back(i);
    return p.instructions.back();
  }

  // The last instruction makes something of `o`, as large.
  void reads(const Operand& o) {
    p.instructions.back().inputs = {o};
    p.instructions.back().outputs.front().type = o.type;
  }

  std::string message() const {
    try {
      check(p);
    } catch (const Error& e) {
      return e.message();
    }
    return "sound";
  }

  ir::Registry registry = testing::probe_registry();
  TensorType type{DType::f32, {16}};
  Program p;
};

}  // namespace trireme::program
