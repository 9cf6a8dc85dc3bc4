#include <trireme/parameter_server.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "trireme/api/comm_impl.h"
#include "trireme/core/error.h"
#include "trireme/runtime/server.h"
#include "trireme/train/option_types.h"

namespace trireme {
namespace {

// "sync", "async" or "ssp:4": the values of parallel.server, less "none".
runtime::Server::Options parse_mode(const std::string& mode) {
  const auto parsed = Choice<train::Server>::parse(mode);
  if (!parsed || *parsed == train::Server::none)
    refuse("mode \"{}\": expected sync, async or ssp:S, such as ssp:2", mode);
  runtime::Server::Options options;
  options.each = *parsed != train::Server::sync;
  if (*parsed == train::Server::ssp) options.bound = static_cast<std::int64_t>(parsed->argument());
  return options;
}

// Which server keeps each index: the largest first, each to the server that has the least.
std::vector<int> share_out(const std::vector<std::vector<float>>& values, int servers) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return values[a].size() > values[b].size(); });
  std::vector<std::size_t> load(static_cast<std::size_t>(servers), 0);
  std::vector<int> keeper(values.size());
  for (const std::size_t index : order) {
    const auto least = std::min_element(load.begin(), load.end());
    keeper[index] = static_cast<int>(least - load.begin());
    *least += values[index].size();
  }
  return keeper;
}

}  // namespace

struct ParameterServer::Impl {
  // A worker's exchange of one index in the step under way.
  struct Exchange {
    std::vector<float> gradient;
    std::optional<comm::Request> sent;
    bool pushed = false;
    bool pulled = false;
  };

  std::unique_ptr<comm::Communicator> all;  // messages of its own, apart from those of the caller
  std::unique_ptr<comm::Communicator> own;  // the servers among themselves, or the workers
  int workers = 0;
  std::vector<std::vector<float>> values;  // a worker's are their sizes alone
  std::vector<int> keeper;
  std::vector<Exchange> exchanges;                     // of a worker
  std::vector<std::vector<std::vector<float>>> slots;  // of a server: by worker and index
  std::unique_ptr<runtime::Server> server;

  bool serves() const { return all->rank() >= workers; }
  int number() const { return all->rank() - workers; }
  bool keeps(std::size_t index) const { return serves() && keeper[index] == number(); }

  std::size_t check(int index) const {
    if (index < 0 || index >= std::ssize(values)) refuse("index {} is not from 0 to {}", index, std::ssize(values) - 1);
    return static_cast<std::size_t>(index);
  }
  void check_worker(const char* call) const {
    if (serves()) refuse("{} is for workers, and rank {} is a server", call, all->rank());
  }

  void make_server(runtime::Server::Options options) {
    slots.resize(static_cast<std::size_t>(workers));
    runtime::Server::Table table;
    table.slots.resize(slots.size());
    const auto message = [](std::size_t index, std::vector<float>& numbers) {
      return runtime::Server::Message{static_cast<int>(index), fmt::format("index {}", index),
                                      std::as_writable_bytes(std::span(numbers))};
    };
    for (std::size_t i = 0; i < values.size(); ++i)
      if (keeps(i)) table.states.push_back(message(i, values[i]));
    for (std::size_t w = 0; w < slots.size(); ++w) {
      slots[w].resize(values.size());
      for (std::size_t i = 0; i < values.size(); ++i) {
        if (!keeps(i)) continue;
        slots[w][i].resize(values[i].size());
        table.slots[w].push_back(message(i, slots[w][i]));
      }
    }
    options.servers = own->size() > 1 ? own.get() : nullptr;
    server = std::make_unique<runtime::Server>(*all, std::vector{std::move(table)}, options);
  }
};

ParameterServer::ParameterServer(Communicator& comm, std::vector<std::vector<float>> values,
                                 const ServerOptions& options)
    : impl_(std::make_unique<Impl>()) {
  runtime::Server::Options mode = parse_mode(options.mode);
  mode.timeout = options.timeout;
  if (values.empty()) refuse("a parameter server needs values to keep");
  if (options.servers < 1 || options.servers >= comm.size())
    refuse("{} servers of {} ranks: there must be at least one, and a worker", options.servers, comm.size());
  if (options.servers > std::ssize(values))
    refuse("{} servers for {} indices: each must keep one", options.servers, values.size());
  impl_->all = comm.impl_->comm->split(0, comm.rank());
  impl_->workers = comm.size() - options.servers;
  impl_->own = impl_->all->split(impl_->serves() ? 1 : 0, comm.rank());
  impl_->keeper = share_out(values, options.servers);
  impl_->values = std::move(values);
  if (impl_->serves())
    impl_->make_server(mode);
  else
    impl_->exchanges.resize(impl_->values.size());
}

ParameterServer::ParameterServer(ParameterServer&&) noexcept = default;
ParameterServer& ParameterServer::operator=(ParameterServer&&) noexcept = default;
ParameterServer::~ParameterServer() = default;

bool ParameterServer::serves() const { return impl_->serves(); }
int ParameterServer::workers() const { return impl_->workers; }

void ParameterServer::push(int index, std::span<const float> gradient) {
  impl_->check_worker("push");
  const std::size_t i = impl_->check(index);
  auto& exchanges = impl_->exchanges;
  if (exchanges[i].pushed) refuse("push({}): it was pushed already in this step; pull every index first", index);
  for (std::size_t k = 0; k < exchanges.size(); ++k)
    if (!exchanges[k].pulled && exchanges[i].pulled)
      refuse("push({}): index {} of the step before was not pulled", index, k);
  if (gradient.size() != impl_->values[i].size())
    refuse("push({}): it has {} values, got {}", index, impl_->values[i].size(), gradient.size());
  if (exchanges[i].pulled)
    for (auto& exchange : exchanges) exchange.pulled = false;
  Impl::Exchange& exchange = exchanges[i];
  if (exchange.sent) exchange.sent->wait();
  exchange.gradient.assign(gradient.begin(), gradient.end());
  exchange.pushed = true;
  exchange.sent =
      impl_->all->start_send(std::as_bytes(std::span(exchange.gradient)), impl_->workers + impl_->keeper[i], index);
}

std::vector<float> ParameterServer::pull(int index) {
  impl_->check_worker("pull");
  const std::size_t i = impl_->check(index);
  auto& exchanges = impl_->exchanges;
  if (exchanges[i].pulled) refuse("pull({}): it was pulled already in this step; push every index first", index);
  for (std::size_t k = 0; k < exchanges.size(); ++k)
    if (!exchanges[k].pushed && !exchanges[k].pulled)
      refuse("pull({}): index {} was not pushed in this step", index, k);
  exchanges[i].sent->wait();
  std::vector<float> numbers(impl_->values[i].size());
  impl_->all->recv(std::as_writable_bytes(std::span(numbers)), impl_->workers + impl_->keeper[i], index);
  exchanges[i].pushed = false;
  exchanges[i].pulled = true;
  return numbers;
}

void ParameterServer::serve(std::int64_t steps, const Update& update) {
  if (!serves()) refuse("serve is for servers, and rank {} is a worker", impl_->all->rank());
  impl_->server->serve(steps, [&](int worker, std::int64_t) {
    for (std::size_t i = 0; i < impl_->values.size(); ++i) {
      if (!impl_->keeps(i)) continue;
      std::vector<float>& gradient = impl_->slots[static_cast<std::size_t>(std::max(0, worker))][i];
      if (worker < 0)
        for (std::size_t w = 1; w < impl_->slots.size(); ++w)
          for (std::size_t k = 0; k < gradient.size(); ++k) gradient[k] += impl_->slots[w][i][k];
      update(static_cast<int>(i), impl_->values[i], gradient);
    }
  });
}

std::vector<float> ParameterServer::values(int index) const {
  const std::size_t i = impl_->check(index);
  return impl_->keeps(i) ? impl_->values[i] : std::vector<float>();
}

}  // namespace trireme
