#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "trireme/program/program.h"

namespace trireme::simulator {

// Ranks that behave the same all through a step: one of them stands for all.
struct Actor {
  std::string name;
  const program::Program* program = nullptr;
  int domain = 0;        // what its work shares: a device of its own, or the cores of a CPU
  double ranks = 1;      // of the domain that it stands for
  double threads = 1;    // cores that a kernel of one of them occupies
  bool captures = true;  // capture regions of its program are replayed as wholes
  // The ranks on one link between nodes with the rank that stands for it: how many of which actors, itself among them.
  // Empty: that rank alone.
  struct OnLink {
    std::size_t actor = 0;
    double ranks = 1;
  };
  std::vector<OnLink> link = {};
};

// What all members do together: it starts when the last of them has come to it, and is done for all at once.
struct Meeting {
  struct Member {
    std::size_t actor = 0;
    std::size_t instruction = 0;
  };
  std::vector<Member> members;
};

// What an instruction works with, and therefore shares with others that are under way on its domain.
enum class Resource : std::uint8_t {
  none,     // nothing: it takes its time whatever else happens
  compute,  // the units of a device, or cores
  inside,   // links within a node
  network,  // links between nodes
  copy,     // the link to another tier
  cores,    // communication by cores: of a CPU, as `compute` by one core for each rank
};

struct Duration {
  double latency = 0;  // seconds that pass whatever else happens
  double busy = 0;     // seconds of the resource, had it nothing else to do
  Resource resource = Resource::none;
  double crowded = 0;  // times as long while other ranks keep all cores busy; 0: as the domain has it
  double sleeps = 0;   // times that a thread of a CPU sleeps until a message is due
  // Of the network: ranks on one link that do this together. Others of the same actor there do the same apart from
  // them.
  double per_link = 1;
};

// Of a meeting, it is asked for once, for the first member.
using Durations = std::function<Duration(std::size_t actor, std::size_t instruction)>;

struct Domain {
  double cores = 0;                   // of a CPU; 0: every actor has a device of its own
  double busy_slowdown = 1;           // of kernels while all cores are busy and other ranks run
  double communication_slowdown = 1;  // of kernels while the same device communicates
  double wake = 0;                    // of cores: until a stream that slept goes on,
  double busy_wake = 0;               // one that computes, where others compute on all of them,
  double link_wake = 0;               // and one that slept until a message was due
  double shared_slowdown = 1;         // of kernels while more ranks compute than there are cores
};

struct Span {
  double ready = 0;  // its stream and its events allow it
  double begin = 0;  // all members have come
  double end = 0;
};

struct Timeline {
  std::vector<std::vector<Span>> actors;  // by instruction
  double seconds = 0;                     // until the last is done
};

// The walk of check_together with durations: an instruction starts when the one before it on its stream is done, and
// those whose events it waits for; a meeting when it may start on every member. What shares a resource at the same time
// shares its speed. A capture region starts when all before it on the compute and copy streams is done, as well as what
// it waits for; those streams go on, and its events are recorded, when all of it is done. Programs that check_together
// has accepted always end; for others it fails.
//
//   kernels of an actor on streams of their own   share its device equally
//   transfers of an actor over links of one kind   share the link equally, each direction by itself; between nodes so
//   do
//                                                  those of all ranks on a link
//   kernels and `cores` of a domain with cores     get equal shares of the cores
Timeline walk(std::span<const Actor> actors, std::span<const Meeting> meetings, std::span<const Domain> domains,
              const Durations& durations);

}  // namespace trireme::simulator
