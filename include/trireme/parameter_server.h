#pragma once
#include <trireme/comm.h>
#include <trireme/export.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace trireme {

struct ServerOptions {
  int servers = 1;            // the last ranks of the group; values are shared out among them by size
  std::string mode = "sync";  // sync | async | ssp:S, as parallel.server
  double timeout = 60;        // seconds that a server waits for a push
};

// Values under indices 0, 1, …, which the last ranks of a group keep and update for the others, the workers: the store
// that `parallel.server` trains with, for a program that computes its gradients itself.
//
//   tri::run_ranks(3, [&](tri::Communicator& comm) {  // two workers and a server
//     tri::ParameterServer ps(comm, {weight, bias});
//     if (ps.serves())
//       return ps.serve(steps, [](int, std::span<float> values, std::span<const float> gradient) {
//         for (std::size_t i = 0; i < values.size(); ++i) values[i] -= 0.1F * gradient[i];
//       });
//     for (int step = 0; step < steps; ++step) {
//       ps.push(0, gradient_of_weight);
//       ps.push(1, gradient_of_bias);
//       weight = ps.pull(0);
//       bias = ps.pull(1);
//     }
//   });
//
// In every step a worker pushes each index once and then pulls each once; what is left out or comes twice is refused by
// its index. sync: an update is of the sum of all workers' gradients, in the order of the workers. async: of one
// worker's, as soon as it has pushed. ssp:S: likewise, and a worker that is more than S steps ahead of the slowest
// waits in `pull`.
class TRIREME_API ParameterServer {
 public:
  // Collective over `comm`, which must outlive it. All ranks give values of the same sizes; those of the servers count.
  ParameterServer(Communicator& comm, std::vector<std::vector<float>> values, const ServerOptions& options = {});
  ParameterServer(ParameterServer&&) noexcept;
  ParameterServer& operator=(ParameterServer&&) noexcept;
  ~ParameterServer();

  bool serves() const;
  int workers() const;

  // Of workers. `push` returns at once; `pull` waits for the update.
  void push(int index, std::span<const float> gradient);
  std::vector<float> pull(int index);

  // Of servers: `steps` steps of every worker. `update` changes the values of an index by a gradient.
  using Update = std::function<void(int index, std::span<float> values, std::span<const float> gradient)>;
  void serve(std::int64_t steps, const Update& update);
  // What a server keeps after its updates; empty where another server keeps it.
  std::vector<float> values(int index) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
