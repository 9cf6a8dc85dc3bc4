#include <trireme/comm.h>

#include "trireme/comm/communicator.h"
#include "trireme/comm/mpi/session.h"
#include "trireme/comm/threads/world.h"

namespace trireme {

struct Communicator::Impl {
  std::unique_ptr<comm::Communicator> comm;
};

Communicator::Communicator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;
Communicator::~Communicator() = default;

namespace {

Communicator wrap(std::unique_ptr<comm::Communicator> inner) {
  return Communicator(std::make_unique<Communicator::Impl>(Communicator::Impl{std::move(inner)}));
}
Communicator wrap(comm::Communicator inner) { return wrap(std::make_unique<comm::Communicator>(std::move(inner))); }

}  // namespace

int Communicator::rank() const { return impl_->comm->rank(); }
int Communicator::size() const { return impl_->comm->size(); }

Communicator Communicator::split(int color, int key) {
  if (color < 0) refuse("a color of {}: it must not be negative", color);
  return wrap(impl_->comm->split(color, key));
}

void Communicator::barrier() { impl_->comm->barrier(); }

void Communicator::all_reduce_in_place(void* data, std::size_t count, Element element, ReduceOp op,
                                       std::string_view algorithm) {
  constexpr DType kTypes[] = {DType::f32, DType::f64, DType::i8, DType::u8, DType::u16, DType::i32, DType::i64};
  impl_->comm->all_reduce(data, static_cast<std::int64_t>(count), kTypes[static_cast<std::size_t>(element)],
                          static_cast<comm::Reduce>(op), {.algorithm = comm::parse_algorithm(algorithm)});
}

void Communicator::all_gather_bytes(std::span<const std::byte> mine, std::span<std::byte> all) {
  using Byte = std::uint8_t;
  impl_->comm->all_gather(std::span(reinterpret_cast<const Byte*>(mine.data()), mine.size()),
                          std::span(reinterpret_cast<Byte*>(all.data()), all.size()));
}

void Communicator::broadcast_bytes(std::span<std::byte> bytes, int root) { impl_->comm->broadcast(bytes, root); }
void Communicator::send_bytes(std::span<const std::byte> bytes, int to, int tag) { impl_->comm->send(bytes, to, tag); }
void Communicator::recv_bytes(std::span<std::byte> bytes, int from, int tag) { impl_->comm->recv(bytes, from, tag); }

Traffic Communicator::traffic() const {
  const comm::Counters c = impl_->comm->counters();
  return {c.steps, c.messages, c.sent, c.received};
}

void Communicator::abort(const std::string& why) { impl_->comm->abort(why); }

void run_ranks(int ranks, const std::function<void(Communicator&)>& body, const RankOptions& options) {
  const auto known = {"auto", "threads", "mpi"};
  if (std::find(known.begin(), known.end(), options.transport) == known.end())
    refuse("transport \"{}\": expected auto, threads or mpi", options.transport);
  const auto launched = comm::mpi::launched();
  if (options.transport == "threads" || (options.transport == "auto" && !launched)) {
    comm::threads::run(ranks, {.link = options.link, .timeout = options.timeout}, [&](comm::Communicator& inner) {
      Communicator outer = wrap(std::move(inner));
      body(outer);
    });
    return;
  }
  if (!options.link.empty()) refuse("link \"{}\": only threads can pretend to a link", options.link);
  comm::mpi::Session session({.timeout = options.timeout, .tuning = nullptr});
  Communicator outer = wrap(session.communicator());
  try {
    body(outer);
  } catch (const comm::Aborted&) {
    throw;
  } catch (const std::exception& e) {
    outer.abort(e.what());
    throw;
  }
}

}  // namespace trireme
