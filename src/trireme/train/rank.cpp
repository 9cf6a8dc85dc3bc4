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
      pool_(place.threads),
      arena_(role_.arena_bytes, compiled.device()),
      held_(role_.module.states.size()) {
  if (const std::size_t bytes = role_.tier_bytes[program::kHostTier]; bytes > 0)
    host_ = std::make_unique<device::HostBlock>(compiled.device(), bytes);
  if (const std::size_t bytes = role_.tier_bytes[program::kDiskTier]; bytes > 0) {
    disk_ = std::make_unique<device::TierFile>(place.disk.empty() ? std::filesystem::temp_directory_path() : place.disk,
                                               bytes);
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

// Of images that the program has in slices, those that it reads.
template <class T>
std::span<const T> Rank::own_pixels(const runtime::Executor& executor, std::span<const T> pixels, int micro,
                                    std::vector<std::vector<T>>& kept) {
  const Shape local = executor.input_type("images").shape;
  if (static_cast<std::int64_t>(pixels.size()) == local.elements()) return pixels;
  const Shape& whole = compiled_.image;
  const auto rows = [&](const char* axis, int dim) {
    const auto place = role_.places.find(axis);
    if (place == role_.places.end()) return ir::Range{0, whole[dim]};
    return ir::spatial_shard(whole[dim], role_.module.mesh.size_of(axis), place->second);
  };
  const ir::Range h = rows(ir::kHeightAxis, 0);
  const ir::Range w = rows(ir::kWidthAxis, 1);
  kept.resize(static_cast<std::size_t>(compiled_.micro_batches));
  std::vector<T>& own = kept[static_cast<std::size_t>(micro)];
  own.resize(static_cast<std::size_t>(local.elements()));
  const std::int64_t run = w.size() * whole[2];
  T* to = own.data();
  for (std::int64_t image = 0; image < local[0]; ++image)
    for (std::int64_t i = h.first; i < h.last; ++i, to += run)
      std::copy_n(pixels.data() + ((image * whole[0] + i) * whole[1] + w.first) * whole[2], run, to);
  return own;
}

// In the precision that the program reads.
void Rank::bind_pixels(runtime::Executor& executor, std::span<const float> all, int micro, std::int64_t step) {
  const std::span<const float> pixels = own_pixels(executor, all, micro, own_images_);
  const DType wanted = executor.input_type("images").dtype;
  if (wanted == DType::f32) return executor.bind("images", micro, pixels, step);
  narrow_images_.resize(static_cast<std::size_t>(compiled_.micro_batches));
  std::vector<std::uint16_t>& narrow = narrow_images_[static_cast<std::size_t>(micro)];
  narrow.resize(pixels.size());
  data::narrow_images(pixels, wanted, narrow);
  executor.bind("images", micro, std::span<const std::uint16_t>(narrow), step);
}

// A loader may have made that precision already.
void Rank::bind_images(runtime::Executor& executor, const data::Batch& batch, int micro, std::int64_t first,
                       std::int64_t rows) {
  if (const DType wanted = executor.input_type("images").dtype; wanted != DType::f32 && batch.narrow_type == wanted)
    return executor.bind(
        "images", micro,
        own_pixels(executor, rows_of(batch.narrow_images, batch.rows, first, rows), micro, narrow_images_), batch.step);
  bind_pixels(executor, rows_of(batch.images, batch.rows, first, rows), micro, batch.step);
}

// Images that are copied as they lie in the batch.
void Rank::expect(const data::Batch& next) {
  if (!takes_rows() || !compiled_.synchronous() || next.step == 0) return;
  const std::string& program = compiled_.step_program(next.step);
  if (program != compiled_.step_program(next.step - 1)) return;  // another executor takes the step before it
  runtime::Executor& executor = this->executor(program);
  if (!executor.has_input("images")) return;
  const TensorType& type = executor.input_type("images");
  const auto expect_rows = [&](const auto& all) {
    for (int m = 0; m < compiled_.micro_batches; ++m) {
      const data::RowRange own = rows(m);
      const auto pixels = rows_of(all, next.rows, next.position(own), own.count);
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
  const std::int64_t rows = compiled_.micro_rows / compiled_.replicas;
  return {micro * compiled_.micro_rows + row_shard_ * rows, rows};
}

// In the precision that the program reads; `rows` counts among those of the batch.
void Rank::bind_input(runtime::Executor& executor, const data::NamedRows& input, const data::Batch& batch, int micro,
                      data::RowRange rows) {
  if (!executor.has_input(input.name)) return;
  const auto own = [&](const auto& values) {
    return input.whole ? std::span(values) : rows_of(values, batch.rows, rows.first, rows.count);
  };
  if (!input.integers.empty()) return executor.bind(input.name, micro, own(input.integers));
  const std::span<const float> floats = own(input.floats);
  const DType wanted = executor.input_type(input.name).dtype;
  if (wanted == DType::f32) return executor.bind(input.name, micro, floats);
  std::vector<std::vector<std::uint16_t>>& kept = narrow_inputs_[input.name];
  kept.resize(static_cast<std::size_t>(compiled_.micro_batches));
  std::vector<std::uint16_t>& narrow = kept[static_cast<std::size_t>(micro)];
  narrow.resize(floats.size());
  data::narrow_images(floats, wanted, narrow);
  executor.bind(input.name, micro, std::span<const std::uint16_t>(narrow));
}

void Rank::bind_rows(runtime::Executor& executor, const data::Batch& batch, int micro) {
  const std::int64_t rows = this->rows(micro).count;
  const std::int64_t first = batch.position(this->rows(micro));
  for (const data::NamedRows& input : batch.inputs) bind_input(executor, input, batch, micro, {first, rows});
  // Of a pipeline, the first stage reads what the model is given, and the last what it should answer.
  if (executor.has_input("images")) bind_images(executor, batch, micro, first, rows);
  if (executor.has_input("labels")) executor.bind("labels", micro, rows_of(batch.labels, batch.rows, first, rows));
  if (executor.has_input("tokens")) executor.bind("tokens", micro, rows_of(batch.tokens, batch.rows, first, rows));
  if (executor.has_input("targets")) executor.bind("targets", micro, rows_of(batch.targets, batch.rows, first, rows));
}

void Rank::bind_micro_batches(runtime::Executor& executor, const data::Batch& batch, std::int64_t step,
                              std::int64_t seed) {
  for (int m = 0; m < compiled_.micro_batches; ++m) {
    bind_rows(executor, batch, m);
    if (!has_rng_) continue;
    auto& rng = rng_[static_cast<std::size_t>(m)];
    rng = {seed, step, rows(m).first};
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
  bind_rows(eval, batch, 0);
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
  if (predict.has_input("images")) bind_pixels(predict, pixels, 0, runtime::kNoStep);
  predict.run();
  return logits(predict);
}

std::span<const float> Rank::predict(const data::Batch& row) {
  runtime::Executor& predict = executor("predict");
  for (const data::NamedRows& input : row.inputs) bind_input(predict, input, row, 0, {0, 1});
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
