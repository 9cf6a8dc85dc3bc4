#include "trireme/cli/signals.h"

#include <fcntl.h>
#include <poll.h>
#include <semaphore.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <ctime>

namespace trireme::cli {
namespace {

volatile std::sig_atomic_t stop_signal = 0;
volatile std::sig_atomic_t checkpoint_wanted = 0;
volatile std::sig_atomic_t waits_for_step = 0;
volatile std::sig_atomic_t requests = 0;        // to stop, each a moment apart
volatile std::sig_atomic_t last_requested = 0;  // by which signal
const char* volatile safe_because = "";
const char* volatile still_doing = "";
const char* volatile lost_at_once = "";
std::atomic<std::int64_t> stopped_at{0};
static_assert(std::atomic<std::int64_t>::is_always_lock_free);  // used by handlers
// `timeout` signals a process and then its group, a shell a job and its parts: a moment later it is the same request.
constexpr std::int64_t kOneRequest = 100'000'000;  // nanoseconds

constexpr std::array<int, 5> kHandled = {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGUSR1};

// What follows is called by handlers and uses nothing but system calls.

void write_error(const char* text) {
  if (write(STDERR_FILENO, text, std::strlen(text)) < 0) return;  // nobody reads it
}

bool is_closed(int file) {
  struct pollfd output = {file, POLLOUT, 0};
  return poll(&output, 1, 0) == 1 && (output.revents & (POLLERR | POLLHUP)) != 0;
}

// Gives whether there was one.
bool replace_closed_outputs() {
  bool found = false;
  for (const int file : {STDOUT_FILENO, STDERR_FILENO}) {
    if (!is_closed(file)) continue;
    const int nothing = open("/dev/null", O_WRONLY);
    if (nothing < 0) continue;
    dup2(nothing, file);
    if (nothing > STDERR_FILENO) close(nothing);
    found = true;
  }
  return found;
}

[[noreturn]] void quit(int signal) {
  if (waits_for_step == 0 && stop_signal == 0) {
    write_error(isatty(STDERR_FILENO) != 0 ? "\nstopped: " : "stopped: ");
    write_error(safe_because);
    write_error("\n");
  }
  _exit(128 + (stop_signal != 0 ? static_cast<int>(stop_signal) : signal));
}

std::int64_t nanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void on_stop(int signal) {
  const int error = errno;
  replace_closed_outputs();
  if (waits_for_step == 0) quit(signal);
  const std::int64_t now = nanoseconds();
  if (stop_signal == 0 || now - stopped_at > kOneRequest) {
    // A person who presses Ctrl-C twice wants out; a scheduler that repeats itself has not seen the run end yet.
    const bool insists = requests >= 2 || (requests == 1 && signal == SIGINT && last_requested == SIGINT);
    if (insists) {
      write_error("stopped at once: ");
      write_error(lost_at_once);
      write_error("\n");
      quit(signal);
    }
    if (requests == 1) {
      write_error("still stopping: ");
      write_error(still_doing);
      write_error("; another signal stops at once: ");
      write_error(lost_at_once);
      write_error("\n");
    }
    stopped_at = now;
    last_requested = signal;
    requests = requests + 1;
    if (stop_signal == 0) stop_signal = signal;
  }
  errno = error;
}

// Other pipes and sockets may be closed too: their writers see that for themselves.
void on_closed_output(int signal) {
  const int error = errno;
  if (replace_closed_outputs()) {
    if (waits_for_step == 0) quit(signal);
    if (stop_signal == 0) stop_signal = signal;
  }
  errno = error;
}

void on_checkpoint(int) { checkpoint_wanted = 1; }

void on_lost_bytes(int) {
  write_error("error: a file that was being read has become shorter, or its disk cannot be read any more\n");
  _exit(1);
}

sem_t finished;  // wakes the thread that takes signals, at the end

// All but SIGPIPE, which the thread that writes gets.
sigset_t asked_from_outside() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : kHandled)
    if (number != SIGPIPE) sigaddset(&set, number);
  return set;
}

}  // namespace

void notice_closed_outputs() {
  for (const int file : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat output {};
    // A terminal that is gone has sent SIGHUP, which a process may ignore (nohup).
    const bool has_reader = fstat(file, &output) == 0 && (S_ISFIFO(output.st_mode) || S_ISSOCK(output.st_mode));
    if (has_reader && is_closed(file)) std::raise(SIGPIPE);
  }
}

void report_lost_files() {
  std::signal(SIGBUS, on_lost_bytes);
  std::signal(SIGXFSZ, SIG_IGN);  // writing then fails with "File too large", which is reported as a full disk is
}

Signals::Signals() {
  at_once("training had not begun");
  for (const int number : kHandled) {
    if (number == SIGHUP && std::signal(SIGHUP, SIG_IGN) == SIG_IGN) continue;
    std::signal(number, number == SIGUSR1 ? on_checkpoint : number == SIGPIPE ? on_closed_output : on_stop);
  }
  const sigset_t asked = asked_from_outside();
  pthread_sigmask(SIG_BLOCK, &asked, nullptr);
  sem_init(&finished, 0, 0);
  catcher_ = std::thread([asked] {
    pthread_sigmask(SIG_UNBLOCK, &asked, nullptr);
    const auto waits = [] {
      timespec until{};
      clock_gettime(CLOCK_REALTIME, &until);
      until.tv_sec += 1;
      return sem_timedwait(&finished, &until) != 0 && (errno == EINTR || errno == ETIMEDOUT);
    };
    while (waits()) notice_closed_outputs();
  });
}

Signals::~Signals() {
  sem_post(&finished);
  catcher_.join();
  const sigset_t asked = asked_from_outside();
  pthread_sigmask(SIG_UNBLOCK, &asked, nullptr);
  for (const int number : kHandled)
    if (number != SIGHUP || std::signal(SIGHUP, SIG_DFL) != SIG_IGN)
      std::signal(number, SIG_DFL);
    else
      std::signal(SIGHUP, SIG_IGN);
}

void Signals::at_once(const char* why_safe) {
  safe_because = why_safe;
  waits_for_step = 0;
}

void Signals::between_steps(const char* still, const char* lost) {
  still_doing = still;
  lost_at_once = lost;
  waits_for_step = 1;
}

train::Request Signals::take() {
  if (stop_signal != 0) return train::Request::stop;
  if (checkpoint_wanted == 0) return train::Request::none;
  checkpoint_wanted = 0;
  return train::Request::checkpoint;
}

int Signals::exit_code() const { return stop_signal == 0 ? 0 : 128 + static_cast<int>(stop_signal); }

}  // namespace trireme::cli
