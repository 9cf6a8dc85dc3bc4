#pragma once
#include <trireme/comm.h>

#include <memory>

#include "trireme/comm/communicator.h"
#include "trireme/comm/mpi/session.h"

namespace trireme {

struct Communicator::Impl {
  std::shared_ptr<comm::mpi::Session> session;  // where this is its owner; goes after the communicator
  std::unique_ptr<comm::Communicator> comm;
};

}  // namespace trireme
