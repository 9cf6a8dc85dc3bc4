#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"

namespace trireme::runtime {

// What a server does with the pushes of its workers (the ranks 0 … workers - 1): a loop over a fixed table of keys,
// with a slot for each worker and key.
//
//   together     waits for every worker's pushes of a step, updates once, answers all
//   one by one   updates as soon as all pushes of some worker's step are here, and answers that worker; with a bound
//                only once no worker is more than so many steps behind it. Several servers go by the order of one,
//                the leader: one update is of one worker's gradients on all of them.
class Server {
 public:
  struct Message {
    int key = 0;
    std::string of;
    std::span<std::byte> bytes;
  };
  struct Options {
    bool each = false;                      // one by one
    std::optional<std::int64_t> bound;      // steps that a worker may be ahead of the slowest
    double timeout = 60;                    // seconds without any push
    comm::Communicator* servers = nullptr;  // all of them; null: there is one
    int leader = 0;                         // the first of them that is pushed anything
  };
  // What is sent in a step. `states` and `results` are what is answered; results are read right after an update, states
  // when they are sent.
  struct Table {
    std::vector<std::vector<Message>> slots;  // by worker
    std::vector<Message> states;
    std::vector<Message> results;
  };
  // Several tables: of steps that differ. `everyone` must outlive it.
  Server(comm::Communicator& everyone, std::vector<Table> tables, Options options);

  // Runs an update: of all workers' pushes (worker < 0) or of one's. `step` counts the steps served in this call.
  using Update = std::function<void(int worker, std::int64_t step)>;
  // Which of the tables is that of a step; empty: the first of all.
  using Choose = std::function<std::size_t(std::int64_t step)>;
  // Serves `steps` steps of every worker; then all of them have been answered.
  void serve(std::int64_t steps, const Update& update, Choose table = {});
  // Sends the states of the first table to all workers, unasked.
  void send_states();

  // The most steps that a worker was ahead of the slowest when it was answered.
  std::int64_t largest_lead() const { return largest_lead_; }

 private:
  struct Worker {
    std::vector<comm::Request> pushes;
    std::size_t arrived = 0;  // of them
    std::int64_t steps = 0;   // whose pushes have been applied
    bool waits = false;       // for an answer
    std::size_t table = 0;    // of its pushes
    std::size_t answer = 0;   // the table of what it is answered next
    std::vector<std::byte> results;
  };

  void receive(int worker);
  bool all_arrived(int worker);
  void await(int worker);
  void keep_results(int worker);
  void answer(std::span<const int> workers, bool with_results);
  void serve_together(std::int64_t steps, const Update& update);
  void serve_each(std::int64_t steps, const Update& update);
  void apply(int worker, std::int64_t steps, const Update& update);
  int next_pushed(std::int64_t steps);
  int broadcast_turn(int worker);
  void answer_waiting();
  std::string missing() const;
  const std::vector<Message>& slots(int worker) const;

  comm::Communicator& everyone_;
  std::vector<Table> tables_;
  Options options_;
  Choose choose_;
  std::vector<Worker> workers_;
  std::int64_t largest_lead_ = 0;
};

}  // namespace trireme::runtime
