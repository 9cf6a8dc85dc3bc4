#include <tuple>

#include "trireme/ops/norm/batch_norm_loops.h"
#include "trireme/ops/norm/cpu_kernels.h"

namespace trireme::ops {

using namespace batch_norm_loops;

// The chunks' statistics, then two f32 arrays of channels.
std::size_t batch_norm_workspace(const ir::KernelSpec& spec) {
  const auto channels = static_cast<std::size_t>(spec.inputs[0].shape.back());
  return pair_bytes(spec) + 2 * channels * sizeof(float);
}

std::shared_ptr<device::Kernel> prepare_batch_norm_cpu(const ir::KernelSpec& spec) {
  const bool training = spec.attributes.boolean("training");
  const double momentum = spec.attributes.real("momentum");
  const double eps = spec.attributes.real("eps");
  const bool relu = spec.attributes.text("activation") == "relu";
  return dispatch_compute(spec.inputs[0].dtype, [&]<class T>(T) {
    return make_kernel([=, chunks = chunks_of(spec), pairs_size = pair_bytes(spec)](const device::Launch& launch) {
      const std::int64_t channels = chunks.width;
      const T* x = launch.in<T>(0);
      const float* weight = launch.in<float>(1);
      const float* bias = launch.in<float>(2);
      const float* running_mean = launch.in<float>(3);
      const float* running_var = launch.in<float>(4);
      auto* new_mean = launch.out<float>(3);
      auto* new_var = launch.out<float>(4);
      const auto* pairs = static_cast<const double*>(launch.workspace);
      auto* factor = reinterpret_cast<float*>(static_cast<std::byte*>(launch.workspace) + pairs_size);
      const Normalisation normalisation{launch.out<float>(1), launch.out<float>(2), factor, factor + channels};
      if (training) statistics(launch, chunks, x);
      const auto rows = static_cast<double>(chunks.rows);
      launch.pool->ranges(channels, 64, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t c = begin; c < end; ++c) {
          double center = running_mean[c];
          double variance = running_var[c];
          if (training) {
            double squares = 0;
            std::tie(center, squares) = joined(pairs, chunks, c);
            variance = squares / rows;
            new_mean[c] = static_cast<float>((1 - momentum) * running_mean[c] + momentum * center);
            new_var[c] =
                static_cast<float>((1 - momentum) * running_var[c] + momentum * squares / std::max(1.0, rows - 1));
          } else {
            new_mean[c] = running_mean[c];
            new_var[c] = running_var[c];
          }
          normalisation.set(c, center, variance, eps, weight, bias);
        }
      });
      apply(launch, chunks, x, normalisation, launch.in<T>(5), relu, launch.out<T>(0));
    });
  });
}

std::size_t batch_norm_grad_workspace(const ir::KernelSpec& spec) { return pair_bytes(spec); }

std::shared_ptr<device::Kernel> prepare_batch_norm_grad_cpu(const ir::KernelSpec& spec) {
  const bool training = spec.attributes.boolean("training");
  const bool relu = spec.attributes.text("activation") == "relu";
  const bool keep = spec.attributes.boolean("total");
  return dispatch_compute(spec.inputs[0].dtype, [&]<class T>(T) {
    return make_kernel([training, relu, keep, chunks = chunks_of(spec)](const device::Launch& launch) {
      const T* x = launch.in<T>(0);
      const float* weight = launch.in<float>(1);
      const float* mean = launch.in<float>(2);
      const float* rstd = launch.in<float>(3);
      auto* dweight = launch.out<float>(1);
      auto* dbias = launch.out<float>(2);
      Incoming<T> incoming{.dy = launch.in<T>(4), .more = launch.in<T>(7)};
      if (relu && launch.inputs[6] != nullptr)
        incoming.y = launch.in<T>(6);
      else if (relu)
        incoming.bias = launch.in<float>(5), incoming.weight = weight, incoming.rstd = rstd;
      T* const total = keep ? launch.out<T>(3) : nullptr;
      gradient_sums(launch, chunks, x, mean, rstd, incoming, total, dweight, dbias);
      if (keep) incoming = {.dy = total};
      gradient_input<T>(launch, chunks, x, weight, mean, rstd, incoming, dweight, dbias, training ? chunks.rows : 0,
                        launch.out<T>(0));
    });
  });
}

// The parts, where the rows are several ranks'.

std::shared_ptr<device::Kernel> prepare_channel_moments_cpu(const ir::KernelSpec& spec) {
  return dispatch_compute(spec.inputs[0].dtype, [&]<class T>(T) {
    return make_kernel([chunks = chunks_of(spec)](const device::Launch& launch) {
      statistics(launch, chunks, launch.in<T>(0));
      const auto* pairs = static_cast<const double*>(launch.workspace);
      launch.pool->ranges(chunks.width, 64, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t c = begin; c < end; ++c) {
          const auto [center, squares] = joined(pairs, chunks, c);
          launch.out<float>(0)[c] = static_cast<float>(center * static_cast<double>(chunks.rows));
          launch.out<float>(1)[c] = static_cast<float>(center);
          launch.out<float>(2)[c] = static_cast<float>(squares);
        }
      });
    });
  });
}

std::shared_ptr<device::Kernel> prepare_joint_squares_cpu(const ir::KernelSpec& spec) {
  const auto own = static_cast<double>(spec.attributes.integer("rows"));
  const auto all = static_cast<double>(spec.attributes.integer("all_rows"));
  return make_kernel([own, all, channels = spec.inputs[0].elements()](const device::Launch& launch) {
    for (std::int64_t c = 0; c < channels; ++c) {
      const double apart =
          static_cast<double>(launch.in<float>(1)[c]) - static_cast<double>(launch.in<float>(0)[c]) / all;
      launch.out<float>(0)[c] = static_cast<float>(static_cast<double>(launch.in<float>(2)[c]) + own * apart * apart);
    }
  });
}

std::size_t batch_norm_given_workspace(const ir::KernelSpec& spec) {
  return 2 * static_cast<std::size_t>(spec.inputs[0].shape.back()) * sizeof(float);
}

std::shared_ptr<device::Kernel> prepare_batch_norm_given_cpu(const ir::KernelSpec& spec) {
  const double momentum = spec.attributes.real("momentum");
  const double eps = spec.attributes.real("eps");
  const auto rows = static_cast<double>(spec.attributes.integer("rows"));
  return dispatch_compute(spec.inputs[0].dtype, [&]<class T>(T) {
    return make_kernel([=, chunks = chunks_of(spec)](const device::Launch& launch) {
      const float* running_mean = launch.in<float>(3);
      const float* running_var = launch.in<float>(4);
      auto* factor = static_cast<float*>(launch.workspace);
      const Normalisation normalisation{launch.out<float>(1), launch.out<float>(2), factor, factor + chunks.width};
      for (std::int64_t c = 0; c < chunks.width; ++c) {
        const double center = static_cast<double>(launch.in<float>(5)[c]) / rows;
        const double squares = launch.in<float>(6)[c];
        launch.out<float>(3)[c] = static_cast<float>((1 - momentum) * running_mean[c] + momentum * center);
        launch.out<float>(4)[c] =
            static_cast<float>((1 - momentum) * running_var[c] + momentum * squares / std::max(1.0, rows - 1));
        normalisation.set(c, center, squares / rows, eps, launch.in<float>(1), launch.in<float>(2));
      }
      apply<T>(launch, chunks, launch.in<T>(0), normalisation, nullptr, false, launch.out<T>(0));
    });
  });
}

std::shared_ptr<device::Kernel> prepare_batch_norm_sums_cpu(const ir::KernelSpec& spec) {
  return dispatch_compute(spec.inputs[0].dtype, [&]<class T>(T) {
    return make_kernel([chunks = chunks_of(spec)](const device::Launch& launch) {
      gradient_sums<T>(launch, chunks, launch.in<T>(0), launch.in<float>(1), launch.in<float>(2),
                       {.dy = launch.in<T>(3)}, nullptr, launch.out<float>(0), launch.out<float>(1));
    });
  });
}

std::shared_ptr<device::Kernel> prepare_batch_norm_dx_cpu(const ir::KernelSpec& spec) {
  const std::int64_t rows = spec.attributes.integer("rows");
  return dispatch_compute(spec.inputs[0].dtype, [&]<class T>(T) {
    return make_kernel([rows, chunks = chunks_of(spec)](const device::Launch& launch) {
      gradient_input<T>(launch, chunks, launch.in<T>(0), launch.in<float>(1), launch.in<float>(2), launch.in<float>(3),
                        {.dy = launch.in<T>(4)}, launch.in<float>(5), launch.in<float>(6), rows, launch.out<T>(0));
    });
  });
}

}  // namespace trireme::ops
