#include "trireme/train/rank.h"

#include <algorithm>
#include <cstring>

#include "trireme/core/error.h"
#include "trireme/ir/axes.h"
#include "trireme/passes/loss_scale.h"
#include "trireme/passes/partition.h"
#include "trireme/train/bytes_of.h"

namespace trireme::train {
namespace {

// Rows [first, first + rows) of a row-major vector.
template <class V, class T = typename V::value_type>
std::span<const T> rows_of(const V& values, std::int64_t total, std::int64_t first, std::int64_t rows) {
  const std::size_t per_row = values.size() / static_cast<std::size_t>(total);
  return std::span<const T>(values).subspan(static_cast<std::size_t>(first) * per_row,
                                            static_cast<std::size_t>(rows) * per_row);
}

// Of some rows, each of the shape `row`, the block that `own` has of every one.
template <class T>
std::span<const T> block_of(std::span<const T> rows, const Shape& row, const ir::Slice& own, std::vector<T>& kept) {
  int last = row.rank();  // the last dimension, counted with that of the rows, of which it is a part
  while (last > 0 && own.extent[last] == row[last - 1]) --last;
  if (last == 0) return rows;
  kept.resize(static_cast<std::size_t>(own.extent.elements()));
  const std::int64_t inner = row.elements(last, row.rank());
  const std::int64_t run = own.extent[last] * inner;
  const std::int64_t runs = own.extent.elements(0, last);
  for (std::int64_t r = 0; r < runs; ++r) {
    std::int64_t from = own.start[last] * inner;
    std::int64_t stride = row[last - 1] * inner;
    std::int64_t outer = r;
    for (int d = last - 1; d >= 0; --d) {
      from += (outer % own.extent[d] + (d > 0 ? own.start[d] : 0)) * stride;
      outer /= own.extent[d];
      if (d > 0) stride *= row[d - 1];
    }
    std::copy_n(rows.data() + from, run, kept.data() + r * run);
  }
  return kept;
}

}  // namespace

bool StepResult::skipped() const {
  return !finite && loss_scale && *loss_scale > static_cast<float>(passes::LossScale::kLowest);
}

Rank::Rank(const Compiled& compiled, const Place& place)
    : compiled_(compiled),
      role_(compiled.role_of(place.number)),
      place_(place),
      coordinate_(compiled.coordinate(place.number)),
      row_shard_(compiled.row_shard(place.number)),
      rows_read_(compiled.rows_read(place.number)),
      pool_(place.threads),
      arena_(role_.arena_bytes, compiled.device()),
      held_(role_.module.states.size()) {
  if (const std::size_t bytes = role_.tier_bytes[program::kHostTier]; bytes > 0)
    host_ = std::make_unique<device::HostBlock>(compiled.device(), bytes);
  if (const std::size_t bytes = role_.tier_bytes[program::kDiskTier]; bytes > 0) {
    disk_ = std::make_unique<device::TierFile>(place.disk.empty() ? std::filesystem::temp_directory_path() : place.disk,
                                               bytes, place.names);
    disk_states_ = std::make_unique<TierStates>(*disk_);
  }
  if (role_.host_staging > 0) host_staging_ = std::make_unique<device::Arena>(role_.host_staging);
  for (const program::Program& program : role_.programs) {
    executors_.push_back(std::make_unique<runtime::Executor>(
        program, arena_, pool_, runtime::Tiers{host_.get(), disk_.get()}, place_.groups, place_.algorithms));
    executors_.back()->set_held(&held_);
  }
  bind_places();
  rng_.resize(static_cast<std::size_t>(compiled.micro_batches));
  const ir::Module& module = role_.module;
  const auto reads = [&](const char* graph, const char* input) {
    return module.has_graph(graph) && module.graph(graph).find_input(input).has_value();
  };
  for (const char* graph : {"micro", "eval"})
    for (const auto& [input, shape] : compiled.row_shapes)
      if (reads(graph, input.c_str())) slices_[{graph, input}] = compiled.input_slice(place.number, graph, input);
  has_rng_ = reads("micro", "rng");
  images_ = std::any_of(compiled.roles.begin(), compiled.roles.end(), [](const Role& role) {
    return role.module.has_graph("eval") && role.module.graph("eval").find_input("images").has_value();
  });
  has_accuracy_ = module.has_graph("eval") && module.graph("eval").find_output("accuracy").has_value();
  has_lr_ = reads("update", "lr");
  has_step_number_ = reads("update", "step");
  has_loss_scale_ =
      module.has_graph("update") && module.graph("update").find_output(passes::LossScale::kState).has_value();
}

void Rank::bind_places() {
  for (std::size_t i = 0; i < executors_.size(); ++i)
    for (const program::Instruction& instruction : role_.programs[i].instructions) {
      if (instruction.kind != program::Instruction::Kind::input) continue;
      const std::vector<std::string> axes = passes::axes_of_place(instruction.name);
      if (axes.empty()) continue;
      const std::int64_t place = ir::shard_index(axes, role_.module.mesh, coordinate_);
      executors_[i]->bind(instruction.name, instruction.micro,
                          one(places_.emplace(instruction.name, place).first->second));
    }
}

std::vector<ir::StoredRows> Rank::stored_rows(const ir::State& state) const {
  return ir::stored_rows(state, role_.module.mesh, coordinate_);
}

runtime::Executor& Rank::executor(std::string_view program) const {
  for (std::size_t i = 0; i < executors_.size(); ++i)
    if (role_.programs[i].name == program) return *executors_[i];
  fail("rank {} has no program '{}'", place_.number, program);
}

runtime::Executor& Rank::step_executor(std::string_view step) const {
  const program::Program* own = role_.during(step);
  return executor(own == nullptr ? step : std::string_view(own->name));
}

std::uint64_t Rank::sent_bytes() const { return place_.groups == nullptr ? 0 : place_.groups->sent_bytes(); }

void Rank::initialize(std::int64_t seed) {
  runtime::Executor& init = executor("init");
  seed_ = seed;
  init.bind("seed", 0, one(seed_));
  init.run();
}

void Rank::refresh_copies() {
  if (role_.find("refresh") != nullptr) executor("refresh").run();
}

template <class V, class T>
std::span<const T> Rank::own_part(const std::string& graph, const std::string& name, const V& values,
                                  const data::Batch& batch, int micro, Kept<T>& kept) {
  const auto found = slices_.find({graph, name});
  if (found == slices_.end()) return rows_of(values, batch.rows, 0, 1);  // a row to predict from, which is whole
  const ir::Slice& own = found->second;
  const std::int64_t first = batch.position({micro * compiled_.micro_rows + own.start[0], own.extent[0]});
  return block_of(rows_of(values, batch.rows, first, own.extent[0]), compiled_.row_shapes.at(name), own,
                  room(kept, name, micro));
}

template <class T>
std::vector<T>& Rank::room(Kept<T>& kept, const std::string& name, int micro) const {
  std::vector<std::vector<T>>& all = kept[name];
  all.resize(static_cast<std::size_t>(compiled_.micro_batches));
  return all[static_cast<std::size_t>(micro)];
}

// In the precision that the program reads.
void Rank::bind_floats(runtime::Executor& executor, const std::string& name, std::span<const float> values, int micro,
                       std::int64_t step) {
  const DType wanted = executor.input_type(name).dtype;
  if (wanted == DType::f32) return executor.bind(name, micro, values, step);
  std::vector<std::uint16_t>& narrow = room(narrow_, name, micro);
  narrow.resize(values.size());
  data::narrow_images(values, wanted, narrow);
  executor.bind(name, micro, std::span<const std::uint16_t>(narrow), step);
}

// A loader may have made that precision already.
void Rank::bind_images(runtime::Executor& executor, const std::string& graph, const data::Batch& batch, int micro) {
  if (const DType wanted = executor.input_type("images").dtype; wanted != DType::f32 && batch.narrow_type == wanted)
    return executor.bind("images", micro, own_part(graph, "images", batch.narrow_images, batch, micro, narrow_),
                         batch.step);
  bind_floats(executor, "images", own_part(graph, "images", batch.images, batch, micro, floats_), micro, batch.step);
}

// Images that are copied as they lie in the batch.
void Rank::expect(const data::Batch& next) {
  if (!takes_rows() || !compiled_.synchronous() || next.step == 0) return;
  const std::string& program = compiled_.step_program(next.step);
  if (program != compiled_.step_program(next.step - 1)) return;  // another executor takes the step before it
  runtime::Executor& executor = this->executor(program);
  if (!executor.has_input("images")) return;
  const TensorType& type = executor.input_type("images");
  const ir::Slice& own = slices_.at({"micro", "images"});
  const auto expect_rows = [&](const auto& all) {
    for (int m = 0; m < compiled_.micro_batches; ++m) {
      const std::int64_t first = next.position({m * compiled_.micro_rows + own.start[0], own.extent[0]});
      const auto pixels = rows_of(all, next.rows, first, own.extent[0]);
      if (static_cast<std::int64_t>(pixels.size()) == type.elements())
        executor.expect("images", m, std::as_bytes(std::span(pixels)), next.step);
    }
  };
  if (type.dtype == DType::f32)
    expect_rows(next.images);
  else if (next.narrow_type == type.dtype)
    expect_rows(next.narrow_images);
}

data::RowRange Rank::rows(int micro) const {
  return {micro * compiled_.micro_rows + rows_read_.first, rows_read_.size()};
}

void Rank::bind_input(runtime::Executor& executor, const std::string& graph, const data::NamedRows& input,
                      const data::Batch& batch, int micro) {
  if (!executor.has_input(input.name)) return;
  const auto own = [&](const auto& values, auto& kept) {
    return input.whole ? std::span(values) : own_part(graph, input.name, values, batch, micro, kept);
  };
  if (!input.integers.empty()) return executor.bind(input.name, micro, own(input.integers, integers_));
  bind_floats(executor, input.name, own(input.floats, floats_), micro, runtime::kNoStep);
}

void Rank::bind_rows(runtime::Executor& executor, const std::string& graph, const data::Batch& batch, int micro) {
  for (const data::NamedRows& input : batch.inputs) bind_input(executor, graph, input, batch, micro);
  // Of a pipeline, the first stage reads what the model is given, and the last what it should answer.
  if (executor.has_input("images")) bind_images(executor, graph, batch, micro);
  const auto bind = [&](const char* name, const std::vector<std::int32_t>& values) {
    if (executor.has_input(name)) executor.bind(name, micro, own_part(graph, name, values, batch, micro, integers_));
  };
  bind("labels", batch.labels);
  bind("tokens", batch.tokens);
  bind("targets", batch.targets);
}

void Rank::bind_micro_batches(runtime::Executor& executor, const data::Batch& batch, std::int64_t step,
                              std::int64_t seed) {
  for (int m = 0; m < compiled_.micro_batches; ++m) {
    bind_rows(executor, "micro", batch, m);
    if (!has_rng_) continue;
    auto& rng = rng_[static_cast<std::size_t>(m)];
    // Dropout counts the rows of the share that its data axis gives it (Factor::share).
    rng = {seed, step, m * compiled_.micro_rows + row_shard_ * (compiled_.micro_rows / compiled_.replicas)};
    executor.bind("rng", m, std::span<const std::int64_t>(rng));
  }
}

runtime::Executor& Rank::bind_step(const data::Batch& batch, std::int64_t step, double lr, std::int64_t seed) {
  runtime::Executor& executor = this->executor(compiled_.step_program(step));
  bind_micro_batches(executor, batch, step, seed);
  lr_ = static_cast<float>(lr);
  if (has_lr_) executor.bind("lr", 0, one(lr_));
  step_number_ = static_cast<float>(step + 1);
  if (has_step_number_) executor.bind("step", 0, one(step_number_));
  return executor;
}

StepResult Rank::step(const data::Batch& batch, std::int64_t step, double lr, std::int64_t seed) {
  runtime::Executor& executor = bind_step(batch, step, lr, seed);
  executor.run();
  StepResult result{executor.scalar("loss"), executor.scalar("grad_norm"), executor.scalar("finite") != 0};
  if (has_loss_scale_) result.loss_scale = executor.scalar(passes::LossScale::kState);
  return result;
}

std::int64_t Rank::run(const Steps& steps) {
  for (std::int64_t s = steps.first; s < steps.first + steps.count; ++s) {
    const StepResult result = step(steps.batch(place_.here, s), s, steps.lr(s), steps.seed);
    if (steps.done) steps.done(place_.here, s, result);
  }
  return steps.count;
}

std::optional<runtime::Executor::BadTensor> Rank::explain(const data::Batch& batch, std::int64_t step, double lr,
                                                          std::int64_t seed) {
  return bind_step(batch, step, lr, seed).run_checked();
}

Evaluation Rank::evaluate(const data::Batch& batch) {
  runtime::Executor& eval = executor("eval");
  bind_rows(eval, "eval", batch, 0);
  eval.run();
  Evaluation result{eval.scalar("loss")};
  if (has_accuracy_) result.accuracy = eval.scalar("accuracy");
  return result;
}

std::span<const float> Rank::predict(std::span<const std::int32_t> tokens) {
  if (images_) fail("this model does not predict tokens");
  runtime::Executor& predict = executor("predict");
  if (predict.has_input("tokens")) predict.bind("tokens", 0, tokens);
  predict.run();
  return logits(predict);
}

std::span<const float> Rank::predict(std::span<const float> pixels) {
  if (!images_) fail("this model does not look at images");
  runtime::Executor& predict = executor("predict");
  if (predict.has_input("images")) bind_floats(predict, "images", pixels, 0, runtime::kNoStep);
  predict.run();
  return logits(predict);
}

std::span<const float> Rank::predict(const data::Batch& row) {
  runtime::Executor& predict = executor("predict");
  for (const data::NamedRows& input : row.inputs) bind_input(predict, "predict", input, row, 0);
  predict.run();
  return logits(predict);
}

std::span<const float> Rank::decode(std::span<const std::int32_t> tokens, std::int64_t position) {
  std::size_t fits = 0;
  while (fits < compiled_.prefill.size() && compiled_.prefill[fits].rows < std::ssize(tokens)) ++fits;
  if (tokens.empty() || fits == compiled_.prefill.size())
    fail("a sequence is not continued by {} tokens", tokens.size());
  runtime::Executor& executor = this->executor(compiled_.prefill[fits].program);
  piece_.assign(static_cast<std::size_t>(compiled_.prefill[fits].rows), tokens.back());
  std::copy(tokens.begin(), tokens.end(), piece_.begin());
  const auto first = static_cast<std::int32_t>(position), last = static_cast<std::int32_t>(tokens.size() - 1);
  // Of a pipeline, the first stage reads the tokens, and the last the row whose logits are wanted.
  if (executor.has_input("tokens")) executor.bind("tokens", 0, std::span<const std::int32_t>(piece_));
  if (executor.has_input("position")) executor.bind("position", 0, one(first));
  if (executor.has_input("row")) executor.bind("row", 0, one(last));
  executor.run();
  return logits(executor);
}

std::span<const float> Rank::logits(const runtime::Executor& executor) {
  const auto bytes = executor.output("logits");
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}

ir::StateId Rank::find(const std::string& name) const {
  const ir::StateId id = role_.module.find_state(name);
  if (id == ir::kNone || role_.module.state(id).step_local) fail("there is no state variable '{}'", name);
  return id;
}

std::span<std::byte> Rank::resident_state(const std::string& name) {
  const ir::StateId id = find(name);
  const ir::State& state = role_.module.state(id);
  if (state.tier != 0 || arena_.kind() != device::Kind::cpu) return {};
  held_.wait(id);
  return {arena_.data() + role_.layout.offsets[static_cast<std::size_t>(id)], state.type.bytes()};
}

void Rank::read_state(const std::string& name, std::size_t offset, std::span<std::byte> out) {
  const ir::StateId id = find(name);
  TRI_CHECK(offset + out.size() <= role_.module.state(id).type.bytes(), "'{}' ends before {}", name,
            offset + out.size());
  const std::size_t begin = role_.layout.offsets[static_cast<std::size_t>(id)] + offset;
  switch (role_.module.state(id).tier) {
    case program::kHostTier: std::memcpy(out.data(), host_->data() + begin, out.size()); break;
    case program::kDiskTier: disk_states_->read(begin, out); break;
    default: arena_.read(begin, out);
  }
}

void Rank::write_state(const std::string& name, std::size_t offset, std::span<const std::byte> bytes) {
  const ir::StateId id = find(name);
  TRI_CHECK(offset + bytes.size() <= role_.module.state(id).type.bytes(), "'{}' ends before {}", name,
            offset + bytes.size());
  held_.wait(id);
  const std::size_t begin = role_.layout.offsets[static_cast<std::size_t>(id)] + offset;
  switch (role_.module.state(id).tier) {
    case program::kHostTier: std::memcpy(host_->data() + begin, bytes.data(), bytes.size()); break;
    case program::kDiskTier: disk_states_->write(begin, bytes); break;
    default: arena_.write(begin, bytes);
  }
}

std::size_t Rank::highest_offset() const {
  arena_.check_guards();
  return highest_offset(0);
}

std::size_t Rank::highest_offset(int tier) const {
  std::size_t peak = 0;
  for (const auto& executor : executors_) peak = std::max(peak, executor->highest_offset(tier));
  return peak;
}

}  // namespace trireme::train
