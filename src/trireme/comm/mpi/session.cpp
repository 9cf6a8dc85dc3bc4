#include "trireme/comm/mpi/session.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "trireme/comm/mpi/impl.h"

namespace trireme::comm::mpi {

bool available() { return true; }

std::string version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  const std::string_view all(text.data(), static_cast<std::size_t>(length));
  return std::string(all.substr(0, all.find_first_of(",\n")));
}

void check_mpi(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  fail("{}: {}", what, std::string_view(text.data(), static_cast<std::size_t>(length)));
}

bool Backoff::pause() {
  if (count_++ < spins_) {
    if (crowded_) sched_yield();
    return false;
  }
  std::this_thread::sleep_for(sleep_);
  sleep_ = std::min(sleep_ * 3 / 2, std::chrono::microseconds(1000));
  return true;
}

Session::Impl::Impl(const SessionOptions& options)
    : timeout(timeout_of<Clock::duration>(options.timeout)), blocking_native(options.blocking_native) {
  if (!(options.timeout > 0)) refuse("a timeout of {} s: it must be positive", options.timeout);
  int initialised = 0;
  MPI_Initialized(&initialised);
  if (initialised != 0) refuse("MPI is already initialised in this process");
  int level = MPI_THREAD_SINGLE;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level), "MPI_Init_thread");
  if (level < MPI_THREAD_MULTIPLE) {
    MPI_Finalize();
    refuse("this MPI ({}) was built without support for several threads", version());
  }
  control_ = duplicate(MPI_COMM_WORLD);
  report_ = duplicate(MPI_COMM_WORLD);
  MPI_Comm_rank(control_, &rank);
  MPI_Comm_size(control_, &size);

  // With fewer cores than ranks on this machine, a rank that waits gives its core away.
  MPI_Comm node = MPI_COMM_NULL;
  int here = 1;
  check_mpi(MPI_Comm_split_type(control_, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node), "MPI_Comm_split_type");
  MPI_Comm_size(node, &here);
  MPI_Comm_free(&node);
  found_here(here);
  crowded = here > static_cast<int>(std::thread::hardware_concurrency());
  spins = crowded ? 200 : 2000;

  // All ranks must choose alike: rank 0's measurements count.
  std::string text = rank == 0 && options.tuning ? to_text(*options.tuning) : "";
  int length = static_cast<int>(text.size());
  check_mpi(MPI_Bcast(&length, 1, MPI_INT, 0, control_), "MPI_Bcast");
  text.resize(static_cast<std::size_t>(length));
  check_mpi(MPI_Bcast(text.data(), length, MPI_CHAR, 0, control_), "MPI_Bcast");
  tuning = std::make_shared<Tuning>(parse_tuning(text, "rank 0's measurements"));

  aborts_.assign(static_cast<std::size_t>(size), MPI_REQUEST_NULL);
  check_mpi(MPI_Irecv(incoming_.data(), kReasonBytes, MPI_CHAR, MPI_ANY_SOURCE, 0, control_, &news_), "MPI_Irecv");
}

Session::Impl::~Impl() {
  found_here(0);
  if (std::uncaught_exceptions() > exceptions) abort("an exception ended it");
  look_for_abort();
  if (aborted()) {
    say_goodbye();
    return;
  }
  MPI_Cancel(&news_);
  MPI_Wait(&news_, MPI_STATUS_IGNORE);
  for (MPI_Comm& comm : kept) MPI_Comm_free(&comm);
  MPI_Finalize();
}

MPI_Comm Session::Impl::duplicate(MPI_Comm comm) {
  MPI_Comm copy = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(comm, &copy), "MPI_Comm_dup");
  MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN);
  const std::lock_guard lock(mutex);
  kept.push_back(copy);
  return copy;
}

void Session::Impl::abort(const std::string& why) {
  const std::lock_guard lock(mutex);
  if (aborted_.load()) return;
  reason_ = why;
  std::strncpy(outgoing_.data(), why.c_str(), outgoing_.size() - 1);
  for (int r = 0; r < size; ++r)
    if (r != rank)
      MPI_Isend(outgoing_.data(), kReasonBytes, MPI_CHAR, r, 0, control_, &aborts_[static_cast<std::size_t>(r)]);
  aborted_.store(true);
}

void Session::Impl::look_for_abort() {
  const std::unique_lock lock(mutex, std::try_to_lock);
  if (!lock || aborted_.load()) return;
  int arrived = 0;
  if (MPI_Test(&news_, &arrived, MPI_STATUS_IGNORE) != MPI_SUCCESS || arrived == 0) return;
  reason_ = incoming_.data();
  aborted_.store(true);
}

void Session::Impl::throw_aborted() {
  const std::lock_guard lock(mutex);
  throw Aborted(reason_);
}

// Finalising would wait for messages that nobody will receive. Instead the ranks that know wait a little for the others
// to know as well, so that each can say why it ends before the launcher ends it.
void Session::Impl::say_goodbye() {
  MPI_Request together = MPI_REQUEST_NULL;
  if (MPI_Ibarrier(control_, &together) == MPI_SUCCESS) done_soon(together);
}

Session::Verdict Session::Impl::settle_failure(bool cause, int exit_code) {
  constexpr std::int64_t kCodes = 256;
  own_turn_ = (cause ? rank : size + rank) * kCodes + exit_code;
  MPI_Request together = MPI_REQUEST_NULL;
  if (MPI_Iallreduce(&own_turn_, &first_turn_, 1, MPI_INT64_T, MPI_MIN, report_, &together) != MPI_SUCCESS ||
      !done_soon(together))
    return {true, exit_code};
  return {first_turn_ == own_turn_, static_cast<int>(first_turn_ % kCodes)};
}

bool Session::Impl::done_soon(MPI_Request& request) {
  const Clock::time_point end = Clock::now() + std::chrono::seconds(2);
  int done = 0;
  while (done == 0 && Clock::now() < end) {
    if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
    if (done == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return done != 0;
}

Session::Session(const SessionOptions& options) : impl_(std::make_shared<Impl>(options)) {}
Session::~Session() = default;

int Session::rank() const { return impl_->rank; }
int Session::size() const { return impl_->size; }
Communicator Session::communicator() {
  return Communicator(std::make_unique<MpiTransport>(impl_, MPI_COMM_WORLD), impl_->tuning);
}
void Session::abort(const std::string& why) { impl_->abort(why); }
Session::Verdict Session::settle_failure(bool cause, int exit_code) { return impl_->settle_failure(cause, exit_code); }

}  // namespace trireme::comm::mpi
