#include <climits>
#include <cstdlib>

#include "trireme/comm/mpi/impl.h"
#include "trireme/core/text.h"

namespace trireme::comm::mpi {
namespace {

int count_of(std::size_t bytes) {
  if (bytes > INT_MAX) fail("a message of {}: MPI counts no further than 2 GiB", format_bytes(bytes));
  return static_cast<int>(bytes);
}

// Small messages that do not wait would hide deadlocks: for tests every send waits for its receive.
bool sends_wait() {
  static const bool wait = std::getenv("TRIREME_TEST_WAITING_SENDS") != nullptr;
  return wait;
}

}  // namespace

MpiTransport::MpiTransport(std::shared_ptr<Session::Impl> session, MPI_Comm comm) : session_(std::move(session)) {
  MPI_Comm_rank(comm, &rank_);
  MPI_Comm_size(comm, &size_);
  for (ChannelState& state : channels_) {
    state.comm = session_->duplicate(comm);
    state.counts.resize(static_cast<std::size_t>(size_));
    state.offsets.resize(static_cast<std::size_t>(size_));
  }
  // What this group's ranks are called in the world, for messages.
  std::vector<int> mine(static_cast<std::size_t>(size_));
  for (int r = 0; r < size_; ++r) mine[static_cast<std::size_t>(r)] = r;
  world_ranks_.resize(mine.size());
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Comm_group(comm, &group);
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_translate_ranks(group, size_, mine.data(), world, world_ranks_.data());
  MPI_Group_free(&group);
  MPI_Group_free(&world);
}

std::string MpiTransport::world_rank(int rank) const {
  return fmt::format("rank {}", world_ranks_[static_cast<std::size_t>(rank)]);
}

std::unique_ptr<Transport> MpiTransport::split(int color, int key) {
  // MPI's own split cannot be interrupted: first make sure that everybody is there.
  check();
  MPI_Request together = MPI_REQUEST_NULL;
  check_mpi(MPI_Ibarrier(channel(Channel::foreground).comm, &together), "MPI_Ibarrier");
  await(together, {.collective = Collective::split});
  MPI_Comm part = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(channel(Channel::foreground).comm, color < 0 ? MPI_UNDEFINED : color, key, &part),
            "MPI_Comm_split");
  if (part == MPI_COMM_NULL) return nullptr;
  auto transport = std::make_unique<MpiTransport>(session_, part);
  check_mpi(MPI_Comm_free(&part), "MPI_Comm_free");
  return transport;
}

MpiTransport::Post* MpiTransport::take(Channel which) {
  ChannelState& state = channel(which);
  if (state.idle.empty()) {
    state.posts.emplace_back();
    state.idle.push_back(&state.posts.back());
  }
  Post* const post = state.idle.back();
  state.idle.pop_back();
  return post;
}

Ticket MpiTransport::send(Channel which, std::span<const std::byte> bytes, int to, int tag) {
  check();
  const int count = count_of(bytes.size());
  Post* const post = take(which);
  post->bytes = bytes.size();
  post->receiving = false;
  const auto start = sends_wait() ? MPI_Issend : MPI_Isend;
  check_mpi(start(bytes.data(), count, MPI_BYTE, to, tag, channel(which).comm, &post->request), "MPI_Isend");
  return {this, which, to, post};
}

Ticket MpiTransport::recv(Channel which, std::span<std::byte> bytes, int from, int tag, const Combine*) {
  check();
  const int count = count_of(bytes.size());
  Post* const post = take(which);
  post->bytes = bytes.size();
  post->receiving = true;
  check_mpi(MPI_Irecv(bytes.data(), count, MPI_BYTE, from, tag, channel(which).comm, &post->request), "MPI_Irecv");
  return {this, which, from, post};
}

void MpiTransport::finish(Ticket& ticket, const MPI_Status& status) {
  Post* const post = static_cast<Post*>(ticket.handle());
  int count = 0;
  if (post->receiving) MPI_Get_count(&status, MPI_BYTE, &count);
  const bool matches = !post->receiving || static_cast<std::size_t>(count) == post->bytes;
  const std::size_t expected = post->bytes;
  channel(ticket.channel()).idle.push_back(post);
  ticket.clear();
  if (matches) return;
  const std::string why = fmt::format("{} sent {} bytes to {}, which expected {}: the ranks do not call the same thing",
                                      world_rank(ticket.peer()), count, world_rank(rank_), expected);
  session_->abort(why);
  fail("{}", why);
}

bool MpiTransport::look(Ticket& ticket, MPI_Status& status) {
  Post* const post = static_cast<Post*>(ticket.handle());
  int done = 0;
  const int code = MPI_Test(&post->request, &done, &status);
  if (code == MPI_SUCCESS) return done != 0;
  int kind = MPI_SUCCESS;
  MPI_Error_class(code, &kind);
  if (kind != MPI_ERR_TRUNCATE) check_mpi(code, "MPI_Test");
  const std::string why =
      fmt::format("{} sent more than the {} bytes that {} expected: the ranks do not call the same thing",
                  world_rank(ticket.peer()), post->bytes, world_rank(rank_));
  session_->abort(why);
  fail("{}", why);
}

bool MpiTransport::test(Ticket& ticket, const Call&) {
  MPI_Status status;
  if (!look(ticket, status)) {
    session_->look_for_abort();
    check();
    return false;
  }
  finish(ticket, status);
  return true;
}

void MpiTransport::wait(Ticket& ticket, const Call& call) {
  MPI_Status status;
  session_->await([&] { return look(ticket, status); },
                  [&](double seconds) {
                    return fmt::format("{} waited {} for {} in {}", world_rank(rank_), format_duration(seconds),
                                       world_rank(ticket.peer()), call.describe());
                  });
  finish(ticket, status);
}

void MpiTransport::await(MPI_Request& request, const Call& call) {
  session_->await(
      [&] {
        int done = 0;
        check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
        return done != 0;
      },
      [&](double seconds) {
        return fmt::format("{} waited {} for the other {} ranks in {}", world_rank(rank_), format_duration(seconds),
                           size_ - 1, call.describe());
      });
}

void MpiTransport::cancel(Ticket& ticket) noexcept {
  Post* const post = static_cast<Post*>(ticket.handle());
  if (post->request == MPI_REQUEST_NULL) {
    // It ended badly.
  } else if (post->receiving) {
    MPI_Cancel(&post->request);
    MPI_Wait(&post->request, MPI_STATUS_IGNORE);
  } else {
    // A send cannot be taken back. This happens only when the world has ended: a rank that might still read the buffer
    // will not use what it reads.
    MPI_Request_free(&post->request);
  }
  channel(ticket.channel()).idle.push_back(post);
  ticket.clear();
}

void MpiTransport::abort(const std::string& why) {
  session_->abort(fmt::format("{} gave up: {}", world_rank(rank_), why));
}

void MpiTransport::check() const {
  session_->look_for_abort();
  if (session_->aborted()) session_->throw_aborted();
}

}  // namespace trireme::comm::mpi
