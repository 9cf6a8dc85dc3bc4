#include "trireme/runtime/collectives.h"

#include "trireme/core/error.h"
#include "trireme/ops/collective/collective.h"
#include "trireme/ops/collective/halo.h"
#include "trireme/program/group.h"
#include "trireme/program/messages.h"
#include "trireme/program/print.h"

namespace trireme::runtime {

using program::Instruction;

std::map<std::string, std::size_t> events_of_groups(const program::Program& program) {
  std::map<std::string, std::size_t> events;
  for (const Instruction& i : program.instructions)
    if (i.kind == Instruction::Kind::collective)
      events.emplace(i.attributes.text("axis"),
                     static_cast<std::size_t>(program.events()) + events.size() * comm::DeviceGroup::kEvents);
  return events;
}

Collectives::Collectives(const program::Program& program, const PreparedProgram& prepared, ProcessGroups* ranks)
    : program_(program), ranks_(ranks), groups_(events_of_groups(program)), parts_(program.instructions.size()) {
  for (std::size_t i = 0; i < prepared.size(); ++i) {
    if (!program.instructions[i].communicates()) continue;
    try {
      prepare(i, prepared[i]);
    } catch (Error& e) {
      throw e.within("preparing " + program::describe(program, i));
    }
  }
}

void Collectives::prepare(std::size_t i, const Prepared& p) {
  const Instruction& instruction = program_.instructions[i];
  Part& part = parts_[i];
  part.place = &p;
  if (instruction.kind != Instruction::Kind::collective) return prepare_message(instruction, part);
  if (ranks_ == nullptr) fail("there are no other ranks");
  const std::string& axes = instruction.attributes.text("axis");
  part.group = &ranks_->device_group(axes, program_.device);
  part.event = groups_.at(axes);
  if (ops::is_halo(*instruction.op)) {
    part.halo = std::make_unique<HaloMoves>(instruction, p, program_.device);
    return;
  }
  for (std::size_t o = 0; o < instruction.outputs.size(); ++o) {
    const std::int64_t in = instruction.inputs[o].type.elements();
    const std::int64_t out = instruction.outputs[o].type.elements();
    const std::size_t bytes = instruction.outputs[o].type.bytes();
    void* const from = const_cast<void*>(p.inputs[o]);
    if (instruction.op->name == ops::kAllReduce) {
      if (from != p.outputs[o]) part.copies.push_back({p.outputs[o], from, bytes});
      part.segments.push_back({p.outputs[o], out});
    } else if (instruction.op->name == ops::kReduceScatter) {
      part.cuts.push_back({from, p.outputs[o], in, out});
    } else if (instruction.op->name == ops::kAllGather) {
      part.cuts.push_back({p.outputs[o], from, out, in});
    } else {
      part.exchanges.push_back({static_cast<const std::byte*>(from), static_cast<std::byte*>(p.outputs[o]), bytes});
    }
  }
}

void Collectives::prepare_message(const Instruction& instruction, Part& part) {
  if (program_.device != device::Kind::cpu && !instruction.between_stages())
    fail("{} is not done on a {} yet", program::kind_of(instruction), device::name_of(program_.device));
  if (ranks_ == nullptr) fail("there are no other ranks");
  if (instruction.between_stages()) {
    part.messages = &ranks_->messages(program::message_group(instruction));
    part.peer = 1 - part.messages->rank();
    // In their order on one stream: the tag is there to notice what the check of the programs has proved.
    part.key = static_cast<int>((instruction.attributes.integer("key") * program_.micro_batches + instruction.micro) %
                                comm::kTags);
    if (program_.device == device::Kind::cpu) return;
    const bool sends = instruction.kind == Instruction::Kind::send;
    const void* const data = sends ? part.place->inputs.front() : part.place->outputs.front();
    part.message = ranks_->device_messages(program::message_group(instruction), program_.device)
                       .message({.data = static_cast<std::byte*>(const_cast<void*>(data)),
                                 .bytes = (sends ? instruction.inputs : instruction.outputs).front().type.bytes(),
                                 .peer = part.peer,
                                 .tag = part.key,
                                 .sends = sends});
    part.event = static_cast<std::size_t>(program_.events()) + events();
    ++messages_;
    if (sends && instruction.records != program::kNone)
      sends_[instruction.records] = static_cast<std::size_t>(&instruction - program_.instructions.data());
    return;
  }
  part.peer = static_cast<int>(instruction.attributes.integer("peer"));
  part.key = static_cast<int>(instruction.attributes.integer("key"));
  part.messages = &ranks_->messages(program::kExchangeMessages);
  if (part.peer >= part.messages->size()) fail("there is no rank {} in its group of messages", part.peer);
}

void Collectives::run(std::size_t i, device::Streams& streams) {
  const Instruction& instruction = program_.instructions[i];
  Part& part = parts_[i];
  const auto stream = static_cast<std::size_t>(instruction.stream);
  if (part.message) {
    part.message->start({streams, stream, part.event});
    part.on_its_way = instruction.kind == Instruction::Kind::send && part.message->settles();
    return;
  }
  if (instruction.kind != Instruction::Kind::collective) return send_or_receive(instruction, part);
  const comm::DeviceGroup::OnStream on{streams, stream, part.event};
  const comm::Options options{
      .algorithm = ranks_->algorithm(),
      .scratch = {static_cast<std::byte*>(part.place->workspace), instruction.workspace.type.bytes()},
      .name = instruction.name};
  if (part.halo) return part.halo->run(*part.group, options, on);
  const DType dtype = instruction.inputs.front().type.dtype;
  if (instruction.op->name == ops::kAllReduce) {
    for (const device::Streams::Copy& copy : part.copies) streams.copy(copy.to, copy.from, copy.bytes, stream);
    const bool max = instruction.attributes.text("reduce") == "max";
    part.group->all_reduce(part.segments, dtype, max ? comm::Reduce::max : comm::Reduce::sum, options, on);
  } else if (instruction.op->name == ops::kReduceScatter) {
    part.group->reduce_scatter(part.cuts, dtype, options, on);
  } else if (instruction.op->name == ops::kAllGather) {
    part.group->all_gather(part.cuts, dtype, options, on);
  } else {
    part.group->all_to_all(part.exchanges, options, on);
  }
}

void Collectives::settle_message(std::size_t i, device::Streams& streams) {
  const Instruction& instruction = program_.instructions[i];
  const auto stream = static_cast<std::size_t>(instruction.stream);
  parts_[i].message->settle({streams, stream, parts_[i].event});
  parts_[i].on_its_way = false;
  if (instruction.records != program::kNone) streams.record(static_cast<std::size_t>(instruction.records), stream);
}

void Collectives::settle(std::int32_t event, device::Streams& streams) {
  if (const auto sent = sends_.find(event); sent != sends_.end() && parts_[sent->second].on_its_way)
    settle_message(sent->second, streams);
}

void Collectives::settle_all(device::Streams& streams) {
  if (messages_ == 0) return;
  for (std::size_t i = 0; i < parts_.size(); ++i)
    if (parts_[i].on_its_way) settle_message(i, streams);
  for (Part& part : parts_)
    if (part.message) part.message->finish();
}

void Collectives::forget() {
  for (Part& part : parts_) part.on_its_way = false;
}

void Collectives::send_or_receive(const Instruction& instruction, const Part& part) {
  const Prepared& p = *part.place;
  comm::Communicator& group = *part.messages;
  if (instruction.kind == Instruction::Kind::pull || instruction.kind == Instruction::Kind::receive) {
    group.recv({static_cast<std::byte*>(p.outputs.front()), instruction.outputs.front().type.bytes()}, part.peer,
               part.key);
    return;
  }
  group.send({static_cast<const std::byte*>(p.inputs.front()), instruction.inputs.front().type.bytes()}, part.peer,
             part.key);
  *static_cast<std::uint8_t*>(p.outputs.front()) = 1;
}

}  // namespace trireme::runtime
