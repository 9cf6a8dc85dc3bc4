#include <trireme/comm.h>

#include "trireme/api/comm_impl.h"
#include "trireme/comm/threads/world.h"

namespace trireme {

struct Request::Impl {
  comm::Request request;
};

Request::Request(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Request::Request(Request&&) noexcept = default;
Request& Request::operator=(Request&&) noexcept = default;
Request::~Request() = default;
bool Request::test() { return !impl_ || impl_->request.test(); }
void Request::wait() {
  if (impl_) impl_->request.wait();
}

Communicator::Communicator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;
Communicator::~Communicator() = default;

namespace {

Communicator wrap(std::unique_ptr<comm::Communicator> inner) {
  return Communicator(std::make_unique<Communicator::Impl>(Communicator::Impl{nullptr, std::move(inner)}));
}
Request wrap(comm::Request request) {
  return Request(std::make_unique<Request::Impl>(Request::Impl{std::move(request)}));
}

// In the order of Communicator::Element.
constexpr DType kTypes[] = {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i8,
                            DType::u8,  DType::u16, DType::i32, DType::i64};

template <class Element>
DType type_of(Element element) {
  return kTypes[static_cast<std::size_t>(element)];
}
comm::Reduce reduce_of_op(ReduceOp op) { return static_cast<comm::Reduce>(op); }

void check_rank(const comm::Communicator& comm, const char* what, int rank) {
  if (rank >= 0 && rank < comm.size()) return;
  refuse("{} {}: the group has {}", what, rank,
         comm.size() == 1 ? "rank 0 alone" : fmt::format("ranks 0 to {}", comm.size() - 1));
}

void check_message(const comm::Communicator& comm, const char* what, int rank, int tag) {
  check_rank(comm, what, rank);
  if (tag < 0 || tag >= comm::kTags) refuse("tag {}: tags are from 0 to {}", tag, comm::kTags - 1);
}

// Of a scatter or gather, whose root has all.
void check_runs(const comm::Communicator& comm, const char* what, std::size_t all, std::size_t mine, int root) {
  if (comm.rank() != root || all == mine * static_cast<std::size_t>(comm.size())) return;
  refuse("{}: the root has {} bytes for {} ranks, each of which has {}", what, all, comm.size(), mine);
}

void check_parts(const comm::Communicator& comm, std::size_t out, std::size_t in) {
  if (out != in) refuse("all_to_all: {} bytes go out, and {} come in; both are the same", out, in);
  if (out % static_cast<std::size_t>(comm.size()) != 0)
    refuse("all_to_all: {} bytes are no {} runs of one size", out, comm.size());
}

comm::Cut even_cut(int ranks, void* whole, std::size_t whole_count, void* slice, std::size_t slice_count) {
  if (whole_count != slice_count * static_cast<std::size_t>(ranks))
    refuse("{} elements for {} ranks are {} for each, not {}", whole_count, ranks,
           whole_count / static_cast<std::size_t>(ranks), slice_count);
  return {whole, slice, static_cast<std::int64_t>(whole_count), static_cast<std::int64_t>(slice_count)};
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
  impl_->comm->all_reduce(data, static_cast<std::int64_t>(count), type_of(element), reduce_of_op(op),
                          {.algorithm = comm::parse_algorithm(algorithm)});
}

void Communicator::reduce_scatter_of(void* whole, std::size_t whole_count, void* slice, std::size_t slice_count,
                                     Element element, ReduceOp op, std::string_view algorithm) {
  const comm::Cut cut = even_cut(size(), whole, whole_count, slice, slice_count);
  impl_->comm->reduce_scatter({&cut, 1}, type_of(element), reduce_of_op(op),
                              {.algorithm = comm::parse_algorithm(algorithm)});
}

void Communicator::reduce_of(void* data, std::size_t count, Element element, ReduceOp op, int root) {
  check_rank(*impl_->comm, "reduce to root", root);
  impl_->comm->reduce(data, static_cast<std::int64_t>(count), type_of(element), reduce_of_op(op), root);
}

void Communicator::scatter_bytes(std::span<const std::byte> all, std::span<std::byte> mine, int root) {
  check_rank(*impl_->comm, "scatter from root", root);
  check_runs(*impl_->comm, "scatter", all.size(), mine.size(), root);
  impl_->comm->scatter(all, mine, root);
}
void Communicator::gather_bytes(std::span<const std::byte> mine, std::span<std::byte> all, int root) {
  check_rank(*impl_->comm, "gather to root", root);
  check_runs(*impl_->comm, "gather", all.size(), mine.size(), root);
  impl_->comm->gather(mine, all, root);
}
void Communicator::all_to_all_bytes(std::span<const std::byte> out, std::span<std::byte> in) {
  check_parts(*impl_->comm, out.size(), in.size());
  impl_->comm->all_to_all(out, in);
}

Request Communicator::start_barrier() { return wrap(impl_->comm->start_barrier()); }

Request Communicator::start_all_reduce_of(void* data, std::size_t count, Element element, ReduceOp op,
                                          std::string_view algorithm) {
  const comm::Segment segment{data, static_cast<std::int64_t>(count)};
  return wrap(impl_->comm->start_all_reduce({&segment, 1}, type_of(element), reduce_of_op(op),
                                            {.algorithm = comm::parse_algorithm(algorithm)}));
}

Request Communicator::start_reduce_scatter_of(void* whole, std::size_t whole_count, void* slice,
                                              std::size_t slice_count, Element element, ReduceOp op,
                                              std::string_view algorithm) {
  const comm::Cut cut = even_cut(size(), whole, whole_count, slice, slice_count);
  return wrap(impl_->comm->start_reduce_scatter({&cut, 1}, type_of(element), reduce_of_op(op),
                                                {.algorithm = comm::parse_algorithm(algorithm)}));
}

Request Communicator::start_all_gather_of(const void* mine, std::size_t mine_count, void* all, std::size_t all_count,
                                          Element element, std::string_view algorithm) {
  const comm::Cut cut = even_cut(size(), all, all_count, const_cast<void*>(mine), mine_count);
  return wrap(
      impl_->comm->start_all_gather({&cut, 1}, type_of(element), {.algorithm = comm::parse_algorithm(algorithm)}));
}

Request Communicator::start_reduce_of(void* data, std::size_t count, Element element, ReduceOp op, int root) {
  check_rank(*impl_->comm, "reduce to root", root);
  return wrap(
      impl_->comm->start_reduce(data, static_cast<std::int64_t>(count), type_of(element), reduce_of_op(op), root));
}
Request Communicator::start_broadcast_bytes(std::span<std::byte> bytes, int root) {
  check_rank(*impl_->comm, "broadcast from root", root);
  return wrap(impl_->comm->start_broadcast(bytes, root));
}
Request Communicator::start_scatter_bytes(std::span<const std::byte> all, std::span<std::byte> mine, int root) {
  check_rank(*impl_->comm, "scatter from root", root);
  check_runs(*impl_->comm, "scatter", all.size(), mine.size(), root);
  return wrap(impl_->comm->start_scatter(all, mine, root));
}
Request Communicator::start_gather_bytes(std::span<const std::byte> mine, std::span<std::byte> all, int root) {
  check_rank(*impl_->comm, "gather to root", root);
  check_runs(*impl_->comm, "gather", all.size(), mine.size(), root);
  return wrap(impl_->comm->start_gather(mine, all, root));
}
Request Communicator::start_all_to_all_bytes(std::span<const std::byte> out, std::span<std::byte> in) {
  check_parts(*impl_->comm, out.size(), in.size());
  return wrap(impl_->comm->start_all_to_all(out, in));
}
Request Communicator::start_send_bytes(std::span<const std::byte> bytes, int to, int tag) {
  check_message(*impl_->comm, "send to rank", to, tag);
  return wrap(impl_->comm->start_send(bytes, to, tag));
}
Request Communicator::start_recv_bytes(std::span<std::byte> bytes, int from, int tag) {
  check_message(*impl_->comm, "recv from rank", from, tag);
  return wrap(impl_->comm->start_recv(bytes, from, tag));
}

void Communicator::all_gather_bytes(std::span<const std::byte> mine, std::span<std::byte> all) {
  using Byte = std::uint8_t;
  impl_->comm->all_gather(std::span(reinterpret_cast<const Byte*>(mine.data()), mine.size()),
                          std::span(reinterpret_cast<Byte*>(all.data()), all.size()));
}

void Communicator::broadcast_bytes(std::span<std::byte> bytes, int root) {
  check_rank(*impl_->comm, "broadcast from root", root);
  impl_->comm->broadcast(bytes, root);
}
void Communicator::send_bytes(std::span<const std::byte> bytes, int to, int tag) {
  check_message(*impl_->comm, "send to rank", to, tag);
  impl_->comm->send(bytes, to, tag);
}
void Communicator::recv_bytes(std::span<std::byte> bytes, int from, int tag) {
  check_message(*impl_->comm, "recv from rank", from, tag);
  impl_->comm->recv(bytes, from, tag);
}

Traffic Communicator::traffic() const {
  const comm::Counters c = impl_->comm->counters();
  return {c.steps, c.messages, c.sent, c.received};
}

void Communicator::abort(const std::string& why) { impl_->comm->abort(why); }

namespace {

// Whether the ranks are threads of this process; else they are MPI's. Refuses what there is not.
bool by_threads(const RankOptions& options) {
  const auto known = {"auto", "threads", "mpi"};
  if (std::find(known.begin(), known.end(), options.transport) == known.end())
    refuse("transport \"{}\": expected auto, threads or mpi", options.transport);
  if (options.transport == "threads" || (options.transport == "auto" && !comm::mpi::launched())) return true;
  if (!options.link.empty()) refuse("link \"{}\": only threads can pretend to a link", options.link);
  return false;
}

}  // namespace

Communicator Communicator::create() { return create({}); }

Communicator Communicator::create(const RankOptions& options) {
  if (by_threads(options))
    return wrap(comm::threads::World(1, {.link = options.link, .timeout = options.timeout}).communicator(0));
  auto session = std::make_shared<comm::mpi::Session>(comm::mpi::SessionOptions{.timeout = options.timeout});
  auto inner = std::make_unique<comm::Communicator>(session->communicator());
  return Communicator(std::make_unique<Impl>(Impl{std::move(session), std::move(inner)}));
}

void run_ranks(int ranks, const std::function<void(Communicator&)>& body, const RankOptions& options) {
  if (by_threads(options)) {
    comm::threads::run(ranks, {.link = options.link, .timeout = options.timeout}, [&](comm::Communicator& inner) {
      Communicator outer = wrap(std::move(inner));
      body(outer);
    });
    return;
  }
  comm::mpi::Session session({.timeout = options.timeout, .tuning = nullptr});
  Communicator outer = wrap(session.communicator());
  try {
    body(outer);
  } catch (const comm::Aborted&) {
    throw;
  } catch (const std::exception& e) {
    outer.abort(e.what());
    throw;
  } catch (...) {
    outer.abort("an exception of unknown type");
    throw;
  }
}

}  // namespace trireme
