#include "trireme/comm/transport.h"

#include <algorithm>
#include <utility>

namespace trireme::comm {

const char* name_of(TransportKind kind) {
  switch (kind) {
    case TransportKind::threads: return "threads";
    case TransportKind::emulated: return "emulated";
    case TransportKind::mpi: break;
  }
  return "mpi";
}

void Call::set_name(std::string_view text) {
  const std::size_t n = std::min(text.size(), name.size() - 1);
  std::copy_n(text.begin(), n, name.begin());
  name[n] = 0;
}

std::string Call::describe() const {
  std::string text = name_of(collective);
  if (name[0] != 0) text += fmt::format(" \"{}\"", name.data());
  if (algorithm != Algorithm::automatic && step > 0)
    text += fmt::format(" ({}, step {})", name_of(algorithm), step);
  else if (algorithm != Algorithm::automatic)
    text += fmt::format(" ({})", name_of(algorithm));
  else if (step > 0)
    text += fmt::format(" (step {})", step);
  return text;
}

Ticket::Ticket(Ticket&& other) noexcept
    : transport_(std::exchange(other.transport_, nullptr)),
      handle_(other.handle_),
      peer_(other.peer_),
      channel_(other.channel_) {}

Ticket& Ticket::operator=(Ticket&& other) noexcept {
  if (this != &other) {
    if (transport_ != nullptr) transport_->cancel(*this);
    transport_ = std::exchange(other.transport_, nullptr);
    handle_ = other.handle_;
    peer_ = other.peer_;
    channel_ = other.channel_;
  }
  return *this;
}

Ticket::~Ticket() {
  if (transport_ != nullptr) transport_->cancel(*this);
}

}  // namespace trireme::comm
